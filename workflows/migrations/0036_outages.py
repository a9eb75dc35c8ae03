"""The services that workflows call, each with its circuit; and of a workflow, which one it waits for."""

import django.contrib.postgres.fields
from django.db import migrations, models

import workflows.models.clock


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0035_signals_in_order"),
    ]

    operations = [
        migrations.CreateModel(
            name="CircuitEvent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("service", models.CharField(max_length=100)),
                ("at", models.DateTimeField(db_default=workflows.models.clock.ClockTimestamp())),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("opened", "Opened"),
                            ("closed", "Closed"),
                            ("held", "Held"),
                            ("tried", "To be tried"),
                        ],
                        max_length=10,
                    ),
                ),
                ("reason", models.TextField(db_default="")),
                (
                    "actor",
                    models.CharField(
                        db_default="", help_text="The user who did it; empty for the engine.", max_length=150
                    ),
                ),
            ],
            options={
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Service",
            fields=[
                ("name", models.CharField(max_length=100, primary_key=True, serialize=False)),
                ("since", models.DateTimeField(null=True)),
                ("failed", models.PositiveIntegerField(db_default=0, help_text="Votes: a call met it unavailable.")),
                ("answered", models.PositiveIntegerField(db_default=0, help_text="Votes: a call was answered.")),
                (
                    "suspects",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), db_default=models.Value("{}"), size=None
                    ),
                ),
                ("failed_at", models.DateTimeField(help_text="When a call last met it unavailable.", null=True)),
                ("opened_at", models.DateTimeField(null=True)),
                ("retry_at", models.DateTimeField(null=True)),
                ("cool_off", models.FloatField(db_default=5.0, help_text="Seconds from one trial to the next.")),
                ("trial_until", models.DateTimeField(help_text="A worker tries it, for as long as this.", null=True)),
                ("closed_at", models.DateTimeField(null=True)),
                ("held_by", models.CharField(db_default="", help_text="The user who holds it open.", max_length=150)),
                ("held_reason", models.TextField(db_default="")),
                (
                    "cohort",
                    models.PositiveIntegerField(
                        db_default=0, help_text="How many workflows were released together, last."
                    ),
                ),
                ("released_at", models.DateTimeField(null=True)),
            ],
            options={
                "permissions": [
                    ("hold_service", "Can hold a service: no workflow calls it"),
                    ("try_service", "Can have a service tried now"),
                ],
                "default_permissions": ("view",),
            },
        ),
        migrations.AddField(
            model_name="effect",
            name="undo_unavailable",
            field=models.PositiveIntegerField(
                db_default=0, help_text="Failures of its undo at a service that was unavailable; none of those above."
            ),
        ),
        migrations.AddField(
            model_name="workflow",
            name="parked_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="workflow",
            name="parked_on",
            field=models.CharField(db_default="", help_text="The service that it waits for.", max_length=100),
        ),
        migrations.AddField(
            model_name="workflow",
            name="unavailable_count",
            field=models.PositiveIntegerField(
                db_default=0, help_text="Of these failures, those at a service that was unavailable."
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
        migrations.AddIndex(
            model_name="circuitevent",
            index=models.Index(fields=["service", "-id"], name="circuit_event_of_service"),
        ),
        # Its one row a service is written again and again: room for it on its page, so that no index is written.
        migrations.RunSQL("ALTER TABLE workflows_service SET (fillfactor = 20)", migrations.RunSQL.noop),
    ]
