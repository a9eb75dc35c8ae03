"""What is parked on a service is found by an index of its own."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False  # an index that is built beside the writes cannot be built in a transaction
    dependencies = [("workflows", "0036_outages")]

    operations = [
        AddIndexConcurrently(
            "workflow",
            models.Index(
                name="workflow_parked",
                fields=["parked_on", "invisible_until", "id"],
                condition=Q(status="PENDING") & ~Q(parked_on=""),
            ),
        ),
    ]
