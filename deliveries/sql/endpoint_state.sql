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
-- `sick_tail` of them since the last healthy one; `accepted`, the last of them so long ago; `failed` deliveries that are
-- new to failing, and whether the last answer of all was an acceptance. A breaker opens on too many sick ones in a row or
-- on too large a share of them in its window. While it is open nothing moves it; when its pause is over, the `probe` does:
-- the one that was sent to try. A limit of 0 switches breakers off, and closes what is open.
-- News may be late. An acceptance from before the last failure does not end the failing; at most it is since then.
-- What somebody else holds locked is left out, and told again: a dispatcher that stands still with the row in hand must
-- not stop the others.
WITH given AS MATERIALIZED (
    SELECT given.endpoint_id, given.healthy, given.sick, given.sick_tail, given.accepted, given.failed,
           given.ended_accepted, given.error, given.probe,
           clock_timestamp() - given.accepted_ago_ms * interval '1 millisecond' AS last_accepted
    FROM unnest(%(endpoint_ids)b::uuid[], %(healthy)b::int[], %(sick)b::int[], %(sick_tails)b::int[],
                %(accepted)b::int[], %(accepted_ago_ms)b::float8[], %(failed)b::int[], %(ended_accepted)b::boolean[],
                %(errors)b::text[], %(probes)b::boolean[])
         AS given (endpoint_id, healthy, sick, sick_tail, accepted, accepted_ago_ms, failed, ended_accepted, error,
                   probe)
), locked AS MATERIALIZED (
    SELECT state.endpoint_id, state.opens, state.open_until, given.healthy, given.sick, given.failed,
           given.ended_accepted, given.error, given.probe, given.last_accepted,
           coalesce(state.open_until > clock_timestamp(), false) AS pausing,
           coalesce(given.last_accepted >= coalesce(state.failed_at, '-infinity'), false) AS well_since,
           coalesce(given.last_accepted > state.failing_since, false) AS well_meanwhile,
           CASE WHEN given.healthy > 0 THEN given.sick_tail ELSE state.failures_in_a_row + given.sick END AS in_a_row,
           state.window_since < clock_timestamp() - %(window_ms)s::bigint * interval '1 millisecond' AS window_over,
           state.window_failed, state.window_total, state.warned_at
    FROM given JOIN deliveries_endpoint_state AS state USING (endpoint_id)
    ORDER BY state.endpoint_id FOR NO KEY UPDATE OF state SKIP LOCKED
), counted AS MATERIALIZED (
    SELECT locked.endpoint_id, locked.opens, locked.open_until, locked.sick, locked.failed, locked.ended_accepted,
           locked.error, locked.probe, locked.last_accepted, locked.pausing, locked.well_since, locked.well_meanwhile,
           locked.in_a_row, locked.window_over, locked.warned_at,
           CASE WHEN locked.window_over THEN 0 ELSE locked.window_failed END + locked.sick AS window_failed,
           CASE WHEN locked.window_over THEN 0 ELSE locked.window_total END + locked.sick + locked.healthy
               AS window_total
    FROM locked
), judged AS MATERIALIZED (
    SELECT counted.endpoint_id, counted.opens, counted.open_until, counted.failed, counted.ended_accepted,
           counted.error, counted.last_accepted, counted.well_since, counted.well_meanwhile, counted.in_a_row,
           counted.window_over, counted.window_failed, counted.window_total, counted.warned_at,
           CASE WHEN %(in_a_row_limit)s::int = 0 THEN CASE WHEN counted.opens > 0 THEN 'close' ELSE 'stay' END
                WHEN counted.pausing THEN 'stay'
                WHEN counted.opens > 0 THEN
                    CASE WHEN counted.probe THEN 'close' WHEN NOT counted.probe THEN 'open' ELSE 'stay' END
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
    failing_since = CASE WHEN judged.well_since AND judged.ended_accepted THEN NULL
                         WHEN judged.well_since OR judged.well_meanwhile THEN judged.last_accepted
                         WHEN judged.ended_accepted THEN state.failing_since
                         ELSE coalesce(state.failing_since, clock_timestamp()) END,
    failing_count = CASE WHEN judged.well_since AND judged.ended_accepted THEN 0
                         WHEN judged.well_since THEN judged.failed
                         ELSE state.failing_count + judged.failed END,
    warned_at = CASE WHEN judged.well_since OR judged.well_meanwhile THEN NULL ELSE state.warned_at END,
    accepted_at = greatest(state.accepted_at, judged.last_accepted),
    failed_at = CASE WHEN judged.error <> '' THEN clock_timestamp() ELSE state.failed_at END,
    last_error = CASE WHEN judged.error <> '' THEN judged.error ELSE state.last_error END,
    updated_at = clock_timestamp()
FROM judged WHERE state.endpoint_id = judged.endpoint_id
RETURNING state.endpoint_id, judged.move, state.opens, state.open_until,
          CASE WHEN judged.warned_at IS NOT NULL AND state.warned_at IS NULL THEN state.accepted_at END AS recovered_at

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
