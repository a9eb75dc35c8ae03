from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("workflows", "0014_pace")]

    operations = [
        AddIndexConcurrently(
            "Workflow",
            models.Index(
                name="workflow_lanes",
                fields=["queue", "priority", "workflow_type", "tenant", "invisible_until", "id"],
                condition=Q(status="PENDING", begun=False),
            ),
        ),
    ]
