"""A job keeps what it was asked for, moves on by one revision, and ends once."""

from django.db import migrations

# As `python -m deliveries.guards` printed it.
INSTALL = """
CREATE OR REPLACE TRIGGER job_identity_kept AFTER UPDATE ON deliveries_job FOR EACH ROW
WHEN ((NEW.job_id, NEW.tenant_id, NEW.kind, NEW.dry_run, NEW.parameters, NEW.per_second, NEW.actor, NEW.reason, NEW.created_at) IS DISTINCT FROM (OLD.job_id, OLD.tenant_id, OLD.kind, OLD.dry_run, OLD.parameters, OLD.per_second, OLD.actor, OLD.reason, OLD.created_at))
EXECUTE FUNCTION ledger_refuse('no longer to be changed: job_id, tenant_id, kind, dry_run, parameters, per_second, actor, reason, created_at');
CREATE OR REPLACE TRIGGER job_revision_by_one AFTER UPDATE ON deliveries_job FOR EACH ROW
WHEN (NEW.revision <> OLD.revision + 1)
EXECUTE FUNCTION ledger_refuse('each write raises the revision by one');
CREATE OR REPLACE TRIGGER job_ends_for_good AFTER UPDATE ON deliveries_job FOR EACH ROW
WHEN (OLD.status NOT IN ('pending', 'running') OR NEW.status = 'pending')
EXECUTE FUNCTION ledger_refuse('a job that is over stays as it is, and none is begun twice');
"""

REMOVE = """
DROP TRIGGER job_identity_kept ON deliveries_job;
DROP TRIGGER job_revision_by_one ON deliveries_job;
DROP TRIGGER job_ends_for_good ON deliveries_job;
"""


class Migration(migrations.Migration):
    dependencies = [("deliveries", "0009_operational")]
    operations = [migrations.RunSQL(INSTALL, REMOVE)]
