"""Who had a failed best-effort step run again, and the permission for that."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0040_follow_ups"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="workflow",
            options={
                "default_permissions": ("view",),
                "permissions": [
                    ("retry_workflow", "Can retry a failed workflow"),
                    ("run_workflow_now", "Can run a waiting workflow now"),
                    ("cancel_workflow", "Can cancel a workflow"),
                    ("follow_up_workflow", "Can have a failed best-effort step of a complete workflow run again"),
                ],
            },
        ),
        migrations.AddField(
            model_name="followup",
            name="asked_by",
            field=models.CharField(
                db_default="", help_text="The user who had it run again, if one has.", max_length=150
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
                    ("put_back", "Put back"),
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
                    ("compensating", "Compensation began"),
                    ("undo_failed", "Undo failed"),
                    ("compensated", "Compensated"),
                ],
                max_length=30,
            ),
        ),
    ]
