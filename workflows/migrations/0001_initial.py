"""The tables, their indexes, the sequence that numbers calls, and what vacuum does with the tables of the queue.

The columns stand in the order in which the tables got them.
"""

from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import migrations, models
from django.db.models import F, Q
from django.db.models.functions import Coalesce, Now

from workflows.models import (
    Access,
    Attempt,
    BulkItem,
    BulkOperation,
    BusinessKeyHash,
    CircuitEvent,
    Correction,
    Effect,
    Erasure,
    Event,
    ManualTask,
    OutboxEvent,
    UndeliveredMessage,
    Wait,
    Workflow,
)
from workflows.models.clock import ClockTimestamp
from workflows.models.effect import NextCallNumber
from workflows.models.rollup import Grain, Metric
from workflows.models.xids import CurrentTransactionId, Snapshot, TransactionId

EMPTY_OBJECT, EMPTY_LIST = models.Value({}, models.JSONField()), models.Value([], models.JSONField())
EMPTY_ARRAY = models.Value("{}")

# A column's own sequence needs no grant, and this one is to need none either.
CREATE_SEQUENCE = """
    CREATE SEQUENCE workflows_effect_call_number;
    GRANT USAGE ON SEQUENCE workflows_effect_call_number TO PUBLIC"""

# The tables that the due query and the chores look into, and from which work is taken off all the time.
QUEUES = ("workflows_workflow", "workflows_attempt", "workflows_wait", "workflows_signal", "workflows_outboxevent")
# A fifth of a table may be dead before an autovacuum by default, and while dead index entries are on less than 2% of its
# pages it leaves the indexes alone: of 300,000 rows some thousands that were just worked off are less than both.
VACUUM = "ALTER TABLE {} SET (autovacuum_vacuum_scale_factor = 0.01, vacuum_index_cleanup = on)"


INDEX_LOG = """
    CREATE INDEX admin_log_newest ON django_admin_log (action_time DESC, id DESC);
    CREATE INDEX admin_log_of_user ON django_admin_log (user_id, action_time DESC, id DESC)"""

BY_A_PERSON = ~Q(actor="")
FAILED = Q(status="FAILED", cancelled_at=None)
UNACKNOWLEDGED = Q(status="FAILED", cancelled_at=None, completed_at__isnull=False) & ~Q(
    acknowledged_failure=F("completed_at")
)
# The causes of failures are read from their indexes, and not from the rows.
CAUSE = [
    *("workflow_type", "current_step", "last_error_code", "last_error_class", "failed_release"),
    "acknowledged_failure",
]


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


def user(**options: Any) -> Any:
    return models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", **options)


class Migration(migrations.Migration):
    initial = True
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("admin", "0003_logentry_add_action_flag_choices"),
    ]

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
                        choices=Workflow.Status.choices,
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
                ("parked_on", models.CharField(db_default="", max_length=410)),
                ("unavailable_count", models.PositiveIntegerField(db_default=0)),
                ("acknowledged_failure", models.DateTimeField(null=True)),
                ("given_request_id", models.CharField(db_default="", max_length=64)),
                ("entered_xid", TransactionId(null=True, db_default=CurrentTransactionId())),
                ("failed_release", models.CharField(max_length=100, db_default="")),
                ("priority", models.SmallIntegerField(db_default=0)),
                ("emptied_at", models.DateTimeField(null=True)),
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
                    models.CheckConstraint(
                        name="workflow_emptied_is_at_rest", condition=Q(emptied_at=None) | ~Q(status="PENDING")
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
                    models.Index(
                        name="workflow_request", fields=["given_request_id"], condition=~Q(given_request_id="")
                    ),
                    models.Index(name="workflow_entered", fields=["entered_xid"]),
                    models.Index(
                        name="workflow_failures", fields=["completed_at", "id"], include=CAUSE, condition=FAILED
                    ),
                    models.Index(
                        name="workflow_failures_left",
                        fields=["completed_at", "id"],
                        include=CAUSE,
                        condition=UNACKNOWLEDGED,
                    ),
                    models.Index(
                        name="workflow_lanes",
                        fields=["queue", "priority", "workflow_type", "tenant", "invisible_until", "id"],
                        condition=Q(status="PENDING", begun=False),
                    ),
                    models.Index(
                        name="workflow_to_empty",
                        fields=["workflow_type", "completed_at"],
                        condition=Q(emptied_at=None, completed_at__isnull=False),
                    ),
                    models.Index(
                        name="workflow_to_delete",
                        fields=["workflow_type", "completed_at"],
                        condition=Q(emptied_at__isnull=False),
                    ),
                ],
                "permissions": [
                    ("retry_workflow", "Can retry a failed workflow"),
                    ("run_workflow_now", "Can run a waiting workflow now"),
                    ("cancel_workflow", "Can cancel a workflow that has charged nothing"),
                    ("cancel_paid_workflow", "Can cancel a workflow whatever it has charged"),
                    ("follow_up_workflow", "Can have a failed best-effort step of a complete workflow run again"),
                    ("acknowledge_workflow", "Can acknowledge what has failed, or was given up"),
                    ("correct_workflow", "Can ask for a correction of what was sent, and approve a colleague's"),
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
                ("outcome", models.CharField(choices=Attempt.Outcome.choices, db_default="", max_length=20)),
                ("steps_in_full", models.JSONField(db_column="steps", db_default=EMPTY_LIST)),
                ("traceback", models.TextField(db_default="")),
                ("workflow", of_workflow("attempts")),
                ("died_how", models.CharField(db_default="", max_length=50)),
                ("died_in", models.CharField(db_default="", max_length=100)),
                ("steps_in_short", models.TextField(db_default="")),
                ("due_since", models.DateTimeField(null=True)),
                ("closed_xid", TransactionId(null=True)),
                ("corrected_xid", TransactionId(null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(name="attempt_unique_number", fields=["workflow", "number"]),
                ],
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(name="attempt_open", fields=["workflow"], condition=Q(closed_at=None)),
                    models.Index(name="attempt_closed", fields=["closed_xid"]),
                    models.Index(name="attempt_corrected", fields=["corrected_xid"], condition=~Q(corrected_xid=None)),
                ],
            },
        ),
        migrations.CreateModel(
            "Event",
            [
                ("id", ID()),
                ("at", models.DateTimeField(db_default=ClockTimestamp())),
                ("kind", models.CharField(choices=Event.Kind.choices, max_length=30)),
                ("attempt", models.PositiveIntegerField(null=True)),
                ("step", models.CharField(db_default="", max_length=100)),
                ("actor", models.CharField(db_default="", max_length=150)),
                ("detail", models.JSONField(db_default=EMPTY_OBJECT)),
                ("workflow", of_workflow("events")),
                ("finished_xid", TransactionId(null=True)),
            ],
            options={
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(name="event_of_workflow", fields=["workflow", "id"]),
                    models.Index(name="event_finished", fields=["finished_xid"], condition=~Q(finished_xid=None)),
                    models.Index(name="event_of_people", fields=["-at", "-id"], condition=BY_A_PERSON),
                    models.Index(name="event_of_actor", fields=["actor", "-at", "-id"], condition=BY_A_PERSON),
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
                        choices=Effect.State.choices,
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
                "indexes": [
                    models.Index(name="effect_undo_failed", fields=["id"], condition=Q(undo_failures__gt=0)),
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
                        choices=Wait.Kind.choices,
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
                        choices=ManualTask.State.choices,
                        db_default="open",
                        max_length=10,
                    ),
                ),
                ("created_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("expires_at", models.DateTimeField()),
                ("decided_at", models.DateTimeField(null=True)),
                ("reason", models.TextField(db_default="")),
                ("decided_by", user(null=True)),
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
                ("assignee", user(null=True)),
                ("claimed_at", models.DateTimeField(null=True)),
                ("due_at", models.DateTimeField(null=True)),
                ("four_eyes", models.BooleanField(db_default=False)),
                ("on_expiry", models.CharField(db_default="expired", max_length=10)),
                ("requested_by", user(null=True)),
                ("team", models.CharField(db_default="", max_length=150)),
                ("lead_asked_at", models.DateTimeField(null=True)),
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
                    models.Index(
                        name="manual_task_lead",
                        fields=["lead_asked_at", "id"],
                        condition=Q(state="open") & ~Q(lead_asked_at=None),
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
                ("role", models.CharField(choices=BusinessKeyHash.Role.choices, max_length=7, null=True)),
            ],
            options={
                "db_table": "workflows_searchkey",
                "indexes": [
                    models.Index(name="searchkey_holder", fields=["hash"], condition=Q(role="holder")),
                    models.Index(name="searchkey_waiting", fields=["workflow"], condition=Q(role="waiting")),
                ],
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
                    models.Index(name="search_newest", fields=["-at", "-id"]),
                    models.Index(name="search_of_person", fields=["actor", "-at", "-id"]),
                ],
            },
        ),
        migrations.CreateModel(
            "Service",
            [
                ("name", models.CharField(max_length=410, primary_key=True, serialize=False)),
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
                ("asked_at", models.DateTimeField(null=True)),
                ("asked_by", models.CharField(db_default="", max_length=150)),
                ("asked_reason", models.TextField(db_default="")),
                ("code", models.CharField(db_default="", max_length=200)),
                ("elsewhere", models.BooleanField(db_default=False)),
                ("judged", ArrayField(models.BigIntegerField(), db_default=EMPTY_ARRAY)),
                ("let_fail_by", models.CharField(db_default="", max_length=150)),
                ("let_fail_reason", models.TextField(db_default="")),
                ("let_fail_until", models.DateTimeField(null=True)),
                ("releases", ArrayField(models.CharField(max_length=100), db_default=EMPTY_ARRAY)),
                ("step", models.CharField(db_default="", max_length=100)),
                ("tallies", models.JSONField(db_default=EMPTY_OBJECT)),
                ("traceback", models.TextField(db_default="")),
                ("workflow_type", models.CharField(db_default="", max_length=100)),
            ],
            options={
                "default_permissions": ("view",),
                "permissions": [
                    ("hold_service", "Can hold a service: no workflow calls it"),
                    ("try_service", "Can have a service tried now"),
                    ("let_fail_service", "Can let the workflows fail that are parked on a cause"),
                ],
            },
        ),
        migrations.CreateModel(
            "CircuitEvent",
            [
                ("id", ID()),
                ("service", models.CharField(max_length=410)),
                ("at", models.DateTimeField(db_default=ClockTimestamp())),
                (
                    "kind",
                    models.CharField(
                        choices=CircuitEvent.Kind.choices,
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
                    models.Index(name="circuit_event_of_people", fields=["-at", "-id"], condition=BY_A_PERSON),
                    models.Index(name="circuit_event_of_actor", fields=["actor", "-at", "-id"], condition=BY_A_PERSON),
                ],
            },
        ),
        migrations.CreateModel(
            "Chore",
            [
                ("name", models.CharField(max_length=150, primary_key=True, serialize=False)),
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
                (
                    "state",
                    models.CharField(
                        blank=True, choices=UndeliveredMessage.State.choices, db_default="", max_length=11
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        name="undelivered_once", fields=["topic", "partition", "offset", "sent_at_ms"]
                    ),
                ],
                "default_permissions": ("view",),
                "permissions": [("settle_undeliveredmessage", "Can redeliver or discard an undelivered message")],
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
                ("tenant", models.CharField(db_default="", max_length=100)),
                ("may", ArrayField(models.CharField(max_length=20), db_default=EMPTY_ARRAY)),
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
                ("secret", models.CharField(max_length=400)),
                ("created_at", models.DateTimeField(db_default=Now())),
                ("revoked_at", models.DateTimeField(null=True)),
            ],
            options={
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            "Rollup",
            [
                (
                    "pk",
                    models.CompositePrimaryKey(
                        *("grain", "metric", "at", "workflow_type", "step", "outcome", "code"),
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("grain", models.CharField(max_length=6, choices=Grain.choices)),
                ("metric", models.CharField(max_length=20, choices=Metric.choices)),
                ("at", models.DateTimeField()),
                ("workflow_type", models.CharField(max_length=100)),
                ("step", models.CharField(max_length=100)),
                ("outcome", models.CharField(max_length=30)),
                ("code", models.CharField(max_length=200)),
                ("count", models.BigIntegerField()),
                ("seconds", models.FloatField()),
                ("buckets", ArrayField(models.BigIntegerField())),
            ],
            options={"default_permissions": ()},
        ),
        migrations.CreateModel(
            "RollupProgress",
            [
                ("name", models.CharField(max_length=20, primary_key=True, serialize=False)),
                ("seen", Snapshot()),
                ("server", models.CharField(db_default="", max_length=30)),
                ("workflow_floor", models.BigIntegerField(db_default=0)),
                ("attempt_floor", models.BigIntegerField(db_default=0)),
                ("event_floor", models.BigIntegerField(db_default=0)),
            ],
            options={"default_permissions": ()},
        ),
        migrations.CreateModel(
            "BulkOperation",
            [
                ("id", ID()),
                ("verb", models.CharField(max_length=20)),
                ("arguments", models.JSONField(db_default=EMPTY_OBJECT)),
                ("chosen_by", models.TextField()),
                ("selected", models.PositiveIntegerField()),
                ("state", models.CharField(choices=BulkOperation.State.choices, db_default="draft", max_length=10)),
                ("reason", models.TextField(db_default="")),
                ("pace", models.PositiveIntegerField(db_default=5)),
                ("next_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("paused_why", models.TextField(db_default="")),
                ("asked_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("four_eyes", models.BooleanField(db_default=False)),
                ("ended_at", models.DateTimeField(null=True)),
                ("approved_by", user(null=True)),
                ("asked_by", user()),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        name="bulk_operation_four_eyes",
                        condition=Q(four_eyes=False)
                        | Q(state__in=["draft", "asked", "cancelled"])
                        | (Q(approved_by__isnull=False) & ~Q(approved_by=F("asked_by"))),
                    ),
                ],
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(name="bulk_operation_running", fields=["next_at"], condition=Q(state="running")),
                ],
                "permissions": [("start_bulkoperation", "Can do the same to many workflows at once")],
            },
        ),
        migrations.CreateModel(
            "BulkItem",
            [
                ("id", ID()),
                ("row", models.BigIntegerField()),
                ("seen", models.BigIntegerField(null=True)),
                (
                    "outcome",
                    models.CharField(blank=True, choices=BulkItem.Outcome.choices, db_default="", max_length=7),
                ),
                ("why", models.TextField(db_default="")),
                ("at", models.DateTimeField(null=True)),
                (
                    "operation",
                    models.ForeignKey(
                        "workflows.bulkoperation", on_delete=models.CASCADE, db_index=False, related_name="items"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(name="bulk_item_once", fields=["operation", "row"])],
                "default_permissions": (),
                "indexes": [models.Index(name="bulk_item_outcome", fields=["operation", "outcome", "id"])],
            },
        ),
        migrations.CreateModel(
            "Pace",
            [
                ("key", models.CharField(max_length=110, primary_key=True, serialize=False)),
                ("held_until", models.DateTimeField(null=True)),
                ("held_by", models.CharField(db_default="", max_length=150)),
                ("held_reason", models.TextField(db_default="")),
                ("per_second", models.FloatField(null=True)),
                ("paced_by", models.CharField(db_default="", max_length=150)),
                ("paced_reason", models.TextField(db_default="")),
                ("next_at", models.DateTimeField(null=True)),
                ("at_once", models.PositiveIntegerField(null=True)),
                ("capped_by", models.CharField(db_default="", max_length=150)),
                ("capped_reason", models.TextField(db_default="")),
            ],
            options={
                "default_permissions": ("view",),
                "permissions": [("set_pace", "Can hold a queue or a type, and set its pace")],
                "verbose_name": "queue, type or tenant",
                "verbose_name_plural": "queues, types and tenants",
            },
        ),
        migrations.CreateModel(
            "Access",
            [
                ("id", ID()),
                ("at", models.DateTimeField(db_default=ClockTimestamp())),
                ("actor", models.CharField(max_length=150)),
                ("kind", models.CharField(choices=Access.Kind.choices, max_length=10)),
                ("detail", models.JSONField(db_default=EMPTY_OBJECT)),
                ("workflow", of_workflow("+", null=True)),
            ],
            options={
                "default_permissions": (),
                "indexes": [
                    models.Index(name="access_of_workflow", fields=["workflow", "-at", "-id"]),
                    models.Index(name="access_newest", fields=["-at", "-id"]),
                    models.Index(name="access_of_actor", fields=["actor", "-at", "-id"]),
                    models.Index(name="access_revealed", fields=["-at", "actor"], condition=Q(kind="revealed")),
                ],
                "permissions": [
                    ("view_audit", "Can see who did what, and who looked at whom"),
                    ("reveal_workflow", "Can see a patient's masked values, for a purpose that is recorded"),
                ],
            },
        ),
        migrations.CreateModel(
            "DataKey",
            [
                ("id", models.CharField(max_length=8, primary_key=True, serialize=False)),
                ("since", models.DateTimeField(db_default=Now())),
            ],
            options={"default_permissions": ()},
        ),
        migrations.CreateModel(
            "OriginalPayload",
            [
                (
                    "workflow",
                    models.OneToOneField(
                        "workflows.workflow",
                        on_delete=models.DO_NOTHING,
                        db_constraint=False,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                    ),
                ),
                ("payload", models.JSONField()),
            ],
            options={"default_permissions": ()},
        ),
        migrations.CreateModel(
            "Correction",
            [
                ("id", ID()),
                ("of_failure", models.DateTimeField()),
                ("proposed", models.JSONField(null=True)),
                ("told", models.JSONField()),
                ("reason", models.TextField()),
                ("state", models.CharField(choices=Correction.State.choices, db_default="asked", max_length=9)),
                ("asked_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("decided_at", models.DateTimeField(null=True)),
                ("asked_by", user(db_index=False)),
                ("decided_by", user(null=True, db_index=False)),
                ("workflow", of_workflow("corrections")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        name="correction_one_open", fields=["workflow"], condition=Q(state="asked")
                    ),
                    models.CheckConstraint(
                        name="correction_four_eyes",
                        condition=~Q(state="approved") | (Q(decided_by__isnull=False) & ~Q(decided_by=F("asked_by"))),
                    ),
                    models.CheckConstraint(
                        name="correction_emptied",
                        condition=Q(proposed__isnull=False, state="asked")
                        | (~Q(state="asked") & Q(proposed__isnull=True)),
                    ),
                ],
                "default_permissions": (),
                "indexes": [
                    models.Index(name="correction_open", fields=["asked_at", "id"], condition=Q(state="asked")),
                    models.Index(name="correction_of_workflow", fields=["workflow"]),
                ],
            },
        ),
        migrations.CreateModel(
            "AssignedCause",
            [
                ("id", ID()),
                ("workflow_type", models.TextField()),
                ("step", models.TextField()),
                ("code", models.TextField()),
                ("release", models.TextField()),
                ("at", models.DateTimeField(db_default=ClockTimestamp())),
                (
                    "assignee",
                    models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+"),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        name="assigned_cause_once", fields=["workflow_type", "step", "code", "release"]
                    ),
                ],
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            "Hold",
            [
                ("id", ID()),
                ("hash", models.BinaryField(null=True)),
                ("key_id", models.IntegerField(null=True)),
                ("reason", models.TextField()),
                ("placed_by", models.CharField(max_length=150)),
                ("placed_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("until", models.DateTimeField()),
                ("lifted_by", models.CharField(db_default="", max_length=150)),
                ("lifted_reason", models.TextField(db_default="")),
                ("workflow", of_workflow("+", null=True)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        name="hold_is_on_one",
                        condition=Q(workflow=None, hash__isnull=False) | Q(workflow__isnull=False, hash=None),
                    ),
                ],
                "default_permissions": (),
                "permissions": [("place_hold", "Can place a legal hold, and lift one")],
                "verbose_name": "legal hold",
            },
        ),
        migrations.CreateModel(
            "Erasure",
            [
                ("id", ID()),
                ("hash", models.BinaryField()),
                ("workflows", ArrayField(models.BigIntegerField())),
                ("reason", models.TextField()),
                ("state", models.CharField(choices=Erasure.State.choices, db_default="asked", max_length=7)),
                ("asked_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("decided_at", models.DateTimeField(null=True)),
                ("asked_by", user(db_index=False)),
                ("decided_by", user(null=True, db_index=False)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        name="erasure_four_eyes",
                        condition=~Q(state="done") | Q(decided_by__isnull=False) & ~Q(decided_by=F("asked_by")),
                    ),
                ],
                "default_permissions": (),
                "indexes": [GinIndex(name="erasure_of_workflow", fields=["workflows"])],
                "permissions": [("erase_workflow", "Can ask for an erasure, and approve a colleague's")],
            },
        ),
        migrations.CreateModel(
            "OutboxEvent",
            [
                ("id", ID()),
                ("event_id", models.UUIDField()),
                ("destination", models.CharField(max_length=63)),
                ("topic", models.CharField(max_length=100)),
                ("body", models.JSONField()),
                ("at", models.DateTimeField(db_default=ClockTimestamp())),
                ("since", models.DateTimeField(db_default=ClockTimestamp())),
                ("due_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("tries", models.PositiveIntegerField(db_default=0)),
                ("error", models.CharField(db_default="", max_length=100)),
                (
                    "state",
                    models.CharField(blank=True, choices=OutboxEvent.State.choices, db_default="", max_length=9),
                ),
                ("settled_at", models.DateTimeField(null=True)),
                ("workflow", of_workflow("+")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(name="outbox_event_once", fields=["workflow", "destination", "event_id"]),
                ],
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(name="outbox_due", fields=["destination", "due_at", "id"], condition=Q(state="")),
                    models.Index(name="outbox_oldest", fields=["destination", "since"], condition=Q(state="")),
                    models.Index(name="outbox_given_up", fields=["destination", "id"], condition=Q(state="given_up")),
                ],
                "verbose_name": "outbox event",
                "verbose_name_plural": "outbox events",
            },
        ),
        migrations.CreateModel(
            "SpentKey",
            [
                ("workflow_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("idempotency_key", models.UUIDField(unique=True)),
                ("business_key", models.CharField(max_length=200, null=True)),
                ("workflow_type", models.CharField(max_length=100)),
                ("tenant", models.CharField(max_length=100)),
                ("submitted_by", models.CharField(max_length=100)),
                ("status", models.CharField(choices=Workflow.Status.choices, max_length=8)),
                ("state", models.CharField(max_length=9)),
                ("at", models.DateTimeField(db_default=Now())),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        name="spentkey_business_key",
                        fields=["business_key", "workflow_type", "tenant"],
                        condition=~Q(business_key=None),
                    ),
                ],
                "default_permissions": (),
            },
        ),
        # Room on the page for the outcome of a call, and of the votes on a service, which come soon after their row.
        migrations.RunSQL("ALTER TABLE workflows_effect SET (fillfactor = 95)", migrations.RunSQL.noop),
        migrations.RunSQL("ALTER TABLE workflows_service SET (fillfactor = 20)", migrations.RunSQL.noop),
        # The rows of a total, and of today, are updated every few seconds: on their own pages.
        migrations.RunSQL("ALTER TABLE workflows_rollup SET (fillfactor = 50)", migrations.RunSQL.noop),
        *[migrations.RunSQL(VACUUM.format(table), migrations.RunSQL.noop) for table in QUEUES],
        # The audit reads Django's log of what people changed, too.
        migrations.RunSQL(INDEX_LOG, "DROP INDEX admin_log_newest; DROP INDEX admin_log_of_user"),
    ]
