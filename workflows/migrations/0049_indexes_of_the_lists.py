"""The lists of workflows and tasks are read in their order by indexes of their own, whatever the filter."""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models import Q
from django.db.models.functions import Coalesce


class Migration(migrations.Migration):
    atomic = False  # an index that is built beside the writes cannot be built in a transaction
    dependencies = [("workflows", "0048_indexes_of_what_needs_a_person")]

    operations = [
        AddIndexConcurrently("workflow", models.Index(name="workflow_of_type", fields=["workflow_type", "id"])),
        AddIndexConcurrently(
            "workflow",
            models.Index(
                name="workflow_cancelled", fields=["id"], condition=Q(status="FAILED", cancelled_at__isnull=False)
            ),
        ),
        AddIndexConcurrently(
            "workflow",
            models.Index(name="workflow_failed_newest", fields=["id"], condition=Q(status="FAILED", cancelled_at=None)),
        ),
        RemoveIndexConcurrently("workflow", "workflow_failed"),
        AddIndexConcurrently(
            "workflow",
            models.Index(
                name="workflow_waiting", fields=["id"], condition=Q(status="PENDING", parked_on="") & ~Q(waiting_for="")
            ),
        ),
        AddIndexConcurrently(
            "workflow",
            models.Index(
                name="workflow_retrying",
                fields=["id"],
                condition=Q(status="PENDING", parked_on="", waiting_for="", retry_count__gt=0),
            ),
        ),
        AddIndexConcurrently(
            "workflow",
            models.Index(name="workflow_failing", fields=["id"], condition=Q(status="PENDING", retry_count__gte=3)),
        ),
        AddIndexConcurrently(
            "workflow",
            models.Index(
                name="workflow_queued",
                fields=["id"],
                condition=Q(status="PENDING", parked_on="", waiting_for="", retry_count=0),
            ),
        ),
        # What is due the two have that workers claim from.
        RemoveIndexConcurrently("workflow", "workflow_due"),
        AddIndexConcurrently(
            "workflow",
            models.Index(
                name="workflow_parked_newest",
                fields=["parked_on", "id"],
                condition=Q(status="PENDING") & ~Q(parked_on=""),
            ),
        ),
        AddIndexConcurrently(
            "manualtask",
            models.Index(Coalesce("due_at", "expires_at"), "id", name="manual_task_inbox", condition=Q(state="open")),
        ),
        AddIndexConcurrently(
            "manualtask",
            models.Index(
                "task_type",
                Coalesce("due_at", "expires_at"),
                "id",
                name="manual_task_of_type",
                condition=Q(state="open"),
            ),
        ),
        AddIndexConcurrently(
            "manualtask",
            models.Index(name="manual_task_closed", fields=["state", "id"], condition=~Q(state="open")),
        ),
    ]
