-- The lines of ordered endpoints: who is the first, and who has been it for too long. Nothing is written here.

-- name: show
-- The first in line of an endpoint with what holds it, and how many stand there: counted up to `most`, and one more.
SELECT task.task_id, task.tenant_id, operation.operation_key, operation.run_id, operation.step_id,
       operation.effect_version, operation.status, operation.attempts, operation.losses,
       operation.dispatch_owner IS NOT NULL AS claimed, operation.first_dispatched_at, operation.created_at,
       dispatch.due_at,
       endpoint.enabled AND endpoint.deleted_at IS NULL AS receives, endpoint.blocked_until, endpoint.order_patience,
       coalesce(state.opens, 0) > 0 AS unwell, state.open_until, clock_timestamp() AS at,
       (SELECT count(*)::int FROM (SELECT FROM ledger_dispatch AS other
                                   WHERE other.endpoint_id = dispatch.endpoint_id AND other.in_line
                                   LIMIT %(most)s::int + 1) AS counted) AS standing
FROM (SELECT dispatch.operation_key, dispatch.endpoint_id, dispatch.due_at FROM ledger_dispatch AS dispatch
      WHERE dispatch.endpoint_id = %(endpoint_id)s::uuid AND dispatch.in_line
      ORDER BY dispatch.operation_key LIMIT 1) AS dispatch
JOIN ledger_operation AS operation USING (operation_key)
JOIN ledger_run AS run USING (run_id)
JOIN ledger_task AS task USING (task_id)
JOIN deliveries_endpoint AS endpoint ON endpoint.endpoint_id = dispatch.endpoint_id
LEFT JOIN deliveries_endpoint_state AS state ON state.endpoint_id = dispatch.endpoint_id

-- name: places
-- Of these operations, those that stand in line, and whether each is the first of its endpoint.
SELECT dispatch.operation_key,
       dispatch.operation_key = (SELECT first.operation_key FROM ledger_dispatch AS first
                                 WHERE first.endpoint_id = dispatch.endpoint_id AND first.in_line
                                 ORDER BY first.operation_key LIMIT 1) AS is_first
FROM unnest(%(operation_keys)b::bigint[]) AS asked (operation_key)
JOIN ledger_dispatch AS dispatch USING (operation_key)
WHERE dispatch.in_line

-- name: overstaying
-- Walk the lines in the endpoints' key order, one index seek each, and give those first in line that are not being sent
-- and should not hold the others any longer: they were sent as often as their endpoint has patience for, or nobody knows
-- what became of them and their run is cancelled, so that nothing of them will be sent again.
-- The last row of the walk comes in any case, to go on from.
WITH RECURSIVE walk (endpoint_id, operation_key, until, step) AS (
    (SELECT dispatch.endpoint_id, dispatch.operation_key, dispatch.until, 1 FROM ledger_dispatch AS dispatch
     WHERE dispatch.in_line AND dispatch.endpoint_id > %(after)s::uuid
     ORDER BY dispatch.endpoint_id, dispatch.operation_key LIMIT 1)
    UNION ALL
    SELECT following.endpoint_id, following.operation_key, following.until, walk.step + 1
    FROM walk CROSS JOIN LATERAL (
        SELECT dispatch.endpoint_id, dispatch.operation_key, dispatch.until FROM ledger_dispatch AS dispatch
        WHERE dispatch.in_line AND dispatch.endpoint_id > walk.endpoint_id
        ORDER BY dispatch.endpoint_id, dispatch.operation_key LIMIT 1
    ) AS following
    WHERE walk.step < %(steps)s::int
), judged AS MATERIALIZED (
    SELECT walk.step, walk.endpoint_id, walk.operation_key, run.task_id, operation.attempts,
           run.status = 'cancelled' AND operation.status = 'unknown' AS forsaken,
           operation.attempts >= endpoint.order_patience AS overstayed
    FROM walk
    JOIN ledger_operation AS operation USING (operation_key)
    JOIN ledger_run AS run USING (run_id)
    JOIN deliveries_endpoint AS endpoint ON endpoint.endpoint_id = walk.endpoint_id
    WHERE walk.until IS NULL AND operation.dispatch_owner IS NULL AND operation.status IN ('prepared', 'unknown')
)
SELECT walked.walked_to, walked.steps, moved.task_id, moved.operation_key, moved.attempts, moved.forsaken
FROM (SELECT (SELECT walk.endpoint_id FROM walk ORDER BY walk.step DESC LIMIT 1) AS walked_to,
             (SELECT count(*)::int FROM walk) AS steps) AS walked
LEFT JOIN judged AS moved ON moved.forsaken OR moved.overstayed
