-- The audit: what must be true of every row, whatever is going on. Each statement takes one stretch of one table in key
-- order and reads all that belongs to it on one snapshot, so that it sees every commit whole or not at all. Only what the
-- clock decides is given time: `patience_ms` is longer than a lease and several sweeps.
-- Each answers the breaches (kind, subject, what), and one row without a kind: the last key walked to and how many rows.

-- name: tasks
-- A task, its active run and the runs it has.
WITH stretch AS MATERIALIZED (
    SELECT task.task_id, task.active_run_id FROM ledger_task AS task
    WHERE task.task_id > %(after)s::uuid ORDER BY task.task_id LIMIT %(batch)s::int
), runs AS MATERIALIZED (
    SELECT stretch.task_id, count(*) FILTER (WHERE run.status IN ('pending', 'running')) AS open,
           bool_or(run.run_id = stretch.active_run_id) AS has_active, max(run.created_at) AS newest,
           max(run.created_at) FILTER (WHERE run.run_id = stretch.active_run_id) AS active
    FROM stretch JOIN ledger_run AS run ON run.task_id = stretch.task_id GROUP BY stretch.task_id
), judged AS MATERIALIZED (
    SELECT stretch.task_id, stretch.active_run_id, coalesce(runs.has_active, false) AS has_active,
           coalesce(runs.open, 0) AS open, runs.newest > runs.active AS superseded
    FROM stretch LEFT JOIN runs USING (task_id)
)
SELECT 'active_run'::text AS kind, judged.task_id::text AS subject,
       format('its active run %%s is none of its runs', judged.active_run_id) AS what, NULL::bigint AS walked
FROM judged WHERE NOT judged.has_active
UNION ALL
SELECT 'active_run_newest', judged.task_id::text, format('a newer run than %%s exists', judged.active_run_id), NULL
FROM judged WHERE judged.has_active AND judged.superseded
UNION ALL
SELECT 'one_open_run', judged.task_id::text, format('%%s of its runs are open', judged.open), NULL
FROM judged WHERE judged.open > 1
UNION ALL
SELECT NULL, (SELECT stretch.task_id::text FROM stretch ORDER BY stretch.task_id DESC LIMIT 1), NULL,
       (SELECT count(*) FROM stretch)

-- name: runs
-- A run, its lease, and whether its status agrees with its operations'.
WITH stretch AS MATERIALIZED (
    SELECT run.run_id, run.task_id, run.status, run.reason, run.revision FROM ledger_run AS run
    WHERE run.run_id > %(after)s::uuid ORDER BY run.run_id LIMIT %(batch)s::int
), counted AS MATERIALIZED (
    SELECT stretch.run_id, count(*) AS operations, max(operation.updated_at) AS moved_at,
           count(*) FILTER (WHERE operation.status = 'succeeded') AS succeeded,
           count(*) FILTER (WHERE operation.status = 'failed_final') AS failed,
           count(*) FILTER (WHERE operation.status = 'prepared') AS prepared,
           count(*) FILTER (WHERE operation.status IN ('prepared', 'dispatching', 'unknown')) AS unsettled,
           count(*) FILTER (WHERE operation.dispatch_owner IS NOT NULL) AS claimed,
           sum(operation.attempts) AS attempts, max(operation.dispatch_epoch) AS claimed_epoch
    FROM stretch JOIN ledger_operation AS operation ON operation.run_id = stretch.run_id GROUP BY stretch.run_id
), displaced AS MATERIALIZED (
    SELECT stretch.run_id, max(takeover.epoch) AS epoch
    FROM stretch JOIN ledger_takeover AS takeover ON takeover.run_id = stretch.run_id GROUP BY stretch.run_id
), judged AS MATERIALIZED (
    SELECT stretch.run_id, stretch.status, stretch.reason, stretch.revision, task.task_id, lease.run_id AS lease_id,
           lease.owner, lease.epoch, lease.expires_at, coalesce(counted.operations, 0) AS operations,
           coalesce(counted.succeeded, 0) AS succeeded, coalesce(counted.failed, 0) AS failed,
           coalesce(counted.prepared, 0) AS prepared, coalesce(counted.unsettled, 0) AS unsettled,
           coalesce(counted.claimed, 0) AS claimed, coalesce(counted.attempts, 0) AS attempts,
           counted.moved_at, counted.claimed_epoch, displaced.epoch AS taken_epoch,
           clock_timestamp() - %(patience_ms)s::bigint * interval '1 millisecond' AS long_ago
    FROM stretch
    LEFT JOIN ledger_task AS task ON task.task_id = stretch.task_id
    LEFT JOIN ledger_lease AS lease ON lease.run_id = stretch.run_id
    LEFT JOIN counted ON counted.run_id = stretch.run_id
    LEFT JOIN displaced ON displaced.run_id = stretch.run_id
)
SELECT 'run_row'::text AS kind, judged.run_id::text AS subject,
       format('status %%s, reason %%s, revision %%s', judged.status, judged.reason, judged.revision) AS what,
       NULL::bigint AS walked
FROM judged WHERE judged.status NOT IN ('pending', 'running', 'succeeded', 'failed', 'cancelled')
                  OR judged.reason NOT IN ('submit', 'replay', 'recover') OR judged.revision < 0
UNION ALL
SELECT 'run_task', judged.run_id::text, 'its task does not exist', NULL FROM judged WHERE judged.task_id IS NULL
UNION ALL
SELECT 'run_lease', judged.run_id::text, 'it has no lease', NULL FROM judged WHERE judged.lease_id IS NULL
UNION ALL
SELECT 'run_operation', judged.run_id::text, 'it has no operation', NULL FROM judged WHERE judged.operations = 0
UNION ALL
SELECT 'run_succeeded', judged.run_id::text,
       format('%%s of its operations succeeded, %%s are unsettled', judged.succeeded, judged.unsettled), NULL
FROM judged WHERE judged.status = 'succeeded' AND judged.operations > 0
              AND (judged.succeeded = 0 OR judged.unsettled > 0)
UNION ALL
SELECT 'run_failed', judged.run_id::text,
       format('%%s of its operations failed, %%s are unsettled', judged.failed, judged.unsettled), NULL
FROM judged WHERE judged.status = 'failed' AND judged.operations > 0 AND (judged.failed = 0 OR judged.unsettled > 0)
UNION ALL
SELECT 'run_cancelled', judged.run_id::text, format('%%s of its operations are still prepared', judged.prepared), NULL
FROM judged WHERE judged.status = 'cancelled' AND judged.prepared > 0
UNION ALL
SELECT 'run_pending', judged.run_id::text, format('%%s attempts were begun', judged.attempts), NULL
FROM judged WHERE judged.status = 'pending' AND judged.attempts > 0
UNION ALL
SELECT 'run_left_behind', judged.run_id::text, format('all is settled since %%s', judged.moved_at), NULL
FROM judged WHERE judged.status IN ('pending', 'running') AND judged.operations > 0 AND judged.unsettled = 0
              AND judged.moved_at < judged.long_ago
UNION ALL
SELECT 'lease_row', judged.run_id::text, format('owner %%s, epoch %%s', judged.owner, judged.epoch), NULL
FROM judged WHERE judged.epoch < 0 OR judged.owner = ''
UNION ALL
SELECT 'lease_of_the_ended', judged.run_id::text,
       format('%%s still has it, expired at %%s', judged.owner, judged.expires_at), NULL
FROM judged WHERE judged.status IN ('succeeded', 'failed', 'cancelled') AND judged.owner IS NOT NULL
              AND judged.claimed = 0 AND judged.expires_at < judged.long_ago
UNION ALL
SELECT 'epoch_fell', judged.run_id::text,
       format('epoch %%s, claimed under %%s, taken over under %%s', judged.epoch, judged.claimed_epoch,
              judged.taken_epoch), NULL
FROM judged WHERE judged.epoch < judged.claimed_epoch OR judged.epoch < judged.taken_epoch
UNION ALL
SELECT NULL, (SELECT stretch.run_id::text FROM stretch ORDER BY stretch.run_id DESC LIMIT 1), NULL,
       (SELECT count(*) FROM stretch)

-- name: operations
-- An operation by itself, its claim and its place in the queue.
WITH stretch AS MATERIALIZED (
    SELECT operation.operation_key, operation.run_id, operation.step_id, operation.effect_version, operation.status,
           operation.due_at, operation.dispatch_owner, operation.dispatch_epoch, operation.dispatch_until,
           operation.dispatched_at, operation.attempts, operation.losses, operation.ambiguous, operation.retry_until,
           operation.revision
    FROM ledger_operation AS operation
    WHERE operation.operation_key > %(after)s::bigint ORDER BY operation.operation_key LIMIT %(batch)s::int
), judged AS MATERIALIZED (
    SELECT stretch.operation_key, stretch.status, stretch.due_at, stretch.dispatch_owner, stretch.dispatch_epoch,
           stretch.dispatch_until, stretch.dispatched_at, stretch.attempts, stretch.losses, stretch.ambiguous,
           stretch.retry_until, stretch.revision, stretch.effect_version, stretch.run_id, run.run_id AS known_run,
           run.status AS run_status, task.tenant_id, task.endpoint_id, lease.owner, lease.epoch, lease.expires_at,
           dispatch.operation_key AS pointer, dispatch.run_id AS pointer_run, dispatch.tenant_id AS pointer_tenant,
           dispatch.endpoint_id AS pointer_endpoint, dispatch.due_at AS pointer_due, dispatch.until AS pointer_until,
           dispatch.unknown_since, dispatch.in_line, task.in_line AS task_in_line,
           stretch.status IN ('prepared', 'dispatching', 'unknown') AS unsettled,
           (SELECT other.operation_key FROM ledger_operation AS other
            WHERE other.run_id = stretch.run_id AND other.step_id = stretch.step_id
              AND other.effect_version = stretch.effect_version AND other.operation_key <> stretch.operation_key
            LIMIT 1) AS twin,
           clock_timestamp() AS at, %(patience_ms)s::bigint * interval '1 millisecond' AS patience
    FROM stretch
    LEFT JOIN ledger_run AS run ON run.run_id = stretch.run_id
    LEFT JOIN ledger_task AS task ON task.task_id = run.task_id
    LEFT JOIN ledger_lease AS lease ON lease.run_id = stretch.run_id
    LEFT JOIN ledger_dispatch AS dispatch ON dispatch.operation_key = stretch.operation_key
)
SELECT 'operation_row'::text AS kind, judged.operation_key::text AS subject,
       format('status %%s, revision %%s, attempts %%s, losses %%s, effect version %%s', judged.status, judged.revision,
              judged.attempts, judged.losses, judged.effect_version) AS what, NULL::bigint AS walked
FROM judged WHERE judged.status NOT IN ('prepared', 'dispatching', 'unknown', 'succeeded', 'failed_final', 'cancelled')
               OR least(judged.revision, judged.attempts, judged.losses) < 0 OR judged.effect_version < 1
UNION ALL
SELECT 'operation_run', judged.operation_key::text, format('its run %%s does not exist', judged.run_id), NULL
FROM judged WHERE judged.known_run IS NULL
UNION ALL
SELECT 'operation_intent', judged.operation_key::text, format('%%s is the same intent', judged.twin), NULL
FROM judged WHERE judged.twin IS NOT NULL
UNION ALL
SELECT 'prepared', judged.operation_key::text,
       format('due at %%s, ambiguous %%s', coalesce(judged.due_at::text, 'no time'), judged.ambiguous), NULL
FROM judged WHERE judged.status = 'prepared' AND (judged.due_at IS NULL OR judged.ambiguous)
UNION ALL
SELECT 'unknown', judged.operation_key::text, 'no attempt of it was ambiguous', NULL
FROM judged WHERE judged.status = 'unknown' AND NOT judged.ambiguous
UNION ALL
SELECT 'claim_whole', judged.operation_key::text,
       format('%%s, claimed by %%s in epoch %%s until %%s', judged.status, coalesce(judged.dispatch_owner, 'nobody'),
              coalesce(judged.dispatch_epoch::text, 'none'), coalesce(judged.dispatch_until::text, 'no time')), NULL
FROM judged
WHERE num_nulls(judged.dispatch_owner, judged.dispatch_epoch, judged.dispatch_until) NOT IN (0, 3)
   OR (judged.status = 'dispatching' AND num_nulls(judged.dispatch_owner, judged.dispatched_at) > 0)
   OR (judged.dispatch_owner IS NOT NULL AND judged.status NOT IN ('dispatching', 'unknown'))
UNION ALL
SELECT 'claim_lease', judged.operation_key::text,
       format('claimed by %%s in epoch %%s, which is %%s''s', judged.dispatch_owner, judged.dispatch_epoch,
              judged.owner), NULL
FROM judged WHERE judged.dispatch_epoch = judged.epoch AND judged.owner <> judged.dispatch_owner
UNION ALL
SELECT 'claim_overdue', judged.operation_key::text,
       format('claimed by %%s until %%s, and nobody ended it', judged.dispatch_owner, judged.dispatch_until), NULL
FROM judged WHERE judged.dispatch_until < judged.at - judged.patience
              AND (judged.owner = judged.dispatch_owner AND judged.epoch = judged.dispatch_epoch
                   AND judged.expires_at > judged.at - judged.patience) IS NOT TRUE
UNION ALL
SELECT 'ended_without_attempt', judged.operation_key::text, format('it is %%s', judged.status), NULL
FROM judged WHERE judged.status IN ('succeeded', 'failed_final') AND judged.attempts = 0
UNION ALL
SELECT 'queue_row_missing', judged.operation_key::text, format('it is %%s', judged.status), NULL
FROM judged WHERE judged.unsettled AND judged.pointer IS NULL
UNION ALL
SELECT 'queue_row_subject', judged.operation_key::text, 'run, tenant or endpoint are not its own', NULL
FROM judged WHERE judged.unsettled AND judged.known_run IS NOT NULL
              AND (judged.pointer_run, judged.pointer_tenant, judged.pointer_endpoint)
                  <> (judged.run_id, judged.tenant_id, judged.endpoint_id)
UNION ALL
SELECT 'queue_row_claim', judged.operation_key::text,
       format('claimed until %%s, queued as until %%s', coalesce(judged.dispatch_until::text, 'no time'),
              coalesce(judged.pointer_until::text, 'no time')), NULL
-- A pointer may end later than its claim: it follows a lease that is renewed.
FROM judged WHERE judged.unsettled AND judged.pointer IS NOT NULL
              AND ((judged.pointer_until IS NULL) <> (judged.dispatch_owner IS NULL)
                   OR judged.pointer_until < judged.dispatch_until)
UNION ALL
SELECT 'queue_row_unknown', judged.operation_key::text,
       format('it is %%s, and queued as unknown since %%s', judged.status,
              coalesce(judged.unknown_since::text, 'never')), NULL
FROM judged WHERE judged.unsettled AND judged.pointer IS NOT NULL
              AND (judged.unknown_since IS NULL) <> (judged.status <> 'unknown')
UNION ALL
SELECT 'queue_row_line', judged.operation_key::text,
       CASE WHEN judged.in_line THEN 'it is queued in line, and its delivery is in none'
            ELSE 'it is queued in no line, and its delivery stands in one' END, NULL
FROM judged WHERE judged.unsettled AND judged.in_line <> judged.task_in_line
UNION ALL
-- A pointer may be due later, for a lease that was held, and never, for a run that is over or a window that has passed.
-- A run that is opened again reads the clock for each row: microseconds are no breach.
SELECT 'queue_row_due', judged.operation_key::text,
       format('due at %%s, queued for %%s', coalesce(judged.due_at::text, 'no time'),
              coalesce(judged.pointer_due::text, 'no time')), NULL
FROM judged WHERE judged.unsettled AND judged.pointer IS NOT NULL AND judged.pointer_due IS DISTINCT FROM judged.due_at
              AND CASE WHEN judged.pointer_due IS NULL
                       THEN judged.run_status IN ('pending', 'running')
                            AND coalesce(judged.retry_until > judged.at, true) AND judged.dispatch_owner IS NULL
                       WHEN judged.due_at IS NULL OR judged.pointer_due < judged.due_at - interval '1 second' THEN true
                       ELSE judged.pointer_due > greatest(judged.at + judged.patience, judged.expires_at) END
UNION ALL
SELECT NULL, (SELECT stretch.operation_key::text FROM stretch ORDER BY stretch.operation_key DESC LIMIT 1), NULL,
       (SELECT count(*) FROM stretch)

-- name: pointers
-- A queue row whose operation is gone, or that is in flight although another stands before it in its line.
WITH stretch AS MATERIALIZED (
    SELECT dispatch.operation_key, dispatch.endpoint_id, dispatch.in_line FROM ledger_dispatch AS dispatch
    WHERE dispatch.operation_key > %(after)s::bigint ORDER BY dispatch.operation_key LIMIT %(batch)s::int
)
SELECT 'queue_row_left_over'::text AS kind, stretch.operation_key::text AS subject,
       coalesce(format('its operation is %%s', operation.status), 'its operation does not exist') AS what,
       NULL::bigint AS walked
FROM stretch LEFT JOIN ledger_operation AS operation ON operation.operation_key = stretch.operation_key
WHERE operation.operation_key IS NULL OR operation.status IN ('succeeded', 'failed_final', 'cancelled')
UNION ALL
SELECT 'line_overtaken', stretch.operation_key::text,
       format('it is being sent, and %%s stands before it', first.operation_key), NULL
FROM stretch
JOIN ledger_operation AS operation ON operation.operation_key = stretch.operation_key
CROSS JOIN LATERAL (
    SELECT dispatch.operation_key FROM ledger_dispatch AS dispatch
    WHERE dispatch.endpoint_id = stretch.endpoint_id AND dispatch.in_line
    ORDER BY dispatch.operation_key LIMIT 1
) AS first
WHERE stretch.in_line AND operation.dispatch_owner IS NOT NULL AND first.operation_key < stretch.operation_key
UNION ALL
SELECT NULL, (SELECT stretch.operation_key::text FROM stretch ORDER BY stretch.operation_key DESC LIMIT 1), NULL,
       (SELECT count(*) FROM stretch)

-- name: takeovers
-- A takeover, its run's lease and the takeovers before it.
WITH stretch AS MATERIALIZED (
    SELECT takeover.takeover_id, takeover.run_id, takeover.epoch FROM ledger_takeover AS takeover
    WHERE takeover.takeover_id > %(after)s::bigint ORDER BY takeover.takeover_id LIMIT %(batch)s::int
)
SELECT 'takeover_run'::text AS kind, stretch.takeover_id::text AS subject,
       format('its run %%s does not exist', stretch.run_id) AS what, NULL::bigint AS walked
FROM stretch LEFT JOIN ledger_run AS run ON run.run_id = stretch.run_id WHERE run.run_id IS NULL
UNION ALL
SELECT 'takeover_order', stretch.takeover_id::text,
       format('epoch %%s of run %%s, after a takeover of epoch %%s', stretch.epoch, stretch.run_id, max(former.epoch)),
       NULL
FROM stretch JOIN ledger_takeover AS former
     ON former.run_id = stretch.run_id AND former.epoch >= stretch.epoch AND former.takeover_id < stretch.takeover_id
GROUP BY stretch.takeover_id, stretch.epoch, stretch.run_id
UNION ALL
SELECT NULL, (SELECT stretch.takeover_id::text FROM stretch ORDER BY stretch.takeover_id DESC LIMIT 1), NULL,
       (SELECT count(*) FROM stretch)

-- name: fenced_writes
-- A refused write and the run or operation that it was about.
WITH stretch AS MATERIALIZED (
    SELECT refused.fenced_write_id, refused.run_id, refused.operation_key FROM ledger_fenced_write AS refused
    WHERE refused.fenced_write_id > %(after)s::bigint ORDER BY refused.fenced_write_id LIMIT %(batch)s::int
)
SELECT 'fenced_write_subject'::text AS kind, stretch.fenced_write_id::text AS subject,
       format('run %%s and operation %%s do not both exist', coalesce(stretch.run_id::text, '(none)'),
              coalesce(stretch.operation_key::text, '(none)')) AS what, NULL::bigint AS walked
FROM stretch
LEFT JOIN ledger_run AS run ON run.run_id = stretch.run_id
LEFT JOIN ledger_operation AS operation ON operation.operation_key = stretch.operation_key
WHERE (stretch.run_id IS NOT NULL AND run.run_id IS NULL)
   OR (stretch.operation_key IS NOT NULL AND operation.operation_key IS NULL)
UNION ALL
SELECT NULL, (SELECT stretch.fenced_write_id::text FROM stretch ORDER BY stretch.fenced_write_id DESC LIMIT 1), NULL,
       (SELECT count(*) FROM stretch)

-- name: resolutions
-- A person's decision and the operation that it settled.
WITH stretch AS MATERIALIZED (
    SELECT resolution.resolution_id, resolution.operation_key, resolution.decision, resolution.reason,
           resolution.revision_seen
    FROM ledger_resolution AS resolution
    WHERE resolution.resolution_id > %(after)s::bigint ORDER BY resolution.resolution_id LIMIT %(batch)s::int
), judged AS MATERIALIZED (
    SELECT stretch.resolution_id, stretch.operation_key, stretch.decision, stretch.reason, stretch.revision_seen,
           operation.operation_key AS known, operation.status, operation.revision,
           coalesce(task.in_line, false) AS in_line
    FROM stretch LEFT JOIN ledger_operation AS operation ON operation.operation_key = stretch.operation_key
    LEFT JOIN ledger_run AS run ON run.run_id = operation.run_id
    LEFT JOIN ledger_task AS task ON task.task_id = run.task_id
)
SELECT 'resolution_row'::text AS kind, judged.resolution_id::text AS subject,
       format('decision %%s, operation %%s', judged.decision, judged.operation_key) AS what, NULL::bigint AS walked
FROM judged WHERE judged.known IS NULL OR judged.reason = '' 
                  OR judged.decision NOT IN ('succeeded', 'failed', 'retry', 'moved_aside')
UNION ALL
SELECT 'resolution_followed', judged.resolution_id::text,
       format('%%s at revision %%s, the operation is %%s at revision %%s', judged.decision, judged.revision_seen,
              judged.status, judged.revision), NULL
FROM judged
WHERE (judged.revision <= judged.revision_seen AND judged.decision <> 'moved_aside')
   OR (judged.decision = 'succeeded' AND judged.status <> 'succeeded')
   OR (judged.decision = 'moved_aside' AND judged.in_line)
   OR (judged.decision = 'failed' AND judged.status <> 'failed_final')
UNION ALL
SELECT NULL, (SELECT stretch.resolution_id::text FROM stretch ORDER BY stretch.resolution_id DESC LIMIT 1), NULL,
       (SELECT count(*) FROM stretch)

-- name: sizes
-- PostgreSQL's own estimate of how many rows each table holds: negative where it has none yet.
SELECT class.relname::text AS name, class.reltuples::bigint AS rows
FROM unnest(%(tables)b::text[]) AS wanted JOIN pg_class AS class ON class.oid = to_regclass(wanted)

-- name: before
-- The key just before the first operation of a run that was made under this key or a later one.
SELECT min(operation.operation_key) - 1 AS operation_key
FROM ledger_operation AS operation WHERE operation.run_id >= %(run_id)s::uuid
