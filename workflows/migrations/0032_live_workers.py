"""Each beat of a worker counts the live ones, by an index: the rows of the dead are kept for a day."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # an index that is built beside the writes cannot be built in a transaction
    dependencies = [("workflows", "0031_indexes_of_begun")]

    operations = [
        AddIndexConcurrently(
            "workerprocess",
            models.Index(name="workerprocess_live", fields=["queue"], condition=models.Q(stopped_at=None)),
        ),
    ]
