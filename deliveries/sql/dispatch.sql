-- Choosing what to claim: fair between endpoints, and never at a cost that grows with the backlog.

-- name: pick_due
-- Walk endpoints in key order from where this dispatcher's last walk ended, one index seek each; keep those that are
-- open and have something due; divide the batch among them. Of each endpoint only the first rows up to its window are
-- looked at, in flight or not, so that its window holds exactly however many dispatchers there are (and by their keys,
-- where several are due at the same moment: they must be the same rows each time); among the free ones
-- each dispatcher begins with its own share, so that two do not queue for the same rows.
-- Of those in line only the first of its endpoint is sent, which is one seek more, and while that one waits for its
-- time or is in flight its line is not due. What is not in line does not wait for it.
-- An endpoint's rate limit is a bucket that refills with time, under the lock of its state: what is picked takes one
-- out each, and what finds none waits where it is. While it is empty nobody locks it, nor writes to it, and the batch
-- is divided among the others. While an endpoint's breaker is not closed its window is one.
WITH RECURSIVE walk (endpoint_id, in_line, due_at, step) AS (
    (SELECT dispatch.endpoint_id, dispatch.in_line, dispatch.due_at, 1 FROM ledger_dispatch AS dispatch
     WHERE dispatch.endpoint_id > %(cursor)s::uuid
     ORDER BY dispatch.endpoint_id, dispatch.in_line, dispatch.due_at LIMIT 1)
    UNION ALL
    SELECT following.endpoint_id, following.in_line, following.due_at, walk.step + 1
    FROM walk CROSS JOIN LATERAL (
        SELECT dispatch.endpoint_id, dispatch.in_line, dispatch.due_at FROM ledger_dispatch AS dispatch
        WHERE dispatch.endpoint_id > walk.endpoint_id
        ORDER BY dispatch.endpoint_id, dispatch.in_line, dispatch.due_at LIMIT 1
    ) AS following
    WHERE walk.step < %(steps)s::int
), waiting AS MATERIALIZED (
    SELECT walk.endpoint_id, first.operation_key AS first_key, first.due_at AS first_due
    FROM walk LEFT JOIN LATERAL (
        SELECT dispatch.operation_key, dispatch.due_at, dispatch.until FROM ledger_dispatch AS dispatch
        WHERE dispatch.endpoint_id = walk.endpoint_id AND dispatch.in_line
        ORDER BY dispatch.operation_key LIMIT 1
    ) AS first ON first.until IS NULL AND first.due_at <= (SELECT clock_timestamp())
    WHERE first.operation_key IS NOT NULL OR (NOT walk.in_line AND walk.due_at <= (SELECT clock_timestamp()))
), open AS MATERIALIZED (
    SELECT endpoint.endpoint_id, endpoint.rate_per_second AS rate, state.endpoint_id IS NULL AS unborn,
           coalesce(endpoint.rate_burst, ceil(endpoint.rate_per_second)) AS burst,
           -- As it looks before it is locked. A clock that was set back takes nothing out.
           state.allowance
           + endpoint.rate_per_second
             * greatest(extract(epoch FROM clock_timestamp() - state.refilled_at)::float8, 0) AS tokens,
           coalesce(state.opens > 0, false) AS probing,
           CASE WHEN state.opens > 0 THEN 1 ELSE endpoint.in_flight END AS in_flight,
           waiting.first_key, waiting.first_due
    FROM waiting JOIN deliveries_endpoint AS endpoint USING (endpoint_id)
    LEFT JOIN deliveries_endpoint_state AS state USING (endpoint_id)
    WHERE endpoint.enabled AND endpoint.deleted_at IS NULL
      AND (endpoint.blocked_until IS NULL OR endpoint.blocked_until <= (SELECT clock_timestamp()))
      AND (state.open_until IS NULL OR state.open_until <= (SELECT clock_timestamp()))
), born AS (
    -- A bucket is full at first: its endpoint was quiet until now.
    INSERT INTO deliveries_endpoint_state (endpoint_id, allowance)
    SELECT open.endpoint_id, open.burst FROM open WHERE open.unborn AND open.rate IS NOT NULL
    ORDER BY open.endpoint_id ON CONFLICT DO NOTHING
), paced AS MATERIALIZED (
    SELECT state.endpoint_id, clock_timestamp() AS at,
           least(open.burst,
                 state.allowance
                 + open.rate
                   * greatest(extract(epoch FROM clock_timestamp() - state.refilled_at)::float8, 0)) AS allowance
    FROM open JOIN deliveries_endpoint_state AS state USING (endpoint_id)
    WHERE open.rate IS NOT NULL AND open.tokens >= 1
    ORDER BY state.endpoint_id FOR NO KEY UPDATE OF state SKIP LOCKED
), allowed AS MATERIALIZED (
    SELECT open.endpoint_id, open.in_flight, open.probing, open.first_key, open.first_due,
           CASE WHEN open.rate IS NULL THEN open.in_flight ELSE floor(paced.allowance)::int END AS most
    FROM open LEFT JOIN paced USING (endpoint_id)
    WHERE open.rate IS NULL OR paced.allowance >= 1
), due AS (
    SELECT picked.operation_key, allowed.endpoint_id, allowed.probing
    FROM allowed CROSS JOIN LATERAL (
        SELECT dispatch.operation_key
        FROM (
            (SELECT head.operation_key, head.due_at
             FROM (SELECT dispatch.operation_key, dispatch.due_at, dispatch.until FROM ledger_dispatch AS dispatch
                   WHERE dispatch.endpoint_id = allowed.endpoint_id AND NOT dispatch.in_line
                     AND dispatch.due_at <= (SELECT clock_timestamp())
                   ORDER BY dispatch.due_at, dispatch.operation_key LIMIT allowed.in_flight) AS head
             WHERE head.until IS NULL
             -- Hashed: keys are dealt out to endpoints in turn, so that those of one are often all odd, or all even.
             ORDER BY (hashint8(head.operation_key) & 2147483647) %% %(dispatchers)s::int <> %(number)s::int
             LIMIT (SELECT ceil(%(batch)s::numeric / greatest(count(*), 1)) FROM allowed))
            UNION ALL
            SELECT allowed.first_key, allowed.first_due WHERE allowed.first_key IS NOT NULL
        ) AS free
        JOIN ledger_dispatch AS dispatch USING (operation_key)
        WHERE dispatch.until IS NULL
        -- Where not all may go, what has waited longest goes: neither a line nor what is beside it starves the other.
        ORDER BY free.due_at LIMIT allowed.most
        FOR NO KEY UPDATE OF dispatch SKIP LOCKED
    ) AS picked
    LIMIT %(batch)s::int
), spent AS (
    UPDATE deliveries_endpoint_state AS state
    SET allowance = paced.allowance - picked.sends, refilled_at = paced.at
    FROM paced JOIN (SELECT due.endpoint_id, count(*) AS sends FROM due GROUP BY due.endpoint_id) AS picked
         USING (endpoint_id)
    WHERE state.endpoint_id = paced.endpoint_id
)
SELECT walked.walked_to, walked.steps, walked.endpoints, walked.token_in_s, due.operation_key, due.probing
FROM (SELECT (SELECT walk.endpoint_id FROM walk ORDER BY walk.step DESC LIMIT 1) AS walked_to,
             (SELECT count(*)::int FROM walk) AS steps,
             (SELECT count(*)::int FROM open WHERE open.rate IS NULL OR open.unborn OR open.tokens >= 1) AS endpoints,
             (SELECT min((1 - open.tokens) / open.rate) FROM open WHERE open.tokens < 1)::float8 AS token_in_s) AS walked
LEFT JOIN due ON true

-- name: overdue
-- Is anything open that has been due for longer than a sweep and is not in flight? Then somebody was not told of it.
-- Whoever stands in line behind another is not due yet; who waits for a rate limit or a breaker is meant to.
SELECT dispatch.operation_key
FROM deliveries_endpoint AS endpoint CROSS JOIN LATERAL (
    (SELECT dispatch.operation_key FROM ledger_dispatch AS dispatch
     WHERE dispatch.endpoint_id = endpoint.endpoint_id AND NOT dispatch.in_line AND dispatch.until IS NULL
       AND dispatch.due_at <= (SELECT clock_timestamp()) - %(age_ms)s::bigint * interval '1 millisecond'
     ORDER BY dispatch.due_at LIMIT 1)
    UNION ALL
    SELECT first.operation_key
    FROM (SELECT dispatch.operation_key, dispatch.due_at, dispatch.until FROM ledger_dispatch AS dispatch
          WHERE dispatch.endpoint_id = endpoint.endpoint_id AND dispatch.in_line
          ORDER BY dispatch.operation_key LIMIT 1) AS first
    WHERE first.until IS NULL
      AND first.due_at <= (SELECT clock_timestamp()) - %(age_ms)s::bigint * interval '1 millisecond'
) AS dispatch
WHERE endpoint.enabled AND endpoint.deleted_at IS NULL AND endpoint.rate_per_second IS NULL
  AND (endpoint.blocked_until IS NULL OR endpoint.blocked_until <= (SELECT clock_timestamp()))
  AND NOT EXISTS (SELECT FROM deliveries_endpoint_state AS state
                  WHERE state.endpoint_id = endpoint.endpoint_id AND state.opens > 0)
LIMIT 1

-- name: unscheduled
-- Unknown operations that nobody will send again, in key order, whose endpoint drops duplicates and whose time in which
-- it does has not passed. One whose last `losses_below` sends each lost their worker may be what kills it: quarantined.
SELECT dispatch.operation_key, dispatch.endpoint_id, operation.revision, operation.attempts,
       extract(epoch FROM clock_timestamp() - greatest(operation.created_at, event.deliver_at))::float8 AS age_s
FROM ledger_dispatch AS dispatch
JOIN ledger_operation AS operation USING (operation_key)
JOIN ledger_run AS run ON run.run_id = operation.run_id
JOIN deliveries_event AS event ON event.event_id = operation.request_ref
JOIN deliveries_endpoint AS endpoint USING (endpoint_id)
WHERE dispatch.unknown_since IS NOT NULL AND dispatch.operation_key > %(after)s::bigint
  AND dispatch.due_at IS NULL AND dispatch.until IS NULL
  AND operation.status = 'unknown' AND operation.dispatch_owner IS NULL AND run.status <> 'cancelled'
  AND operation.losses < %(losses_below)s::int
  -- Its receiver said that it is not to be tried again, and nobody has tried since.
  AND NOT coalesce((operation.result ->> 'no_more')::boolean
                   AND (operation.result ->> 'attempt')::int = operation.attempts, false)
  AND endpoint.idempotent AND endpoint.enabled AND endpoint.deleted_at IS NULL
  AND operation.attempts <= cardinality(endpoint.retry_schedule)
  AND clock_timestamp() < operation.first_dispatched_at + endpoint.window_hours * interval '1 hour'
  AND clock_timestamp() < greatest(operation.created_at, event.deliver_at)
                          + endpoint.retry_max_age_hours * interval '1 hour'
ORDER BY dispatch.operation_key LIMIT %(batch)s::int

-- name: hopeless
-- Unknown operations that wait for a retry which nobody will make, in key order: their endpoint is closed.
SELECT dispatch.operation_key, operation.revision
FROM ledger_dispatch AS dispatch
JOIN ledger_operation AS operation USING (operation_key)
JOIN deliveries_endpoint AS endpoint USING (endpoint_id)
WHERE dispatch.unknown_since IS NOT NULL AND dispatch.operation_key > %(after)s::bigint
  AND dispatch.due_at IS NOT NULL AND dispatch.until IS NULL
  AND operation.status = 'unknown' AND operation.dispatch_owner IS NULL
  AND (NOT endpoint.enabled OR endpoint.deleted_at IS NOT NULL)
ORDER BY dispatch.operation_key LIMIT %(batch)s::int

-- name: of_deleted
-- Runs that wait for an endpoint that was deleted.
SELECT dispatch.run_id FROM deliveries_endpoint AS endpoint
JOIN ledger_dispatch AS dispatch USING (endpoint_id)
WHERE endpoint.deleted_at IS NOT NULL AND dispatch.until IS NULL AND dispatch.unknown_since IS NULL
LIMIT %(batch)s::int
