from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from workflows.models.content_key import PrivateJSONField


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
    key = models.BinaryField(null=True)
    value = models.BinaryField(null=True)
    # Of one that is sealed, all three, in base64 (`ingress.messages`); and the columns above are empty.
    headers = PrivateJSONField(db_default=models.Value([], models.JSONField()))
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
