"""The follow-ups that were given up are found, and counted, by an index of their own."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False  # an index that is built beside the writes cannot be built in a transaction
    dependencies = [("workflows", "0041_follow_ups_asked_for")]

    operations = [
        AddIndexConcurrently(
            "followup", models.Index(name="follow_up_given_up", fields=["workflow"], condition=Q(due_at=None))
        ),
    ]
