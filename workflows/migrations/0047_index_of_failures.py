"""What failed lately is counted by an index of its own."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False  # an index that is built beside the writes cannot be built in a transaction
    dependencies = [("workflows", "0047_index_of_due_tasks")]

    operations = [
        AddIndexConcurrently(
            "workflow",
            models.Index(
                name="workflow_failed_at",
                fields=["completed_at"],
                condition=Q(status="FAILED", cancelled_at=None),
            ),
        ),
    ]
