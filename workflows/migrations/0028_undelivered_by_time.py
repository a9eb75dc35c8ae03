"""A topic that was created again may have another message at the same place: it is undelivered beside the old one."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workflows", "0027_undelivered_index")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    """ALTER TABLE workflows_undeliveredmessage
                         DROP CONSTRAINT undelivered_once,
                         ADD CONSTRAINT undelivered_once UNIQUE USING INDEX undelivered_at_its_time""",
                    """ALTER TABLE workflows_undeliveredmessage
                         DROP CONSTRAINT undelivered_once,
                         ADD CONSTRAINT undelivered_once UNIQUE (topic, "partition", "offset")""",
                ),
            ],
            state_operations=[
                migrations.RemoveConstraint("undeliveredmessage", "undelivered_once"),
                migrations.AddConstraint(
                    "undeliveredmessage",
                    models.UniqueConstraint(
                        fields=("topic", "partition", "offset", "sent_at_ms"), name="undelivered_once"
                    ),
                ),
            ],
        ),
    ]
