from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """What is open of undelivered messages is counted for each scrape."""

    atomic = False
    dependencies = [("workflows", "0004_log_stays")]

    operations = [
        AddIndexConcurrently(
            model_name="undeliveredmessage",
            index=models.Index(condition=models.Q(("state", "")), fields=["topic"], name="undelivered_open"),
        ),
    ]
