from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("workflows", "0025_retention")]

    operations = [
        AddIndexConcurrently(
            "Workflow",
            models.Index(
                name="workflow_to_empty",
                fields=["workflow_type", "completed_at"],
                condition=Q(emptied_at=None, completed_at__isnull=False),
            ),
        ),
    ]
