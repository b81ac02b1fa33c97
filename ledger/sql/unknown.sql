-- Operations whose outcome nobody knows: how they come to be, and what may move them on. The moves: `states.py`.

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
           leased.expires_at, operation.dispatch_owner, operation.dispatch_epoch, operation.revision,
           operation.due_at
    FROM leased JOIN ledger_operation AS operation USING (operation_key)
    ORDER BY operation.operation_key FOR NO KEY UPDATE OF operation
), strayed AS (
    -- The pointer speaks of a claim that the operation knows nothing of.
    UPDATE ledger_dispatch AS dispatch SET until = NULL, due_at = locked.due_at
    FROM locked WHERE dispatch.operation_key = locked.operation_key AND locked.dispatch_owner IS NULL
), judged AS MATERIALIZED (
    SELECT locked.operation_key, locked.run_id, locked.tenant_id, locked.endpoint_id, locked.owner, locked.epoch,
           locked.expires_at, locked.dispatch_owner, locked.dispatch_epoch, locked.revision,
           -- Alive only under its own term: under a later one, even its owner's own, it can never be settled.
           (locked.owner = locked.dispatch_owner AND locked.epoch = locked.dispatch_epoch
            AND locked.expires_at > clock_timestamp()) IS TRUE AS alive
    FROM locked WHERE locked.dispatch_owner IS NOT NULL
), followed AS (
    -- Its owner renews the lease: look again when that ends. Else renewed claims would fill every batch, and what
    -- expired behind them would never be found.
    UPDATE ledger_dispatch AS dispatch SET until = judged.expires_at
    FROM judged WHERE dispatch.operation_key = judged.operation_key AND judged.alive
), expired AS (
    UPDATE ledger_operation AS operation
    SET status = 'unknown', dispatch_owner = NULL, dispatch_epoch = NULL, dispatch_until = NULL, due_at = NULL,
        ambiguous = true, losses = operation.losses + 1, revision = operation.revision + 1, updated_at = clock_timestamp()
    FROM judged
    WHERE operation.operation_key = judged.operation_key AND operation.dispatch_owner = judged.dispatch_owner
      AND operation.revision = judged.revision AND operation.dispatch_until <= clock_timestamp() AND NOT judged.alive
    RETURNING operation.operation_key, operation.run_id, judged.tenant_id, judged.endpoint_id, operation.request_ref,
              judged.dispatch_owner AS lost_owner, judged.dispatch_epoch AS lost_epoch, judged.expires_at,
              operation.attempts, operation.losses, operation.dispatched_at, operation.first_dispatched_at,
              operation.revision
), termed AS (
    UPDATE ledger_lease AS lease
    SET owner = NULL, epoch = lease.epoch + 1, acquired_at = clock_timestamp(), expires_at = clock_timestamp(),
        updated_at = clock_timestamp()
    FROM expired WHERE lease.run_id = expired.run_id AND lease.owner = expired.lost_owner
                                   AND lease.epoch = expired.lost_epoch
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
       expired.lost_owner, expired.lost_epoch, expired.attempts, expired.losses, expired.dispatched_at,
       expired.first_dispatched_at, expired.revision
FROM expired

-- name: schedule_retry
-- The reconciler's: an unknown operation may be sent again under the same id, at `retry_ms` from now, where that is
-- still inside the window that its receiver promised. Outside of it nothing changes: it waits for evidence or a person.
-- Without a `retry_ms` a retry that was planned is withdrawn: nobody would make it.
-- An operation whose claims ran out `losses_below` times in a row is not scheduled either: it may be what its workers
-- die of, and is left to a person.
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
           operation.revision AS seen_revision, operation.dispatch_owner, operation.losses,
           operation.first_dispatched_at + current.window_ms * interval '1 millisecond' AS retry_until
    FROM current JOIN ledger_operation AS operation USING (operation_key)
    ORDER BY operation.operation_key FOR NO KEY UPDATE OF operation
), scheduled AS (
    UPDATE ledger_operation AS operation
    SET due_at = clock_timestamp() + locked.retry_ms * interval '1 millisecond', retry_until = locked.retry_until,
        revision = operation.revision + 1, updated_at = clock_timestamp()
    FROM locked
    WHERE operation.operation_key = locked.operation_key AND locked.seen_revision = locked.revision
      AND locked.status = 'unknown' AND locked.dispatch_owner IS NULL AND locked.run_status IN ('pending', 'running')
      AND (locked.retry_ms IS NULL
           OR (locked.losses < %(losses_below)s::int
               AND clock_timestamp() + locked.retry_ms * interval '1 millisecond' < locked.retry_until))
    RETURNING operation.operation_key, operation.revision, operation.due_at
), queued AS (
    UPDATE ledger_dispatch AS dispatch SET due_at = scheduled.due_at
    FROM scheduled WHERE dispatch.operation_key = scheduled.operation_key
)
SELECT scheduled.operation_key, scheduled.revision, scheduled.due_at FROM scheduled

-- fragment: locked
-- reads: asked (operation_key, revision, target, due_ms, of_prepared)
-- Locks lease, run and operation of unknown operations and judges them. The lease must be free: an operation that is
-- being sent again at this moment is settled by who sends it. `of_prepared`: an operation that has been sent and waits
-- for its next try is moved on as well.
-- The run follows only where its revision is still the one of this statement's snapshot: then nothing was planned while
-- it waited for the locks, and what the snapshot says of the run's other operations holds.
pointed AS MATERIALIZED (
    SELECT asked.operation_key, asked.revision, asked.target, asked.due_ms, asked.of_prepared, operation.run_id,
           run.revision AS known_run_revision
    FROM asked JOIN ledger_operation AS operation USING (operation_key) JOIN ledger_run AS run USING (run_id)
), leased AS MATERIALIZED (
    SELECT pointed.operation_key, pointed.revision, pointed.target, pointed.due_ms, pointed.of_prepared, pointed.run_id,
           pointed.known_run_revision, lease.owner, lease.epoch, lease.expires_at
    FROM pointed JOIN ledger_lease AS lease USING (run_id)
    ORDER BY lease.run_id FOR NO KEY UPDATE OF lease
), current AS MATERIALIZED (
    SELECT leased.operation_key, leased.revision, leased.target, leased.due_ms, leased.of_prepared, leased.run_id,
           leased.owner, leased.epoch, leased.expires_at, run.status AS run_status,
           run.revision = leased.known_run_revision AS run_unmoved
    FROM leased JOIN ledger_run AS run USING (run_id)
    ORDER BY run.run_id FOR NO KEY UPDATE OF run
), locked AS MATERIALIZED (
    SELECT current.operation_key, current.revision, current.target, current.due_ms, current.of_prepared, current.run_id,
           current.owner, current.epoch, current.expires_at, current.run_status, current.run_unmoved,
           operation.status AS seen_status, operation.revision AS seen_revision, operation.dispatch_owner,
           operation.attempts
    FROM current JOIN ledger_operation AS operation USING (operation_key)
    ORDER BY operation.operation_key FOR NO KEY UPDATE OF operation
), judged AS MATERIALIZED (
    SELECT locked.operation_key, locked.revision, locked.due_ms, locked.run_id, locked.owner, locked.epoch,
           locked.expires_at, locked.run_status, locked.run_unmoved, locked.seen_status, locked.seen_revision,
           CASE WHEN locked.target = 'prepared'
                     AND (locked.run_status NOT IN ('pending', 'running') OR locked.due_ms IS NULL)
                THEN 'failed_final' ELSE locked.target END AS target,
           CASE WHEN locked.seen_status <> 'unknown'
                     AND (locked.of_prepared AND locked.seen_status = 'prepared' AND locked.attempts > 0) IS NOT TRUE
                     THEN 'wrong_status'
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
    SET status = judged.target, ambiguous = judged.target <> 'prepared' AND judged.seen_status <> 'prepared',
        retry_until = NULL,
        -- To send it again is a person's decision, in knowledge of the losses: they are counted anew from here, or the
        -- next sweep would undo it. Evidence of what became of it says nothing about who was lost.
        losses = CASE judged.target WHEN 'unknown' THEN 0 ELSE operation.losses END,
        due_at = CASE WHEN judged.target IN ('prepared', 'unknown')
                      THEN clock_timestamp() + judged.due_ms * interval '1 millisecond' END,
        remote_id = coalesce(%(remote_id)s::text, operation.remote_id),
        result = coalesce(operation.result, '{}'::jsonb) || %(result)s::jsonb,
        revision = operation.revision + 1, updated_at = clock_timestamp()
    FROM judged
    WHERE operation.operation_key = judged.operation_key AND judged.refusal IS NULL
    RETURNING operation.operation_key, operation.run_id, operation.status, operation.revision, operation.due_at,
              judged.run_unmoved
), finished AS (
    UPDATE ledger_run AS run
    SET status = CASE settled.status WHEN 'succeeded' THEN 'succeeded' ELSE 'failed' END,
        revision = run.revision + 1, updated_at = clock_timestamp()
    FROM settled
    WHERE run.run_id = settled.run_id AND run.status = 'running' AND settled.status IN ('succeeded', 'failed_final')
      AND settled.run_unmoved AND NOT EXISTS (
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

-- fragment: answer
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
    SELECT given.operation_key, given.revision, 0::bigint AS due_ms, false AS of_prepared,
           CASE %(decision)s::text
               WHEN 'succeeded' THEN 'succeeded' WHEN 'failed' THEN 'failed_final' WHEN 'retry' THEN 'unknown'
           END AS target
    FROM unnest(%(operation_keys)b::bigint[], %(revisions)b::bigint[]) AS given (operation_key, revision)
), {{unknown.locked}}, recorded AS (
    INSERT INTO ledger_resolution (operation_key, actor, decision, reason, revision_seen)
    SELECT judged.operation_key, %(actor)s, %(decision)s, %(reason)s, judged.revision
    FROM judged WHERE judged.refusal IS NULL
)
{{unknown.answer}}

-- name: converge
-- Evidence settles what is unknown: acceptance (`accepted`), or an authoritative answer that it never arrived
-- (`not_taken`: back to prepared when a try is left, else failed) or was rejected for good (`final`). Anything less
-- changes nothing.
WITH asked AS MATERIALIZED (
    SELECT given.operation_key, given.revision, given.retry_ms AS due_ms, given.verdict = 'accepted' AS of_prepared,
           CASE given.verdict
               WHEN 'accepted' THEN 'succeeded' WHEN 'not_taken' THEN 'prepared' WHEN 'final' THEN 'failed_final'
           END AS target
    FROM unnest(%(operation_keys)b::bigint[], %(revisions)b::bigint[], %(verdicts)b::text[], %(retry_ms)b::bigint[])
         AS given (operation_key, revision, verdict, retry_ms)
), {{unknown.locked}}
{{unknown.answer}}
