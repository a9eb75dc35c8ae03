from __future__ import annotations

from uuid import UUID

from django.db import models
from django.db.models import Q

from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import Workflow

# The longest topic, and the longest name of a destination, in characters.
LONGEST_TOPIC, LONGEST_DESTINATION = 100, 63


class OutboxEvent(models.Model):
    """An event for one destination (docs/outbox.md). `event_id` is the same for all destinations, and when sent again.

    A workflow's events to one destination are sent in the order of their ids.
    """

    class State(models.TextChoices):
        OPEN = "", "Not sent"
        SENT = "sent"
        GIVEN_UP = "given_up", "Given up"
        DISCARDED = "discarded"

    event_id = models.UUIDField()
    workflow = models.ForeignKey(  # without a constraint: see Attempt; NULL for a notice that is of no workflow
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, null=True, related_name="+"
    )
    destination = models.CharField(max_length=LONGEST_DESTINATION)
    topic = models.CharField(max_length=LONGEST_TOPIC)
    body = models.JSONField()  # an envelope (`sealing.whole`); empty once it is sent or discarded
    at = models.DateTimeField(db_default=ClockTimestamp())
    since = models.DateTimeField(db_default=ClockTimestamp())  # the time to give it up counts from here
    # No relay takes it before this time. A relay that takes it sets it to the end of its lease.
    due_at = models.DateTimeField(db_default=ClockTimestamp())
    tries = models.PositiveIntegerField(db_default=0)  # how often it was taken; an overtaken relay writes nothing
    error = models.CharField(max_length=100, db_default="")  # of the last try, without the receiver's text
    state = models.CharField(max_length=9, choices=State, blank=True, db_default=State.OPEN)
    settled_at = models.DateTimeField(null=True)  # when it was sent, or discarded

    class Meta:
        verbose_name, verbose_name_plural = "outbox event", "outbox events"
        default_permissions = ("view",)
        constraints = [
            # Also for a workflow's page, and to find out whether an earlier event is still unsent.
            models.UniqueConstraint(name="outbox_event_once", fields=["workflow", "destination", "event_id"]),
        ]
        indexes = [
            # outbox.relay: what is due for a destination.
            models.Index(name="outbox_due", fields=["destination", "due_at", "id"], condition=Q(state="")),
            # Events to give up, and the figures of a destination.
            models.Index(name="outbox_oldest", fields=["destination", "since"], condition=Q(state="")),
            models.Index(name="outbox_given_up", fields=["destination", "id"], condition=Q(state="given_up")),
        ]

    def __str__(self) -> str:
        return f"event {self.pk} for {self.destination}"

    @property
    def sealed_for(self) -> tuple[UUID, str]:
        return UUID(int=self.workflow_id or 0), f"an event of {self.topic}"
