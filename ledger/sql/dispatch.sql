-- The queue: a pointer and never the truth. The reconciler keeps it in step with the operations, a stretch at a time.

-- name: repair
-- Walk a stretch of the operations in key order: add the pointers that are missing, and put right those that wait for
-- nothing although their operation says when it is due.
WITH stretch AS MATERIALIZED (
    SELECT operation.operation_key, operation.run_id, operation.status, operation.due_at, operation.dispatch_until,
           operation.updated_at, operation.retry_until
    FROM ledger_operation AS operation
    WHERE operation.operation_key > %(after)s::bigint ORDER BY operation.operation_key LIMIT %(batch)s
), unsettled AS MATERIALIZED (
    SELECT stretch.operation_key, stretch.run_id, task.tenant_id, task.endpoint_id, stretch.status,
           stretch.dispatch_until, stretch.updated_at,
           CASE WHEN run.status <> 'cancelled'
                     AND (stretch.status <> 'unknown' OR coalesce(stretch.retry_until > clock_timestamp(), true))
                THEN stretch.due_at END AS due_at
    FROM stretch JOIN ledger_run AS run USING (run_id) JOIN ledger_task AS task USING (task_id)
    WHERE stretch.status IN ('prepared', 'dispatching', 'unknown')
), added AS (
    INSERT INTO ledger_dispatch (operation_key, run_id, tenant_id, endpoint_id, due_at, until, unknown_since)
    SELECT unsettled.operation_key, unsettled.run_id, unsettled.tenant_id, unsettled.endpoint_id, unsettled.due_at,
           unsettled.dispatch_until, CASE unsettled.status WHEN 'unknown' THEN unsettled.updated_at END
    FROM unsettled
    WHERE NOT EXISTS (SELECT FROM ledger_dispatch AS dispatch WHERE dispatch.operation_key = unsettled.operation_key)
    ON CONFLICT (operation_key) DO NOTHING
    RETURNING operation_key
), rearmed AS (
    UPDATE ledger_dispatch AS dispatch SET due_at = operation.due_at
    FROM unsettled JOIN ledger_operation AS operation USING (operation_key)
    WHERE dispatch.operation_key = unsettled.operation_key AND dispatch.due_at IS NULL AND dispatch.until IS NULL
      AND unsettled.due_at IS NOT NULL AND operation.due_at = unsettled.due_at
    RETURNING dispatch.operation_key
)
SELECT (SELECT stretch.operation_key FROM stretch ORDER BY stretch.operation_key DESC LIMIT 1) AS walked_to,
       (SELECT count(*) FROM added) + (SELECT count(*) FROM rearmed) AS repaired

-- name: sweep_left_over
-- Remove pointers to operations that are settled.
WITH parked AS MATERIALIZED (
    SELECT dispatch.operation_key FROM ledger_dispatch AS dispatch
    WHERE dispatch.operation_key > %(after)s::bigint ORDER BY dispatch.operation_key LIMIT %(batch)s
), removed AS (
    DELETE FROM ledger_dispatch AS dispatch USING parked JOIN ledger_operation AS operation USING (operation_key)
    WHERE dispatch.operation_key = parked.operation_key
      AND operation.status IN ('succeeded', 'failed_final', 'cancelled')
    RETURNING dispatch.operation_key
)
SELECT (SELECT parked.operation_key FROM parked ORDER BY parked.operation_key DESC LIMIT 1) AS walked_to,
       (SELECT count(*) FROM removed) AS repaired
