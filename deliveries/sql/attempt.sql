-- Attempts: one row per HTTP request, written in the transaction that settles it.

-- name: record
-- What was answered to an event whose content was removed meanwhile is not kept.
-- A row that the reconciler wrote for a lost worker may learn, once, what that worker had seen; nothing else changes.
INSERT INTO deliveries_attempt AS attempt
       (operation_key, number, epoch, owner, url, started_at, ended_at, verdict, classification, http_status,
        response_headers, response_body, error, evidence, late)
SELECT given.operation_key, given.number, given.epoch, given.owner, given.url, given.started_at, given.ended_at,
       given.verdict, given.classification, given.http_status,
       CASE WHEN expunged.answer THEN NULL ELSE given.response_headers::jsonb END,
       CASE WHEN expunged.answer THEN NULL ELSE given.response_body END,
       CASE WHEN expunged.answer THEN '' ELSE given.error END, given.evidence::jsonb, given.late
FROM unnest(%(operation_keys)b::bigint[], %(numbers)b::int[], %(epochs)b::bigint[], %(owners)b::text[], %(urls)b::text[],
            %(started_ats)b::timestamptz[], %(ended_ats)b::timestamptz[], %(verdicts)b::text[],
            %(classifications)b::text[], %(http_statuses)b::int[], %(response_headers)b::text[],
            %(response_bodies)b::bytea[], %(errors)b::text[], %(evidences)b::text[], %(lates)b::boolean[])
     AS given (operation_key, number, epoch, owner, url, started_at, ended_at, verdict, classification, http_status,
               response_headers, response_body, error, evidence, late)
LEFT JOIN LATERAL (
    SELECT true AS answer
    FROM ledger_operation AS operation JOIN deliveries_event AS event ON event.event_id = operation.request_ref
    WHERE (SELECT EXISTS (SELECT FROM deliveries_event AS any_event WHERE any_event.expunged_at IS NOT NULL))
      AND operation.operation_key = given.operation_key AND event.expunged_at IS NOT NULL
    LIMIT 1
) AS expunged ON true
ON CONFLICT (operation_key, number) DO UPDATE
SET ended_at = excluded.ended_at, started_at = excluded.started_at, verdict = excluded.verdict,
    classification = excluded.classification, http_status = excluded.http_status,
    response_headers = excluded.response_headers, response_body = excluded.response_body, error = excluded.error,
    evidence = excluded.evidence, late = true
WHERE attempt.ended_at IS NULL AND excluded.ended_at IS NOT NULL AND attempt.epoch = excluded.epoch
  AND attempt.owner = excluded.owner
RETURNING attempt.attempt_id

-- name: written
-- Of these attempts, those that their own worker has settled: the read-back after a COMMIT that was not answered.
SELECT attempt.operation_key, attempt.number
FROM unnest(%(operation_keys)b::bigint[], %(numbers)b::int[]) AS given (operation_key, number)
JOIN deliveries_attempt AS attempt USING (operation_key, number)
WHERE attempt.owner = %(owner)s AND attempt.ended_at IS NOT NULL AND NOT attempt.late
