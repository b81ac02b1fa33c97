-- The queue: a pointer and never the truth. The reconciler keeps it in step with the operations, a stretch at a time.

-- name: repair
-- Walk a stretch of the operations in key order, and point anew at those whose pointer is missing or says something else
-- than they do. What it should say is read under the locks, because the operation may be moving at this moment.
WITH stretch AS MATERIALIZED (
    SELECT operation.operation_key, operation.run_id, operation.status, operation.due_at, operation.dispatch_owner,
           operation.retry_until
    FROM ledger_operation AS operation
    WHERE operation.operation_key > %(after)s::bigint ORDER BY operation.operation_key LIMIT %(batch)s
), suspect AS MATERIALIZED (
    SELECT stretch.operation_key, stretch.run_id
    FROM stretch LEFT JOIN ledger_dispatch AS dispatch USING (operation_key)
    WHERE stretch.status IN ('prepared', 'dispatching', 'unknown')
      AND (dispatch.operation_key IS NULL
           OR (dispatch.until IS NULL) <> (stretch.dispatch_owner IS NULL)
           OR (dispatch.unknown_since IS NULL) <> (stretch.status <> 'unknown')
           OR (dispatch.due_at IS NULL AND dispatch.until IS NULL AND stretch.due_at IS NOT NULL
               AND (stretch.status <> 'unknown' OR coalesce(stretch.retry_until > clock_timestamp(), true)))
           -- Out of its line is where a task stays.
           OR (dispatch.in_line AND NOT EXISTS (
               SELECT FROM ledger_run AS run JOIN ledger_task AS task USING (task_id)
               WHERE run.run_id = stretch.run_id AND task.in_line)))
), leased AS MATERIALIZED (
    SELECT suspect.operation_key, suspect.run_id
    FROM suspect JOIN ledger_lease AS lease USING (run_id)
    ORDER BY lease.run_id FOR NO KEY UPDATE OF lease SKIP LOCKED
), current AS MATERIALIZED (
    SELECT leased.operation_key, run.run_id, run.task_id, run.status AS run_status
    FROM leased JOIN ledger_run AS run USING (run_id)
    ORDER BY run.run_id FOR NO KEY UPDATE OF run
), locked AS MATERIALIZED (
    SELECT current.operation_key, current.run_id, current.task_id, current.run_status, operation.status,
           operation.due_at, operation.dispatch_until, operation.updated_at
    FROM current JOIN ledger_operation AS operation USING (operation_key)
    WHERE operation.status IN ('prepared', 'dispatching', 'unknown')
    ORDER BY operation.operation_key FOR NO KEY UPDATE OF operation
), pointed AS (
    INSERT INTO ledger_dispatch AS dispatch
           (operation_key, run_id, tenant_id, endpoint_id, due_at, until, unknown_since, in_line)
    SELECT locked.operation_key, locked.run_id, task.tenant_id, task.endpoint_id,
           CASE WHEN locked.run_status <> 'cancelled' THEN locked.due_at END, locked.dispatch_until,
           CASE locked.status WHEN 'unknown' THEN locked.updated_at END, task.in_line
    FROM locked JOIN ledger_task AS task USING (task_id)
    ON CONFLICT (operation_key) DO UPDATE
    SET due_at = excluded.due_at, until = excluded.until, in_line = dispatch.in_line AND excluded.in_line,
        unknown_since = CASE WHEN excluded.unknown_since IS NOT NULL
                             THEN coalesce(dispatch.unknown_since, excluded.unknown_since) END
    WHERE (dispatch.due_at, dispatch.until) IS DISTINCT FROM (excluded.due_at, excluded.until)
       OR (dispatch.unknown_since IS NULL) <> (excluded.unknown_since IS NULL)
       OR (dispatch.in_line AND NOT excluded.in_line)
    RETURNING dispatch.operation_key
)
SELECT (SELECT stretch.operation_key FROM stretch ORDER BY stretch.operation_key DESC LIMIT 1) AS walked_to,
       (SELECT count(*) FROM pointed) AS repaired

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
