from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from workflows.models.clock import ClockTimestamp
from workflows.models.manual_task import ManualTask
from workflows.models.workflow import Workflow

# How long a lead waits who confirms their own answer, because nobody else may.
ALONE_AFTER = timedelta(hours=8)


class ConfirmationQuerySet(models.QuerySet["Confirmation"]):
    def open(self) -> ConfirmationQuerySet:
        """Those that a second person can still decide: answers to tasks that are still open, and retries.

        A retry was asked for since the workflow's end: a console of the release before retries without dropping it.
        """
        retry = Q(task=None, workflow__completed_at__lte=F("asked_at"))
        return self.filter(retry | Q(task__state=ManualTask.State.OPEN), state=Confirmation.State.ASKED)

    def of_failure(self, workflow: Workflow, decision: str) -> ConfirmationQuerySet:
        """Those of `open` that say this of a failed workflow itself. The intake may read this."""
        said = self.filter(workflow=workflow, task=None, decision=decision, state="asked")
        return said.filter(asked_at__gte=F("workflow__completed_at"))

    def unreviewed(self) -> ConfirmationQuerySet:
        return self.filter(alone=True, reviewed_by=None)

    def drop(self, workflow_id: int) -> None:
        """The workflow has gone on, so nobody confirms its retry any more."""
        self.filter(workflow=workflow_id, state=Confirmation.State.ASKED).update(state=Confirmation.State.STALE)


class Confirmation(models.Model):
    """What lets a charge be made again: an answer to a task, or a retry, that one user gives and another confirms.

    A trigger (migration 0021) holds the rules of `operations.two_people`: that they are two people, and that what is
    confirmed is what was said. It sets the times, too.
    """

    class State(models.TextChoices):
        ASKED = "asked", "Waits for a second person"
        CONFIRMED = "confirmed"
        REFUSED = "refused", "Not confirmed"
        WITHDRAWN = "withdrawn"
        STALE = "stale", "No longer asked"

    workflow = models.ForeignKey(  # without constraints: see Attempt
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="confirmations"
    )
    task = models.ForeignKey(  # None: it is a retry
        ManualTask, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, null=True, related_name="+"
    )
    decision = models.CharField(max_length=10)  # the task's state that it asks for; `retry`
    answer = models.JSONField(null=True)  # the fields of an approval
    reason = models.TextField()
    state = models.CharField(max_length=9, choices=State, db_default=State.ASKED)
    asked_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", db_index=False)
    asked_at = models.DateTimeField(db_default=ClockTimestamp())
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+", db_index=False
    )
    decided_at = models.DateTimeField(null=True)
    alone = models.BooleanField(db_default=False)  # a lead has confirmed their own answer
    reviewed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+", db_index=False
    )

    objects: ClassVar[ConfirmationQuerySet] = ConfirmationQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(name="confirmation_one_open", fields=["workflow"], condition=Q(state="asked")),
            models.CheckConstraint(
                name="confirmation_four_eyes",
                condition=~Q(state="confirmed")
                | Q(decided_by__isnull=False, alone=False) & ~Q(decided_by=F("asked_by"))
                | Q(decided_by=F("asked_by"), alone=True, decided_at__gte=F("asked_at") + ALONE_AFTER),
            ),
            models.CheckConstraint(
                name="confirmation_reviewed_by_another",
                condition=Q(reviewed_by=None) | Q(alone=True) & ~Q(reviewed_by=F("decided_by")),
            ),
        ]
        indexes = [
            models.Index(name="confirmation_of_workflow", fields=["workflow"]),
            # health.needs_a_person.
            models.Index(name="confirmation_open", fields=["asked_at", "id"], condition=Q(state="asked", task=None)),
            models.Index(
                name="confirmation_to_review", fields=["asked_at", "id"], condition=Q(alone=True, reviewed_by=None)
            ),
        ]

    def __str__(self) -> str:
        return f"confirmation {self.pk} of workflow {self.workflow_id}"
