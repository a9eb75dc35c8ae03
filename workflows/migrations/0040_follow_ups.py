"""What is still to be done for a COMPLETE workflow: its best-effort steps that were let go."""

import django.db.models.deletion
from django.db import migrations, models

import workflows.models.clock


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0038_groups_see_services"),
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
                    ("put_back", "Put back"),
                    ("lost", "Lost its database"),
                    ("vanished", "Vanished"),
                    ("crashed", "Crashed its worker"),
                    ("killed", "Worker was killed"),
                    ("interrupted", "Interrupted"),
                    ("held", "Held for a decision"),
                    ("compensated", "Compensated"),
                    ("followed_up", "Followed up"),
                    ("follow_up_failed", "Follow-up failed"),
                ],
                db_default="",
                help_text="Empty while it runs.",
                max_length=20,
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
        migrations.CreateModel(
            name="FollowUp",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("step", models.CharField(max_length=100)),
                ("queue", models.CharField(max_length=63)),
                ("created_at", models.DateTimeField(db_default=workflows.models.clock.ClockTimestamp())),
                (
                    "due_at",
                    models.DateTimeField(
                        help_text="No worker takes it before this time; empty once given up.", null=True
                    ),
                ),
                (
                    "tries",
                    models.PositiveIntegerField(
                        db_default=0, help_text="Workers that have begun it since its last decision."
                    ),
                ),
                ("failures", models.PositiveIntegerField(db_default=0)),
                (
                    "unavailable",
                    models.PositiveIntegerField(db_default=0, help_text="Failures at a service that was unavailable."),
                ),
                (
                    "workflow",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="follow_ups",
                        to="workflows.workflow",
                    ),
                ),
            ],
            options={
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        condition=models.Q(("due_at", None), _negated=True),
                        fields=["queue", "due_at", "id"],
                        name="follow_up_due",
                    )
                ],
                "constraints": [models.UniqueConstraint(fields=("workflow", "step"), name="follow_up_unique_step")],
            },
        ),
    ]
