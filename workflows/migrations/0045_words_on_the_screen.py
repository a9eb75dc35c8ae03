"""The words on the screen: a reversal, and no compensation; an unclear call, and none in doubt. Labels only."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0044_groups_see_searches"),
    ]

    operations = [
        migrations.AlterField(
            model_name="attempt",
            name="outcome",
            field=models.CharField(
                choices=[
                    ("complete", "Complete"),
                    ("retry", "Retry"),
                    ("waiting", "Waiting"),
                    ("failed", "Failed"),
                    ("put_back", "Paused"),
                    ("lost", "Lost its database"),
                    ("vanished", "Vanished"),
                    ("crashed", "Crashed its worker"),
                    ("killed", "Worker was killed"),
                    ("interrupted", "Interrupted"),
                    ("held", "Held for a decision"),
                    ("compensated", "Reversed"),
                    ("followed_up", "Followed up"),
                    ("follow_up_failed", "Follow-up failed"),
                ],
                db_default="",
                help_text="Empty while it runs.",
                max_length=20,
            ),
        ),
        migrations.AlterField(
            model_name="effect",
            name="state",
            field=models.CharField(
                choices=[
                    ("intent", "Under way"),
                    ("done", "Done"),
                    ("not_done", "Not done"),
                    ("skipped", "Did not apply"),
                    ("unknown", "Unclear"),
                    ("undone", "Reversed"),
                    ("kept", "Left as it is"),
                ],
                max_length=10,
            ),
        ),
        migrations.AlterField(
            model_name="event",
            name="kind",
            field=models.CharField(
                choices=[
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
                    ("task_released", "Task released"),
                    ("approved", "Approved"),
                    ("rejected", "Rejected"),
                    ("expired", "Expired"),
                    ("taken_back", "Answer taken back"),
                    ("retried", "Retried"),
                    ("run_now", "Run now"),
                    ("cancel_requested", "Cancellation requested"),
                    ("cancel_too_late", "Too late to cancel"),
                    ("cancelled", "Cancelled"),
                    ("compensating", "Reversal began"),
                    ("undo_failed", "Reversal failed"),
                    ("compensated", "Reversed"),
                ],
                max_length=30,
            ),
        ),
    ]
