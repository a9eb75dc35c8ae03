from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """What is emptied finds the closed signals of its linking id."""

    atomic = False
    dependencies = [("workflows", "0006_content_keys")]

    operations = [
        AddIndexConcurrently(
            model_name="signal",
            index=models.Index(
                name="signal_closed_of_linking_id",
                fields=["linking_id"],
                condition=models.Q(closed_at__isnull=False, linking_id__isnull=False),
            ),
        )
    ]
