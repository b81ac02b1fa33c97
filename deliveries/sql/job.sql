-- Jobs: walks over many rows in short steps. A step holds its job's row, does its work, and moves the row, in one
-- transaction: a step that was begun twice, or whose worker was killed, has moved nothing.

-- name: create
-- A job that is due at once. It looks at nothing that is newer than its creation.
INSERT INTO deliveries_job (job_id, tenant_id, kind, dry_run, parameters, per_second, actor, reason)
VALUES (%(job_id)s::uuid, %(tenant_id)s::text, %(kind)s::text, %(dry_run)s::boolean, %(parameters)s::text::jsonb,
        %(per_second)s::int, %(actor)s::text, %(reason)s::text)
RETURNING job_id, created_at

-- name: now
-- The clock that jobs go by.
SELECT clock_timestamp() AS at

-- name: take
-- The unfinished job whose next step has been due for longest, held until the transaction ends. One that somebody else
-- holds is passed over.
SELECT job.job_id, job.tenant_id, job.kind, job.dry_run, job.parameters::text AS parameters, job.status, job.revision,
       job.position, job.per_second, job.actor, job.created_at
FROM deliveries_job AS job
WHERE job.status IN ('pending', 'running') AND job.step_at <= clock_timestamp()
ORDER BY job.step_at LIMIT %(most)s::int FOR NO KEY UPDATE OF job SKIP LOCKED

-- name: advance
-- What a step came to. Only at the revision that it began from, and only while the job goes on.
UPDATE deliveries_job AS job
SET status = CASE WHEN %(done)s::boolean THEN 'done' ELSE 'running' END, revision = job.revision + 1,
    position = coalesce(%(position)s::uuid, job.position), walked = job.walked + %(walked)s::bigint,
    matched = job.matched + %(matched)s::bigint, changed = job.changed + %(changed)s::bigint,
    skipped = job.skipped + %(skipped)s::bigint,
    step_at = clock_timestamp() + %(pause_ms)s::float8 * interval '1 millisecond',
    started_at = coalesce(job.started_at, clock_timestamp()),
    ended_at = CASE WHEN %(done)s::boolean THEN clock_timestamp() END, updated_at = clock_timestamp()
WHERE job.job_id = %(job_id)s::uuid AND job.revision = %(revision)s::bigint AND job.status IN ('pending', 'running')
RETURNING job.job_id

-- name: cancel
-- No further step. What was done stays done; a step that is going on ends first.
UPDATE deliveries_job AS job
SET status = 'cancelled', revision = job.revision + 1, ended_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE job.job_id = %(job_id)s::uuid AND job.tenant_id = %(tenant_id)s::text AND job.status IN ('pending', 'running')
RETURNING job.job_id

-- name: fail
-- A step cannot be done: the job stops, and says why.
UPDATE deliveries_job AS job
SET status = 'failed', revision = job.revision + 1, error = %(error)s::text, ended_at = clock_timestamp(),
    updated_at = clock_timestamp()
WHERE job.job_id = %(job_id)s::uuid AND job.revision = %(revision)s::bigint AND job.status IN ('pending', 'running')
RETURNING job.job_id

-- name: next
-- For how many milliseconds the next step of some job has been due (negative: until it is); no row: there is no job.
SELECT (extract(epoch FROM clock_timestamp() - job.step_at) * 1000)::float8 AS due_for_ms
FROM deliveries_job AS job WHERE job.status IN ('pending', 'running')
ORDER BY job.step_at LIMIT 1
