"""Notes: what users write about a workflow, for colleagues."""

from django.db import migrations, models
from django.db.models import Q

from workflows.models.clock import ClockTimestamp


class Migration(migrations.Migration):
    dependencies = [("workflows", "0023_notices")]

    operations = [
        migrations.CreateModel(
            "CaseNote",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False, auto_created=True, verbose_name="ID")),
                ("form_key", models.UUIDField(unique=True)),
                ("added_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("actor", models.CharField(max_length=150)),
                ("text", models.TextField()),
                ("lead_asked_at", models.DateTimeField(null=True)),
                (
                    "workflow",
                    models.ForeignKey(
                        to="workflows.workflow",
                        on_delete=models.DO_NOTHING,
                        db_constraint=False,
                        db_index=False,
                        related_name="case_notes",
                    ),
                ),
            ],
            options={
                "default_permissions": (),
                "indexes": [
                    models.Index(fields=["workflow", "id"], name="case_note_of_workflow"),
                    models.Index(
                        condition=~Q(lead_asked_at=None), fields=["lead_asked_at", "id"], name="case_note_lead"
                    ),
                ],
            },
        ),
    ]
