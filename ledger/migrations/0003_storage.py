"""Room in each page for the new version of a hot row, so that its update stays on the page (HOT) and touches no index.

The queue is small and churns: it is vacuumed by count, not by share.
"""

from django.db import migrations

HOT = ("ledger_run", "ledger_lease", "ledger_operation")


class Migration(migrations.Migration):
    dependencies = [("ledger", "0002_tables")]
    operations = [
        *(
            migrations.RunSQL(f"ALTER TABLE {table} SET (fillfactor = 85)", f"ALTER TABLE {table} RESET (fillfactor)")
            for table in HOT
        ),
        migrations.RunSQL(
            "ALTER TABLE ledger_dispatch SET "
            "(fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)",
            "ALTER TABLE ledger_dispatch RESET "
            "(fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold)",
        ),
    ]
