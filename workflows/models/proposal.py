from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from workflows.models.api_key import ApiKey
from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import Workflow


class ProposalQuerySet(models.QuerySet["Proposal"]):
    def open(self) -> ProposalQuerySet:
        return self.filter(state=Proposal.State.ASKED, lapses_at__gt=ClockTimestamp())


class Proposal(models.Model):
    """What a person's API key asks for, and another person decides in the console (`features.operator_api`).

    A trigger (migration 0032) holds that they are two people, and that what is approved is what was asked for.
    """

    class Verb(models.TextChoices):
        RETRY = "retry", "Retry"
        CANCEL = "cancel", "Cancel"
        APPROVE = "approve", "Approve"
        REJECT = "reject", "Reject"
        BULK = "bulk", "Start"

    class State(models.TextChoices):
        ASKED = "asked", "Waits for another person"
        APPROVED = "approved"
        REFUSED = "refused"
        WITHDRAWN = "withdrawn"
        STALE = "stale", "No longer asked"
        LAPSED = "lapsed"

    verb = models.CharField(max_length=7, choices=Verb)
    row = models.BigIntegerField()  # the id of a workflow, a task or a bulk operation: the verb says which
    workflow = models.ForeignKey(  # without a constraint: see Attempt. None: a bulk operation
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, null=True, related_name="+"
    )
    seen = models.JSONField()  # the state that it is bound to: ids by name
    reason = models.TextField()
    api_key = models.ForeignKey(ApiKey, on_delete=models.PROTECT, related_name="+", db_index=False)
    asked_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", db_index=False)
    asked_at = models.DateTimeField(db_default=ClockTimestamp())
    lapses_at = models.DateTimeField()
    idempotency_key = models.UUIDField()  # the client's
    state = models.CharField(max_length=9, choices=State, db_default=State.ASKED)
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+", db_index=False
    )
    decided_at = models.DateTimeField(null=True)

    objects: ClassVar[ProposalQuerySet] = ProposalQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(name="proposal_idempotency_key", fields=["asked_by", "idempotency_key"]),
            models.UniqueConstraint(name="proposal_one_open", fields=["verb", "row"], condition=Q(state="asked")),
            models.CheckConstraint(
                name="proposal_four_eyes",
                condition=~Q(state="approved") | Q(decided_by__isnull=False) & ~Q(decided_by=F("asked_by")),
            ),
        ]
        indexes = [
            models.Index(name="proposal_open", fields=["asked_at", "id"], condition=Q(state="asked")),
            models.Index(name="proposal_of_workflow", fields=["workflow"]),
        ]

    def __str__(self) -> str:
        return f"proposal {self.pk}"
