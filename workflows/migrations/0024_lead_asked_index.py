"""The tasks that a support lead was asked to see to, the oldest first."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("workflows", "0023_assigned")]

    operations = [
        AddIndexConcurrently(
            "ManualTask",
            models.Index(
                name="manual_task_lead",
                fields=["lead_asked_at", "id"],
                condition=models.Q(state="open") & ~models.Q(lead_asked_at=None),
            ),
        )
    ]
