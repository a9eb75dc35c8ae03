"""The index of the next migration's constraint, built beside the writes."""

from django.db import migrations


class Migration(migrations.Migration):
    atomic = False  # CONCURRENTLY
    dependencies = [("workflows", "0026_messages_by_time")]

    operations = [
        migrations.RunSQL(
            "CREATE UNIQUE INDEX CONCURRENTLY undelivered_at_its_time"
            ' ON workflows_undeliveredmessage (topic, "partition", "offset", sent_at_ms)',
            "DROP INDEX CONCURRENTLY IF EXISTS undelivered_at_its_time",
        ),
    ]
