from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """What failed in a time is found, whatever became of it since."""

    atomic = False
    dependencies = [("workflows", "0012_wait_overdue")]

    operations = [
        AddIndexConcurrently(
            model_name="event",
            index=models.Index(
                name="event_not_completed",
                fields=["-at", "-id"],
                condition=~models.Q(kind="completed") & models.Q(finished_xid__isnull=False),
            ),
        )
    ]
