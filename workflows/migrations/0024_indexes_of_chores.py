"""The chores find the next slice by an index, however many rows there are that need nothing of them."""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False  # an index that is built beside the writes cannot be built in a transaction
    dependencies = [("workflows", "0023_chores")]

    operations = [
        AddIndexConcurrently("signal", models.Index(name="signal_open", fields=["id"], condition=Q(closed_at=None))),
        AddIndexConcurrently(
            "workflow",
            models.Index(
                name="workflow_expiring_asleep",
                fields=["expires_at", "invisible_until"],
                condition=Q(status="PENDING", compensating=False) & ~Q(expires_at=None),
            ),
        ),
        AddIndexConcurrently(
            "workflow",
            models.Index(
                name="workflow_listening_asleep",
                fields=["linking_id", "invisible_until"],
                condition=Q(status="PENDING") & ~Q(linking_id=None) & ~Q(wake_on=[]),
            ),
        ),
        RemoveIndexConcurrently("workflow", "workflow_expiring"),
        RemoveIndexConcurrently("workflow", "workflow_listening"),
    ]
