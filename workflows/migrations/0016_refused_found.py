from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Refused submissions are found by their key, and by the hashes of what they say."""

    atomic = False
    dependencies = [("workflows", "0015_doors")]

    operations = [
        AddIndexConcurrently(
            model_name="undeliveredmessage",
            index=models.Index(
                condition=models.Q(("idempotency_key__isnull", False)),
                fields=["idempotency_key"],
                name="undelivered_of_key",
            ),
        ),
        AddIndexConcurrently(
            model_name="undeliveredmessage",
            index=GinIndex(fastupdate=False, fields=["hashes"], name="undelivered_of_hash"),
        ),
    ]
