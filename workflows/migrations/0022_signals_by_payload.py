"""A signal wakes by its payload, and what a retry has seen is a mark of one size; it was a list of all their ids.

What sleeps just now wakes once more for the signals that were in its list. A worker of the release before loses what it
decides, and rolls back, until it is replaced.
"""

from django.db import migrations, models

from workflows.models.xids import CurrentTransactionId, Snapshot, TransactionId


class Migration(migrations.Migration):
    dependencies = [("workflows", "0021_undelivered_message")]

    operations = [
        migrations.RemoveField("workflow", "seen_signals"),
        migrations.AddField(
            "signal",
            "stored_in",
            TransactionId(db_default=CurrentTransactionId(), help_text="The transaction that stored it."),
        ),
        migrations.AddField(
            "workflow",
            "seen_until",
            Snapshot(null=True, help_text="The signals that were committed by then wake it no more."),
        ),
        migrations.AddField(
            "workflow",
            "wake_matching",
            models.JSONField(
                db_default=models.Value({}, models.JSONField()),
                help_text="What the payload of a signal must contain to wake it.",
            ),
        ),
    ]
