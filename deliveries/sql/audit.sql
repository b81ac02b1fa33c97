-- The audit of what belongs to deliveries: events, attempts and acknowledgements beside the ledger. As in the ledger's
-- own: one stretch in key order, one snapshot, breaches (kind, subject, what) and one row that says how far it walked.

-- name: events
-- An event and the tasks that were opened for it.
WITH stretch AS MATERIALIZED (
    SELECT event.event_id, event.tenant_id, event.idempotency_key, event.deliveries,
           event.expunged_at IS NOT NULL
           AND (event.payload <> '' OR event.metadata IS NOT NULL OR event.headers IS NOT NULL
                OR event.source IS NOT NULL) AS left_over
    FROM deliveries_event AS event
    WHERE event.event_id > %(after)s::uuid ORDER BY event.event_id LIMIT %(batch)s::int
), opened AS MATERIALIZED (
    SELECT stretch.event_id, count(task.task_id) AS tasks
    FROM stretch LEFT JOIN ledger_task AS task ON task.event_id = stretch.event_id GROUP BY stretch.event_id
)
SELECT 'event_deliveries'::text AS kind, stretch.event_id::text AS subject,
       format('accepted for %%s endpoints, %%s deliveries exist', stretch.deliveries, opened.tasks) AS what,
       NULL::bigint AS walked
FROM stretch JOIN opened USING (event_id) WHERE opened.tasks <> stretch.deliveries
UNION ALL
SELECT 'event_idempotency', stretch.event_id::text, format('%%s has its idempotency key too', other.event_id), NULL
FROM stretch JOIN deliveries_event AS other
     ON other.tenant_id = stretch.tenant_id AND other.idempotency_key = stretch.idempotency_key
    AND other.event_id <> stretch.event_id
WHERE other.idempotency_key IS NOT NULL
UNION ALL
SELECT 'event_expunged', stretch.event_id::text, 'it is expunged, and something of its content is there', NULL
FROM stretch WHERE stretch.left_over
UNION ALL
SELECT NULL, (SELECT stretch.event_id::text FROM stretch ORDER BY stretch.event_id DESC LIMIT 1), NULL,
       (SELECT count(*) FROM stretch)

-- name: deliveries
-- A task, the event that it delivers and the endpoint that it goes to.
WITH stretch AS MATERIALIZED (
    SELECT task.task_id, task.tenant_id, task.event_id, task.endpoint_id FROM ledger_task AS task
    WHERE task.task_id > %(after)s::uuid ORDER BY task.task_id LIMIT %(batch)s::int
), judged AS MATERIALIZED (
    SELECT stretch.task_id, stretch.tenant_id, event.event_id, endpoint.endpoint_id,
           event.tenant_id AS event_tenant, endpoint.tenant_id AS endpoint_tenant
    FROM stretch
    LEFT JOIN deliveries_event AS event ON event.event_id = stretch.event_id
    LEFT JOIN deliveries_endpoint AS endpoint ON endpoint.endpoint_id = stretch.endpoint_id
)
SELECT 'delivery_event'::text AS kind, judged.task_id::text AS subject, 'its event does not exist'::text AS what,
       NULL::bigint AS walked
FROM judged WHERE judged.event_id IS NULL
UNION ALL
SELECT 'delivery_endpoint', judged.task_id::text, 'its endpoint does not exist', NULL
FROM judged WHERE judged.endpoint_id IS NULL
UNION ALL
SELECT 'delivery_tenant', judged.task_id::text,
       format('tenant %%s, the event''s is %%s, the endpoint''s %%s', judged.tenant_id, judged.event_tenant,
              judged.endpoint_tenant), NULL
FROM judged WHERE judged.tenant_id <> judged.event_tenant OR judged.tenant_id <> judged.endpoint_tenant
UNION ALL
SELECT NULL, (SELECT stretch.task_id::text FROM stretch ORDER BY stretch.task_id DESC LIMIT 1), NULL,
       (SELECT count(*) FROM stretch)

-- name: operations
-- `accepted` and `refused` are the classifications of attempts that prove that a request was taken, or was not.
WITH stretch AS MATERIALIZED (
    SELECT operation.operation_key, operation.run_id, operation.status, operation.attempts, operation.request_digest,
           operation.request_ref, operation.attempts - (operation.dispatch_owner IS NOT NULL)::int AS ended,
           operation.losses
    FROM ledger_operation AS operation
    WHERE operation.operation_key > %(after)s::bigint ORDER BY operation.operation_key LIMIT %(batch)s::int
), attempts AS MATERIALIZED (
    SELECT attempt.operation_key, attempt.number, attempt.epoch, attempt.owner, attempt.late, attempt.classification,
           max(attempt.epoch) OVER (PARTITION BY attempt.operation_key ORDER BY attempt.number
                                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS former_epoch
    FROM stretch JOIN deliveries_attempt AS attempt ON attempt.operation_key = stretch.operation_key
), said AS MATERIALIZED (
    -- A word counts for its own run, and about the sends that it covers.
    SELECT stretch.operation_key, bool_or(word.said = 'processed' AND word.covers > 0) AS taken,
           bool_or(word.said = 'rejected' AND word.covers > 0) AS refused,
           max(word.covers) FILTER (WHERE word.said = 'never_arrived' AND word.source = 'query') AS cleared
    FROM stretch JOIN deliveries_acknowledgement AS word
         ON word.operation_key = stretch.operation_key AND word.run_id = stretch.run_id
    GROUP BY stretch.operation_key
), counted AS MATERIALIZED (
    SELECT attempts.operation_key, count(*) AS attempts, count(DISTINCT attempts.number) AS numbers,
           count(DISTINCT attempts.number) FILTER (WHERE attempts.number BETWEEN 1 AND stretch.ended) AS ended,
           min(attempts.number) AS lowest, max(attempts.number) AS highest, max(attempts.epoch) AS epoch,
           bool_or(attempts.epoch < attempts.former_epoch) AS falls,
           bool_or(attempts.classification = ANY(%(accepted)b::text[])) AS accepted,
           bool_and(attempts.classification = ANY(%(refused)b::text[])) AS refused,
           bool_and(attempts.classification = ANY(%(refused)b::text[])
                    OR attempts.number <= coalesce(said.cleared, 0)) AS cleared
    FROM attempts JOIN stretch USING (operation_key) LEFT JOIN said USING (operation_key)
    GROUP BY attempts.operation_key
), decided AS MATERIALIZED (
    SELECT stretch.operation_key, bool_or(resolution.decision = 'succeeded') AS taken,
           bool_or(resolution.decision = 'failed') AS refused
    FROM stretch JOIN ledger_resolution AS resolution ON resolution.operation_key = stretch.operation_key
    GROUP BY stretch.operation_key
), judged AS MATERIALIZED (
    SELECT stretch.operation_key, stretch.status, stretch.attempts, stretch.ended, stretch.request_digest, stretch.losses,
           coalesce(counted.attempts, 0) AS recorded, coalesce(counted.numbers, 0) AS numbers,
           coalesce(counted.ended, 0) AS recorded_ended, coalesce(counted.lowest, 1) AS lowest,
           coalesce(counted.highest, 0) AS highest, counted.epoch, counted.falls,
           coalesce(counted.accepted, false) AS accepted, coalesce(counted.refused, false) AS refused,
           coalesce(counted.cleared, true) AS cleared, coalesce(decided.refused, false) AS given_up,
           coalesce(said.taken, false) AS processed,
           coalesce(said.taken, false) OR coalesce(decided.taken, false) AS vouched,
           coalesce(said.refused, false) OR coalesce(decided.refused, false) AS denied,
           lease.epoch AS lease_epoch, event.event_id, event.digest
    FROM stretch
    LEFT JOIN counted ON counted.operation_key = stretch.operation_key
    LEFT JOIN said ON said.operation_key = stretch.operation_key
    LEFT JOIN decided ON decided.operation_key = stretch.operation_key
    LEFT JOIN ledger_lease AS lease ON lease.run_id = stretch.run_id
    LEFT JOIN deliveries_event AS event ON event.event_id = stretch.request_ref
)
SELECT 'attempts_gapless'::text AS kind, judged.operation_key::text AS subject,
       format('%%s attempts ended, %%s of them are on record', judged.ended, judged.recorded_ended) AS what,
       NULL::bigint AS walked
FROM judged WHERE judged.recorded_ended < judged.ended
UNION ALL
SELECT 'attempts_begun', judged.operation_key::text,
       format('%%s attempts were begun, and numbers %%s to %%s are on record', judged.attempts, judged.lowest,
              judged.highest), NULL
FROM judged WHERE judged.highest > judged.attempts OR judged.lowest < 1
UNION ALL
SELECT 'attempts_once', judged.operation_key::text,
       format('%%s rows for %%s numbers', judged.recorded, judged.numbers), NULL
FROM judged WHERE judged.recorded > judged.numbers
UNION ALL
SELECT 'attempt_epoch', judged.operation_key::text,
       format('an attempt has epoch %%s, the lease %%s', judged.epoch, judged.lease_epoch), NULL
FROM judged WHERE judged.epoch > judged.lease_epoch
UNION ALL
SELECT 'attempt_epochs_rise', judged.operation_key::text, 'a later attempt has a lower epoch', NULL
FROM judged WHERE judged.falls
UNION ALL
SELECT 'succeeded_proof', judged.operation_key::text, 'nothing on record says that it was taken', NULL
FROM judged WHERE judged.status = 'succeeded' AND judged.attempts > 0 AND NOT judged.accepted AND NOT judged.vouched
UNION ALL
SELECT 'failed_proof', judged.operation_key::text, 'not every attempt is proven not taken, and nobody else says so',
       NULL
FROM judged WHERE judged.status = 'failed_final' AND judged.attempts > 0 AND judged.recorded > 0
              AND NOT judged.cleared AND NOT judged.denied
UNION ALL
SELECT 'failed_though_taken', judged.operation_key::text, 'an attempt of it was accepted', NULL
FROM judged WHERE judged.status = 'failed_final' AND judged.accepted AND NOT judged.given_up
              -- An acceptance that was reported when it had failed already moves nothing: it failed rightly.
              AND EXISTS (
                  SELECT FROM attempts
                  WHERE attempts.operation_key = judged.operation_key
                    AND attempts.classification = ANY(%(accepted)b::text[])
                    AND NOT (attempts.late AND EXISTS (
                        SELECT FROM ledger_fenced_write AS refused
                        WHERE refused.operation_key = attempts.operation_key AND refused.statement = 'operation.settle'
                          AND refused.owner = attempts.owner AND refused.epoch = attempts.epoch
                          AND refused.seen_status = 'failed_final')))
UNION ALL
SELECT 'doubt_forgotten', judged.operation_key::text,
       'an attempt may have been taken, and nobody has said since that it never arrived', NULL
FROM judged WHERE judged.status = 'prepared' AND NOT judged.cleared
UNION ALL
SELECT 'unknown_reason', judged.operation_key::text, 'every attempt of it is proven not taken', NULL
FROM judged WHERE judged.status = 'unknown' AND judged.recorded > 0 AND judged.refused AND NOT judged.processed
              -- Of what is in flight nobody can say yet; what is quarantined is for a person.
              AND judged.numbers = judged.attempts AND judged.losses < %(poison_losses)s::int
              -- Reported late a moment ago: the next sweep converges it.
              AND NOT EXISTS (
                  SELECT FROM ledger_fenced_write AS late
                  WHERE late.operation_key = judged.operation_key AND late.refused_at
                        > clock_timestamp() - %(patience_ms)s::bigint * interval '1 millisecond')
UNION ALL
SELECT 'content', judged.operation_key::text, 'what was to be sent does not exist', NULL
FROM judged WHERE judged.event_id IS NULL
UNION ALL
SELECT 'content_digest', judged.operation_key::text, 'its digest is not the event''s', NULL
FROM judged WHERE judged.digest <> judged.request_digest
UNION ALL
SELECT NULL, (SELECT stretch.operation_key::text FROM stretch ORDER BY stretch.operation_key DESC LIMIT 1), NULL,
       (SELECT count(*) FROM stretch)

-- name: attempts
-- An attempt and the claim that it was made under.
WITH stretch AS MATERIALIZED (
    SELECT attempt.attempt_id, attempt.operation_key, attempt.number, attempt.verdict,
           attempt.response_headers IS NOT NULL OR attempt.response_body IS NOT NULL OR attempt.error <> '' AS says
    FROM deliveries_attempt AS attempt
    WHERE attempt.attempt_id > %(after)s::bigint ORDER BY attempt.attempt_id LIMIT %(batch)s::int
)
SELECT 'attempt_operation'::text AS kind, stretch.attempt_id::text AS subject,
       format('its operation %%s does not exist', stretch.operation_key) AS what, NULL::bigint AS walked
FROM stretch LEFT JOIN ledger_operation AS operation ON operation.operation_key = stretch.operation_key
WHERE operation.operation_key IS NULL
UNION ALL
SELECT 'answer_expunged', stretch.attempt_id::text, 'its event is expunged, and what was answered is there', NULL
FROM stretch JOIN ledger_operation AS operation ON operation.operation_key = stretch.operation_key
JOIN deliveries_event AS event ON event.event_id = operation.request_ref
WHERE stretch.says AND event.expunged_at IS NOT NULL
UNION ALL
SELECT 'attempt_row', stretch.attempt_id::text, format('verdict %%s', stretch.verdict), NULL
FROM stretch WHERE stretch.verdict NOT IN ('answered', 'not_sent', 'unknown')
UNION ALL
SELECT NULL, (SELECT stretch.attempt_id::text FROM stretch ORDER BY stretch.attempt_id DESC LIMIT 1), NULL,
       (SELECT count(*) FROM stretch)

-- name: acknowledgements
-- A receiver's word and the operation that it is about.
WITH stretch AS MATERIALIZED (
    SELECT word.acknowledgement_id, word.operation_key, word.detail <> '' AS says
    FROM deliveries_acknowledgement AS word
    WHERE word.acknowledgement_id > %(after)s::bigint ORDER BY word.acknowledgement_id LIMIT %(batch)s::int
)
SELECT 'acknowledgement_operation'::text AS kind, stretch.acknowledgement_id::text AS subject,
       format('its operation %%s does not exist', stretch.operation_key) AS what, NULL::bigint AS walked
FROM stretch LEFT JOIN ledger_operation AS operation ON operation.operation_key = stretch.operation_key
WHERE operation.operation_key IS NULL
UNION ALL
SELECT 'word_expunged', stretch.acknowledgement_id::text, 'its event is expunged, and the words are there', NULL
FROM stretch JOIN ledger_operation AS operation ON operation.operation_key = stretch.operation_key
JOIN deliveries_event AS event ON event.event_id = operation.request_ref
WHERE stretch.says AND event.expunged_at IS NOT NULL
UNION ALL
SELECT NULL, (SELECT stretch.acknowledgement_id::text FROM stretch ORDER BY stretch.acknowledgement_id DESC LIMIT 1), NULL,
       (SELECT count(*) FROM stretch)
