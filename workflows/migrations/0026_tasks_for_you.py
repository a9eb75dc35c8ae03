"""Tasks for a user: those of a team and type in the order of their due time."""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models import Q
from django.db.models.functions import Coalesce


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("workflows", "0025_pauses_and_teams")]

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
    ]
