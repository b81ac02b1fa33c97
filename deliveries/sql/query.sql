-- Asking receivers what became of an operation. Nothing is written here: a question is on record by its answer.

-- name: due
-- Of the first `stretch` unknown operations after a key, those that nobody is sending, whose endpoint can be asked, and
-- whose next question is due: `schedule` counts seconds from when it came to be unknown, and from each answer on record
-- since then; its last entry repeats until `longest` seconds have passed. Of each endpoint the first `each`.
WITH stretch AS MATERIALIZED (
    SELECT dispatch.operation_key, dispatch.endpoint_id, dispatch.unknown_since, dispatch.until
    FROM ledger_dispatch AS dispatch
    WHERE dispatch.unknown_since IS NOT NULL AND dispatch.operation_key > %(after)s::bigint
    ORDER BY dispatch.operation_key LIMIT %(stretch)s::int
), walked AS (
    SELECT count(*)::int AS walked, max(stretch.operation_key) AS walked_to FROM stretch
), due AS (
    SELECT stretch.operation_key, stretch.endpoint_id,
           row_number() OVER (PARTITION BY stretch.endpoint_id ORDER BY stretch.operation_key) AS place
    FROM stretch JOIN deliveries_endpoint AS endpoint USING (endpoint_id)
    CROSS JOIN LATERAL (
        SELECT count(*)::int AS times, max(word.received_at) AS last FROM deliveries_acknowledgement AS word
        WHERE word.operation_key = stretch.operation_key AND word.source = 'query'
          AND word.received_at >= stretch.unknown_since
    ) AS asked
    WHERE stretch.until IS NULL AND endpoint.query_url IS NOT NULL AND endpoint.deleted_at IS NULL
      AND clock_timestamp() < stretch.unknown_since + %(longest)s::int * interval '1 second'
      AND clock_timestamp() >= coalesce(asked.last, stretch.unknown_since)
          + (%(schedule)b::int[])[least(asked.times + 1, cardinality(%(schedule)b::int[]))] * interval '1 second'
)
SELECT walked.walked, walked.walked_to, due.operation_key, due.endpoint_id
FROM walked LEFT JOIN due ON due.place <= %(each)s::int
ORDER BY due.operation_key

-- name: question
-- What is asked about, and how it stands at this moment.
SELECT operation.operation_key, operation.run_id, operation.step_id, operation.effect_version, operation.status,
       operation.attempts, operation.request_ref AS event_id, event.client_id, task.tenant_id, task.endpoint_id,
       (operation.dispatch_owner IS NOT NULL
        OR (lease.owner IS NOT NULL AND lease.expires_at > clock_timestamp())) AS claimed,
       extract(epoch FROM clock_timestamp())::bigint AS now
FROM ledger_operation AS operation
JOIN ledger_run AS run USING (run_id)
JOIN ledger_task AS task USING (task_id)
LEFT JOIN deliveries_event AS event ON event.event_id = operation.request_ref
JOIN ledger_lease AS lease ON lease.run_id = operation.run_id
WHERE operation.operation_key = %(operation_key)s::bigint

-- name: hold
-- Whether this session is the only one that is asking about the operation from now on.
SELECT pg_try_advisory_lock(%(kind)s::int, hashint8(%(operation_key)s::bigint)) AS done

-- name: let_go
-- The end of `hold`.
SELECT pg_advisory_unlock(%(kind)s::int, hashint8(%(operation_key)s::bigint)) AS done
