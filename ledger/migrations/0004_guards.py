"""The database's own guard of the ledger: no such move, no falling epoch, no skipped revision, no changed record."""

from django.db import migrations

# As `python -m ledger.guards` printed it.
INSTALL = """
CREATE OR REPLACE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION '% of % refused: %', TG_OP, TG_TABLE_NAME, TG_ARGV[0]
    USING ERRCODE = '23R01', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
END $$;
REVOKE EXECUTE ON FUNCTION ledger_refuse() FROM PUBLIC;
CREATE OR REPLACE TRIGGER task_identity_kept AFTER UPDATE ON ledger_task FOR EACH ROW
WHEN ((NEW.task_id, NEW.tenant_id, NEW.event_id, NEW.endpoint_id, NEW.created_at) IS DISTINCT FROM (OLD.task_id, OLD.tenant_id, OLD.event_id, OLD.endpoint_id, OLD.created_at))
EXECUTE FUNCTION ledger_refuse('no longer to be changed: task_id, tenant_id, event_id, endpoint_id, created_at');
CREATE OR REPLACE TRIGGER run_identity_kept AFTER UPDATE ON ledger_run FOR EACH ROW
WHEN ((NEW.run_id, NEW.task_id, NEW.reason, NEW.created_at) IS DISTINCT FROM (OLD.run_id, OLD.task_id, OLD.reason, OLD.created_at))
EXECUTE FUNCTION ledger_refuse('no longer to be changed: run_id, task_id, reason, created_at');
CREATE OR REPLACE TRIGGER run_revision_by_one AFTER UPDATE ON ledger_run FOR EACH ROW
WHEN (NEW.revision <> OLD.revision + 1)
EXECUTE FUNCTION ledger_refuse('each write raises the revision by one');
CREATE OR REPLACE TRIGGER run_legal_move AFTER UPDATE ON ledger_run FOR EACH ROW
WHEN (NOT CASE OLD.status WHEN 'pending' THEN NEW.status IN ('running', 'cancelled') WHEN 'running' THEN NEW.status IN ('running', 'succeeded', 'failed', 'cancelled') ELSE false END)
EXECUTE FUNCTION ledger_refuse('there is no such move of a run');
CREATE OR REPLACE TRIGGER run_born_pending AFTER INSERT ON ledger_run FOR EACH ROW
WHEN (NEW.status <> 'pending' OR NEW.revision <> 0)
EXECUTE FUNCTION ledger_refuse('a run begins pending, at revision 0');
CREATE OR REPLACE TRIGGER lease_identity_kept AFTER UPDATE ON ledger_lease FOR EACH ROW
WHEN (NEW.run_id IS DISTINCT FROM OLD.run_id)
EXECUTE FUNCTION ledger_refuse('no longer to be changed: run_id');
CREATE OR REPLACE TRIGGER lease_epoch_never_falls AFTER UPDATE ON ledger_lease FOR EACH ROW
WHEN (NEW.epoch < OLD.epoch)
EXECUTE FUNCTION ledger_refuse('an epoch never falls');
CREATE OR REPLACE TRIGGER lease_owner_needs_epoch AFTER UPDATE ON ledger_lease FOR EACH ROW
WHEN (NEW.owner IS NOT NULL AND NEW.owner IS DISTINCT FROM OLD.owner AND NEW.epoch <= OLD.epoch)
EXECUTE FUNCTION ledger_refuse('a new owner begins a new epoch');
CREATE OR REPLACE TRIGGER lease_born_free AFTER INSERT ON ledger_lease FOR EACH ROW
WHEN (NEW.epoch <> 0 OR NEW.owner IS NOT NULL)
EXECUTE FUNCTION ledger_refuse('a lease begins without an owner, at epoch 0');
CREATE OR REPLACE TRIGGER operation_identity_kept AFTER UPDATE ON ledger_operation FOR EACH ROW
WHEN ((NEW.operation_key, NEW.run_id, NEW.step_id, NEW.effect_version, NEW.tool, NEW.request_digest, NEW.request_ref, NEW.created_at) IS DISTINCT FROM (OLD.operation_key, OLD.run_id, OLD.step_id, OLD.effect_version, OLD.tool, OLD.request_digest, OLD.request_ref, OLD.created_at))
EXECUTE FUNCTION ledger_refuse('no longer to be changed: operation_key, run_id, step_id, effect_version, tool, request_digest, request_ref, created_at');
CREATE OR REPLACE TRIGGER operation_revision_by_one AFTER UPDATE ON ledger_operation FOR EACH ROW
WHEN (NEW.revision <> OLD.revision + 1)
EXECUTE FUNCTION ledger_refuse('each write raises the revision by one');
CREATE OR REPLACE TRIGGER operation_legal_move AFTER UPDATE ON ledger_operation FOR EACH ROW
WHEN (NOT CASE WHEN OLD.dispatch_owner IS NULL AND NEW.dispatch_owner IS NOT NULL
     THEN CASE OLD.status WHEN 'prepared' THEN NEW.status IN ('dispatching') WHEN 'unknown' THEN NEW.status IN ('unknown') ELSE false END
     WHEN OLD.dispatch_owner IS NOT NULL AND NEW.dispatch_owner IS NULL
     THEN CASE OLD.status WHEN 'dispatching' THEN NEW.status IN ('succeeded', 'prepared', 'failed_final', 'unknown') WHEN 'unknown' THEN NEW.status IN ('unknown', 'succeeded') ELSE false END
     WHEN OLD.dispatch_owner IS NULL
     THEN CASE OLD.status WHEN 'prepared' THEN NEW.status IN ('succeeded', 'cancelled') WHEN 'unknown' THEN NEW.status IN ('unknown', 'succeeded', 'prepared', 'failed_final') ELSE false END
     ELSE false END)
EXECUTE FUNCTION ledger_refuse('there is no such move of an operation, or not while it is claimed, or not while it is not');
CREATE OR REPLACE TRIGGER operation_attempts_count_claims AFTER UPDATE ON ledger_operation FOR EACH ROW
WHEN (CASE WHEN OLD.dispatch_owner IS NULL AND NEW.dispatch_owner IS NOT NULL
     THEN NEW.attempts <> OLD.attempts + 1
     WHEN OLD.dispatch_owner IS NOT NULL AND NEW.dispatch_owner IS NULL
     THEN NEW.attempts NOT IN (OLD.attempts, OLD.attempts - 1)
     ELSE NEW.attempts <> OLD.attempts END)
EXECUTE FUNCTION ledger_refuse('a claim counts one attempt, and only a claim that is given back unsent takes its one back');
CREATE OR REPLACE TRIGGER operation_ambiguity_kept AFTER UPDATE ON ledger_operation FOR EACH ROW
WHEN (OLD.ambiguous AND NOT NEW.ambiguous AND NOT CASE OLD.status WHEN 'unknown' THEN NEW.status IN ('prepared') ELSE false END)
EXECUTE FUNCTION ledger_refuse('only an authoritative answer that it never arrived forgets an ambiguous attempt');
CREATE OR REPLACE TRIGGER operation_born_prepared AFTER INSERT ON ledger_operation FOR EACH ROW
WHEN (NEW.status <> 'prepared' OR NEW.revision <> 0 OR NEW.attempts <> 0 OR NEW.ambiguous
OR NEW.dispatch_owner IS NOT NULL)
EXECUTE FUNCTION ledger_refuse('an operation begins prepared, at revision 0, without an attempt');
CREATE OR REPLACE TRIGGER takeover_append_only AFTER UPDATE ON ledger_takeover FOR EACH ROW
EXECUTE FUNCTION ledger_refuse('what is on record is never changed');
CREATE OR REPLACE TRIGGER fenced_write_append_only AFTER UPDATE ON ledger_fenced_write FOR EACH ROW
EXECUTE FUNCTION ledger_refuse('what is on record is never changed');
CREATE OR REPLACE TRIGGER resolution_append_only AFTER UPDATE ON ledger_resolution FOR EACH ROW
EXECUTE FUNCTION ledger_refuse('what is on record is never changed');
"""

REMOVE = """
DROP TRIGGER task_identity_kept ON ledger_task;
DROP TRIGGER run_identity_kept ON ledger_run;
DROP TRIGGER run_revision_by_one ON ledger_run;
DROP TRIGGER run_legal_move ON ledger_run;
DROP TRIGGER run_born_pending ON ledger_run;
DROP TRIGGER lease_identity_kept ON ledger_lease;
DROP TRIGGER lease_epoch_never_falls ON ledger_lease;
DROP TRIGGER lease_owner_needs_epoch ON ledger_lease;
DROP TRIGGER lease_born_free ON ledger_lease;
DROP TRIGGER operation_identity_kept ON ledger_operation;
DROP TRIGGER operation_revision_by_one ON ledger_operation;
DROP TRIGGER operation_legal_move ON ledger_operation;
DROP TRIGGER operation_attempts_count_claims ON ledger_operation;
DROP TRIGGER operation_ambiguity_kept ON ledger_operation;
DROP TRIGGER operation_born_prepared ON ledger_operation;
DROP TRIGGER takeover_append_only ON ledger_takeover;
DROP TRIGGER fenced_write_append_only ON ledger_fenced_write;
DROP TRIGGER resolution_append_only ON ledger_resolution;
DROP FUNCTION ledger_refuse();
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0003_storage")]
    operations = [migrations.RunSQL(INSTALL, REMOVE)]
