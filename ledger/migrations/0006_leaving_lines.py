from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("ledger", "0005_lines"),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name="dispatch",
            name="dispatch_due",
        ),
        migrations.AddIndex(
            model_name="dispatch",
            index=models.Index(fields=["endpoint_id", "in_line", "due_at", "operation"], name="dispatch_due"),
        ),
        migrations.AlterField(
            model_name="resolution",
            name="decision",
            field=models.TextField(
                choices=[
                    ("succeeded", "It was delivered"),
                    ("failed", "It was not delivered, and shall not be sent again"),
                    ("retry", "Send it again under the same id"),
                    ("moved_aside", "It leaves its line; where it stands is not changed"),
                ]
            ),
        ),
        migrations.RemoveConstraint(
            model_name="resolution",
            name="resolution_decision",
        ),
        migrations.AddConstraint(
            model_name="resolution",
            constraint=models.CheckConstraint(
                condition=models.Q(("decision__in", ["succeeded", "failed", "retry", "moved_aside"])),
                name="resolution_decision",
            ),
        ),
    ]
