-- Events: accepted once, with everything that follows from them, in one statement and so in one commit.

-- fragment: interested
-- reads: given (tenant_id, type, audience, only_endpoint_id), endpoint
-- An endpoint that may want an event, by everything but its filter. What names one endpoint goes there whatever it wants.
endpoint.tenant_id = given.tenant_id AND endpoint.enabled AND endpoint.deleted_at IS NULL
AND CASE WHEN given.only_endpoint_id IS NOT NULL THEN endpoint.endpoint_id = given.only_endpoint_id
    ELSE (endpoint.receives = given.audience
          OR (given.audience = 'operational' AND endpoint.receives = 'operational_all'))
     AND (endpoint.types = '{}' OR EXISTS (
         SELECT FROM unnest(endpoint.types) AS pattern
         WHERE given.type LIKE replace(replace(pattern, '_', '\_'), '*', '%%')))
    END

-- name: accept
-- Store the exact bytes and open a task, with its run, lease, prepared operation and queue row, for every endpoint of
-- the tenant that wants the type at this moment. A key or an id that is taken already stores nothing and answers nothing.
-- An endpoint that has a filter wants what the caller has judged to pass it. A batch with an event that such an endpoint
-- might want, and that was not judged by the filter that the endpoint has now, is not stored: the caller judges it and
-- comes again. Nothing of it, because stored in two parts it would stand in line in another order than it came in.
-- Ordered endpoints are locked first, in key order: who accepts for one of them takes his place in its line, and commits
-- before the next one may take his. So the order of the keys is the order in which they were accepted.
WITH given AS MATERIALIZED (
    SELECT given.event_id, given.tenant_id, given.type, given.payload, given.digest, given.source, given.metadata,
           given.deliver_at, given.idempotency_key, given.client_id, given.headers, given.audience,
           given.only_endpoint_id
    FROM unnest(%(event_ids)b::uuid[], %(tenant_ids)b::text[], %(types)b::text[], %(payloads)b::bytea[],
                %(digests)b::bytea[], %(sources)b::text[], %(metadatas)b::text[], %(deliver_ats)b::timestamptz[],
                %(idempotency_keys)b::text[], %(client_ids)b::text[], %(headers)b::text[], %(audiences)b::text[],
                %(only_endpoint_ids)b::uuid[])
         AS given (event_id, tenant_id, type, payload, digest, source, metadata, deliver_at, idempotency_key, client_id,
                   headers, audience, only_endpoint_id)
), judged AS MATERIALIZED (
    SELECT judged.event_id, judged.endpoint_id, judged.filter_hash, judged.passed
    FROM unnest(%(judged_event_ids)b::uuid[], %(judged_endpoint_ids)b::uuid[], %(judged_filter_hashes)b::text[],
                %(judged_passed)b::boolean[])
         AS judged (event_id, endpoint_id, filter_hash, passed)
), asked AS MATERIALIZED (
    SELECT given.event_id, given.tenant_id, given.digest, given.deliver_at, endpoint.endpoint_id,
           endpoint.ordered AND given.only_endpoint_id IS NULL AS ordered,
           CASE WHEN endpoint.filter IS NULL OR given.only_endpoint_id IS NOT NULL THEN true
                ELSE judged.passed END AS passed
    FROM given JOIN deliveries_endpoint AS endpoint ON {{event.interested}}
    LEFT JOIN judged
         ON judged.event_id = given.event_id AND judged.endpoint_id = endpoint.endpoint_id
        AND judged.filter_hash = md5(endpoint.filter::text)
), matched AS MATERIALIZED (
    SELECT asked.event_id, asked.tenant_id, asked.digest, asked.deliver_at, asked.endpoint_id, asked.ordered
    FROM asked
    WHERE asked.passed
      AND NOT EXISTS (SELECT FROM asked AS other WHERE other.passed IS NULL)
), lined AS MATERIALIZED (
    SELECT endpoint.endpoint_id
    FROM deliveries_endpoint AS endpoint
    WHERE endpoint.endpoint_id IN (SELECT matched.endpoint_id FROM matched WHERE matched.ordered)
    ORDER BY endpoint.endpoint_id FOR NO KEY UPDATE OF endpoint
), counted AS (
    SELECT matched.event_id, count(*)::int AS deliveries FROM matched GROUP BY matched.event_id
), accepted AS (
    INSERT INTO deliveries_event
           (event_id, tenant_id, type, payload, digest, source, metadata, deliver_at, idempotency_key, client_id,
            headers, deliveries)
    SELECT given.event_id, given.tenant_id, given.type, given.payload, given.digest, given.source,
           given.metadata::jsonb, given.deliver_at, given.idempotency_key, given.client_id, given.headers::jsonb,
           coalesce(counted.deliveries, 0)
    FROM given LEFT JOIN counted USING (event_id)
    WHERE (SELECT count(*) FROM lined) >= 0
      AND NOT EXISTS (SELECT FROM asked WHERE asked.passed IS NULL)
    -- Of two with one key or id the first is stored.
    ORDER BY given.event_id
    ON CONFLICT DO NOTHING
    RETURNING event_id, deliveries
), wanted AS (
    SELECT matched.tenant_id, matched.event_id, matched.endpoint_id, matched.digest AS request_digest,
           'deliver'::text AS step_id, 'webhook'::text AS tool, matched.deliver_at AS due_at,
           -- What is scheduled for later stands beside the line: at its head it would hold everybody until its time.
           matched.ordered AND coalesce(matched.deliver_at <= clock_timestamp(), true) AS in_line
    FROM matched JOIN accepted USING (event_id)
    -- The ids of a batch rise in its order, and the keys are drawn in this one.
    ORDER BY matched.event_id
), {{task.open}}
SELECT accepted.event_id, accepted.deliveries FROM accepted

-- name: filters
-- The endpoints of these tenants that want these types and have a filter, with a hash that tells one filter from another.
SELECT given.event_id, endpoint.endpoint_id, endpoint.filter::text AS filter, md5(endpoint.filter::text) AS filter_hash
FROM unnest(%(event_ids)b::uuid[], %(tenant_ids)b::text[], %(types)b::text[], %(audiences)b::text[],
            %(only_endpoint_ids)b::uuid[]) AS given (event_id, tenant_id, type, audience, only_endpoint_id)
JOIN deliveries_endpoint AS endpoint ON {{event.interested}}
WHERE endpoint.filter IS NOT NULL AND given.only_endpoint_id IS NULL

-- name: holders
-- The events that hold these idempotency keys, or these ids that producers chose.
SELECT event.event_id, event.tenant_id, event.idempotency_key, event.client_id, event.digest, event.deliveries
FROM unnest(%(tenant_ids)b::text[], %(idempotency_keys)b::text[]) AS given (tenant_id, idempotency_key)
JOIN deliveries_event AS event USING (tenant_id, idempotency_key)
WHERE event.idempotency_key IS NOT NULL
UNION
SELECT event.event_id, event.tenant_id, event.idempotency_key, event.client_id, event.digest, event.deliveries
FROM unnest(%(tenant_ids)b::text[], %(client_ids)b::text[]) AS given (tenant_id, client_id)
JOIN deliveries_event AS event USING (tenant_id, client_id)
WHERE event.client_id IS NOT NULL

-- name: contents
-- What is to be sent.
SELECT event.event_id, event.client_id, event.type, event.payload, event.headers::text AS headers, event.created_at,
       event.deliver_at, event.expunged_at IS NOT NULL AS expunged
FROM deliveries_event AS event WHERE event.event_id = ANY(%(event_ids)b::uuid[])
