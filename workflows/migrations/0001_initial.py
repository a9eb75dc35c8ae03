"""The tables, their indexes, the sequence that numbers calls, and what vacuum does with the tables of the queue.

The columns stand in the order in which the tables got them.
"""

from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models
from django.db.models import F, Q
from django.db.models.functions import Coalesce, Now

from workflows.models.clock import ClockTimestamp
from workflows.models.effect import NextCallNumber
from workflows.models.xids import CurrentTransactionId, Snapshot, TransactionId

EMPTY_OBJECT, EMPTY_LIST = models.Value({}, models.JSONField()), models.Value([], models.JSONField())
EMPTY_ARRAY = models.Value("{}")

# A column's own sequence needs no grant, and this one is to need none either.
CREATE_SEQUENCE = """
    CREATE SEQUENCE workflows_effect_call_number;
    GRANT USAGE ON SEQUENCE workflows_effect_call_number TO PUBLIC"""

# The tables that the due query and the chores look into, and from which work is taken off all the time.
QUEUES = ("workflows_workflow", "workflows_attempt", "workflows_wait", "workflows_signal")
# A fifth of a table may be dead before an autovacuum by default, and while dead index entries are on less than 2% of its
# pages it leaves the indexes alone: of 300,000 rows some thousands that were just worked off are less than both.
VACUUM = "ALTER TABLE {} SET (autovacuum_vacuum_scale_factor = 0.01, vacuum_index_cleanup = on)"

# fmt: off
OUTCOMES = [
    ("complete", "Complete"), ("retry", "Retry"), ("waiting", "Waiting"), ("failed", "Failed"),
    ("put_back", "Paused"), ("lost", "Lost its database"), ("vanished", "Vanished"),
    ("crashed", "Crashed its worker"), ("killed", "Worker was killed"), ("interrupted", "Interrupted"),
    ("held", "Held for a decision"), ("compensated", "Reversed"), ("followed_up", "Followed up"),
    ("follow_up_failed", "Deferred step failed"),
]
KINDS = [
    ("completed", "Completed"), ("failed", "Failed"), ("retry_scheduled", "Retry scheduled"),
    ("waiting", "Waiting"), ("parked", "Parked"), ("put_back", "Paused"), ("vanished", "Worker vanished"),
    ("crashed", "Worker crashed"), ("killed", "Worker killed"), ("interrupted", "Worker interrupted"),
    ("lost", "Attempt lost"), ("best_effort_failed", "Best-effort step failed"), ("followed_up", "Followed up"),
    ("follow_up_failed", "Deferred step failed"), ("follow_up_given_up", "Deferred step given up"),
    ("follow_up_asked", "Run again"), ("task_claimed", "Task claimed"), ("task_assigned", "Task assigned"),
    ("task_released", "Task released"), ("approved", "Approved"), ("rejected", "Rejected"), ("expired", "Expired"),
    ("taken_back", "Answer retracted"), ("acknowledged", "Acknowledged"), ("retried", "Retried"),
    ("run_now", "Run now"), ("cancel_requested", "Cancellation requested"),
    ("cancel_too_late", "Too late to cancel"), ("cancelled", "Cancelled"), ("compensating", "Reversal started"),
    ("undo_failed", "Reversal failed"), ("compensated", "Reversed"),
]
# fmt: on


def ID() -> Any:  # noqa: N802
    return models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")


def of_workflow(related_name: str, *, null: bool = False) -> Any:
    """Names the workflow without a constraint in the database: see workflows.models.Attempt."""
    return models.ForeignKey(
        "workflows.workflow",
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        null=null,
        related_name=related_name,
    )


class Migration(migrations.Migration):
    initial = True
    dependencies = [migrations.swappable_dependency(settings.AUTH_USER_MODEL)]

    operations = [
        migrations.RunSQL(CREATE_SEQUENCE, "DROP SEQUENCE workflows_effect_call_number"),
        migrations.CreateModel(
            "Workflow",
            [
                ("id", ID()),
                ("idempotency_key", models.UUIDField(unique=True)),
                ("workflow_type", models.CharField(max_length=100)),
                ("submitted_by", models.CharField(db_default="", max_length=100)),
                ("tenant", models.CharField(db_default="", max_length=100)),
                ("business_key", models.CharField(max_length=200, null=True)),
                ("linking_id", models.CharField(max_length=200, null=True)),
                ("payload", models.JSONField()),
                ("created_at", models.DateTimeField(db_default=Now())),
                ("queue", models.CharField(db_default="default", max_length=63)),
                (
                    "status",
                    models.CharField(
                        choices=[("PENDING", "Pending"), ("COMPLETE", "Complete"), ("FAILED", "Failed")],
                        db_default="PENDING",
                        max_length=8,
                    ),
                ),
                ("invisible_until", models.DateTimeField(db_default=Now())),
                ("retry_count", models.PositiveIntegerField(db_default=0)),
                ("waiting_for", models.TextField(db_default="")),
                ("wake_on", ArrayField(models.TextField(), db_default=EMPTY_ARRAY)),
                ("context", models.JSONField(db_default=EMPTY_OBJECT)),
                ("current_step", models.CharField(db_default="", max_length=100)),
                ("last_error_class", models.CharField(db_default="", max_length=200)),
                ("last_error_code", models.CharField(db_default="", max_length=100)),
                ("last_error_message", models.TextField(db_default="")),
                ("completed_at", models.DateTimeField(null=True)),
                ("cancelled_at", models.DateTimeField(null=True)),
                ("compensating", models.BooleanField(db_default=False)),
                ("expires_at", models.DateTimeField(null=True)),
                ("child_key", models.CharField(db_default="", max_length=200)),
                ("parent", of_workflow("children", null=True)),
                ("parent_wait", models.CharField(db_default="", max_length=200)),
                ("seen_until", Snapshot(null=True)),
                ("wake_matching", models.JSONField(db_default=EMPTY_OBJECT)),
                ("begun", models.BooleanField(db_default=False)),
                ("parked_at", models.DateTimeField(null=True)),
                ("parked_on", models.CharField(db_default="", max_length=100)),
                ("unavailable_count", models.PositiveIntegerField(db_default=0)),
                ("acknowledged_failure", models.DateTimeField(null=True)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        name="workflow_status_is_known", condition=Q(status__in=["PENDING", "COMPLETE", "FAILED"])
                    ),
                    models.CheckConstraint(
                        name="workflow_pending_is_not_completed", condition=~Q(status="PENDING") | Q(completed_at=None)
                    ),
                    models.CheckConstraint(
                        name="workflow_at_rest_is_not_compensating",
                        condition=Q(status="PENDING") | Q(compensating=False),
                    ),
                    models.UniqueConstraint(
                        name="workflow_unique_business_key",
                        fields=["business_key", "workflow_type", "tenant"],
                        condition=~Q(business_key=None),
                    ),
                    models.UniqueConstraint(
                        name="workflow_unique_child",
                        fields=["parent", "parent_wait", "child_key"],
                        condition=~Q(parent=None),
                    ),
                ],
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        name="workflow_begun",
                        fields=["queue", "invisible_until", "id"],
                        condition=Q(begun=True, status="PENDING"),
                    ),
                    models.Index(
                        name="workflow_fresh",
                        fields=["queue", "invisible_until", "id"],
                        condition=Q(begun=False, status="PENDING"),
                    ),
                    models.Index(
                        name="workflow_compensating",
                        fields=["queue", "invisible_until", "id"],
                        condition=Q(compensating=True, status="PENDING"),
                    ),
                    models.Index(
                        name="workflow_expiring_asleep",
                        fields=["expires_at", "invisible_until"],
                        condition=Q(compensating=False, status="PENDING") & ~Q(expires_at=None),
                    ),
                    models.Index(name="workflow_of_type", fields=["workflow_type", "id"]),
                    models.Index(
                        name="workflow_queued",
                        fields=["id"],
                        condition=Q(parked_on="", retry_count=0, status="PENDING", waiting_for=""),
                    ),
                    models.Index(
                        name="workflow_failed_newest", fields=["id"], condition=Q(cancelled_at=None, status="FAILED")
                    ),
                    models.Index(
                        name="workflow_cancelled",
                        fields=["id"],
                        condition=Q(cancelled_at__isnull=False, status="FAILED"),
                    ),
                    models.Index(
                        name="workflow_waiting",
                        fields=["id"],
                        condition=Q(parked_on="", status="PENDING") & ~Q(waiting_for=""),
                    ),
                    models.Index(
                        name="workflow_retrying",
                        fields=["id"],
                        condition=Q(parked_on="", retry_count__gt=0, status="PENDING", waiting_for=""),
                    ),
                    models.Index(
                        name="workflow_failing", fields=["id"], condition=Q(retry_count__gte=3, status="PENDING")
                    ),
                    models.Index(
                        name="workflow_parked_newest",
                        fields=["parked_on", "id"],
                        condition=Q(status="PENDING") & ~Q(parked_on=""),
                    ),
                    models.Index(
                        name="workflow_failed_at",
                        fields=["completed_at"],
                        condition=Q(cancelled_at=None, status="FAILED"),
                    ),
                    models.Index(
                        name="workflow_unacknowledged",
                        fields=["completed_at", "id"],
                        condition=Q(cancelled_at=None, completed_at__isnull=False, status="FAILED")
                        & ~Q(acknowledged_failure=F("completed_at")),
                    ),
                    models.Index(
                        name="workflow_children_pending",
                        fields=["parent", "parent_wait"],
                        condition=Q(status="PENDING") & ~Q(parent=None),
                    ),
                    models.Index(
                        name="workflow_listening_asleep",
                        fields=["linking_id", "invisible_until"],
                        condition=Q(status="PENDING") & ~Q(linking_id=None) & ~Q(wake_on=[]),
                    ),
                    models.Index(
                        name="workflow_unknown_type",
                        fields=["workflow_type"],
                        condition=Q(
                            status="PENDING", waiting_for__startswith="a release that knows the workflow type "
                        ),
                    ),
                    models.Index(
                        name="workflow_parked",
                        fields=["parked_on", "invisible_until", "id"],
                        condition=Q(status="PENDING") & ~Q(parked_on=""),
                    ),
                    models.Index(name="workflow_linking", fields=["linking_id"], condition=~Q(linking_id=None)),
                ],
                "permissions": [
                    ("retry_workflow", "Can retry a failed workflow"),
                    ("run_workflow_now", "Can run a waiting workflow now"),
                    ("cancel_workflow", "Can cancel a workflow that has charged nothing"),
                    ("cancel_paid_workflow", "Can cancel a workflow whatever it has charged"),
                    ("follow_up_workflow", "Can have a failed best-effort step of a complete workflow run again"),
                    ("acknowledge_workflow", "Can acknowledge what has failed, or was given up"),
                ],
            },
        ),
        migrations.CreateModel(
            "Attempt",
            [
                ("id", ID()),
                ("number", models.PositiveIntegerField()),
                ("worker", models.CharField(max_length=200)),
                ("release", models.CharField(db_default="", max_length=100)),
                ("opened_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("closed_at", models.DateTimeField(null=True)),
                ("outcome", models.CharField(choices=OUTCOMES, db_default="", max_length=20)),
                ("steps_in_full", models.JSONField(db_column="steps", db_default=EMPTY_LIST)),
                ("traceback", models.TextField(db_default="")),
                ("workflow", of_workflow("attempts")),
                ("died_how", models.CharField(db_default="", max_length=50)),
                ("died_in", models.CharField(db_default="", max_length=100)),
                ("steps_in_short", models.TextField(db_default="")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(name="attempt_unique_number", fields=["workflow", "number"]),
                ],
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(name="attempt_open", fields=["workflow"], condition=Q(closed_at=None)),
                ],
            },
        ),
        migrations.CreateModel(
            "Event",
            [
                ("id", ID()),
                ("at", models.DateTimeField(db_default=ClockTimestamp())),
                ("kind", models.CharField(choices=KINDS, max_length=30)),
                ("attempt", models.PositiveIntegerField(null=True)),
                ("step", models.CharField(db_default="", max_length=100)),
                ("actor", models.CharField(db_default="", max_length=150)),
                ("detail", models.JSONField(db_default=EMPTY_OBJECT)),
                ("workflow", of_workflow("events")),
            ],
            options={
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(name="event_of_workflow", fields=["workflow", "id"]),
                ],
            },
        ),
        migrations.CreateModel(
            "Effect",
            [
                ("id", ID()),
                ("step", models.CharField(max_length=100)),
                ("generation", models.PositiveIntegerField(db_default=1)),
                (
                    "state",
                    models.CharField(
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
                ("idempotency_key", models.CharField(max_length=200)),
                ("attempt", models.BigIntegerField()),
                ("result", models.JSONField(null=True)),
                ("error_class", models.CharField(db_default="", max_length=200)),
                ("error_code", models.CharField(db_default="", max_length=100)),
                ("error_message", models.TextField(db_default="")),
                ("first_begun_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("begun_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("settled_at", models.DateTimeField(null=True)),
                ("settled_by", models.CharField(db_default="", max_length=150)),
                ("workflow", of_workflow("effects")),
                ("has_undo", models.BooleanField(db_default=False)),
                ("undo", models.BooleanField(db_default=False)),
                ("undo_failures", models.PositiveIntegerField(db_default=0)),
                ("attempt_token", models.UUIDField(null=True)),
                ("call_number", models.BigIntegerField(db_default=NextCallNumber(), null=True)),
                ("undo_unavailable", models.PositiveIntegerField(db_default=0)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        name="effect_unique_call", fields=["workflow", "step", "generation", "undo"]
                    ),
                    models.CheckConstraint(
                        name="effect_done_has_a_result", condition=~Q(state="done") | Q(result__isnull=False)
                    ),
                ],
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            "Signal",
            [
                ("id", ID()),
                ("source", models.CharField(max_length=150)),
                ("dedupe_key", models.CharField(max_length=200)),
                ("name", models.CharField(max_length=200)),
                ("payload", models.JSONField(db_default=EMPTY_OBJECT)),
                ("created_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("workflow", of_workflow("signals", null=True)),
                ("closed_at", models.DateTimeField(null=True)),
                ("ignored", models.BooleanField(db_default=False)),
                ("linking_id", models.CharField(max_length=200, null=True)),
                ("stored_in", TransactionId(db_default=CurrentTransactionId())),
                ("sent_at_ms", models.BigIntegerField(null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(name="signal_unique_fact", fields=["source", "dedupe_key"]),
                    models.CheckConstraint(
                        name="signal_has_one_address",
                        condition=Q(linking_id__isnull=False, workflow=None)
                        | Q(linking_id=None, workflow__isnull=False),
                    ),
                    models.CheckConstraint(
                        name="signal_ignored_is_closed", condition=Q(ignored=False) | Q(closed_at__isnull=False)
                    ),
                ],
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(name="signal_open", fields=["id"], condition=Q(closed_at=None)),
                    models.Index(
                        name="signal_open_of_workflow", fields=["workflow", "name", "id"], condition=Q(closed_at=None)
                    ),
                    models.Index(
                        name="signal_open_of_linking_id",
                        fields=["linking_id", "name", "id"],
                        condition=Q(closed_at=None, linking_id__isnull=False),
                    ),
                    models.Index(name="signal_of_workflow", fields=["workflow", "id"], condition=~Q(workflow=None)),
                ],
            },
        ),
        migrations.CreateModel(
            "Wait",
            [
                ("id", ID()),
                ("name", models.CharField(max_length=200)),
                ("generation", models.PositiveIntegerField(db_default=1)),
                ("waiting_for", models.TextField()),
                ("created_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("deadline", models.DateTimeField()),
                ("outcome", models.CharField(db_default="", max_length=30)),
                ("result", models.JSONField(db_default=EMPTY_OBJECT)),
                ("resolved_at", models.DateTimeField(null=True)),
                ("superseded", models.BooleanField(db_default=False)),
                ("workflow", of_workflow("waits")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("approval", "A person's decision"),
                            ("signal", "Signal"),
                            ("time", "Time"),
                            ("children", "Children"),
                        ],
                        db_default="approval",
                        max_length=10,
                    ),
                ),
                (
                    "signal",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=models.DO_NOTHING,
                        related_name="answers",
                        to="workflows.signal",
                    ),
                ),
                ("call_number", models.BigIntegerField(null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(name="wait_unique_generation", fields=["workflow", "name", "generation"]),
                    models.UniqueConstraint(
                        name="wait_unique_signal", fields=["workflow", "signal"], condition=~Q(signal=None)
                    ),
                ],
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        name="wait_for_children_open",
                        fields=["workflow"],
                        condition=Q(kind="children", outcome="", superseded=False),
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "ManualTask",
            [
                ("id", ID()),
                ("task_type", models.CharField(max_length=100)),
                ("question", models.TextField()),
                ("facts", models.JSONField(db_default=EMPTY_LIST)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("open", "Open"),
                            ("approved", "Approved"),
                            ("rejected", "Rejected"),
                            ("expired", "Expired"),
                            ("closed", "No longer asked"),
                            ("taken_back", "Answer retracted"),
                        ],
                        db_default="open",
                        max_length=10,
                    ),
                ),
                ("created_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("expires_at", models.DateTimeField()),
                ("decided_at", models.DateTimeField(null=True)),
                ("reason", models.TextField(db_default="")),
                (
                    "decided_by",
                    models.ForeignKey(
                        null=True, on_delete=models.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "wait",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=models.DO_NOTHING,
                        related_name="manual_task",
                        to="workflows.wait",
                    ),
                ),
                (
                    "workflow",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=models.DO_NOTHING,
                        related_name="manual_tasks",
                        to="workflows.workflow",
                    ),
                ),
                ("answer_model", models.CharField(db_default="", max_length=300)),
                (
                    "assignee",
                    models.ForeignKey(
                        null=True, on_delete=models.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                ("claimed_at", models.DateTimeField(null=True)),
                ("due_at", models.DateTimeField(null=True)),
                ("four_eyes", models.BooleanField(db_default=False)),
                ("on_expiry", models.CharField(db_default="expired", max_length=10)),
                (
                    "requested_by",
                    models.ForeignKey(
                        null=True, on_delete=models.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                ("team", models.CharField(db_default="", max_length=150)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        name="manual_task_decided_by_someone",
                        condition=~Q(state__in=["approved", "rejected"]) | (~Q(decided_by=None) & ~Q(decided_at=None)),
                    ),
                    models.CheckConstraint(
                        name="manual_task_four_eyes",
                        condition=Q(four_eyes=False)
                        | (Q(requested_by__isnull=False) & (Q(decided_by=None) | ~Q(decided_by=F("requested_by")))),
                    ),
                    models.CheckConstraint(
                        name="manual_task_on_expiry_is_known",
                        condition=Q(on_expiry__in=["expired", "approved", "rejected"]),
                    ),
                ],
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(name="manual_task_open", fields=["expires_at"], condition=Q(state="open")),
                    models.Index(
                        name="manual_task_oldest",
                        fields=["team", "task_type", "created_at", "id"],
                        condition=Q(state="open"),
                    ),
                    models.Index(
                        name="manual_task_overdue",
                        fields=["team", "task_type", "due_at", "id"],
                        condition=Q(state="open") & ~Q(due_at=None),
                    ),
                    models.Index(
                        name="manual_task_assigned",
                        fields=["assignee", "created_at", "id"],
                        condition=Q(state="open") & ~Q(assignee=None),
                    ),
                    models.Index(
                        Coalesce("due_at", "expires_at"), "id", name="manual_task_inbox", condition=Q(state="open")
                    ),
                    models.Index(
                        "task_type",
                        Coalesce("due_at", "expires_at"),
                        "id",
                        name="manual_task_of_type",
                        condition=Q(state="open"),
                    ),
                    models.Index(name="manual_task_closed", fields=["state", "id"], condition=~Q(state="open")),
                    models.Index(
                        name="manual_task_due", fields=["due_at"], condition=Q(state="open") & ~Q(due_at=None)
                    ),
                ],
                "permissions": [
                    ("decide_manualtask", "Can approve or reject a manual task"),
                    ("resolve_manualtask", "Can answer the questions to the team operations"),
                    ("assign_manualtask", "Can assign any manual task to whoever may decide it"),
                ],
            },
        ),
        migrations.CreateModel(
            "FollowUp",
            [
                ("id", ID()),
                ("step", models.CharField(max_length=100)),
                ("queue", models.CharField(max_length=63)),
                ("created_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("due_at", models.DateTimeField(null=True)),
                ("tries", models.PositiveIntegerField(db_default=0)),
                ("failures", models.PositiveIntegerField(db_default=0)),
                ("unavailable", models.PositiveIntegerField(db_default=0)),
                ("workflow", of_workflow("follow_ups")),
                ("asked_by", models.CharField(db_default="", max_length=150)),
                ("acknowledged_failure", models.DateTimeField(null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(name="follow_up_unique_step", fields=["workflow", "step"]),
                ],
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(name="follow_up_due", fields=["queue", "due_at", "id"], condition=~Q(due_at=None)),
                    models.Index(
                        name="follow_up_oldest_left",
                        fields=["created_at", "id"],
                        condition=Q(due_at=None) & ~Q(acknowledged_failure=F("created_at")),
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "SearchKeyHash",
            [
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "hash", "workflow_id", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("hash", models.BinaryField()),
                ("key_id", models.IntegerField()),
                ("workflow", of_workflow("search_key_hashes")),
            ],
            options={
                "db_table": "workflows_searchkey",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            "Search",
            [
                ("id", ID()),
                ("at", models.DateTimeField(db_default=ClockTimestamp())),
                ("actor", models.CharField(max_length=150)),
                ("tried", ArrayField(models.CharField(max_length=100))),
                ("hits", models.PositiveIntegerField()),
            ],
            options={
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(name="search_of_actor", fields=["actor", "-id"]),
                ],
            },
        ),
        migrations.CreateModel(
            "Service",
            [
                ("name", models.CharField(max_length=100, primary_key=True, serialize=False)),
                ("since", models.DateTimeField(null=True)),
                ("failed", models.PositiveIntegerField(db_default=0)),
                ("answered", models.PositiveIntegerField(db_default=0)),
                ("suspects", ArrayField(models.BigIntegerField(), db_default=EMPTY_ARRAY)),
                ("failed_at", models.DateTimeField(null=True)),
                ("opened_at", models.DateTimeField(null=True)),
                ("retry_at", models.DateTimeField(null=True)),
                ("cool_off", models.FloatField(db_default=5.0)),
                ("trial_until", models.DateTimeField(null=True)),
                ("closed_at", models.DateTimeField(null=True)),
                ("held_by", models.CharField(db_default="", max_length=150)),
                ("held_reason", models.TextField(db_default="")),
                ("cohort", models.PositiveIntegerField(db_default=0)),
                ("released_at", models.DateTimeField(null=True)),
            ],
            options={
                "default_permissions": ("view",),
                "permissions": [
                    ("hold_service", "Can hold a service: no workflow calls it"),
                    ("try_service", "Can have a service tried now"),
                ],
            },
        ),
        migrations.CreateModel(
            "CircuitEvent",
            [
                ("id", ID()),
                ("service", models.CharField(max_length=100)),
                ("at", models.DateTimeField(db_default=ClockTimestamp())),
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
                ("actor", models.CharField(db_default="", max_length=150)),
            ],
            options={
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(name="circuit_event_of_service", fields=["service", "-id"]),
                ],
            },
        ),
        migrations.CreateModel(
            "Chore",
            [
                ("name", models.CharField(max_length=50, primary_key=True, serialize=False)),
                ("due_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("after", models.BigIntegerField(db_default=0)),
                ("failing_since", models.DateTimeField(null=True)),
                ("error", models.TextField(db_default="")),
            ],
            options={
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            "WorkerProcess",
            [
                ("id", ID()),
                ("name", models.CharField(max_length=200)),
                ("host", models.CharField(max_length=150)),
                ("pid", models.PositiveIntegerField()),
                ("release", models.CharField(db_default="", max_length=100)),
                ("queue", models.CharField(max_length=63)),
                ("started_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("last_seen", models.DateTimeField(db_default=ClockTimestamp())),
                ("attempt", models.PositiveIntegerField(null=True)),
                ("step", models.CharField(db_default="", max_length=100)),
                ("since", models.DateTimeField(null=True)),
                ("stopped_at", models.DateTimeField(null=True)),
                ("ended_how", models.CharField(db_default="", max_length=50)),
                ("workflow", of_workflow("+", null=True)),
                ("only", models.CharField(db_default="", max_length=20)),
            ],
            options={
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(name="workerprocess_live", fields=["queue"], condition=Q(stopped_at=None)),
                ],
                "verbose_name": "worker",
            },
        ),
        migrations.CreateModel(
            "UndeliveredMessage",
            [
                ("id", ID()),
                ("topic", models.CharField(max_length=249)),
                ("partition", models.IntegerField()),
                ("offset", models.BigIntegerField()),
                ("code", models.CharField(max_length=100)),
                ("reason", models.TextField()),
                ("key", models.BinaryField(null=True)),
                ("value", models.BinaryField(null=True)),
                ("headers", models.JSONField(db_default=EMPTY_LIST)),
                ("created_at", models.DateTimeField(db_default=Now())),
                ("sent_at_ms", models.BigIntegerField(db_default=0)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        name="undelivered_once", fields=["topic", "partition", "offset", "sent_at_ms"]
                    ),
                ],
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            "ApiKey",
            [
                ("id", ID()),
                ("name", models.CharField(max_length=100)),
                ("prefix", models.CharField(max_length=20)),
                ("digest", models.BinaryField(max_length=32, unique=True)),
                ("created_at", models.DateTimeField(db_default=Now())),
                ("revoked_at", models.DateTimeField(null=True)),
            ],
            options={
                "default_permissions": ("view",),
                "permissions": [("revoke_apikey", "Can revoke an API key")],
                "verbose_name": "API key",
            },
        ),
        migrations.CreateModel(
            "WebhookSecret",
            [
                ("id", ID()),
                ("source", models.CharField(max_length=100)),
                ("secret", models.CharField(max_length=200)),
                ("created_at", models.DateTimeField(db_default=Now())),
                ("revoked_at", models.DateTimeField(null=True)),
            ],
            options={
                "default_permissions": (),
            },
        ),
        # Room on the page for the outcome of a call, and of the votes on a service, which come soon after their row.
        migrations.RunSQL("ALTER TABLE workflows_effect SET (fillfactor = 95)", migrations.RunSQL.noop),
        migrations.RunSQL("ALTER TABLE workflows_service SET (fillfactor = 20)", migrations.RunSQL.noop),
        *[migrations.RunSQL(VACUUM.format(table), migrations.RunSQL.noop) for table in QUEUES],
    ]
