from __future__ import annotations

from django.db import models
from django.db.models import Q

from workflows.models.clock import ClockTimestamp
from workflows.models.wait import Wait
from workflows.models.workflow import Workflow


class Signal(models.Model):
    """The inbox: a fact from outside the run that a wait can be for. Stored first, matched later.

    `(source, dedupe_key)` is unique: the same fact told twice is one row.
    """

    source = models.CharField(max_length=100)
    dedupe_key = models.CharField(max_length=200)
    name = models.CharField(max_length=200)
    workflow = models.ForeignKey(  # without constraints: see Attempt
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="signals"
    )
    payload = models.JSONField(db_default=models.Value({}, models.JSONField()))
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    answered = models.ForeignKey(
        Wait,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        null=True,
        related_name="signals",
        help_text="The wait it answered.",
    )
    closed_at = models.DateTimeField(
        null=True, help_text="When it was used; of a request to cancel also when it was put aside, too late."
    )

    class Meta:
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(name="signal_unique_fact", fields=["source", "dedupe_key"])]
        indexes = [models.Index(name="signal_unanswered", fields=["workflow", "name"], condition=Q(closed_at=None))]

    def __str__(self) -> str:
        return f"signal {self.pk}"
