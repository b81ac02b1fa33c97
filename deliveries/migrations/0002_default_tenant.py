"""The tenant `default` exists from the start."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("deliveries", "0001_tables")]
    operations = [
        migrations.RunSQL(
            "INSERT INTO deliveries_tenant (tenant_id, name) VALUES ('default', 'Default') ON CONFLICT DO NOTHING",
            migrations.RunSQL.noop,
        ),
    ]
