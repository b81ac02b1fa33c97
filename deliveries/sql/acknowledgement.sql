-- Acknowledgements: what receivers said about operations outside of an attempt's answer, and what may be concluded.

-- name: addressee
-- Whose word about an operation counts: the endpoint that it was sent to. By unique indexes only, because whoever asks
-- has proven nothing yet.
SELECT operation.operation_key, operation.run_id, endpoint.endpoint_id, endpoint.secret_sealed,
       endpoint.former_secrets::text AS former_secrets, clock_timestamp() AS now
FROM ledger_operation AS operation
JOIN ledger_run AS run USING (run_id)
JOIN ledger_task AS task USING (task_id)
JOIN deliveries_endpoint AS endpoint USING (endpoint_id)
WHERE operation.run_id = %(run_id)s::uuid AND operation.step_id = %(step_id)s::text
  AND operation.effect_version = %(effect_version)s::int AND task.tenant_id = %(tenant_id)s::text

-- name: record
-- One more row, whatever became of the operation since. `covers` is the last attempt that the receiver can have meant:
-- not the attempt that is in flight, when it says that nothing arrived; and of what is only prepared, every send of
-- which was said not to have arrived, none but by saying that it has processed one. `sends` is how many had been begun when it was asked.
-- A message that is on record already is left as it is. Of an event whose content was removed no words are kept.
INSERT INTO deliveries_acknowledgement
       (operation_key, run_id, source, said, message_id, covers, remote_id, detail, actor, http_status)
SELECT operation.operation_key, %(run_id)s::uuid, %(source)s::text, %(said)s::text, %(message_id)s::text,
       CASE WHEN operation.status = 'prepared' AND %(said)s::text <> 'processed' THEN 0
            WHEN operation.dispatch_owner IS NOT NULL AND %(said)s::text = 'never_arrived'
                 THEN least(%(sends)s::int, operation.attempts - 1)
            ELSE least(%(sends)s::int, operation.attempts)
       END,
       %(remote_id)s::text,
       CASE WHEN EXISTS (SELECT FROM deliveries_event AS event
                         WHERE event.event_id = operation.request_ref AND event.expunged_at IS NOT NULL) THEN ''
            ELSE %(detail)s::text END,
       %(actor)s::text, %(http_status)s::int
FROM ledger_operation AS operation WHERE operation.operation_key = %(operation_key)s::bigint
ON CONFLICT (operation_key, message_id) WHERE message_id IS NOT NULL DO NOTHING
RETURNING acknowledgement_id

-- name: unknown
-- A stretch of the unknown operations in key order.
SELECT dispatch.operation_key FROM ledger_dispatch AS dispatch
WHERE dispatch.unknown_since IS NOT NULL AND dispatch.operation_key > %(after)s::bigint
ORDER BY dispatch.operation_key LIMIT %(batch)s::int

-- name: evidence
-- Of these operations, those that nobody is sending, and about which something conclusive is on record. That one was
-- taken counts also for what is prepared for another try. For what is unknown: an acceptance of this very request that was reported late; or the newest authoritative word of the receiver;
-- or, now that the last of them was reported late, the proof of every attempt that was ever begun that it was not taken.
-- `processed` and `rejected` are the receiver's own decisions and stay true. That nothing arrived is true only until
-- the next send, and only the answer to a question says so. A word about another run says nothing.
WITH standing AS MATERIALIZED (
    SELECT operation.operation_key, operation.run_id, operation.status, operation.revision, operation.attempts,
           operation.losses, operation.request_digest, operation.request_ref, operation.created_at, dispatch.endpoint_id
    FROM unnest(%(operation_keys)b::bigint[]) AS asked (operation_key)
    JOIN ledger_operation AS operation USING (operation_key)
    JOIN ledger_dispatch AS dispatch USING (operation_key)
    WHERE operation.status IN ('prepared', 'unknown') AND operation.dispatch_owner IS NULL AND operation.attempts > 0
)
SELECT standing.operation_key, standing.run_id, standing.revision, standing.attempts, standing.losses,
       standing.endpoint_id,
       encode(standing.request_digest, 'hex') AS request_digest,
       extract(epoch FROM clock_timestamp() - greatest(standing.created_at, event.deliver_at))::float8 AS age_s,
       late.number AS late_number, late.epoch AS late_epoch, late.owner AS late_owner,
       late.http_status AS late_status, refused.last AS refused_as, word.acknowledgement_id, word.source, word.said, word.remote_id, word.actor
FROM standing
LEFT JOIN deliveries_event AS event ON event.event_id = standing.request_ref
LEFT JOIN LATERAL (
    SELECT attempt.number, attempt.epoch, attempt.owner, attempt.http_status
    FROM deliveries_attempt AS attempt
    WHERE attempt.operation_key = standing.operation_key AND attempt.late AND attempt.classification = 'accepted'
      AND attempt.evidence ->> 'request_digest' = encode(standing.request_digest, 'hex')
    ORDER BY attempt.number DESC LIMIT 1
) AS late ON true
LEFT JOIN LATERAL (
    -- An attempt has one claim, and a claim one send: who reported its end sends nothing more under it.
    SELECT count(*) AS times, (array_agg(attempt.classification ORDER BY attempt.number DESC))[1] AS last
    FROM deliveries_attempt AS attempt
    WHERE attempt.operation_key = standing.operation_key AND attempt.number <= standing.attempts
      AND attempt.ended_at IS NOT NULL AND attempt.classification = ANY(%(refusals)b::text[])
      AND (NOT attempt.late OR attempt.evidence ->> 'request_digest' = encode(standing.request_digest, 'hex'))
) AS refused ON refused.times = standing.attempts AND standing.status = 'unknown'
LEFT JOIN LATERAL (
    SELECT word.acknowledgement_id, word.source, word.said, word.remote_id, word.actor
    FROM deliveries_acknowledgement AS word
    WHERE word.operation_key = standing.operation_key AND word.run_id = standing.run_id
      AND ((word.said IN ('processed', 'rejected') AND word.covers > 0)
           OR (word.said = 'never_arrived' AND word.source = 'query' AND word.covers = standing.attempts))
      AND (standing.status = 'unknown' OR word.said = 'processed')
    ORDER BY word.said = 'never_arrived', word.acknowledgement_id DESC LIMIT 1
) AS word ON true
WHERE late.number IS NOT NULL OR word.acknowledgement_id IS NOT NULL OR refused.last IS NOT NULL
ORDER BY standing.operation_key

-- name: vouched
-- Of these operations, those about which it is on record that a send was taken: reported late, or said by the receiver.
SELECT operation.operation_key, late.number AS late_number, word.acknowledgement_id, word.actor
FROM unnest(%(operation_keys)b::bigint[]) AS asked (operation_key)
JOIN ledger_operation AS operation USING (operation_key)
LEFT JOIN LATERAL (
    SELECT attempt.number FROM deliveries_attempt AS attempt
    WHERE attempt.operation_key = operation.operation_key AND attempt.late AND attempt.classification = 'accepted'
      AND attempt.evidence ->> 'request_digest' = encode(operation.request_digest, 'hex')
    ORDER BY attempt.number DESC LIMIT 1
) AS late ON true
LEFT JOIN LATERAL (
    SELECT word.acknowledgement_id, word.actor FROM deliveries_acknowledgement AS word
    WHERE word.operation_key = operation.operation_key AND word.run_id = operation.run_id
      AND word.said = 'processed' AND word.covers > 0
    ORDER BY word.acknowledgement_id DESC LIMIT 1
) AS word ON true
WHERE late.number IS NOT NULL OR word.acknowledgement_id IS NOT NULL

-- name: reported_late
-- Operations about which a refused settlement brought something a short while ago, among the newest refusals.
SELECT DISTINCT newest.operation_key
FROM (
    SELECT refused.operation_key, refused.statement, refused.refused_at FROM ledger_fenced_write AS refused
    ORDER BY refused.fenced_write_id DESC LIMIT %(batch)s::int
) AS newest
WHERE newest.statement = 'operation.settle' AND newest.operation_key IS NOT NULL
  AND newest.refused_at > clock_timestamp() - %(age_ms)s::bigint * interval '1 millisecond'
