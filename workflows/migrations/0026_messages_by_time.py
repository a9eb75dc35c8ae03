"""A message of a topic that was deleted and created again is none that had its place before: it was sent at another time."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0025_workflow_unknown_type"),
    ]

    operations = [
        migrations.AddField(
            "signal",
            "sent_at_ms",
            models.BigIntegerField(
                null=True, help_text="Of a message named by its place in a topic: when it was sent, by Kafka's word."
            ),
        ),
        migrations.AddField(
            "undeliveredmessage",
            "sent_at_ms",
            models.BigIntegerField(
                db_default=0,
                help_text="When it was sent: a topic that was created again has another message at this place.",
            ),
        ),
    ]
