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
        dispatch_owner = %(owner)s, dispatch_until = acquired.expires_at, attempts = operation.attempts + 1,
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
-- What an owner holds, read back: after a claim whose COMMIT was not answered, this is what it did.
SELECT operation.operation_key, operation.run_id, run.task_id, dispatch.tenant_id, dispatch.endpoint_id,
       operation.request_ref, operation.request_digest, operation.step_id, operation.effect_version, operation.status,
       operation.revision, operation.attempts, operation.ambiguous, operation.first_dispatched_at,
       operation.dispatched_at, lease.epoch, lease.expires_at, run.revision AS run_revision
FROM ledger_dispatch AS dispatch
JOIN ledger_operation AS operation USING (operation_key)
JOIN ledger_run AS run ON run.run_id = operation.run_id
JOIN ledger_lease AS lease ON lease.run_id = operation.run_id
WHERE dispatch.until IS NOT NULL AND operation.dispatch_owner = %(owner)s AND lease.owner = %(owner)s

-- name: settle
-- Write the outcome of attempts, give the lease back and let the run follow (when no other operation of it is
-- unsettled), row by row: a row whose owner, epoch, revision or digest is no longer current changes nothing and is
-- answered, and recorded, with what is current.
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
           operation.revision AS seen_revision, operation.dispatch_owner, operation.ambiguous,
           operation.first_dispatched_at, operation.request_digest AS seen_digest
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
                WHEN locked.dispatch_owner <> %(owner)s OR locked.seen_revision <> locked.revision
                     OR (locked.run_status = 'running' AND locked.seen_run_revision <> locked.run_revision)
                     THEN 'conflict'
                WHEN locked.seen_digest <> locked.request_digest THEN 'digest'
           END AS refusal,
           CASE WHEN locked.verdict = 'accepted' THEN 'succeeded'
                WHEN locked.verdict = 'ambiguous' OR locked.ambiguous THEN 'unknown'
                WHEN locked.verdict = 'final' OR locked.run_status = 'cancelled'
                     OR (locked.retry_ms IS NULL AND locked.verdict <> 'unsent') THEN 'failed_final'
                ELSE 'prepared'
           END AS target
    FROM locked
), timed AS MATERIALIZED (
    SELECT judged.operation_key, judged.run_id, judged.verdict, judged.remote_id, judged.result, judged.run_status,
           judged.target,
           CASE WHEN judged.verdict = 'unsent' AND judged.run_status <> 'cancelled' THEN clock_timestamp()
                WHEN judged.target = 'prepared' THEN clock_timestamp() + judged.retry_ms * interval '1 millisecond'
                WHEN judged.target = 'unknown' AND judged.run_status <> 'cancelled' AND judged.verdict <> 'final'
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
    SET status = timed.target, dispatch_owner = NULL, dispatch_until = NULL, due_at = timed.due_at,
        retry_until = CASE timed.verdict WHEN 'unsent' THEN operation.retry_until ELSE timed.retry_until END,
        ambiguous = operation.ambiguous OR timed.target = 'unknown',
        attempts = operation.attempts - (timed.verdict = 'unsent')::int,
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

-- name: expire_claims
-- The reconciler's: a claim whose time has passed and whose owner no longer holds the lease leaves its operation
-- unknown, never prepared: the request may have arrived. The reconciler takes the orphaned lease over for a term of its
-- own and gives it back, so that the dead owner is fenced out from this moment and the takeover is on record.
WITH late AS MATERIALIZED (
    SELECT dispatch.operation_key, dispatch.run_id, dispatch.tenant_id, dispatch.endpoint_id
    FROM ledger_dispatch AS dispatch
    WHERE dispatch.until <= (SELECT clock_timestamp())
    ORDER BY dispatch.until LIMIT %(batch)s
    FOR NO KEY UPDATE OF dispatch SKIP LOCKED
), leased AS MATERIALIZED (
    SELECT late.operation_key, late.run_id, late.tenant_id, late.endpoint_id, lease.owner, lease.epoch,
           lease.expires_at
    FROM late JOIN ledger_lease AS lease USING (run_id)
    ORDER BY lease.run_id FOR NO KEY UPDATE OF lease SKIP LOCKED
), locked AS MATERIALIZED (
    SELECT leased.operation_key, leased.run_id, leased.tenant_id, leased.endpoint_id, leased.owner, leased.epoch,
           leased.expires_at, operation.dispatch_owner, operation.revision, operation.due_at
    FROM leased JOIN ledger_operation AS operation USING (operation_key)
    ORDER BY operation.operation_key FOR NO KEY UPDATE OF operation
), strayed AS (
    -- The pointer speaks of a claim that the operation knows nothing of.
    UPDATE ledger_dispatch AS dispatch SET until = NULL, due_at = locked.due_at
    FROM locked WHERE dispatch.operation_key = locked.operation_key AND locked.dispatch_owner IS NULL
), judged AS MATERIALIZED (
    SELECT locked.operation_key, locked.run_id, locked.tenant_id, locked.endpoint_id, locked.owner, locked.epoch,
           locked.expires_at, locked.dispatch_owner, locked.revision,
           (locked.owner = locked.dispatch_owner AND locked.expires_at > clock_timestamp()) IS TRUE AS alive
    FROM locked WHERE locked.dispatch_owner IS NOT NULL
), followed AS (
    -- Its owner renews the lease: look again when that ends. Else renewed claims would fill every batch, and what
    -- expired behind them would never be found.
    UPDATE ledger_dispatch AS dispatch SET until = judged.expires_at
    FROM judged WHERE dispatch.operation_key = judged.operation_key AND judged.alive
), expired AS (
    UPDATE ledger_operation AS operation
    SET status = 'unknown', dispatch_owner = NULL, dispatch_until = NULL, due_at = NULL, ambiguous = true,
        revision = operation.revision + 1, updated_at = clock_timestamp()
    FROM judged
    WHERE operation.operation_key = judged.operation_key AND operation.dispatch_owner = judged.dispatch_owner
      AND operation.revision = judged.revision AND operation.dispatch_until <= clock_timestamp() AND NOT judged.alive
    RETURNING operation.operation_key, operation.run_id, judged.tenant_id, judged.endpoint_id, operation.request_ref,
              judged.dispatch_owner AS lost_owner, judged.owner AS lease_owner, judged.epoch AS lost_epoch,
              judged.expires_at, operation.attempts, operation.dispatched_at, operation.first_dispatched_at,
              operation.revision
), termed AS (
    UPDATE ledger_lease AS lease
    SET owner = NULL, epoch = lease.epoch + 1, acquired_at = clock_timestamp(), expires_at = clock_timestamp(),
        updated_at = clock_timestamp()
    FROM expired WHERE lease.run_id = expired.run_id AND lease.owner = expired.lost_owner
    RETURNING lease.run_id, lease.epoch, expired.lost_owner, expired.expires_at
), displaced AS (
    INSERT INTO ledger_takeover (run_id, epoch, owner, previous_owner, previous_expired_at)
    SELECT termed.run_id, termed.epoch, %(owner)s, termed.lost_owner, termed.expires_at FROM termed
), parked AS (
    UPDATE ledger_dispatch AS dispatch
    SET due_at = NULL, until = NULL, unknown_since = coalesce(dispatch.unknown_since, clock_timestamp())
    FROM expired WHERE dispatch.operation_key = expired.operation_key
)
SELECT expired.operation_key, expired.run_id, expired.tenant_id, expired.endpoint_id, expired.request_ref,
       expired.lost_owner, expired.lost_epoch, expired.attempts, expired.dispatched_at, expired.first_dispatched_at,
       expired.revision
FROM expired

-- name: schedule_retry
-- The reconciler's: an unknown operation may be sent again under the same id, at `retry_ms` from now, where that is
-- still inside the window that its receiver promised. Outside of it nothing changes: it waits for evidence or a person.
-- Without a `retry_ms` a retry that was planned is withdrawn: nobody would make it.
WITH asked AS MATERIALIZED (
    SELECT given.operation_key, given.revision, given.retry_ms, given.window_ms
    FROM unnest(%(operation_keys)b::bigint[], %(revisions)b::bigint[], %(retry_ms)b::bigint[], %(window_ms)b::bigint[])
         AS given (operation_key, revision, retry_ms, window_ms)
), pointed AS MATERIALIZED (
    SELECT asked.operation_key, asked.revision, asked.retry_ms, asked.window_ms, operation.run_id
    FROM asked JOIN ledger_operation AS operation USING (operation_key)
), leased AS MATERIALIZED (
    SELECT pointed.operation_key, pointed.revision, pointed.retry_ms, pointed.window_ms, pointed.run_id
    FROM pointed JOIN ledger_lease AS lease USING (run_id)
    ORDER BY lease.run_id FOR NO KEY UPDATE OF lease
), current AS MATERIALIZED (
    SELECT leased.operation_key, leased.revision, leased.retry_ms, leased.window_ms, run.status AS run_status
    FROM leased JOIN ledger_run AS run USING (run_id)
    ORDER BY run.run_id FOR NO KEY UPDATE OF run
), locked AS MATERIALIZED (
    SELECT current.operation_key, current.revision, current.retry_ms, current.run_status, operation.status,
           operation.revision AS seen_revision, operation.dispatch_owner,
           operation.first_dispatched_at + current.window_ms * interval '1 millisecond' AS retry_until
    FROM current JOIN ledger_operation AS operation USING (operation_key)
    ORDER BY operation.operation_key FOR NO KEY UPDATE OF operation
), scheduled AS (
    UPDATE ledger_operation AS operation
    SET due_at = clock_timestamp() + locked.retry_ms * interval '1 millisecond', retry_until = locked.retry_until,
        revision = operation.revision + 1, updated_at = clock_timestamp()
    FROM locked
    WHERE operation.operation_key = locked.operation_key AND locked.seen_revision = locked.revision
      AND locked.status = 'unknown' AND locked.dispatch_owner IS NULL AND locked.run_status <> 'cancelled'
      AND (locked.retry_ms IS NULL
           OR clock_timestamp() + locked.retry_ms * interval '1 millisecond' < locked.retry_until)
    RETURNING operation.operation_key, operation.revision, operation.due_at
), queued AS (
    UPDATE ledger_dispatch AS dispatch SET due_at = scheduled.due_at
    FROM scheduled WHERE dispatch.operation_key = scheduled.operation_key
)
SELECT scheduled.operation_key, scheduled.revision, scheduled.due_at FROM scheduled

-- fragment: unknown_locked
-- reads: asked (operation_key, revision, target, due_ms)
-- Locks lease, run and operation of unknown operations and judges them. The lease must be free: an operation that is
-- being sent again at this moment is settled by who sends it.
pointed AS MATERIALIZED (
    SELECT asked.operation_key, asked.revision, asked.target, asked.due_ms, operation.run_id
    FROM asked JOIN ledger_operation AS operation USING (operation_key)
), leased AS MATERIALIZED (
    SELECT pointed.operation_key, pointed.revision, pointed.target, pointed.due_ms, pointed.run_id, lease.owner,
           lease.epoch, lease.expires_at
    FROM pointed JOIN ledger_lease AS lease USING (run_id)
    ORDER BY lease.run_id FOR NO KEY UPDATE OF lease
), current AS MATERIALIZED (
    SELECT leased.operation_key, leased.revision, leased.target, leased.due_ms, leased.run_id, leased.owner,
           leased.epoch, leased.expires_at, run.status AS run_status
    FROM leased JOIN ledger_run AS run USING (run_id)
    ORDER BY run.run_id FOR NO KEY UPDATE OF run
), locked AS MATERIALIZED (
    SELECT current.operation_key, current.revision, current.target, current.due_ms, current.run_id, current.owner,
           current.epoch, current.expires_at, current.run_status, operation.status AS seen_status,
           operation.revision AS seen_revision, operation.dispatch_owner
    FROM current JOIN ledger_operation AS operation USING (operation_key)
    ORDER BY operation.operation_key FOR NO KEY UPDATE OF operation
), judged AS MATERIALIZED (
    SELECT locked.operation_key, locked.revision, locked.due_ms, locked.run_id, locked.owner, locked.epoch,
           locked.expires_at, locked.run_status, locked.seen_status, locked.seen_revision,
           CASE WHEN locked.target = 'prepared' AND (locked.run_status = 'cancelled' OR locked.due_ms IS NULL)
                THEN 'failed_final' ELSE locked.target END AS target,
           CASE WHEN locked.seen_status <> 'unknown' THEN 'wrong_status'
                WHEN locked.dispatch_owner IS NOT NULL
                     OR (locked.owner IS NOT NULL AND locked.expires_at > clock_timestamp()) THEN 'claimed'
                WHEN locked.seen_revision <> locked.revision THEN 'conflict'
                WHEN locked.target = 'unknown' AND locked.run_status = 'cancelled' THEN 'run_cancelled'
           END AS refusal
    FROM locked
), termed AS (
    UPDATE ledger_lease AS lease
    SET owner = NULL, epoch = lease.epoch + 1, acquired_at = clock_timestamp(), expires_at = clock_timestamp(),
        updated_at = clock_timestamp()
    FROM judged WHERE lease.run_id = judged.run_id AND judged.refusal IS NULL
    RETURNING lease.run_id, lease.epoch, judged.owner AS previous_owner, judged.expires_at AS previous_expired_at
), displaced AS (
    INSERT INTO ledger_takeover (run_id, epoch, owner, previous_owner, previous_expired_at)
    SELECT termed.run_id, termed.epoch, %(actor)s, termed.previous_owner, termed.previous_expired_at
    FROM termed WHERE termed.previous_owner IS NOT NULL
), settled AS (
    UPDATE ledger_operation AS operation
    SET status = judged.target, ambiguous = judged.target <> 'prepared', retry_until = NULL,
        due_at = CASE WHEN judged.target IN ('prepared', 'unknown')
                      THEN clock_timestamp() + judged.due_ms * interval '1 millisecond' END,
        remote_id = coalesce(%(remote_id)s::text, operation.remote_id),
        result = coalesce(operation.result, '{}'::jsonb) || %(result)s::jsonb,
        revision = operation.revision + 1, updated_at = clock_timestamp()
    FROM judged
    WHERE operation.operation_key = judged.operation_key AND judged.refusal IS NULL
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
), gone AS (
    DELETE FROM ledger_dispatch AS dispatch USING settled
    WHERE dispatch.operation_key = settled.operation_key AND settled.status IN ('succeeded', 'failed_final')
), requeued AS (
    UPDATE ledger_dispatch AS dispatch
    SET due_at = settled.due_at, until = NULL,
        unknown_since = CASE settled.status WHEN 'unknown' THEN coalesce(dispatch.unknown_since, clock_timestamp()) END
    FROM settled
    WHERE dispatch.operation_key = settled.operation_key AND settled.status IN ('prepared', 'unknown')
)

-- fragment: unknown_answer
SELECT settled.operation_key, NULL::text AS refusal, settled.status, settled.revision, settled.due_at,
       NULL::text AS seen_owner, NULL::bigint AS seen_epoch, NULL::timestamptz AS seen_expires_at
FROM settled
UNION ALL
SELECT judged.operation_key, judged.refusal, judged.seen_status, judged.seen_revision, NULL, judged.owner,
       judged.epoch, judged.expires_at
FROM judged WHERE judged.refusal IS NOT NULL
UNION ALL
SELECT asked.operation_key, 'missing', NULL, NULL, NULL, NULL, NULL, NULL FROM asked
WHERE NOT EXISTS (SELECT FROM ledger_operation AS operation WHERE operation.operation_key = asked.operation_key)

-- name: resolve
-- A person settles what is unknown, naming the revision that they saw. `retry` sends it once more under the same id.
WITH asked AS MATERIALIZED (
    SELECT given.operation_key, given.revision, 0::bigint AS due_ms,
           CASE %(decision)s::text
               WHEN 'succeeded' THEN 'succeeded' WHEN 'failed' THEN 'failed_final' WHEN 'retry' THEN 'unknown'
           END AS target
    FROM unnest(%(operation_keys)b::bigint[], %(revisions)b::bigint[]) AS given (operation_key, revision)
), {{operation.unknown_locked}}, recorded AS (
    INSERT INTO ledger_resolution (operation_key, actor, decision, reason, revision_seen)
    SELECT judged.operation_key, %(actor)s, %(decision)s, %(reason)s, judged.revision
    FROM judged WHERE judged.refusal IS NULL
)
{{operation.unknown_answer}}

-- name: converge
-- Evidence settles what is unknown: acceptance (`accepted`), or an authoritative answer that it never arrived
-- (`not_taken`: back to prepared when a try is left, else failed). Anything less changes nothing.
WITH asked AS MATERIALIZED (
    SELECT given.operation_key, given.revision, given.retry_ms AS due_ms,
           CASE given.verdict WHEN 'accepted' THEN 'succeeded' WHEN 'not_taken' THEN 'prepared' END AS target
    FROM unnest(%(operation_keys)b::bigint[], %(revisions)b::bigint[], %(verdicts)b::text[], %(retry_ms)b::bigint[])
         AS given (operation_key, revision, verdict, retry_ms)
), {{operation.unknown_locked}}
{{operation.unknown_answer}}

-- name: plan
-- Register an intent inside a protected write, after `lease.await_holders`: the holder of the lease, in the transaction
-- of the checkpoint that plans it. The same id again is the same intent when tool and digest match, and an integrity
-- error when they do not.
WITH presented AS MATERIALIZED (
    SELECT given.run_id, given.epoch, given.step_id, given.effect_version, given.tool, given.request_digest,
           given.request_ref, given.due_ms
    FROM unnest(%(run_ids)b::uuid[], %(epochs)b::bigint[], %(step_ids)b::text[], %(effect_versions)b::int[],
                %(tools)b::text[], %(request_digests)b::bytea[], %(request_refs)b::uuid[], %(due_ms)b::bigint[])
         AS given (run_id, epoch, step_id, effect_version, tool, request_digest, request_ref, due_ms)
), locked AS MATERIALIZED (
    SELECT presented.run_id, presented.epoch, presented.step_id, presented.effect_version, presented.tool,
           presented.request_digest, presented.request_ref, presented.due_ms, lease.owner AS seen_owner,
           lease.epoch AS seen_epoch, lease.expires_at
    FROM presented JOIN ledger_lease AS lease USING (run_id)
    ORDER BY lease.run_id FOR NO KEY UPDATE OF lease
), current AS MATERIALIZED (
    SELECT locked.run_id, locked.epoch, locked.step_id, locked.effect_version, locked.tool, locked.request_digest,
           locked.request_ref, locked.due_ms, locked.seen_owner, locked.seen_epoch, locked.expires_at,
           run.status AS seen_status, run.task_id
    FROM locked JOIN ledger_run AS run USING (run_id)
    ORDER BY run.run_id FOR NO KEY UPDATE OF run
), judged AS MATERIALIZED (
    SELECT current.run_id, current.epoch, current.step_id, current.effect_version, current.tool,
           current.request_digest, current.request_ref, current.due_ms, current.seen_owner, current.seen_epoch,
           current.expires_at, current.seen_status, task.tenant_id, task.endpoint_id,
           known.operation_key AS known_key, known.revision AS known_revision,
           CASE WHEN (current.seen_owner = %(owner)s AND current.seen_epoch = current.epoch
                      AND current.expires_at > clock_timestamp()) IS NOT TRUE THEN 'lease_lost'
                WHEN current.seen_status <> 'running' THEN 'wrong_status'
                WHEN known.operation_key IS NOT NULL AND (known.tool <> current.tool
                     OR known.request_digest <> current.request_digest) THEN 'integrity'
           END AS refusal
    FROM current
    JOIN ledger_task AS task USING (task_id)
    LEFT JOIN ledger_operation AS known
         ON known.run_id = current.run_id AND known.step_id = current.step_id
        AND known.effect_version = current.effect_version
), planned AS (
    INSERT INTO ledger_operation
           (run_id, step_id, effect_version, tool, request_digest, request_ref, status, due_at)
    SELECT judged.run_id, judged.step_id, judged.effect_version, judged.tool, judged.request_digest,
           judged.request_ref, 'prepared', clock_timestamp() + judged.due_ms * interval '1 millisecond'
    FROM judged WHERE judged.refusal IS NULL AND judged.known_key IS NULL
    RETURNING operation_key, run_id, step_id, effect_version, due_at, revision
), queued AS (
    INSERT INTO ledger_dispatch (operation_key, run_id, tenant_id, endpoint_id, due_at)
    SELECT planned.operation_key, planned.run_id, judged.tenant_id, judged.endpoint_id, planned.due_at
    FROM planned JOIN judged ON judged.run_id = planned.run_id AND judged.step_id = planned.step_id
         AND judged.effect_version = planned.effect_version
), refused AS (
    INSERT INTO ledger_fenced_write
           (statement, reason, run_id, operation_key, owner, epoch, seen_owner, seen_epoch, seen_revision, seen_status,
            seen_expires_at)
    SELECT 'operation.plan', judged.refusal, judged.run_id, judged.known_key, %(owner)s, judged.epoch,
           judged.seen_owner, judged.seen_epoch, judged.known_revision, judged.seen_status, judged.expires_at
    FROM judged WHERE judged.refusal IS NOT NULL
)
SELECT planned.run_id, planned.step_id, planned.effect_version, NULL::text AS refusal, planned.operation_key,
       planned.revision, NULL::text AS seen_status, NULL::text AS seen_owner, NULL::bigint AS seen_epoch,
       NULL::timestamptz AS seen_expires_at
FROM planned
UNION ALL
SELECT judged.run_id, judged.step_id, judged.effect_version, judged.refusal, judged.known_key, judged.known_revision,
       judged.seen_status, judged.seen_owner, judged.seen_epoch, judged.expires_at
FROM judged WHERE judged.refusal IS NOT NULL OR judged.known_key IS NOT NULL
UNION ALL
SELECT presented.run_id, presented.step_id, presented.effect_version, 'missing', NULL, NULL, NULL, NULL, NULL, NULL
FROM presented WHERE NOT EXISTS (SELECT FROM ledger_run AS run WHERE run.run_id = presented.run_id)
