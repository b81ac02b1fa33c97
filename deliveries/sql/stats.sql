-- Where a tenant stands at this moment, from what is small: the queue holds only what is not settled. Nothing is written.

-- name: of_tenant
-- Each is counted up to `most`, and one more that tells that there are more.
WITH waiting AS MATERIALIZED (
    SELECT dispatch.due_at, dispatch.until, dispatch.unknown_since
    FROM ledger_dispatch AS dispatch JOIN deliveries_endpoint AS endpoint USING (endpoint_id)
    WHERE endpoint.tenant_id = %(tenant_id)s::text
    LIMIT %(most)s::int + 1
), kept AS MATERIALIZED (
    SELECT endpoint.enabled, state.failing_since, coalesce(state.opens, 0) > 0 AS unwell
    FROM deliveries_endpoint AS endpoint LEFT JOIN deliveries_endpoint_state AS state USING (endpoint_id)
    WHERE endpoint.tenant_id = %(tenant_id)s::text AND endpoint.deleted_at IS NULL
    LIMIT %(most)s::int + 1
)
SELECT counted.unsettled, counted.due, counted.oldest_due_at, counted.in_flight, counted.unknown,
       counted.oldest_unknown_since, counted.needs_a_person, kept_counted.endpoints, kept_counted.enabled,
       kept_counted.failing, kept_counted.breakers_open, clock_timestamp() AS at
FROM (
    SELECT count(*)::int AS unsettled,
           count(*) FILTER (WHERE waiting.due_at <= clock_timestamp() AND waiting.until IS NULL)::int AS due,
           min(waiting.due_at) FILTER (WHERE waiting.due_at <= clock_timestamp() AND waiting.until IS NULL)
               AS oldest_due_at,
           count(*) FILTER (WHERE waiting.until IS NOT NULL)::int AS in_flight,
           count(*) FILTER (WHERE waiting.unknown_since IS NOT NULL)::int AS unknown,
           min(waiting.unknown_since) AS oldest_unknown_since,
           count(*) FILTER (WHERE waiting.unknown_since IS NOT NULL AND waiting.due_at IS NULL
                            AND waiting.until IS NULL)::int AS needs_a_person
    FROM waiting
) AS counted CROSS JOIN (
    SELECT count(*)::int AS endpoints, count(*) FILTER (WHERE kept.enabled)::int AS enabled,
           count(*) FILTER (WHERE kept.enabled AND kept.failing_since IS NOT NULL)::int AS failing,
           count(*) FILTER (WHERE kept.enabled AND kept.unwell)::int AS breakers_open
    FROM kept
) AS kept_counted
