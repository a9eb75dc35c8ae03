"""Tasks for a user: those of a team and type in the order of their due time. And decisions that can be undone."""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models import Q
from django.db.models.functions import Coalesce


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("workflows", "0026_held_decisions")]

    operations = [
        AddIndexConcurrently(
            "ManualTask",
            models.Index(
                "team",
                "task_type",
                Coalesce("due_at", "expires_at"),
                "id",
                condition=Q(state="open"),
                name="manual_task_of_team",
            ),
        ),
        RemoveIndexConcurrently("ManualTask", "manual_task_overdue"),
        AddIndexConcurrently(
            "ManualTask", models.Index(condition=Q(held__isnull=False), fields=["decided_at"], name="manual_task_held")
        ),
    ]
