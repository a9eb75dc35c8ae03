"""What has begun is found by an index of its own, and so is what has not.

The index of both stays: the workers of the release before claim by it until they are replaced.
"""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False  # an index that is built beside the writes cannot be built in a transaction
    dependencies = [("workflows", "0030_begun")]

    operations = [
        AddIndexConcurrently(
            "workflow",
            models.Index(
                name=name, fields=["queue", "invisible_until", "id"], condition=Q(status="PENDING", begun=begun)
            ),
        )
        for name, begun in (("workflow_begun", True), ("workflow_fresh", False))
    ]
