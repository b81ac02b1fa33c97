-- Removing the content of events on request. The ledger stays: who was sent what is not forgotten, only its words are.
-- Lock order: event, task, lease, and what is under them; in each, by key.

-- name: next
-- A stretch of a tenant's events in key order that were accepted before a time, and whether their content is there. It
-- ends early where their deliveries become too many for one step. `ends`: nothing comes after it.
WITH stretch AS MATERIALIZED (
    SELECT event.event_id, event.deliveries, event.expunged_at
    FROM deliveries_event AS event
    WHERE event.tenant_id = %(tenant_id)s::text AND event.event_id > %(after)s::uuid AND event.event_id < %(last)s::uuid
      AND event.created_at < %(before)s::timestamptz
    ORDER BY event.event_id LIMIT %(batch)s::int
), weighed AS MATERIALIZED (
    SELECT stretch.event_id, stretch.expunged_at,
           sum(stretch.deliveries) OVER (ORDER BY stretch.event_id) - stretch.deliveries AS deliveries_before
    FROM stretch
)
SELECT weighed.event_id, weighed.expunged_at IS NULL AS whole,
       (SELECT count(*) FROM stretch) < %(batch)s::int
       AND weighed.event_id = (SELECT stretch.event_id FROM stretch ORDER BY stretch.event_id DESC LIMIT 1) AS ends
FROM weighed WHERE weighed.deliveries_before < %(deliveries)s::int
ORDER BY weighed.event_id

-- name: expunged
-- Of these events, those whose content was removed.
SELECT event.event_id FROM deliveries_event AS event
WHERE event.event_id = ANY(%(event_ids)b::uuid[]) AND event.expunged_at IS NOT NULL

-- name: hold
-- Keep others from expunging these until the transaction ends. Those whose content is gone already are left alone: a
-- second time does nothing.
SELECT event.event_id FROM deliveries_event AS event
WHERE event.event_id = ANY(%(event_ids)b::uuid[]) AND event.tenant_id = %(tenant_id)s::text
  AND event.expunged_at IS NULL
ORDER BY event.event_id FOR NO KEY UPDATE OF event

-- name: strip
-- Take the content away, after `hold`, `task.close` and `lease.await_holders` of every run: what was submitted, what
-- receivers answered, and what they said. What stays is what the protocol needs: ids, also those that receivers gave,
-- types, times, digests, verdicts. Where an endpoint's last error is one of those that are removed, it goes too.
WITH held AS MATERIALIZED (
    SELECT event.event_id FROM deliveries_event AS event
    WHERE event.event_id = ANY(%(event_ids)b::uuid[]) AND event.tenant_id = %(tenant_id)s::text
      AND event.expunged_at IS NULL
    ORDER BY event.event_id FOR NO KEY UPDATE OF event
), emptied AS (
    UPDATE deliveries_event AS event
    SET payload = '', metadata = NULL, headers = NULL, source = NULL, expunged_at = clock_timestamp()
    FROM held WHERE event.event_id = held.event_id
    RETURNING event.event_id
), about AS MATERIALIZED (
    SELECT operation.operation_key, task.endpoint_id
    FROM held JOIN ledger_task AS task USING (event_id) JOIN ledger_run AS run USING (task_id)
    JOIN ledger_operation AS operation USING (run_id)
), answered AS MATERIALIZED (
    SELECT attempt.attempt_id, attempt.error, about.endpoint_id
    FROM about JOIN deliveries_attempt AS attempt USING (operation_key)
    WHERE attempt.response_headers IS NOT NULL OR attempt.response_body IS NOT NULL OR attempt.error <> ''
), answers AS (
    UPDATE deliveries_attempt AS attempt SET response_headers = NULL, response_body = NULL, error = ''
    FROM answered WHERE attempt.attempt_id = answered.attempt_id
), words AS (
    UPDATE deliveries_acknowledgement AS word SET detail = ''
    FROM about WHERE word.operation_key = about.operation_key AND word.detail <> ''
), refused AS (
    UPDATE ledger_fenced_write AS refusal SET evidence = refusal.evidence - '{response_headers,error}'::text[]
    FROM about WHERE refusal.operation_key = about.operation_key
      AND jsonb_exists_any(refusal.evidence, '{response_headers,error}')
), quoting AS MATERIALIZED (
    SELECT state.endpoint_id FROM deliveries_endpoint_state AS state
    WHERE EXISTS (SELECT FROM answered WHERE answered.endpoint_id = state.endpoint_id
                                         AND answered.error = state.last_error AND answered.error <> '')
    ORDER BY state.endpoint_id FOR NO KEY UPDATE OF state
), quoted AS (
    UPDATE deliveries_endpoint_state AS state SET last_error = ''
    FROM quoting WHERE state.endpoint_id = quoting.endpoint_id
)
SELECT emptied.event_id FROM emptied

-- name: note
-- That one event was expunged, by whom and why: as a job that is done.
INSERT INTO deliveries_job
       (job_id, tenant_id, kind, parameters, status, walked, matched, changed, actor, reason, started_at, ended_at)
VALUES (%(job_id)s::uuid, %(tenant_id)s::text, 'expunge', %(parameters)s::text::jsonb, 'done', 1, 1, 1, %(actor)s::text,
        %(reason)s::text, clock_timestamp(), clock_timestamp())
RETURNING job_id
