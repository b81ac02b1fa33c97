-- Leases. The lease row is the mutex of its run: every statement that writes the run or its operations locks it first,
-- and judges owner, epoch and expiry on the locked row with a fresh clock. An UPDATE's own WHERE is not enough: when the
-- row that it waited for was only locked, not changed, it keeps the clock that it read before the wait.
-- Lock order everywhere: task, lease, run, operation, queue row; inside each, in key order. The two statements that start from
-- the queue (`operation.claim`, `unknown.expire_claims`) hold its rows before the lease, and so never wait for either:
-- they skip what is locked.

-- name: acquire
-- Take what is free or expired under the next epoch; displacing an expired owner leaves a takeover.
WITH asked AS MATERIALIZED (
    SELECT unnest(%(run_ids)b::uuid[]) AS run_id
), locked AS MATERIALIZED (
    SELECT lease.run_id, lease.owner, lease.epoch, lease.expires_at
    FROM asked JOIN ledger_lease AS lease USING (run_id)
    ORDER BY lease.run_id FOR NO KEY UPDATE OF lease
), judged AS MATERIALIZED (
    SELECT locked.run_id, locked.owner, locked.epoch, locked.expires_at,
           locked.owner IS NULL OR locked.expires_at <= clock_timestamp() AS free
    FROM locked
), acquired AS (
    UPDATE ledger_lease AS lease
    SET owner = %(owner)s, epoch = lease.epoch + 1, acquired_at = clock_timestamp(), updated_at = clock_timestamp(),
        expires_at = clock_timestamp() + %(ttl_ms)s::bigint * interval '1 millisecond'
    FROM judged WHERE lease.run_id = judged.run_id AND judged.free
    RETURNING lease.run_id, lease.owner, lease.epoch, lease.expires_at, judged.owner AS previous_owner,
              judged.expires_at AS previous_expired_at
), displaced AS (
    INSERT INTO ledger_takeover (run_id, epoch, owner, previous_owner, previous_expired_at)
    SELECT acquired.run_id, acquired.epoch, acquired.owner, acquired.previous_owner, acquired.previous_expired_at
    FROM acquired WHERE acquired.previous_owner IS NOT NULL
)
SELECT acquired.run_id, NULL::text AS refusal, acquired.owner, acquired.epoch, acquired.expires_at FROM acquired
UNION ALL
SELECT judged.run_id, 'lease_held', judged.owner, judged.epoch, judged.expires_at FROM judged WHERE NOT judged.free
UNION ALL
SELECT asked.run_id, 'missing', NULL, NULL, NULL FROM asked
WHERE NOT EXISTS (SELECT FROM ledger_lease AS lease WHERE lease.run_id = asked.run_id)

-- name: renew
-- One statement per heartbeat for all that an owner holds. What has expired cannot be revived.
WITH held AS MATERIALIZED (
    SELECT held.run_id, held.epoch
    FROM unnest(%(run_ids)b::uuid[], %(epochs)b::bigint[]) AS held (run_id, epoch)
), locked AS MATERIALIZED (
    SELECT held.run_id, held.epoch, lease.owner AS seen_owner, lease.epoch AS seen_epoch, lease.expires_at
    FROM held JOIN ledger_lease AS lease USING (run_id)
    ORDER BY lease.run_id FOR NO KEY UPDATE OF lease
), judged AS MATERIALIZED (
    SELECT locked.run_id, locked.epoch, locked.seen_owner, locked.seen_epoch, locked.expires_at,
           (locked.seen_owner = %(owner)s AND locked.seen_epoch = locked.epoch
            AND locked.expires_at > clock_timestamp()) IS TRUE AS current
    FROM locked
), renewed AS (
    UPDATE ledger_lease AS lease
    SET expires_at = clock_timestamp() + %(ttl_ms)s::bigint * interval '1 millisecond', updated_at = clock_timestamp()
    FROM judged WHERE lease.run_id = judged.run_id AND judged.current
    RETURNING lease.run_id, lease.owner, lease.epoch, lease.expires_at
), refused AS (
    INSERT INTO ledger_fenced_write
           (statement, reason, run_id, owner, epoch, seen_owner, seen_epoch, seen_expires_at)
    SELECT 'lease.renew', 'lease_lost', judged.run_id, %(owner)s, judged.epoch, judged.seen_owner, judged.seen_epoch,
           judged.expires_at
    FROM judged WHERE NOT judged.current
)
SELECT renewed.run_id, NULL::text AS refusal, renewed.owner, renewed.epoch, renewed.expires_at FROM renewed
UNION ALL
SELECT judged.run_id, 'lease_lost', judged.seen_owner, judged.seen_epoch, judged.expires_at
FROM judged WHERE NOT judged.current
UNION ALL
SELECT held.run_id, 'missing', NULL, NULL, NULL FROM held
WHERE NOT EXISTS (SELECT FROM ledger_lease AS lease WHERE lease.run_id = held.run_id)

-- name: release
-- Give back what an owner holds, expired or not. The epoch stays: it is never lowered and never zeroed.
WITH held AS MATERIALIZED (
    SELECT held.run_id, held.epoch
    FROM unnest(%(run_ids)b::uuid[], %(epochs)b::bigint[]) AS held (run_id, epoch)
), locked AS MATERIALIZED (
    SELECT held.run_id, held.epoch, lease.owner AS seen_owner, lease.epoch AS seen_epoch, lease.expires_at,
           (lease.owner = %(owner)s AND lease.epoch = held.epoch) IS TRUE AS current
    FROM held JOIN ledger_lease AS lease USING (run_id)
    ORDER BY lease.run_id FOR NO KEY UPDATE OF lease
), released AS (
    UPDATE ledger_lease AS lease
    SET owner = NULL, expires_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM locked WHERE lease.run_id = locked.run_id AND locked.current
    RETURNING lease.run_id, lease.owner, lease.epoch, lease.expires_at
), refused AS (
    INSERT INTO ledger_fenced_write
           (statement, reason, run_id, owner, epoch, seen_owner, seen_epoch, seen_expires_at)
    SELECT 'lease.release', 'lease_lost', locked.run_id, %(owner)s, locked.epoch, locked.seen_owner, locked.seen_epoch,
           locked.expires_at
    FROM locked WHERE NOT locked.current
)
SELECT released.run_id, NULL::text AS refusal, released.owner, released.epoch, released.expires_at FROM released
UNION ALL
SELECT locked.run_id, 'lease_lost', locked.seen_owner, locked.seen_epoch, locked.expires_at
FROM locked WHERE NOT locked.current
UNION ALL
SELECT held.run_id, 'missing', NULL, NULL, NULL FROM held
WHERE NOT EXISTS (SELECT FROM ledger_lease AS lease WHERE lease.run_id = held.run_id)

-- name: await_holders
-- Wait for whoever is writing these runs, and keep others out until the transaction ends. A statement that waited keeps
-- the snapshot from before its wait, and sees no operation that was planned meanwhile; the next statement sees it.
WITH asked AS MATERIALIZED (
    SELECT unnest(%(run_ids)b::uuid[]) AS run_id
)
SELECT lease.run_id FROM asked JOIN ledger_lease AS lease USING (run_id)
ORDER BY lease.run_id FOR NO KEY UPDATE OF lease
