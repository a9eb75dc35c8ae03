"""The indexes of failures say why each has failed: its cause is read from them, and not from the rows."""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models import F, Q

FAILED = Q(status="FAILED", cancelled_at=None)
UNACKNOWLEDGED = Q(status="FAILED", cancelled_at=None, completed_at__isnull=False) & ~Q(
    acknowledged_failure=F("completed_at")
)
TOLD = [
    *("workflow_type", "current_step", "last_error_code", "last_error_class", "failed_release"),
    "acknowledged_failure",
]


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("workflows", "0012_failed_release")]

    operations = [
        AddIndexConcurrently(
            "Workflow",
            models.Index(
                name="workflow_failures",
                fields=["completed_at", "id"],
                include=TOLD,
                condition=FAILED,
            ),
        ),
        AddIndexConcurrently(
            "Workflow",
            models.Index(
                name="workflow_failures_left", fields=["completed_at", "id"], include=TOLD, condition=UNACKNOWLEDGED
            ),
        ),
        RemoveIndexConcurrently("Workflow", "workflow_failed_at"),
        RemoveIndexConcurrently("Workflow", "workflow_unacknowledged"),
    ]
