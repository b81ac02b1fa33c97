"""Huey's own tables (release 3.5.4, prefix `huey`), so that no process has to create them when it starts.

A test compares what this makes with what Huey itself would make.
"""

from django.db import migrations

CREATE = """
CREATE TABLE huey_kv (
    queue text NOT NULL,
    key text NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (queue, key)
);
CREATE TABLE huey_schedule (
    id bigserial PRIMARY KEY,
    queue text NOT NULL,
    data bytea NOT NULL,
    timestamp double precision NOT NULL
);
CREATE INDEX huey_schedule_queue_timestamp ON huey_schedule (queue, timestamp);
CREATE TABLE huey_task (
    id bigserial PRIMARY KEY,
    queue text NOT NULL,
    data bytea NOT NULL,
    priority double precision NOT NULL DEFAULT 0.0
);
CREATE INDEX huey_task_queue_priority_id ON huey_task (queue, priority DESC, id);
CREATE TABLE huey_counter (
    queue text NOT NULL,
    key text NOT NULL,
    value bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, key)
);
"""

DROP = "DROP TABLE huey_kv, huey_schedule, huey_task, huey_counter"


class Migration(migrations.Migration):
    initial = True
    dependencies: list[tuple[str, str]] = []
    operations = [migrations.RunSQL(CREATE, DROP)]
