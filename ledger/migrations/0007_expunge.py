"""A task may be closed; and the record of a refused write may lose what a receiver answered, and nothing else.

What an operation's result said of an error is in its attempt's row as well, and from now on only there.
"""

from django.db import migrations, models

# As `python -m ledger.guards` printed it.
INSTALL = """
CREATE OR REPLACE TRIGGER task_stays_closed AFTER UPDATE ON ledger_task FOR EACH ROW
WHEN (OLD.closed_at IS NOT NULL AND NEW.closed_at IS DISTINCT FROM OLD.closed_at)
EXECUTE FUNCTION ledger_refuse('a task that is closed stays closed');
CREATE OR REPLACE TRIGGER fenced_write_append_only AFTER UPDATE ON ledger_fenced_write FOR EACH ROW
WHEN ((NEW.fenced_write_id, NEW.statement, NEW.reason, NEW.run_id, NEW.operation_key, NEW.owner, NEW.epoch, NEW.revision, NEW.seen_owner, NEW.seen_epoch, NEW.seen_revision, NEW.seen_status, NEW.seen_expires_at, NEW.refused_at) IS DISTINCT FROM (OLD.fenced_write_id, OLD.statement, OLD.reason, OLD.run_id, OLD.operation_key, OLD.owner, OLD.epoch, OLD.revision, OLD.seen_owner, OLD.seen_epoch, OLD.seen_revision, OLD.seen_status, OLD.seen_expires_at, OLD.refused_at) OR (jsonb_exists_any(OLD.evidence, '{response_headers,error}') AND NEW.evidence = OLD.evidence - '{response_headers,error}'::text[]) IS NOT TRUE)
EXECUTE FUNCTION ledger_refuse('what is on record is never changed, but for its content being removed');
"""

REMOVE = """
DROP TRIGGER task_stays_closed ON ledger_task;
CREATE OR REPLACE TRIGGER fenced_write_append_only AFTER UPDATE ON ledger_fenced_write FOR EACH ROW
EXECUTE FUNCTION ledger_refuse('what is on record is never changed');
"""

# Not a move of the operation: its revision stays, so whoever is sending it can still settle it.
ONLY_IN_ATTEMPTS = """
ALTER TABLE ledger_operation DISABLE TRIGGER USER;
UPDATE ledger_operation SET result = result - 'error' WHERE result ->> 'error' <> '';
ALTER TABLE ledger_operation ENABLE TRIGGER USER;
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0006_leaving_lines")]
    operations = [
        migrations.AddField(
            model_name="task",
            name="closed_at",
            field=models.DateTimeField(
                blank=True, help_text="Since then no run of it is opened any more.", null=True
            ),
        ),
        migrations.RunSQL(INSTALL, REMOVE),
        migrations.RunSQL(ONLY_IN_ATTEMPTS, migrations.RunSQL.noop),
    ]
