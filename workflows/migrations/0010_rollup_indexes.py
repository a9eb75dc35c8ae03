from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("workflows", "0009_rollup")]

    operations = [
        AddIndexConcurrently("Workflow", models.Index(name="workflow_entered", fields=["entered_xid"])),
        AddIndexConcurrently("Attempt", models.Index(name="attempt_closed", fields=["closed_xid"])),
        AddIndexConcurrently(
            "Attempt",
            models.Index(name="attempt_corrected", fields=["corrected_xid"], condition=~Q(corrected_xid=None)),
        ),
        AddIndexConcurrently(
            "Event", models.Index(name="event_finished", fields=["finished_xid"], condition=~Q(finished_xid=None))
        ),
    ]
