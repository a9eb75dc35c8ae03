"""Each chore has a row: when it is due, and where it goes on. It was one lock for all of them."""

from django.db import migrations, models

from workflows.models.clock import ClockTimestamp


class Migration(migrations.Migration):
    dependencies = [("workflows", "0022_signals_by_payload")]

    operations = [
        migrations.CreateModel(
            name="Chore",
            fields=[
                ("name", models.CharField(max_length=50, primary_key=True, serialize=False)),
                ("due_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("after", models.BigIntegerField(db_default=0, help_text="The id after which its next slice begins.")),
                ("failing_since", models.DateTimeField(null=True)),
                (
                    "error",
                    models.TextField(db_default="", help_text="Why its last slice failed; empty if it did not."),
                ),
            ],
            options={"default_permissions": ()},
        ),
    ]
