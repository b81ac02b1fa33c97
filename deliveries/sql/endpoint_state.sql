-- How endpoints have been doing: their breakers, and since when nothing was accepted. News comes in batches from every
-- dispatcher, a little late and sometimes not at all. The rate bucket in the same rows is `dispatch.pick_due`'s.

-- name: born
-- A row for each of these endpoints that has none yet.
INSERT INTO deliveries_endpoint_state (endpoint_id)
SELECT given.endpoint_id FROM unnest(%(endpoint_ids)b::uuid[]) AS given (endpoint_id)
ORDER BY given.endpoint_id
ON CONFLICT DO NOTHING
RETURNING endpoint_id

-- name: record
-- Add what a dispatcher saw, in the order: `healthy` answers (it is there, also where it refused), `sick` ones, the last
-- `sick_tail` of them since the last healthy one; `accepted`; `failed` deliveries that are new to failing, and whether
-- the last answer of all was an acceptance. A breaker opens on too many sick ones in a row or on too large a share of
-- them in its window, and, once its pause is over, on the first sick one; the first healthy one closes it. What comes in
-- from before, while it is open, moves nothing. What somebody else holds locked is left out, and told again: a
-- dispatcher that stands still with the row in hand must not stop the others.
WITH given AS MATERIALIZED (
    SELECT given.endpoint_id, given.healthy, given.sick, given.sick_tail, given.accepted, given.failed,
           given.ended_accepted, given.error
    FROM unnest(%(endpoint_ids)b::uuid[], %(healthy)b::int[], %(sick)b::int[], %(sick_tails)b::int[],
                %(accepted)b::int[], %(failed)b::int[], %(ended_accepted)b::boolean[], %(errors)b::text[])
         AS given (endpoint_id, healthy, sick, sick_tail, accepted, failed, ended_accepted, error)
), locked AS MATERIALIZED (
    SELECT state.endpoint_id, state.opens, state.open_until, given.healthy, given.sick, given.sick_tail, given.accepted,
           given.failed, given.ended_accepted, given.error,
           coalesce(state.open_until > clock_timestamp(), false) AS pausing,
           CASE WHEN given.healthy > 0 THEN 0 ELSE state.failures_in_a_row END
               + CASE WHEN given.healthy > 0 THEN given.sick_tail ELSE given.sick END AS in_a_row,
           state.window_since < clock_timestamp() - %(window_ms)s::bigint * interval '1 millisecond' AS window_over,
           state.window_failed, state.window_total
    FROM given JOIN deliveries_endpoint_state AS state USING (endpoint_id)
    ORDER BY state.endpoint_id FOR NO KEY UPDATE OF state SKIP LOCKED
), counted AS MATERIALIZED (
    SELECT locked.endpoint_id, locked.opens, locked.open_until, locked.healthy, locked.sick, locked.sick_tail,
           locked.accepted, locked.failed, locked.ended_accepted, locked.error, locked.pausing, locked.in_a_row,
           locked.window_over,
           CASE WHEN locked.window_over THEN 0 ELSE locked.window_failed END + locked.sick AS window_failed,
           CASE WHEN locked.window_over THEN 0 ELSE locked.window_total END + locked.sick + locked.healthy
               AS window_total
    FROM locked
), judged AS MATERIALIZED (
    SELECT counted.endpoint_id, counted.opens, counted.open_until, counted.healthy, counted.sick, counted.accepted,
           counted.failed, counted.ended_accepted, counted.error, counted.in_a_row, counted.window_over,
           counted.window_failed, counted.window_total,
           CASE WHEN counted.pausing OR %(in_a_row_limit)s::int = 0 THEN 'stay'
                WHEN counted.opens > 0 THEN
                    CASE WHEN counted.sick_tail > 0 THEN 'open' WHEN counted.healthy > 0 THEN 'close' ELSE 'stay' END
                WHEN counted.sick > 0
                     AND (counted.in_a_row >= %(in_a_row_limit)s::int
                          OR (counted.window_total >= %(window_least)s::int
                              AND counted.window_failed >= %(window_share)s::float8 * counted.window_total))
                    THEN 'open'
                ELSE 'stay'
           END AS move
    FROM counted
)
UPDATE deliveries_endpoint_state AS state
SET opens = CASE judged.move WHEN 'open' THEN judged.opens + 1 WHEN 'close' THEN 0 ELSE judged.opens END,
    open_until = CASE judged.move
        WHEN 'open' THEN clock_timestamp() + least(%(longest_ms)s::float8, %(shortest_ms)s::float8 * 2 ^ least(judged.opens, 20))
                                             * (0.8 + 0.4 * random()) * interval '1 millisecond'
        WHEN 'close' THEN NULL
        ELSE judged.open_until
    END,
    failures_in_a_row = CASE judged.move WHEN 'stay' THEN judged.in_a_row ELSE 0 END,
    window_since = CASE WHEN judged.window_over OR judged.move <> 'stay' THEN clock_timestamp()
                        ELSE state.window_since END,
    window_failed = CASE judged.move WHEN 'stay' THEN judged.window_failed ELSE 0 END,
    window_total = CASE judged.move WHEN 'stay' THEN judged.window_total ELSE 0 END,
    failing_since = CASE WHEN judged.ended_accepted THEN NULL
                         WHEN judged.accepted > 0 THEN clock_timestamp()
                         ELSE coalesce(state.failing_since, clock_timestamp()) END,
    failing_count = CASE WHEN judged.ended_accepted THEN 0 WHEN judged.accepted > 0 THEN judged.failed
                         ELSE state.failing_count + judged.failed END,
    warned_at = CASE WHEN judged.accepted > 0 THEN NULL ELSE state.warned_at END,
    accepted_at = CASE WHEN judged.accepted > 0 THEN clock_timestamp() ELSE state.accepted_at END,
    failed_at = CASE WHEN judged.error <> '' THEN clock_timestamp() ELSE state.failed_at END,
    last_error = CASE WHEN judged.error <> '' THEN judged.error ELSE state.last_error END,
    updated_at = clock_timestamp()
FROM judged WHERE state.endpoint_id = judged.endpoint_id
RETURNING state.endpoint_id, judged.move, state.opens, state.open_until

-- name: failing
-- Enabled endpoints of which nothing was accepted for so long, with enough deliveries and over a long enough time, that
-- they are to be disabled; and those that are half way there, of which nothing was said yet.
SELECT found.endpoint_id, found.failing_since, found.failing_count, found.enough
FROM (
    SELECT state.endpoint_id, state.failing_since, state.failing_count, state.warned_at,
           state.failing_since <= clock_timestamp() - %(after_ms)s::bigint * interval '1 millisecond'
           AND state.failed_at >= state.failing_since + %(span_ms)s::bigint * interval '1 millisecond'
           AND state.failing_count >= %(deliveries)s::int AS enough
    FROM deliveries_endpoint_state AS state JOIN deliveries_endpoint AS endpoint USING (endpoint_id)
    WHERE state.failing_since <= (SELECT clock_timestamp()) - %(after_ms)s::bigint * interval '1 millisecond' / 2
      AND endpoint.enabled AND endpoint.deleted_at IS NULL
) AS found
WHERE found.enough OR found.warned_at IS NULL
ORDER BY found.endpoint_id LIMIT %(batch)s::int

-- name: warn
-- Remember that it was said of these that they will be disabled.
WITH locked AS MATERIALIZED (
    SELECT state.endpoint_id FROM deliveries_endpoint_state AS state
    WHERE state.endpoint_id = ANY(%(endpoint_ids)b::uuid[]) AND state.warned_at IS NULL
      AND state.failing_since IS NOT NULL
    ORDER BY state.endpoint_id FOR NO KEY UPDATE OF state
)
UPDATE deliveries_endpoint_state AS state SET warned_at = clock_timestamp(), updated_at = clock_timestamp()
FROM locked WHERE state.endpoint_id = locked.endpoint_id
RETURNING state.endpoint_id

-- name: reset
-- Begin anew: somebody says that the endpoint is well.
UPDATE deliveries_endpoint_state AS state
SET opens = 0, open_until = NULL, failures_in_a_row = 0, window_since = clock_timestamp(), window_failed = 0,
    window_total = 0, failing_since = NULL, failing_count = 0, warned_at = NULL, updated_at = clock_timestamp()
WHERE state.endpoint_id = %(endpoint_id)s::uuid
RETURNING state.endpoint_id
