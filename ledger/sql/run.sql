-- Runs. A protected write locks the lease, judges owner, epoch and expiry after the lock, then compares and sets the
-- run by revision and status. The comparison is made once, on the locked row: an UPDATE's own WHERE looks at the
-- statement's snapshot first, and skips a row that became current only while the statement waited.
-- Only `cancel` needs no lease: it belongs to the control plane.

-- fragment: protected
-- reads: presented (run_id, epoch, revision), allowed (status, whether the run's operations must be settled), parameter
-- owner
locked AS MATERIALIZED (
    SELECT presented.run_id, presented.epoch, presented.revision, lease.owner AS seen_owner, lease.epoch AS seen_epoch,
           lease.expires_at
    FROM presented JOIN ledger_lease AS lease USING (run_id)
    ORDER BY lease.run_id FOR NO KEY UPDATE OF lease
), current AS MATERIALIZED (
    SELECT locked.run_id, locked.epoch, locked.revision, locked.seen_owner, locked.seen_epoch, locked.expires_at,
           run.status AS seen_status, run.revision AS seen_revision
    FROM locked JOIN ledger_run AS run USING (run_id)
    ORDER BY run.run_id FOR NO KEY UPDATE OF run
), judged AS MATERIALIZED (
    SELECT current.run_id, current.epoch, current.revision, current.seen_owner, current.seen_epoch, current.expires_at,
           current.seen_status, current.seen_revision,
           CASE WHEN (current.seen_owner = %(owner)s AND current.seen_epoch = current.epoch
                      AND current.expires_at > clock_timestamp()) IS NOT TRUE THEN 'lease_lost'
                WHEN current.seen_status <> allowed.status THEN 'wrong_status'
                WHEN current.seen_revision <> current.revision THEN 'conflict'
                WHEN allowed.settled AND EXISTS (
                    SELECT FROM ledger_operation AS operation WHERE operation.run_id = current.run_id
                    AND operation.status IN ('prepared', 'dispatching', 'unknown')) THEN 'unsettled'
           END AS refusal
    FROM current CROSS JOIN allowed
)

-- fragment: refused
-- reads: judged, parameters owner and statement
refused AS (
    INSERT INTO ledger_fenced_write
           (statement, reason, run_id, owner, epoch, revision, seen_owner, seen_epoch, seen_revision, seen_status,
            seen_expires_at)
    SELECT %(statement)s, judged.refusal, judged.run_id, %(owner)s, judged.epoch, judged.revision, judged.seen_owner,
           judged.seen_epoch, judged.seen_revision, judged.seen_status, judged.expires_at
    FROM judged WHERE judged.refusal IS NOT NULL
)

-- fragment: answer
-- reads: judged, written (run_id, revision, status), missing rows of presented
SELECT written.run_id, NULL::text AS refusal, written.revision, written.status, NULL::text AS seen_owner,
       NULL::bigint AS seen_epoch, NULL::timestamptz AS seen_expires_at
FROM written
UNION ALL
SELECT judged.run_id, judged.refusal, judged.seen_revision, judged.seen_status, judged.seen_owner, judged.seen_epoch,
       judged.expires_at
FROM judged WHERE judged.refusal IS NOT NULL
UNION ALL
SELECT presented.run_id, 'missing', NULL, NULL, NULL, NULL, NULL FROM presented
WHERE NOT EXISTS (SELECT FROM ledger_run AS run WHERE run.run_id = presented.run_id)

-- name: start
-- pending -> running.
WITH presented AS MATERIALIZED (
    SELECT given.run_id, given.epoch, given.revision
    FROM unnest(%(run_ids)b::uuid[], %(epochs)b::bigint[], %(revisions)b::bigint[]) AS given (run_id, epoch, revision)
), allowed AS (
    SELECT 'pending'::text AS status, false AS settled
), {{run.protected}}, written AS (
    UPDATE ledger_run AS run SET status = 'running', revision = run.revision + 1, updated_at = clock_timestamp()
    FROM judged
    WHERE run.run_id = judged.run_id AND judged.refusal IS NULL
    RETURNING run.run_id, run.revision, run.status
), {{run.refused}}
{{run.answer}}

-- name: save_checkpoint
-- Replace the checkpoint of a running run.
WITH presented AS MATERIALIZED (
    SELECT given.run_id, given.epoch, given.revision, given.checkpoint
    FROM unnest(%(run_ids)b::uuid[], %(epochs)b::bigint[], %(revisions)b::bigint[], %(checkpoints)b::text[])
         AS given (run_id, epoch, revision, checkpoint)
), allowed AS (
    SELECT 'running'::text AS status, false AS settled
), {{run.protected}}, written AS (
    UPDATE ledger_run AS run
    SET checkpoint = presented.checkpoint::jsonb, revision = run.revision + 1, updated_at = clock_timestamp()
    FROM judged JOIN presented ON presented.run_id = judged.run_id AND presented.revision = judged.revision
    WHERE run.run_id = judged.run_id AND judged.refusal IS NULL
    RETURNING run.run_id, run.revision, run.status
), {{run.refused}}
{{run.answer}}

-- name: succeed
-- running -> succeeded. A run with an unsettled operation is not over: its truth is not known yet.
WITH presented AS MATERIALIZED (
    SELECT given.run_id, given.epoch, given.revision
    FROM unnest(%(run_ids)b::uuid[], %(epochs)b::bigint[], %(revisions)b::bigint[]) AS given (run_id, epoch, revision)
), allowed AS (
    SELECT 'running'::text AS status, true AS settled
), {{run.protected}}, written AS (
    UPDATE ledger_run AS run SET status = 'succeeded', revision = run.revision + 1, updated_at = clock_timestamp()
    FROM judged
    WHERE run.run_id = judged.run_id AND judged.refusal IS NULL
    RETURNING run.run_id, run.revision, run.status
), {{run.refused}}
{{run.answer}}

-- name: fail
-- running -> failed, by the holder of the lease only. A worker that lost its lease has no right to fail the task, and
-- nobody may fail a run whose operation is unsettled.
WITH presented AS MATERIALIZED (
    SELECT given.run_id, given.epoch, given.revision
    FROM unnest(%(run_ids)b::uuid[], %(epochs)b::bigint[], %(revisions)b::bigint[]) AS given (run_id, epoch, revision)
), allowed AS (
    SELECT 'running'::text AS status, true AS settled
), {{run.protected}}, written AS (
    UPDATE ledger_run AS run SET status = 'failed', revision = run.revision + 1, updated_at = clock_timestamp()
    FROM judged
    WHERE run.run_id = judged.run_id AND judged.refusal IS NULL
    RETURNING run.run_id, run.revision, run.status
), {{run.refused}}
{{run.answer}}

-- name: cancel
-- pending or running -> cancelled, by the control plane, after `lease.await_holders`. What was only prepared is
-- cancelled with it; what may be on the wire keeps its status, and its truth is still recorded, but it is not sent
-- again.
WITH asked AS MATERIALIZED (
    SELECT unnest(%(run_ids)b::uuid[]) AS run_id
), locked AS MATERIALIZED (
    SELECT lease.run_id FROM asked JOIN ledger_lease AS lease USING (run_id)
    ORDER BY lease.run_id FOR NO KEY UPDATE OF lease
), current AS MATERIALIZED (
    SELECT run.run_id, run.status, run.revision FROM locked JOIN ledger_run AS run USING (run_id)
    ORDER BY run.run_id FOR NO KEY UPDATE OF run
), written AS (
    UPDATE ledger_run AS run SET status = 'cancelled', revision = run.revision + 1, updated_at = clock_timestamp()
    FROM current WHERE run.run_id = current.run_id AND run.status IN ('pending', 'running')
    RETURNING run.run_id, run.revision, run.status
), listed AS MATERIALIZED (
    SELECT operation.operation_key, operation.status, operation.dispatch_owner
    FROM written JOIN ledger_operation AS operation USING (run_id)
    ORDER BY operation.operation_key FOR NO KEY UPDATE OF operation
), withdrawn AS (
    UPDATE ledger_operation AS operation
    SET status = 'cancelled', due_at = NULL, revision = operation.revision + 1, updated_at = clock_timestamp()
    FROM listed WHERE operation.operation_key = listed.operation_key AND operation.status = 'prepared'
    RETURNING operation.operation_key
), gone AS (
    DELETE FROM ledger_dispatch AS dispatch USING withdrawn WHERE dispatch.operation_key = withdrawn.operation_key
), parked AS (
    UPDATE ledger_dispatch AS dispatch SET due_at = NULL
    FROM listed WHERE dispatch.operation_key = listed.operation_key AND listed.status = 'unknown'
      AND listed.dispatch_owner IS NULL
)
SELECT written.run_id, NULL::text AS refusal, written.revision, written.status, NULL::text AS seen_owner,
       NULL::bigint AS seen_epoch, NULL::timestamptz AS seen_expires_at
FROM written
UNION ALL
SELECT current.run_id, 'wrong_status', current.revision, current.status, NULL, NULL, NULL
FROM current WHERE current.status NOT IN ('pending', 'running')
UNION ALL
SELECT asked.run_id, 'missing', NULL, NULL, NULL, NULL, NULL FROM asked
WHERE NOT EXISTS (SELECT FROM ledger_run AS run WHERE run.run_id = asked.run_id)

-- name: finish_left_behind
-- The reconciler's patrol: runs in a stretch of the key order that still say running although their last operation is
-- settled. It takes the lease (a term of its own), lets the run follow, and gives the lease back.
-- What it saw of the operations is from before the locks. It still holds where the run has the revision that it had
-- then: a plan raises it.
WITH stretch AS MATERIALIZED (
    SELECT run.run_id, run.status, run.revision FROM ledger_run AS run
    WHERE run.run_id > %(after)s::uuid ORDER BY run.run_id LIMIT %(batch)s
), left_behind AS MATERIALIZED (
    SELECT stretch.run_id, stretch.revision, last.status AS last_status
    FROM stretch
    JOIN LATERAL (
        SELECT operation.status FROM ledger_operation AS operation WHERE operation.run_id = stretch.run_id
        ORDER BY operation.status IN ('prepared', 'dispatching', 'unknown') DESC, operation.operation_key DESC LIMIT 1
    ) AS last ON last.status IN ('succeeded', 'failed_final')
    WHERE stretch.status = 'running'
), locked AS MATERIALIZED (
    SELECT left_behind.run_id, left_behind.revision, left_behind.last_status, lease.owner, lease.expires_at
    FROM left_behind JOIN ledger_lease AS lease USING (run_id)
    WHERE lease.owner IS NULL OR lease.expires_at <= clock_timestamp()
    ORDER BY lease.run_id FOR NO KEY UPDATE OF lease SKIP LOCKED
), current AS MATERIALIZED (
    SELECT locked.run_id, locked.last_status, locked.owner, locked.expires_at
    FROM locked JOIN ledger_run AS run USING (run_id)
    WHERE run.status = 'running' AND run.revision = locked.revision
    ORDER BY run.run_id FOR NO KEY UPDATE OF run
), termed AS (
    UPDATE ledger_lease AS lease
    SET owner = NULL, epoch = lease.epoch + 1, acquired_at = clock_timestamp(), expires_at = clock_timestamp(),
        updated_at = clock_timestamp()
    FROM current WHERE lease.run_id = current.run_id
    RETURNING lease.run_id, lease.epoch, current.owner AS previous_owner, current.expires_at AS previous_expired_at,
              current.last_status
), displaced AS (
    INSERT INTO ledger_takeover (run_id, epoch, owner, previous_owner, previous_expired_at)
    SELECT termed.run_id, termed.epoch, %(owner)s, termed.previous_owner, termed.previous_expired_at
    FROM termed WHERE termed.previous_owner IS NOT NULL
), written AS (
    UPDATE ledger_run AS run
    SET status = CASE termed.last_status WHEN 'succeeded' THEN 'succeeded' ELSE 'failed' END,
        revision = run.revision + 1, updated_at = clock_timestamp()
    FROM termed WHERE run.run_id = termed.run_id
    RETURNING run.run_id
)
SELECT (SELECT stretch.run_id FROM stretch ORDER BY stretch.run_id DESC LIMIT 1) AS walked_to,
       (SELECT count(*) FROM written) AS finished
