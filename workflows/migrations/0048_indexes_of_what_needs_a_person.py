"""What needs a person is read by indexes of its own, the oldest first, and counted by them."""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models import F, Q

UNACKNOWLEDGED = Q(status="FAILED", cancelled_at=None, completed_at__isnull=False) & ~Q(
    acknowledged_failure=F("completed_at")
)
GIVEN_UP = Q(due_at=None) & ~Q(acknowledged_failure=F("created_at"))


class Migration(migrations.Migration):
    atomic = False  # an index that is built beside the writes cannot be built in a transaction
    dependencies = [("workflows", "0048_who_acknowledges")]

    operations = [
        AddIndexConcurrently(
            "workflow",
            models.Index(name="workflow_unacknowledged", fields=["completed_at", "id"], condition=UNACKNOWLEDGED),
        ),
        AddIndexConcurrently(
            "followup",
            models.Index(name="follow_up_oldest_left", fields=["created_at", "id"], condition=GIVEN_UP),
        ),
        AddIndexConcurrently(
            "manualtask",
            models.Index(
                name="manual_task_oldest",
                fields=["team", "task_type", "created_at", "id"],
                condition=Q(state="open"),
            ),
        ),
        AddIndexConcurrently(
            "manualtask",
            models.Index(
                name="manual_task_overdue",
                fields=["team", "task_type", "due_at", "id"],
                condition=Q(state="open") & ~Q(due_at=None),
            ),
        ),
        AddIndexConcurrently(
            "manualtask",
            models.Index(
                name="manual_task_assigned",
                fields=["assignee", "created_at", "id"],
                condition=Q(state="open") & ~Q(assignee=None),
            ),
        ),
        # It had those that were acknowledged, too, and in no order that a list has.
        RemoveIndexConcurrently("followup", "follow_up_given_up"),
    ]
