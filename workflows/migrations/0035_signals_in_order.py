"""A wait reads the open signals of its names in their order: it takes the first, and need not read the others."""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False  # an index that is built beside the writes cannot be built in a transaction
    dependencies = [("workflows", "0034_wait_call_number")]

    operations = [
        AddIndexConcurrently(
            "signal",
            models.Index(
                name="signal_open_of_workflow", fields=["workflow", "name", "id"], condition=Q(closed_at=None)
            ),
        ),
        AddIndexConcurrently(
            "signal",
            models.Index(
                name="signal_open_of_linking_id",
                fields=["linking_id", "name", "id"],
                condition=Q(closed_at=None, linking_id__isnull=False),
            ),
        ),
        RemoveIndexConcurrently("signal", "signal_unanswered"),
        RemoveIndexConcurrently("signal", "signal_of_linking_id"),
    ]
