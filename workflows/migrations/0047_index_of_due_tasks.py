"""The tasks that are overdue are counted by an index of their own."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False  # an index that is built beside the writes cannot be built in a transaction
    dependencies = [("workflows", "0047_workers_only")]

    operations = [
        AddIndexConcurrently(
            "manualtask",
            models.Index(name="manual_task_due", fields=["due_at"], condition=Q(state="open") & ~Q(due_at=None)),
        ),
    ]
