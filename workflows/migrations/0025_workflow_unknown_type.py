"""A worker that starts makes the workflows due that waited for a release that knows their type: by this index."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("workflows", "0024_indexes_of_chores"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="workflow",
            index=models.Index(
                condition=models.Q(
                    ("status", "PENDING"), ("waiting_for__startswith", "a release that knows the workflow type ")
                ),
                fields=["workflow_type"],
                name="workflow_unknown_type",
            ),
        ),
    ]
