"""The database's own guard of the records of deliveries. See `ledger/guards.py`, which says how and within what limits.

`python -m deliveries.guards` prints the SQL for a migration.
"""

from __future__ import annotations

import sys

from ledger.guards import Guard, append_only, identity, revision, sql

GUARDS: tuple[Guard, ...] = (
    append_only(
        "event", "deliveries_event",
        kept=(
            "event_id", "tenant_id", "client_id", "type", "digest", "deliver_at", "idempotency_key", "deliveries",
            "created_at",
        ),
        but="OLD.expunged_at IS NULL AND NEW.expunged_at IS NOT NULL AND NEW.payload = ''"
        " AND (NEW.metadata, NEW.headers, NEW.source) IS NULL",
    ),
    append_only(
        "acknowledgement", "deliveries_acknowledgement",
        kept=(
            "acknowledgement_id", "operation_key", "run_id", "source", "said", "message_id", "covers", "remote_id",
            "actor", "http_status", "received_at",
        ),
        but="OLD.detail <> '' AND NEW.detail = ''",
    ),
    identity(
        "attempt", "deliveries_attempt", "attempt_id", "operation_key", "number", "epoch", "owner", "url",
        "recorded_at",
    ),
    Guard(
        "attempt_learns_once", "deliveries_attempt", "UPDATE",
        "(OLD.ended_at IS NOT NULL OR NEW.ended_at IS NULL OR NOT NEW.late) AND"
        " ((NEW.started_at, NEW.ended_at, NEW.verdict, NEW.classification, NEW.http_status, NEW.evidence, NEW.late)"
        " IS DISTINCT FROM (OLD.started_at, OLD.ended_at, OLD.verdict, OLD.classification, OLD.http_status,"
        " OLD.evidence, OLD.late) OR NEW.response_headers IS NOT NULL OR NEW.response_body IS NOT NULL"
        " OR NEW.error <> '' OR OLD.response_headers IS NULL AND OLD.response_body IS NULL AND OLD.error = '')",
        "only the attempt of a lost worker may learn, late and once, what became of it; any may lose what was answered",
    ),
    identity(
        "job", "deliveries_job", "job_id", "tenant_id", "kind", "dry_run", "parameters", "per_second", "actor",
        "reason", "created_at",
    ),
    revision("job", "deliveries_job"),
    Guard(
        "job_ends_for_good", "deliveries_job", "UPDATE",
        "OLD.status NOT IN ('pending', 'running') OR NEW.status = 'pending'",
        "a job that is over stays as it is, and none is begun twice",
    ),
)  # fmt: skip

LOSSES = """\
CREATE OR REPLACE FUNCTION deliveries_only_of_expunged() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    expunged boolean;
BEGIN
    EXECUTE format(
        'SELECT EXISTS (SELECT FROM %1$I.ledger_operation AS operation'
        ' JOIN %1$I.deliveries_event AS event ON event.event_id = operation.request_ref'
        ' WHERE operation.operation_key = $1 AND event.expunged_at IS NOT NULL)', TG_TABLE_SCHEMA
    ) INTO expunged USING NEW.operation_key;
    IF NOT expunged THEN
        RAISE EXCEPTION '% of % refused: what a receiver said is only removed when its event is expunged',
              TG_OP, TG_TABLE_NAME
        USING ERRCODE = '23R01', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
    END IF;
    RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION deliveries_only_of_expunged() FROM PUBLIC;
CREATE OR REPLACE TRIGGER attempt_loses_only_expunged AFTER UPDATE ON deliveries_attempt FOR EACH ROW
WHEN ((OLD.ended_at IS NOT NULL OR NEW.ended_at IS NULL)
      AND (OLD.response_headers IS NOT NULL AND NEW.response_headers IS NULL
           OR OLD.response_body IS NOT NULL AND NEW.response_body IS NULL OR OLD.error <> '' AND NEW.error = ''))
EXECUTE FUNCTION deliveries_only_of_expunged();
CREATE OR REPLACE TRIGGER acknowledgement_loses_only_expunged AFTER UPDATE ON deliveries_acknowledgement FOR EACH ROW
WHEN (NEW.detail = '' AND OLD.detail <> '')
EXECUTE FUNCTION deliveries_only_of_expunged();
"""
"""That what was said may be removed depends on another row, the event, so it takes a function of its own. It runs when
the whole statement is done, and sees the event that the same statement emptied."""


if __name__ == "__main__":
    sys.stdout.write(sql(GUARDS) + LOSSES)
