"""The database's own guard of events, attempts and acknowledgements: records do not change."""

from django.db import migrations

# As `python -m deliveries.guards` printed it.
INSTALL = """
CREATE OR REPLACE TRIGGER event_append_only AFTER UPDATE ON deliveries_event FOR EACH ROW
EXECUTE FUNCTION ledger_refuse('what is on record is never changed');
CREATE OR REPLACE TRIGGER acknowledgement_append_only AFTER UPDATE ON deliveries_acknowledgement FOR EACH ROW
EXECUTE FUNCTION ledger_refuse('what is on record is never changed');
CREATE OR REPLACE TRIGGER attempt_identity_kept AFTER UPDATE ON deliveries_attempt FOR EACH ROW
WHEN ((NEW.attempt_id, NEW.operation_key, NEW.number, NEW.epoch, NEW.owner, NEW.url, NEW.recorded_at) IS DISTINCT FROM (OLD.attempt_id, OLD.operation_key, OLD.number, OLD.epoch, OLD.owner, OLD.url, OLD.recorded_at))
EXECUTE FUNCTION ledger_refuse('no longer to be changed: attempt_id, operation_key, number, epoch, owner, url, recorded_at');
CREATE OR REPLACE TRIGGER attempt_learns_once AFTER UPDATE ON deliveries_attempt FOR EACH ROW
WHEN (OLD.ended_at IS NOT NULL OR NEW.ended_at IS NULL OR NOT NEW.late)
EXECUTE FUNCTION ledger_refuse('only the attempt of a lost worker may learn, late and once, what became of it');
"""

REMOVE = """
DROP TRIGGER event_append_only ON deliveries_event;
DROP TRIGGER acknowledgement_append_only ON deliveries_acknowledgement;
DROP TRIGGER attempt_identity_kept ON deliveries_attempt;
DROP TRIGGER attempt_learns_once ON deliveries_attempt;
"""


class Migration(migrations.Migration):
    dependencies = [("deliveries", "0003_acknowledgement"), ("ledger", "0004_guards")]
    operations = [migrations.RunSQL(INSTALL, REMOVE)]
