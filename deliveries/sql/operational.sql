-- What Relay tells about itself. Nothing is written here.

-- name: long_unknown
-- Of the first `stretch` unknown operations after a key, those that have been unknown for so long, to endpoints of
-- ordinary events, of which these tenants were not told yet.
WITH stretch AS MATERIALIZED (
    SELECT dispatch.operation_key, dispatch.tenant_id, dispatch.endpoint_id, dispatch.unknown_since,
           dispatch.due_at IS NULL AND dispatch.until IS NULL AS needs_a_person
    FROM ledger_dispatch AS dispatch
    WHERE dispatch.unknown_since IS NOT NULL AND dispatch.operation_key > %(after)s::bigint
    ORDER BY dispatch.operation_key LIMIT %(stretch)s::int
), walked AS (
    SELECT count(*)::int AS walked, coalesce(max(stretch.operation_key), 0) AS walked_to FROM stretch
), named AS MATERIALIZED (
    SELECT stretch.operation_key, stretch.tenant_id, stretch.endpoint_id, stretch.unknown_since, stretch.needs_a_person,
           format('%%s:%%s', stretch.operation_key,
                  (extract(epoch FROM stretch.unknown_since) * 1000000)::bigint) AS key
    FROM stretch JOIN deliveries_endpoint AS endpoint USING (endpoint_id)
    WHERE stretch.unknown_since < clock_timestamp() - %(after_s)s::int * interval '1 second'
      AND endpoint.receives = 'events'
), untold AS MATERIALIZED (
    SELECT named.operation_key, named.tenant_id, named.endpoint_id, named.unknown_since, named.needs_a_person, named.key
    FROM named
    WHERE NOT EXISTS (SELECT FROM deliveries_event AS told
                      WHERE told.tenant_id = ANY(%(tenants)b::text[])
                        AND told.idempotency_key = %(prefix)s::text || named.key)
), shown AS (
    SELECT untold.operation_key,
           format('%%s/%%s/%%s/%%s', untold.tenant_id, operation.run_id, operation.step_id, operation.effect_version)
               AS operation_id,
           untold.tenant_id, run.task_id, untold.endpoint_id, event.event_id, event.client_id, event.type AS event_type,
           to_char(untold.unknown_since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS unknown_since,
           operation.attempts, untold.needs_a_person, untold.key
    FROM untold JOIN ledger_operation AS operation USING (operation_key) JOIN ledger_run AS run USING (run_id)
    JOIN deliveries_event AS event ON event.event_id = operation.request_ref
)
SELECT walked.walked, walked.walked_to, shown.operation_key, shown.operation_id, shown.tenant_id, shown.task_id,
       shown.endpoint_id, shown.event_id, shown.client_id, shown.event_type, shown.unknown_since, shown.attempts,
       shown.needs_a_person, shown.key
FROM walked LEFT JOIN shown ON true
ORDER BY shown.operation_key
