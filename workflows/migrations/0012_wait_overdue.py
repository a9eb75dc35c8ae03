from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q

HAS_DUE_TIME = Q(outcome="", superseded=False, due_at__isnull=False)


class Migration(migrations.Migration):
    """The overdue waits; and the longest overdue of each team."""

    atomic = False
    dependencies = [("workflows", "0011_wait_due")]

    operations = [
        AddIndexConcurrently("wait", models.Index(name="wait_due", fields=["due_at"], condition=HAS_DUE_TIME)),
        AddIndexConcurrently(
            "wait", models.Index(name="wait_overdue", fields=["team", "due_at", "id"], condition=HAS_DUE_TIME)
        ),
    ]
