from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import Workflow

# The permission to request a correction, and to approve one.
CORRECT = "correct_workflow"


class CorrectionQuerySet(models.QuerySet["Correction"]):
    def open(self) -> CorrectionQuerySet:
        return self.filter(state=Correction.State.ASKED)

    def drop(self, workflow_id: int) -> None:
        """The workflow has changed, so its open corrections no longer apply."""
        self.open().filter(workflow=workflow_id).update(
            state=Correction.State.STALE, proposed=None, decided_at=ClockTimestamp()
        )


class Correction(models.Model):
    """A change of a failed workflow's payload that one person requests, and another decides on.

    A trigger (in its migration) enforces the rules of `operations.corrections`: who may ask and approve, that they are
    two people, and that the request does not change. Only `proposed` has the new values in clear; the decision empties
    it.
    """

    class State(models.TextChoices):
        ASKED = "asked", "Waits for a second person"
        APPROVED = "approved"
        REFUSED = "refused"
        WITHDRAWN = "withdrawn"
        STALE = "stale", "No longer asked"
        LAPSED = "lapsed"

    workflow = models.ForeignKey(  # without a constraint: see Attempt
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="corrections"
    )
    of_failure = models.DateTimeField()  # the `completed_at` of the failure to be corrected
    proposed = models.JSONField(null=True)  # the new values by field
    told = models.JSONField()  # for people: each field's old and new value, masked
    reason = models.TextField()
    state = models.CharField(max_length=9, choices=State, db_default=State.ASKED)
    asked_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", db_index=False)
    asked_at = models.DateTimeField(db_default=ClockTimestamp())
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+", db_index=False
    )
    decided_at = models.DateTimeField(null=True)

    objects: ClassVar[models.Manager[Correction]] = CorrectionQuerySet.as_manager()

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(name="correction_one_open", fields=["workflow"], condition=Q(state="asked")),
            models.CheckConstraint(
                name="correction_four_eyes",
                condition=~Q(state="approved") | Q(decided_by__isnull=False) & ~Q(decided_by=F("asked_by")),
            ),
            models.CheckConstraint(
                name="correction_emptied",
                condition=Q(state="asked", proposed__isnull=False) | ~Q(state="asked") & Q(proposed__isnull=True),
            ),
        ]
        indexes = [
            # health.needs_a_person.
            models.Index(name="correction_open", fields=["asked_at", "id"], condition=Q(state="asked")),
            models.Index(name="correction_of_workflow", fields=["workflow"]),
        ]

    def __str__(self) -> str:
        return f"correction {self.pk} of workflow {self.workflow_id}"


class OriginalPayload(models.Model):
    """The payload of a corrected workflow as it was sent, without its secrets. Replays are compared with it."""

    workflow = models.OneToOneField(  # without a constraint: see Attempt
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, primary_key=True, related_name="+"
    )
    payload = models.JSONField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"the original payload of workflow {self.workflow_id}"
