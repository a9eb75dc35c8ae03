"""What is parked, waits or is retried later is counted from its index alone."""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models import Q

REST = ["invisible_until", "compensating"]


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("workflows", "0034_fewer_checks")]

    # The new ones first: the list in the console needs one of each pair.
    operations = [
        AddIndexConcurrently(
            "Workflow",
            models.Index(
                name="workflow_is_waiting",
                fields=["id"],
                include=REST,
                condition=Q(status="PENDING", parked_on="") & ~Q(waiting_for=""),
            ),
        ),
        RemoveIndexConcurrently("Workflow", "workflow_waiting"),
        AddIndexConcurrently(
            "Workflow",
            models.Index(
                name="workflow_is_retrying",
                fields=["id"],
                include=REST,
                condition=Q(status="PENDING", parked_on="", waiting_for="", retry_count__gt=0),
            ),
        ),
        RemoveIndexConcurrently("Workflow", "workflow_retrying"),
        AddIndexConcurrently(
            "Workflow",
            models.Index(
                name="workflow_is_parked",
                fields=["parked_on", "id"],
                include=REST,
                condition=Q(status="PENDING") & ~Q(parked_on=""),
            ),
        ),
        RemoveIndexConcurrently("Workflow", "workflow_parked_newest"),
    ]
