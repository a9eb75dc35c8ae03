"""A failure is acknowledged: by its time, so that the next one is not. The history tells who did so, and why."""

from django.db import migrations, models

KINDS = [
    ("completed", "Completed"),
    ("failed", "Failed"),
    ("retry_scheduled", "Retry scheduled"),
    ("waiting", "Waiting"),
    ("parked", "Parked"),
    ("put_back", "Paused"),
    ("vanished", "Worker vanished"),
    ("crashed", "Worker crashed"),
    ("killed", "Worker killed"),
    ("interrupted", "Worker interrupted"),
    ("lost", "Attempt lost"),
    ("best_effort_failed", "Best-effort step failed"),
    ("followed_up", "Followed up"),
    ("follow_up_failed", "Follow-up failed"),
    ("follow_up_given_up", "Follow-up given up"),
    ("follow_up_asked", "Run again"),
    ("task_claimed", "Task claimed"),
    ("task_assigned", "Task assigned"),
    ("task_released", "Task released"),
    ("approved", "Approved"),
    ("rejected", "Rejected"),
    ("expired", "Expired"),
    ("taken_back", "Answer taken back"),
    ("acknowledged", "Acknowledged"),
    ("retried", "Retried"),
    ("run_now", "Run now"),
    ("cancel_requested", "Cancellation requested"),
    ("cancel_too_late", "Too late to cancel"),
    ("cancelled", "Cancelled"),
    ("compensating", "Reversal began"),
    ("undo_failed", "Reversal failed"),
    ("compensated", "Reversed"),
]


class Migration(migrations.Migration):
    dependencies = [("workflows", "0048_cancel_what_is_paid")]

    operations = [
        migrations.AlterField(
            model_name="event",
            name="kind",
            field=models.CharField(choices=KINDS, max_length=30),
        ),
        migrations.AddField(
            model_name="followup",
            name="acknowledged_failure",
            field=models.DateTimeField(
                help_text="What a person has acknowledged that it was given up, by the time at which it was created.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="workflow",
            name="acknowledged_failure",
            field=models.DateTimeField(
                help_text="The failure that a person has acknowledged, by the time at which it came to rest.",
                null=True,
            ),
        ),
    ]
