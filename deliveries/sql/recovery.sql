-- Deliveries that are over, to be delivered once more: found stretch by stretch in key order. Nothing is written here.

-- fragment: found
-- reads: stretch (task_id, event_id, endpoint_id, active_run_id, created_at), and the filter's parameters
-- The stretch is looked at whole, or up to the last of the first `most` that are found.
found AS MATERIALIZED (
    SELECT stretch.task_id
    FROM stretch
    JOIN ledger_run AS run ON run.run_id = stretch.active_run_id
    JOIN LATERAL (
        SELECT operation.status FROM ledger_operation AS operation WHERE operation.run_id = run.run_id
        ORDER BY operation.operation_key DESC LIMIT 1
    ) AS last ON true
    JOIN deliveries_event AS event ON event.event_id = stretch.event_id
    JOIN deliveries_endpoint AS endpoint ON endpoint.endpoint_id = stretch.endpoint_id
    WHERE stretch.created_at >= %(since)s::timestamptz AND stretch.created_at < %(until)s::timestamptz
      AND run.status IN ('succeeded', 'failed', 'cancelled') AND last.status = ANY(%(statuses)b::text[])
      AND event.expunged_at IS NULL AND endpoint.deleted_at IS NULL
      AND (%(types)b::text[] = '{}' OR EXISTS (
          SELECT FROM unnest(%(types)b::text[]) AS pattern
          WHERE event.type LIKE replace(replace(pattern, '_', '\_'), '*', '%%')))
    ORDER BY stretch.task_id LIMIT %(most)s::int
), walked AS (
    SELECT count(*)::int AS walked,
           (SELECT stretch.task_id FROM stretch ORDER BY stretch.task_id DESC LIMIT 1) AS walked_to,
           (SELECT count(*)::int FROM stretch
            WHERE stretch.task_id <= (SELECT found.task_id FROM found ORDER BY found.task_id DESC LIMIT 1)) AS to_last,
           count(*) = %(stretch)s::int AS more
    FROM stretch
)
SELECT walked.walked, walked.walked_to, walked.to_last, walked.more, found.task_id
FROM walked LEFT JOIN found ON true
ORDER BY found.task_id

-- name: of_endpoint
-- Of one endpoint's deliveries.
WITH stretch AS MATERIALIZED (
    SELECT task.task_id, task.event_id, task.endpoint_id, task.active_run_id, task.created_at
    FROM ledger_task AS task
    WHERE task.endpoint_id = %(endpoint_id)s::uuid AND task.tenant_id = %(tenant_id)s::text
      AND task.task_id > %(after)s::uuid AND task.task_id < %(before)s::uuid
    ORDER BY task.task_id LIMIT %(stretch)s::int
), {{recovery.found}}

-- name: of_tenant
-- Of all deliveries of a tenant.
WITH stretch AS MATERIALIZED (
    SELECT task.task_id, task.event_id, task.endpoint_id, task.active_run_id, task.created_at
    FROM ledger_task AS task
    WHERE task.tenant_id = %(tenant_id)s::text
      AND task.task_id > %(after)s::uuid AND task.task_id < %(before)s::uuid
    ORDER BY task.task_id LIMIT %(stretch)s::int
), {{recovery.found}}
