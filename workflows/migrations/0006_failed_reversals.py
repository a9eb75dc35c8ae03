from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("workflows", "0005_causes")]

    operations = [
        AddIndexConcurrently(
            "Effect",
            models.Index(name="effect_undo_failed", fields=["id"], condition=models.Q(undo_failures__gt=0)),
        ),
    ]
