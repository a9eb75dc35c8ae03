from __future__ import annotations

from django.db import models
from django.db.models import Q

from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import Workflow
from workflows.models.xids import CurrentTransactionId, TransactionId


class Signal(models.Model):
    """A fact from outside the run that a wait can be for. Stored first, matched later.

    `(source, dedupe_key)` is unique: a signal that is sent twice is one row. It is addressed to a workflow, or to every
    workflow with its `linking_id`, including later ones. It answers one wait of each (`Wait.signal`).
    """

    source = models.CharField(max_length=150)  # the source that sent it
    dedupe_key = models.CharField(max_length=200)
    name = models.CharField(max_length=200)
    workflow = models.ForeignKey(  # without a constraint: see Attempt
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, null=True, related_name="signals"
    )
    linking_id = models.CharField(max_length=200, null=True)  # noqa: DJ001 (NULL is outside the index)
    payload = models.JSONField(db_default=models.Value({}, models.JSONField()))
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    stored_in = TransactionId(db_default=CurrentTransactionId())  # the transaction that stored it
    # For a message identified by its position in a topic: when it was sent, according to Kafka.
    sent_at_ms = models.BigIntegerField(null=True)
    closed_at = models.DateTimeField(null=True)  # when it was used or ignored
    ignored = models.BooleanField(db_default=False)  # no wait asks for it any more

    class Meta:
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(name="signal_unique_fact", fields=["source", "dedupe_key"]),
            models.CheckConstraint(
                name="signal_has_one_address",
                condition=Q(workflow=None, linking_id__isnull=False) | Q(workflow__isnull=False, linking_id=None),
            ),
            models.CheckConstraint(
                name="signal_ignored_is_closed", condition=Q(ignored=False) | Q(closed_at__isnull=False)
            ),
        ]
        indexes = [
            # Maintenance reads the open signals.
            models.Index(name="signal_open", fields=["id"], condition=Q(closed_at=None)),
            # A wait reads the first signal of its names.
            models.Index(
                name="signal_open_of_workflow", fields=["workflow", "name", "id"], condition=Q(closed_at=None)
            ),
            models.Index(
                name="signal_open_of_linking_id",
                fields=["linking_id", "name", "id"],
                condition=Q(closed_at=None, linking_id__isnull=False),
            ),
            # retention.content deletes those of a linking id. Few are closed: they stay open for other workflows.
            models.Index(
                name="signal_closed_of_linking_id",
                fields=["linking_id"],
                condition=Q(closed_at__isnull=False, linking_id__isnull=False),
            ),
            # The page of a workflow, which also shows closed signals.
            models.Index(name="signal_of_workflow", fields=["workflow", "id"], condition=~Q(workflow=None)),
        ]

    def __str__(self) -> str:
        return f"signal {self.pk}"
