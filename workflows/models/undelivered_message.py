from __future__ import annotations

from uuid import UUID

from django.db import models
from django.db.models.functions import Now


class UndeliveredMessage(models.Model):
    """A message that cannot become a signal, with the reason. Its content may be a patient's: no page shows it."""

    class State(models.TextChoices):
        OPEN = "", "Undelivered"
        REDELIVERED = "redelivered"
        DISCARDED = "discarded"

    # Or `webhook:` and a source; then the offset is a digest of what came (`ingress.messages.Arrived`).
    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    offset = models.BigIntegerField()
    # When it was sent: a topic that was created again has another message at this place.
    sent_at_ms = models.BigIntegerField(db_default=0)
    code = models.CharField(max_length=100)  # why, as a stable word
    reason = models.TextField()  # why, for people; nothing of the content
    # Its key, value and headers (`ingress.messages`) in an envelope (`sealing.whole`); of one that is settled, empty.
    content = models.JSONField(db_default=models.Value([], models.JSONField()))
    created_at = models.DateTimeField(db_default=Now())
    state = models.CharField(max_length=11, choices=State, blank=True, db_default=State.OPEN)

    class Meta:
        default_permissions = ("view",)
        permissions = [("settle_undeliveredmessage", "Can redeliver or discard an undelivered message")]
        constraints = [
            models.UniqueConstraint(name="undelivered_once", fields=["topic", "partition", "offset", "sent_at_ms"])
        ]
        indexes = [models.Index(name="undelivered_open", fields=["topic"], condition=models.Q(state=""))]

    def __str__(self) -> str:
        if self.webhook:
            return f"webhook of {self.webhook}"
        return f"message {self.offset} of {self.topic} {self.partition}"

    @property
    def webhook(self) -> str:
        """The source of an event that came as a webhook; empty for a message of a topic."""
        return self.topic.partition(":")[2]

    @property
    def sealed_for(self) -> tuple[UUID, str]:
        return UUID(int=self.offset), f"a message of {self.topic} {self.partition} {self.sent_at_ms}"
