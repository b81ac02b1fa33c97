-- Tasks, and everything that exists from the first moment of a run: the run, its lease, its operation, its place in
-- the queue. They are born together or not at all.

-- fragment: open
-- reads: wanted (tenant_id, event_id, endpoint_id, request_digest, step_id, tool, due_at, in_line)
-- The keys are drawn first, so that the five inserts need no join back to each other.
named AS MATERIALIZED (
    SELECT ledger_uuid7() AS task_id, ledger_uuid7() AS run_id,
           nextval('ledger_operation_operation_key_seq') AS operation_key,
           wanted.tenant_id, wanted.event_id, wanted.endpoint_id, wanted.request_digest, wanted.step_id, wanted.tool,
           wanted.in_line,
           -- Never in the past: what is due first stands first in its endpoint's window.
           greatest(wanted.due_at, clock_timestamp()) AS due_at
    FROM wanted
), opened_tasks AS (
    INSERT INTO ledger_task (task_id, tenant_id, event_id, endpoint_id, active_run_id, in_line)
    SELECT named.task_id, named.tenant_id, named.event_id, named.endpoint_id, named.run_id, named.in_line FROM named
), opened_runs AS (
    INSERT INTO ledger_run (run_id, task_id, status, reason)
    SELECT named.run_id, named.task_id, 'pending', 'submit' FROM named
), opened_leases AS (
    INSERT INTO ledger_lease (run_id) SELECT named.run_id FROM named
), prepared AS (
    INSERT INTO ledger_operation (operation_key, run_id, step_id, tool, request_digest, request_ref, status, due_at)
    SELECT named.operation_key, named.run_id, named.step_id, named.tool, named.request_digest, named.event_id,
           'prepared', named.due_at
    FROM named
), queued AS (
    INSERT INTO ledger_dispatch (operation_key, run_id, tenant_id, endpoint_id, due_at, in_line)
    SELECT named.operation_key, named.run_id, named.tenant_id, named.endpoint_id, named.due_at, named.in_line FROM named
)

-- name: open
-- Tasks for intents that the caller has worked out itself.
WITH wanted AS (
    SELECT given.tenant_id, given.event_id, given.endpoint_id, given.request_digest, given.step_id, given.tool,
           given.due_at, given.in_line
    FROM unnest(%(tenant_ids)b::text[], %(event_ids)b::uuid[], %(endpoint_ids)b::uuid[], %(request_digests)b::bytea[],
                %(step_ids)b::text[], %(tools)b::text[], %(due_ats)b::timestamptz[], %(in_lines)b::boolean[])
         AS given (tenant_id, event_id, endpoint_id, request_digest, step_id, tool, due_at, in_line)
), {{task.open}}
SELECT named.task_id, named.run_id, named.operation_key FROM named

-- name: await_openers
-- Wait for whoever is opening a run of these tasks or writing the one they have, and keep others out until the
-- transaction ends. A statement that waited keeps the snapshot from before its wait, and sees neither the run that was
-- opened nor the operation that was planned meanwhile; the next statement of the transaction sees them.
WITH asked AS MATERIALIZED (
    SELECT unnest(%(task_ids)b::uuid[]) AS task_id
), locked AS MATERIALIZED (
    SELECT task.task_id, task.active_run_id FROM asked JOIN ledger_task AS task USING (task_id)
    ORDER BY task.task_id FOR NO KEY UPDATE OF task
), held AS MATERIALIZED (
    SELECT lease.run_id FROM locked JOIN ledger_lease AS lease ON lease.run_id = locked.active_run_id
    ORDER BY lease.run_id FOR NO KEY UPDATE OF lease
)
SELECT locked.task_id FROM locked LEFT JOIN held ON held.run_id = locked.active_run_id

-- name: close
-- From now on no run of these tasks is opened. Whoever opens one at this moment is waited for, and others are kept out
-- until the transaction ends; the runs that there are go on, and the next statement of the transaction sees them all.
WITH asked AS MATERIALIZED (
    SELECT unnest(%(task_ids)b::uuid[]) AS task_id
), locked AS MATERIALIZED (
    SELECT task.task_id FROM asked JOIN ledger_task AS task USING (task_id)
    ORDER BY task.task_id FOR NO KEY UPDATE OF task
)
UPDATE ledger_task AS task SET closed_at = clock_timestamp(), updated_at = clock_timestamp()
FROM locked WHERE task.task_id = locked.task_id AND task.closed_at IS NULL
RETURNING task.task_id

-- name: open_run
-- A new run of a task whose last run is over, after `await_openers`: a replay. Refused when the task is closed, while
-- that run goes on, and while any operation of the task is unsettled, because a new run is a new operation id for an
-- intent that may already have happened. A task that stood in line does so no more: what comes again has had its turn.
WITH asked AS MATERIALIZED (
    SELECT unnest(%(task_ids)b::uuid[]) AS task_id
), locked AS MATERIALIZED (
    SELECT task.task_id, task.tenant_id, task.event_id, task.endpoint_id, task.active_run_id, task.closed_at
    FROM asked JOIN ledger_task AS task USING (task_id)
    ORDER BY task.task_id FOR NO KEY UPDATE OF task
), over AS MATERIALIZED (
    SELECT locked.task_id, locked.tenant_id, locked.event_id, locked.endpoint_id, locked.closed_at,
           run.status AS run_status, last.operation_key AS last_key, last.status AS last_status
    FROM locked
    JOIN ledger_run AS run ON run.run_id = locked.active_run_id
    JOIN LATERAL (
        SELECT operation.operation_key, operation.status
        FROM ledger_run AS every_run JOIN ledger_operation AS operation ON operation.run_id = every_run.run_id
        WHERE every_run.task_id = locked.task_id
        ORDER BY operation.status IN ('prepared', 'dispatching', 'unknown') DESC, operation.operation_key DESC
        LIMIT 1
    ) AS last ON true
    ORDER BY run.run_id FOR NO KEY UPDATE OF run
), judged AS MATERIALIZED (
    SELECT over.task_id, over.tenant_id, over.event_id, over.endpoint_id, over.last_key, over.run_status,
           over.last_status,
           CASE WHEN over.closed_at IS NOT NULL THEN 'closed'
                WHEN over.run_status NOT IN ('succeeded', 'failed', 'cancelled') THEN 'wrong_status'
                WHEN over.last_status IN ('prepared', 'dispatching', 'unknown') THEN 'unsettled'
           END AS refusal
    FROM over
), named AS MATERIALIZED (
    SELECT judged.task_id, ledger_uuid7() AS run_id, nextval('ledger_operation_operation_key_seq') AS operation_key,
           judged.tenant_id, judged.event_id, judged.endpoint_id, last.step_id, last.tool, last.request_digest,
           last.request_ref
    FROM judged JOIN ledger_operation AS last ON last.operation_key = judged.last_key
    WHERE judged.refusal IS NULL
), opened_runs AS (
    INSERT INTO ledger_run (run_id, task_id, status, reason)
    SELECT named.run_id, named.task_id, 'pending', %(reason)s FROM named
), opened_leases AS (
    INSERT INTO ledger_lease (run_id) SELECT named.run_id FROM named
), switched AS (
    UPDATE ledger_task AS task
    SET active_run_id = named.run_id, in_line = false, updated_at = clock_timestamp()
    FROM named WHERE task.task_id = named.task_id
), prepared AS (
    INSERT INTO ledger_operation (operation_key, run_id, step_id, tool, request_digest, request_ref, status, due_at)
    SELECT named.operation_key, named.run_id, named.step_id, named.tool, named.request_digest, named.request_ref,
           'prepared', clock_timestamp()
    FROM named
), queued AS (
    INSERT INTO ledger_dispatch (operation_key, run_id, tenant_id, endpoint_id, due_at)
    SELECT named.operation_key, named.run_id, named.tenant_id, named.endpoint_id, clock_timestamp() FROM named
)
SELECT named.task_id, NULL::text AS refusal, named.run_id, named.operation_key, NULL::text AS seen_status FROM named
UNION ALL
SELECT judged.task_id, judged.refusal, NULL, NULL,
       CASE judged.refusal WHEN 'unsettled' THEN judged.last_status ELSE judged.run_status END
FROM judged WHERE judged.refusal IS NOT NULL

-- name: leave_line
-- A task leaves its line, after `await_openers`, and does not come back: from now on it is sent when it is due, whatever
-- was before it, and what stood behind it waits for it no longer. Nothing else of it changes, and who did it, and why, is
-- on record. Refused when it stands in none, when nothing of it is left to send, and while it is being sent: the next in
-- line would overtake it on the wire.
WITH asked AS MATERIALIZED (
    SELECT given.task_id, given.reason
    FROM unnest(%(task_ids)b::uuid[], %(reasons)b::text[]) AS given (task_id, reason)
), locked AS MATERIALIZED (
    SELECT asked.task_id, asked.reason, task.active_run_id, task.in_line
    FROM asked JOIN ledger_task AS task USING (task_id)
    ORDER BY task.task_id FOR NO KEY UPDATE OF task
), held AS MATERIALIZED (
    SELECT locked.task_id, locked.reason, locked.active_run_id, locked.in_line
    FROM locked JOIN ledger_lease AS lease ON lease.run_id = locked.active_run_id
    ORDER BY lease.run_id FOR NO KEY UPDATE OF lease
), listed AS MATERIALIZED (
    SELECT held.task_id, operation.operation_key, operation.status, operation.revision, operation.dispatch_owner
    FROM held JOIN ledger_operation AS operation ON operation.run_id = held.active_run_id
    WHERE operation.status IN ('prepared', 'dispatching', 'unknown')
    ORDER BY operation.operation_key FOR NO KEY UPDATE OF operation
), judged AS MATERIALIZED (
    SELECT held.task_id, held.reason,
           (SELECT min(listed.status) FROM listed WHERE listed.task_id = held.task_id) AS seen_status,
           CASE WHEN NOT held.in_line THEN 'not_in_line'
                WHEN NOT EXISTS (SELECT FROM listed WHERE listed.task_id = held.task_id) THEN 'wrong_status'
                WHEN EXISTS (SELECT FROM listed
                             WHERE listed.task_id = held.task_id AND listed.dispatch_owner IS NOT NULL) THEN 'claimed'
           END AS refusal
    FROM held
), departed AS (
    UPDATE ledger_task AS task SET in_line = false, updated_at = clock_timestamp()
    FROM judged WHERE task.task_id = judged.task_id AND judged.refusal IS NULL
), freed AS (
    UPDATE ledger_dispatch AS dispatch SET in_line = false
    FROM listed JOIN judged USING (task_id)
    WHERE dispatch.operation_key = listed.operation_key AND judged.refusal IS NULL
), recorded AS (
    INSERT INTO ledger_resolution (operation_key, actor, decision, reason, revision_seen)
    SELECT listed.operation_key, %(actor)s, 'moved_aside', judged.reason, listed.revision
    FROM listed JOIN judged USING (task_id) WHERE judged.refusal IS NULL
)
SELECT judged.task_id, judged.refusal, judged.seen_status FROM judged
UNION ALL
SELECT asked.task_id, 'missing', NULL FROM asked
WHERE NOT EXISTS (SELECT FROM ledger_task AS task WHERE task.task_id = asked.task_id)
