"""Cases: a person pauses one workflow, or hands it to a team."""

from django.db import migrations, models
from django.db.models import Q

from workflows.models.clock import ClockTimestamp


class Migration(migrations.Migration):
    dependencies = [("workflows", "0024_case_notes")]

    operations = [
        migrations.AddField("casenote", "team", models.CharField(max_length=150, db_default="")),
        migrations.CreateModel(
            "Pause",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False, auto_created=True, verbose_name="ID")),
                ("asked_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("begun_at", models.DateTimeField(null=True)),
                ("until", models.DateTimeField()),
                ("actor", models.CharField(max_length=150)),
                ("reason", models.TextField()),
                (
                    "workflow",
                    models.OneToOneField(
                        to="workflows.workflow",
                        on_delete=models.DO_NOTHING,
                        db_constraint=False,
                        related_name="pause",
                    ),
                ),
            ],
            options={
                "default_permissions": (),
                "indexes": [models.Index(condition=~Q(begun_at=None), fields=["until", "id"], name="pause_until")],
            },
        ),
    ]
