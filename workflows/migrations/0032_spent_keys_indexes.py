from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("workflows", "0031_spent_keys")]

    operations = [
        AddIndexConcurrently(
            "Workflow",
            models.Index(
                name="workflow_to_delete",
                fields=["workflow_type", "completed_at"],
                condition=Q(emptied_at__isnull=False),
            ),
        ),
    ]
