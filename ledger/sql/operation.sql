-- Operations: one side-effect intent each, and what is known about it. Who may make which move: `states.py`.

-- name: claim
-- Take due operations for dispatch together with the lease of their run, all in one commit, so that owner, epoch,
-- revision and attempt number are on record before a byte is sent. An operation whose outcome is unknown keeps that
-- status while it is sent again under the same id: the status does not pretend.
WITH asked AS MATERIALIZED (
    SELECT unnest(%(operation_keys)b::bigint[]) AS operation_key
), queued AS MATERIALIZED (
    SELECT dispatch.operation_key, dispatch.run_id, dispatch.tenant_id, dispatch.endpoint_id
    FROM asked JOIN ledger_dispatch AS dispatch USING (operation_key)
    WHERE dispatch.until IS NULL AND dispatch.due_at <= clock_timestamp()
    ORDER BY dispatch.run_id FOR NO KEY UPDATE OF dispatch SKIP LOCKED
), leased AS MATERIALIZED (
    SELECT queued.operation_key, queued.run_id, queued.tenant_id, queued.endpoint_id, lease.owner, lease.epoch,
           lease.expires_at
    FROM queued JOIN ledger_lease AS lease USING (run_id)
    ORDER BY lease.run_id FOR NO KEY UPDATE OF lease SKIP LOCKED
), current AS MATERIALIZED (
    SELECT leased.operation_key, leased.run_id, leased.tenant_id, leased.endpoint_id, leased.owner, leased.epoch,
           leased.expires_at, run.task_id, run.status AS run_status, run.revision AS run_revision
    FROM leased JOIN ledger_run AS run USING (run_id)
    ORDER BY run.run_id FOR NO KEY UPDATE OF run
), locked AS MATERIALIZED (
    SELECT current.operation_key, current.run_id, current.tenant_id, current.endpoint_id, current.owner, current.epoch,
           current.expires_at, current.task_id, current.run_status, current.run_revision, operation.status,
           operation.dispatch_owner, operation.retry_until
    FROM current JOIN ledger_operation AS operation USING (operation_key)
    ORDER BY operation.operation_key FOR NO KEY UPDATE OF operation
), judged AS MATERIALIZED (
    SELECT locked.operation_key, locked.run_id, locked.tenant_id, locked.endpoint_id, locked.owner, locked.epoch,
           locked.expires_at, locked.task_id, locked.run_status, locked.run_revision, locked.status,
           CASE WHEN locked.status NOT IN ('prepared', 'unknown') OR locked.dispatch_owner IS NOT NULL
                     OR locked.run_status NOT IN ('pending', 'running') THEN 'wrong_status'
                WHEN locked.owner IS NOT NULL AND locked.expires_at > clock_timestamp() THEN 'lease_held'
                WHEN locked.status = 'unknown' AND locked.retry_until <= clock_timestamp() THEN 'window_over'
           END AS refusal
    FROM locked
), acquired AS (
    UPDATE ledger_lease AS lease
    SET owner = %(owner)s, epoch = lease.epoch + 1, acquired_at = clock_timestamp(), updated_at = clock_timestamp(),
        expires_at = clock_timestamp() + %(ttl_ms)s::bigint * interval '1 millisecond'
    FROM judged WHERE lease.run_id = judged.run_id AND judged.refusal IS NULL
    RETURNING judged.operation_key, judged.run_id, judged.tenant_id, judged.endpoint_id, judged.task_id,
              judged.run_status, judged.run_revision, judged.owner AS previous_owner,
              judged.expires_at AS previous_expired_at, lease.epoch, lease.expires_at
), displaced AS (
    INSERT INTO ledger_takeover (run_id, epoch, owner, previous_owner, previous_expired_at)
    SELECT acquired.run_id, acquired.epoch, %(owner)s, acquired.previous_owner, acquired.previous_expired_at
    FROM acquired WHERE acquired.previous_owner IS NOT NULL
), started AS (
    UPDATE ledger_run AS run SET status = 'running', revision = run.revision + 1, updated_at = clock_timestamp()
    FROM acquired WHERE run.run_id = acquired.run_id AND run.status = 'pending'
), taken AS (
    UPDATE ledger_operation AS operation
    SET status = CASE operation.status WHEN 'prepared' THEN 'dispatching' ELSE operation.status END,
        dispatch_owner = %(owner)s, dispatch_epoch = acquired.epoch, dispatch_until = acquired.expires_at,
        attempts = operation.attempts + 1,
        first_dispatched_at = coalesce(operation.first_dispatched_at, clock_timestamp()),
        dispatched_at = clock_timestamp(), revision = operation.revision + 1, updated_at = clock_timestamp()
    FROM acquired WHERE operation.operation_key = acquired.operation_key
    RETURNING operation.operation_key, operation.run_id, acquired.task_id, acquired.tenant_id, acquired.endpoint_id,
              operation.request_ref, operation.request_digest, operation.step_id, operation.effect_version,
              operation.status, operation.revision, operation.attempts, operation.ambiguous,
              operation.first_dispatched_at, operation.dispatched_at, acquired.epoch, acquired.expires_at,
              acquired.run_revision + (acquired.run_status = 'pending')::int AS run_revision
), marked AS (
    UPDATE ledger_dispatch AS dispatch SET until = taken.expires_at
    FROM taken WHERE dispatch.operation_key = taken.operation_key
), parked AS (
    -- The pointer was wrong: it comes back when the lease can be taken, or waits for the reconciler to put it right.
    UPDATE ledger_dispatch AS dispatch SET due_at = CASE judged.refusal WHEN 'lease_held' THEN judged.expires_at END
    FROM judged WHERE dispatch.operation_key = judged.operation_key AND judged.refusal IS NOT NULL
)
SELECT taken.operation_key, NULL::text AS refusal, taken.run_id, taken.task_id, taken.tenant_id, taken.endpoint_id,
       taken.request_ref, taken.request_digest, taken.step_id, taken.effect_version, taken.status, taken.revision,
       taken.attempts, taken.ambiguous, taken.first_dispatched_at, taken.dispatched_at, taken.epoch, taken.expires_at,
       taken.run_revision
FROM taken
UNION ALL
SELECT judged.operation_key, judged.refusal, judged.run_id, judged.task_id, judged.tenant_id, judged.endpoint_id,
       NULL, NULL, NULL, NULL, judged.status, NULL, NULL, NULL, NULL, NULL, judged.epoch, judged.expires_at,
       judged.run_revision
FROM judged WHERE judged.refusal IS NOT NULL

-- name: held_by
-- What an owner holds, read back: after a claim whose COMMIT was not answered, this is what it did. A claim that was
-- made under an earlier term is not held: it can no longer be settled, and is left to the reconciler.
SELECT operation.operation_key, operation.run_id, run.task_id, dispatch.tenant_id, dispatch.endpoint_id,
       operation.request_ref, operation.request_digest, operation.step_id, operation.effect_version, operation.status,
       operation.revision, operation.attempts, operation.ambiguous, operation.first_dispatched_at,
       operation.dispatched_at, lease.epoch, lease.expires_at, run.revision AS run_revision
FROM ledger_dispatch AS dispatch
JOIN ledger_operation AS operation USING (operation_key)
JOIN ledger_run AS run ON run.run_id = operation.run_id
JOIN ledger_lease AS lease ON lease.run_id = operation.run_id
WHERE dispatch.until IS NOT NULL AND operation.dispatch_owner = %(owner)s AND lease.owner = %(owner)s
  AND lease.epoch = operation.dispatch_epoch

-- name: settle
-- Write the outcome of attempts, give the lease back and let the run follow (when no other operation of it is
-- unsettled), row by row: a row whose owner, epoch, revision or digest is no longer current changes nothing and is
-- answered, and recorded, with what is current. The other operations are read on this statement's snapshot, which is
-- from before its waits; a plan in between is seen by the run's revision, which it raised: a conflict.
-- `verdict` says what the evidence proves: accepted, not_taken, final (not taken, and no more tries), ambiguous, or
-- unsent (given back: no attempt was made). Once an attempt was ambiguous only acceptance ends the operation here.
WITH sent AS MATERIALIZED (
    SELECT given.operation_key, given.run_id, given.epoch, given.revision, given.run_revision, given.request_digest,
           given.verdict, given.retry_ms, given.window_ms, given.remote_id, given.result, given.evidence
    FROM unnest(%(operation_keys)b::bigint[], %(run_ids)b::uuid[], %(epochs)b::bigint[], %(revisions)b::bigint[],
                %(run_revisions)b::bigint[], %(request_digests)b::bytea[], %(verdicts)b::text[], %(retry_ms)b::bigint[],
                %(window_ms)b::bigint[], %(remote_ids)b::text[], %(results)b::text[], %(evidences)b::text[])
         AS given (operation_key, run_id, epoch, revision, run_revision, request_digest, verdict, retry_ms, window_ms,
                   remote_id, result, evidence)
), leased AS MATERIALIZED (
    SELECT sent.operation_key, sent.run_id, sent.epoch, sent.revision, sent.run_revision, sent.request_digest,
           sent.verdict, sent.retry_ms, sent.window_ms, sent.remote_id, sent.result, sent.evidence,
           lease.owner AS seen_owner, lease.epoch AS seen_epoch, lease.expires_at
    FROM sent JOIN ledger_lease AS lease USING (run_id)
    ORDER BY lease.run_id FOR NO KEY UPDATE OF lease
), current AS MATERIALIZED (
    SELECT leased.operation_key, leased.run_id, leased.epoch, leased.revision, leased.run_revision,
           leased.request_digest, leased.verdict, leased.retry_ms, leased.window_ms, leased.remote_id, leased.result,
           leased.evidence, leased.seen_owner, leased.seen_epoch, leased.expires_at, run.status AS run_status,
           run.revision AS seen_run_revision
    FROM leased JOIN ledger_run AS run USING (run_id)
    ORDER BY run.run_id FOR NO KEY UPDATE OF run
), locked AS MATERIALIZED (
    SELECT current.operation_key, current.run_id, current.epoch, current.revision, current.run_revision,
           current.request_digest, current.verdict, current.retry_ms, current.window_ms, current.remote_id,
           current.result, current.evidence, current.seen_owner, current.seen_epoch, current.expires_at,
           current.run_status, current.seen_run_revision, operation.status AS seen_status,
           operation.revision AS seen_revision, operation.dispatch_owner, operation.dispatch_epoch,
           operation.ambiguous, operation.first_dispatched_at, operation.request_digest AS seen_digest
    FROM current JOIN ledger_operation AS operation
         ON operation.operation_key = current.operation_key AND operation.run_id = current.run_id
    ORDER BY operation.operation_key FOR NO KEY UPDATE OF operation
), judged AS MATERIALIZED (
    SELECT locked.operation_key, locked.run_id, locked.epoch, locked.revision, locked.verdict, locked.retry_ms,
           locked.window_ms, locked.remote_id, locked.result, locked.evidence, locked.seen_owner, locked.seen_epoch,
           locked.expires_at, locked.run_status, locked.seen_status, locked.seen_revision, locked.ambiguous,
           locked.first_dispatched_at,
           CASE WHEN (locked.seen_owner = %(owner)s AND locked.seen_epoch = locked.epoch
                      AND locked.expires_at > clock_timestamp()) IS NOT TRUE THEN 'lease_lost'
                WHEN locked.seen_status NOT IN ('dispatching', 'unknown') OR locked.dispatch_owner IS NULL
                     THEN 'wrong_status'
                WHEN locked.dispatch_owner <> %(owner)s OR locked.dispatch_epoch <> locked.epoch
                     OR locked.seen_revision <> locked.revision
                     OR (locked.run_status = 'running' AND locked.seen_run_revision <> locked.run_revision)
                     THEN 'conflict'
                WHEN locked.seen_digest <> locked.request_digest THEN 'digest'
           END AS refusal,
           CASE WHEN locked.verdict = 'accepted' THEN 'succeeded'
                WHEN locked.verdict = 'ambiguous' OR locked.ambiguous THEN 'unknown'
                WHEN locked.verdict = 'final' OR locked.run_status NOT IN ('pending', 'running')
                     OR (locked.retry_ms IS NULL AND locked.verdict <> 'unsent') THEN 'failed_final'
                ELSE 'prepared'
           END AS target
    FROM locked
), timed AS MATERIALIZED (
    SELECT judged.operation_key, judged.run_id, judged.verdict, judged.remote_id, judged.result, judged.run_status,
           judged.target,
           CASE WHEN judged.verdict = 'unsent' AND judged.run_status IN ('pending', 'running') THEN clock_timestamp()
                WHEN judged.target = 'prepared' THEN clock_timestamp() + judged.retry_ms * interval '1 millisecond'
                WHEN judged.target = 'unknown' AND judged.run_status IN ('pending', 'running')
                     AND judged.verdict <> 'final'
                     AND clock_timestamp() + judged.retry_ms * interval '1 millisecond'
                         < judged.first_dispatched_at + judged.window_ms * interval '1 millisecond'
                     THEN clock_timestamp() + judged.retry_ms * interval '1 millisecond'
           END AS due_at,
           CASE WHEN judged.target = 'unknown'
                     THEN judged.first_dispatched_at + judged.window_ms * interval '1 millisecond'
           END AS retry_until
    FROM judged WHERE judged.refusal IS NULL
), settled AS (
    UPDATE ledger_operation AS operation
    SET status = timed.target, dispatch_owner = NULL, dispatch_epoch = NULL, dispatch_until = NULL,
        due_at = timed.due_at,
        retry_until = CASE timed.verdict WHEN 'unsent' THEN operation.retry_until ELSE timed.retry_until END,
        ambiguous = operation.ambiguous OR timed.target = 'unknown',
        attempts = operation.attempts - (timed.verdict = 'unsent')::int,
        -- Whoever came back with an outcome was not lost. Who gave it back unsent proved nothing about sending it.
        losses = CASE timed.verdict WHEN 'unsent' THEN operation.losses ELSE 0 END,
        remote_id = coalesce(timed.remote_id, operation.remote_id),
        result = coalesce(timed.result::jsonb, operation.result), revision = operation.revision + 1,
        updated_at = clock_timestamp()
    FROM timed
    WHERE operation.operation_key = timed.operation_key
    RETURNING operation.operation_key, operation.run_id, operation.status, operation.revision, operation.due_at
), finished AS (
    UPDATE ledger_run AS run
    SET status = CASE settled.status WHEN 'succeeded' THEN 'succeeded' ELSE 'failed' END,
        revision = run.revision + 1, updated_at = clock_timestamp()
    FROM settled
    WHERE run.run_id = settled.run_id AND run.status = 'running' AND settled.status IN ('succeeded', 'failed_final')
      AND NOT EXISTS (
          SELECT FROM ledger_operation AS other
          WHERE other.run_id = settled.run_id AND other.operation_key <> settled.operation_key
            AND other.status IN ('prepared', 'dispatching', 'unknown'))
), freed AS (
    UPDATE ledger_lease AS lease SET owner = NULL, expires_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM timed WHERE lease.run_id = timed.run_id AND lease.owner = %(owner)s
), gone AS (
    DELETE FROM ledger_dispatch AS dispatch USING settled
    WHERE dispatch.operation_key = settled.operation_key AND settled.status IN ('succeeded', 'failed_final')
), requeued AS (
    UPDATE ledger_dispatch AS dispatch
    SET due_at = settled.due_at, until = NULL,
        unknown_since = CASE settled.status WHEN 'unknown' THEN coalesce(dispatch.unknown_since, clock_timestamp()) END
    FROM settled
    WHERE dispatch.operation_key = settled.operation_key AND settled.status IN ('prepared', 'unknown')
), refused AS (
    INSERT INTO ledger_fenced_write
           (statement, reason, run_id, operation_key, owner, epoch, revision, seen_owner, seen_epoch, seen_revision,
            seen_status, seen_expires_at, evidence)
    SELECT 'operation.settle', judged.refusal, judged.run_id, judged.operation_key, %(owner)s, judged.epoch,
           judged.revision, judged.seen_owner, judged.seen_epoch, judged.seen_revision, judged.seen_status,
           judged.expires_at, judged.evidence::jsonb
    FROM judged WHERE judged.refusal IS NOT NULL
)
SELECT settled.operation_key, NULL::text AS refusal, settled.status, settled.revision, settled.due_at,
       NULL::text AS seen_owner, NULL::bigint AS seen_epoch, NULL::timestamptz AS seen_expires_at
FROM settled
UNION ALL
SELECT judged.operation_key, judged.refusal, judged.seen_status, judged.seen_revision, NULL, judged.seen_owner,
       judged.seen_epoch, judged.expires_at
FROM judged WHERE judged.refusal IS NOT NULL
UNION ALL
SELECT sent.operation_key, 'missing', NULL, NULL, NULL, NULL, NULL, NULL FROM sent
WHERE NOT EXISTS (SELECT FROM ledger_operation AS operation
                  WHERE operation.operation_key = sent.operation_key AND operation.run_id = sent.run_id)

-- name: plan
-- Register an intent inside a protected write, after `lease.await_holders`: the holder of the lease, in the transaction
-- of the checkpoint that plans it. It raises the run's revision, so that whoever judged the run's operations on a
-- snapshot from before sees that it is old.
-- The same id again is the same intent when tool and digest match, and an integrity error when they do not. A changed
-- effect is the next version of its step, and takes the place of the one before: that is cancelled while nothing of it
-- can have been taken, and refuses to be replaced while nobody knows.
WITH presented AS MATERIALIZED (
    SELECT given.run_id, given.epoch, given.revision, given.step_id, given.effect_version, given.tool,
           given.request_digest, given.request_ref, given.due_ms
    FROM unnest(%(run_ids)b::uuid[], %(epochs)b::bigint[], %(revisions)b::bigint[], %(step_ids)b::text[],
                %(effect_versions)b::int[], %(tools)b::text[], %(request_digests)b::bytea[], %(request_refs)b::uuid[],
                %(due_ms)b::bigint[])
         AS given (run_id, epoch, revision, step_id, effect_version, tool, request_digest, request_ref, due_ms)
), locked AS MATERIALIZED (
    SELECT presented.run_id, presented.epoch, presented.revision, presented.step_id, presented.effect_version,
           presented.tool, presented.request_digest, presented.request_ref, presented.due_ms,
           lease.owner AS seen_owner, lease.epoch AS seen_epoch, lease.expires_at
    FROM presented JOIN ledger_lease AS lease USING (run_id)
    ORDER BY lease.run_id FOR NO KEY UPDATE OF lease
), current AS MATERIALIZED (
    SELECT locked.run_id, locked.epoch, locked.revision, locked.step_id, locked.effect_version, locked.tool,
           locked.request_digest, locked.request_ref, locked.due_ms, locked.seen_owner, locked.seen_epoch,
           locked.expires_at, run.status AS seen_status, run.revision AS seen_revision, run.task_id
    FROM locked JOIN ledger_run AS run USING (run_id)
    ORDER BY run.run_id FOR NO KEY UPDATE OF run
), preceded AS MATERIALIZED (
    SELECT current.run_id, current.step_id, operation.operation_key, operation.status
    FROM current JOIN ledger_operation AS operation
         ON operation.run_id = current.run_id AND operation.step_id = current.step_id
        AND operation.effect_version = current.effect_version - 1
    ORDER BY operation.operation_key FOR NO KEY UPDATE OF operation
), judged AS MATERIALIZED (
    SELECT current.run_id, current.epoch, current.revision, current.step_id, current.effect_version, current.tool,
           current.request_digest, current.request_ref, current.due_ms, current.seen_owner, current.seen_epoch,
           current.expires_at, current.seen_status, current.seen_revision, task.tenant_id, task.endpoint_id, task.in_line,
           known.operation_key AS known_key, preceded.operation_key AS preceding_key,
           preceded.status AS preceding_status,
           CASE WHEN (current.seen_owner = %(owner)s AND current.seen_epoch = current.epoch
                      AND current.expires_at > clock_timestamp()) IS NOT TRUE THEN 'lease_lost'
                WHEN current.seen_status <> 'running' THEN 'wrong_status'
                WHEN known.tool <> current.tool OR known.request_digest <> current.request_digest THEN 'integrity'
                WHEN known.operation_key IS NOT NULL THEN NULL
                WHEN current.seen_revision <> current.revision THEN 'conflict'
                WHEN current.effect_version > 1 AND preceded.operation_key IS NULL THEN 'gap'
                WHEN preceded.status IN ('dispatching', 'unknown') THEN 'unsettled'
           END AS refusal
    FROM current
    JOIN ledger_task AS task USING (task_id)
    LEFT JOIN ledger_operation AS known
         ON known.run_id = current.run_id AND known.step_id = current.step_id
        AND known.effect_version = current.effect_version
    LEFT JOIN preceded ON preceded.run_id = current.run_id AND preceded.step_id = current.step_id
), planned AS (
    INSERT INTO ledger_operation
           (run_id, step_id, effect_version, tool, request_digest, request_ref, status, due_at)
    SELECT judged.run_id, judged.step_id, judged.effect_version, judged.tool, judged.request_digest,
           judged.request_ref, 'prepared', clock_timestamp() + judged.due_ms * interval '1 millisecond'
    FROM judged WHERE judged.refusal IS NULL AND judged.known_key IS NULL
    RETURNING operation_key, run_id, step_id, effect_version, due_at
), advanced AS (
    UPDATE ledger_run AS run SET revision = run.revision + 1, updated_at = clock_timestamp()
    FROM (SELECT DISTINCT planned.run_id FROM planned) AS moved WHERE run.run_id = moved.run_id
    RETURNING run.run_id, run.revision
), queued AS (
    INSERT INTO ledger_dispatch (operation_key, run_id, tenant_id, endpoint_id, due_at, in_line)
    SELECT planned.operation_key, planned.run_id, judged.tenant_id, judged.endpoint_id, planned.due_at, judged.in_line
    FROM planned JOIN judged ON judged.run_id = planned.run_id AND judged.step_id = planned.step_id
), withdrawn AS (
    UPDATE ledger_operation AS operation
    SET status = 'cancelled', due_at = NULL, revision = operation.revision + 1, updated_at = clock_timestamp()
    FROM judged
    WHERE operation.operation_key = judged.preceding_key AND judged.preceding_status = 'prepared'
      AND judged.refusal IS NULL AND judged.known_key IS NULL
    RETURNING operation.operation_key
), gone AS (
    DELETE FROM ledger_dispatch AS dispatch USING withdrawn WHERE dispatch.operation_key = withdrawn.operation_key
), refused AS (
    INSERT INTO ledger_fenced_write
           (statement, reason, run_id, operation_key, owner, epoch, revision, seen_owner, seen_epoch, seen_revision,
            seen_status, seen_expires_at)
    SELECT 'operation.plan', judged.refusal, judged.run_id, coalesce(judged.known_key, judged.preceding_key),
           %(owner)s, judged.epoch, judged.revision, judged.seen_owner, judged.seen_epoch, judged.seen_revision,
           judged.seen_status, judged.expires_at
    FROM judged WHERE judged.refusal IS NOT NULL
)
SELECT planned.run_id, planned.step_id, planned.effect_version, NULL::text AS refusal, planned.operation_key,
       advanced.revision AS run_revision, NULL::text AS seen_status, NULL::text AS seen_owner,
       NULL::bigint AS seen_epoch, NULL::timestamptz AS seen_expires_at
FROM planned JOIN advanced USING (run_id)
UNION ALL
SELECT judged.run_id, judged.step_id, judged.effect_version, judged.refusal, judged.known_key,
       coalesce(advanced.revision, judged.seen_revision),
       CASE judged.refusal WHEN 'unsettled' THEN judged.preceding_status ELSE judged.seen_status END,
       judged.seen_owner, judged.seen_epoch, judged.expires_at
FROM judged LEFT JOIN advanced USING (run_id) WHERE judged.refusal IS NOT NULL OR judged.known_key IS NOT NULL
UNION ALL
SELECT presented.run_id, presented.step_id, presented.effect_version, 'missing', NULL, NULL, NULL, NULL, NULL, NULL
FROM presented WHERE NOT EXISTS (SELECT FROM ledger_run AS run WHERE run.run_id = presented.run_id)
