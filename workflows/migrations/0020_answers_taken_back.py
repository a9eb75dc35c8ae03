"""An answer about a call can be taken back: the history tells of it, and its task says so."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0018_signals_of_workflow"),
    ]

    operations = [
        migrations.AlterField(
            model_name="event",
            name="kind",
            field=models.CharField(
                choices=[
                    ("completed", "Completed"),
                    ("failed", "Failed"),
                    ("retry_scheduled", "Retry scheduled"),
                    ("waiting", "Waiting"),
                    ("put_back", "Put back"),
                    ("vanished", "Worker vanished"),
                    ("crashed", "Worker crashed"),
                    ("killed", "Worker killed"),
                    ("interrupted", "Worker interrupted"),
                    ("lost", "Attempt lost"),
                    ("best_effort_failed", "Best-effort step failed"),
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
        migrations.AlterField(
            model_name="manualtask",
            name="state",
            field=models.CharField(
                choices=[
                    ("open", "Open"),
                    ("approved", "Approved"),
                    ("rejected", "Rejected"),
                    ("expired", "Expired"),
                    ("closed", "No longer asked"),
                    ("taken_back", "Answer taken back"),
                ],
                db_default="open",
                max_length=10,
            ),
        ),
    ]
