from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Exists, OuterRef, Q

from workflows.models.clock import ClockTimestamp
from workflows.models.wait import Wait
from workflows.models.workflow import Workflow


class ManualTaskQuerySet(models.QuerySet["ManualTask"]):
    def open(self) -> ManualTaskQuerySet:
        """Those that somebody is to decide: of a workflow that has ended, nobody asks any more."""
        # EXISTS, not a join: of a join in an UPDATE Django makes a subquery on the task itself, which would not see
        # that somebody else has decided it in the meantime.
        under_way = Workflow.objects.filter(pk=OuterRef("workflow_id"), status=Workflow.Status.PENDING)
        return self.filter(Exists(under_way), state=ManualTask.State.OPEN)


class ManualTask(models.Model):
    """A question to a person, and their decision. The row is the arbiter of a decision that races its expiry."""

    class State(models.TextChoices):
        OPEN = "open"
        APPROVED = "approved"
        REJECTED = "rejected"
        EXPIRED = "expired"
        CLOSED = "closed", "No longer asked"

    workflow = models.ForeignKey(  # without constraints: see Attempt
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, related_name="manual_tasks"
    )
    wait = models.OneToOneField(Wait, on_delete=models.DO_NOTHING, db_constraint=False, related_name="manual_task")
    task_type = models.CharField(max_length=100)
    question = models.TextField()
    # What the person needs to decide: [[label, value], ...], since jsonb does not keep the order of an object. May hold
    # patient data; shown on the task's page only.
    facts = models.JSONField(db_default=models.Value([], models.JSONField()))
    state = models.CharField(max_length=10, choices=State, db_default=State.OPEN)
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    expires_at = models.DateTimeField()
    decided_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    decided_at = models.DateTimeField(null=True)
    reason = models.TextField(db_default="")

    objects = ManualTaskQuerySet.as_manager()

    class Meta:
        default_permissions = ("view",)
        permissions = [("decide_manualtask", "Can approve or reject a manual task")]
        constraints = [
            models.CheckConstraint(
                name="manual_task_decided_by_someone",
                condition=~Q(state__in=["approved", "rejected"]) | ~Q(decided_by=None) & ~Q(decided_at=None),
            )
        ]
        indexes = [models.Index(name="manual_task_open", fields=["expires_at"], condition=Q(state="open"))]

    def __str__(self) -> str:
        return f"manual task {self.pk}"

    @property
    def signal_name(self) -> str:
        """The signal that carries its decision."""
        return f"decision:{self.pk}"
