"""An answer draws a number as a worker reads it, from the sequence of the calls: which of them were begun since?

Answers that were read before this migration, or by a worker of the release before, have none, and go by the clock.
"""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workflows", "0033_vacuum_queues")]

    operations = [
        migrations.AddField(
            "wait",
            "call_number",
            models.BigIntegerField(
                null=True,
                help_text="Drawn as a worker read a person's answer: calls with a higher one (`Effect`) were begun since.",
            ),
        ),
    ]
