-- What is still out: when is no request under way any more that was made of what an endpoint was before? Only read here.

-- name: boundary
-- A number above that of every transaction that has written anything until now. Asked outside of a transaction.
SELECT pg_current_xact_id()::text::bigint AS boundary

-- name: sent_before
-- Whether every transaction below the boundary is over, and what is in flight to an endpoint once they are: claims, and
-- questions (by the session and the key of the advisory lock of who asks). Whoever claims writes before it reads the
-- endpoint, and whoever asks holds the lock before; so whatever was signed with what the endpoint was before is among
-- these. Below means below the number that is next to come: `pg_snapshot_xmax` alone would leave out those that are
-- open and were begun after the last one that is over.
WITH past AS MATERIALIZED (
    SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= %(boundary)s::bigint AS over
), claimed AS (
    SELECT operation.operation_key, operation.revision
    FROM past CROSS JOIN ledger_dispatch AS dispatch JOIN ledger_operation AS operation USING (operation_key)
    WHERE past.over AND dispatch.endpoint_id = %(endpoint_id)s::uuid AND dispatch.until IS NOT NULL
), asking AS (
    SELECT lock.pid, lock.objid::bigint AS lock_key
    FROM past CROSS JOIN pg_locks AS lock
    WHERE past.over AND lock.locktype = 'advisory' AND lock.classid::bigint = %(kind)s::bigint AND lock.objsubid = 2
      AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND EXISTS (SELECT FROM ledger_dispatch AS dispatch
                  WHERE dispatch.endpoint_id = %(endpoint_id)s::uuid AND dispatch.unknown_since IS NOT NULL
                    AND hashint8(dispatch.operation_key)::bigint & 4294967295 = lock.objid::bigint)
)
SELECT past.over, claimed.operation_key, claimed.revision, NULL::int AS pid, NULL::bigint AS lock_key
FROM past LEFT JOIN claimed ON true
UNION ALL
SELECT true, NULL, NULL, asking.pid, asking.lock_key FROM asking

-- name: still_claimed
-- Which of these claims are still held. A lease that ran out counts as given back, also before the reconciler found it:
-- a send ends before its lease does.
SELECT operation.operation_key, operation.revision
FROM unnest(%(operation_keys)b::bigint[], %(revisions)b::bigint[]) AS asked (operation_key, revision)
JOIN ledger_operation AS operation ON operation.operation_key = asked.operation_key
     AND operation.revision = asked.revision
JOIN ledger_lease AS lease ON lease.run_id = operation.run_id
WHERE operation.dispatch_owner IS NOT NULL AND lease.owner = operation.dispatch_owner
  AND lease.epoch = operation.dispatch_epoch AND lease.expires_at > clock_timestamp()

-- name: still_asking
-- Which of these questions are still open.
SELECT lock.pid, lock.objid::bigint AS lock_key
FROM unnest(%(pids)b::int[], %(lock_keys)b::bigint[]) AS asked (pid, lock_key)
JOIN pg_locks AS lock ON lock.pid = asked.pid AND lock.objid::bigint = asked.lock_key
WHERE lock.locktype = 'advisory' AND lock.classid::bigint = %(kind)s::bigint AND lock.objsubid = 2
