from __future__ import annotations

from django.db import models
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import Workflow

HAS_DUE_TIME = Q(outcome="", superseded=False, due_at__isnull=False)


class WaitQuerySet(models.QuerySet["Wait"]):
    def with_due_time(self) -> WaitQuerySet:
        """The open waits that have a due time, of workflows that wait at present."""
        waiting = Workflow.objects.filter(pk=OuterRef("workflow_id"), status="PENDING", compensating=False)
        return self.filter(HAS_DUE_TIME, Exists(waiting.exclude(waiting_for="")))

    def overdue(self) -> WaitQuerySet:
        return self.with_due_time().filter(due_at__lte=Now())


class Wait(models.Model):
    """Something a workflow waits for. Its deadline is fixed when it is first met; its outcome is recorded once.

    A wait is unique by workflow, name and generation. No step meets a `superseded` wait again; it makes the next
    generation instead. A wait is superseded when it has failed the workflow, when its question is withdrawn, and by a
    person's retry if it was for children or can no longer be answered. `signal` is the one that answered it, and
    answers no other wait of the workflow.
    """

    class Kind(models.TextChoices):
        APPROVAL = "approval", "A person's decision"
        SIGNAL = "signal"
        TIME = "time"
        CHILDREN = "children"

    workflow = models.ForeignKey(  # without a constraint: see Attempt
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="waits"
    )
    kind = models.CharField(max_length=10, choices=Kind, db_default=Kind.APPROVAL)
    name = models.CharField(max_length=200)
    generation = models.PositiveIntegerField(db_default=1)
    waiting_for = models.TextField()  # in words, for people
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    deadline = models.DateTimeField()
    due_at = models.DateTimeField(null=True)  # when it should be over; after that people are told
    team = models.CharField(max_length=150, db_default="")  # the group to tell; empty for support
    outcome = models.CharField(max_length=30, db_default="")  # empty until it is answered
    result = models.JSONField(db_default=models.Value({}, models.JSONField()))
    resolved_at = models.DateTimeField(null=True)
    # Drawn when a worker reads a person's answer: calls (`Effect`) with a higher number started later.
    call_number = models.BigIntegerField(null=True)
    signal = models.ForeignKey(
        "Signal", on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, null=True, related_name="answers"
    )
    superseded = models.BooleanField(db_default=False)

    objects = WaitQuerySet.as_manager()

    class Meta:
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(name="wait_unique_generation", fields=["workflow", "name", "generation"]),
            models.UniqueConstraint(
                name="wait_unique_signal", fields=["workflow", "signal"], condition=~Q(signal=None)
            ),
        ]
        indexes = [
            # Maintenance: waits whose children may all have finished.
            models.Index(
                name="wait_for_children_open",
                fields=["workflow"],
                condition=Q(kind="children", outcome="", superseded=False),
            ),
            # The overdue waits; and the longest overdue of each team.
            models.Index(name="wait_due", fields=["due_at"], condition=HAS_DUE_TIME),
            models.Index(name="wait_overdue", fields=["team", "due_at", "id"], condition=HAS_DUE_TIME),
        ]

    def __str__(self) -> str:
        return f"wait {self.name} of workflow {self.workflow_id}"
