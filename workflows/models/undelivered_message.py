from __future__ import annotations

from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q, Value
from django.db.models.functions import Cast, Now
from django.db.models.lookups import StartsWith

# Prefixes for a source of webhooks, and for the topic or queue of a refused submission: no topic has a colon.
WEBHOOK, REFUSED = "webhook:", "submissions:"
# The code of a row that counts, for a topic, the dead letters that only the broker has.
LEFT_WITH_BROKER = "left_with_broker"


class UndeliveredMessage(models.Model):
    """A message that cannot become a signal, or a submission that a queue refused, with the reason.

    The content may be a patient's: no page shows it. The database accepts a refused submission only if it is sealed.
    """

    class State(models.TextChoices):
        OPEN = "", "Undelivered"
        REDELIVERED = "redelivered"
        DISCARDED = "discarded"

    # Or `webhook:` and a source: the offset is then a digest of the event (`ingress.messages.Arrived`). Or
    # `submissions:` and a topic or an SQS queue: for SQS the offset is a digest of the message's id.
    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    offset = models.BigIntegerField()
    # When it was sent: a topic that was created again has another message at this position.
    sent_at_ms = models.BigIntegerField(db_default=0)
    code = models.CharField(max_length=100)  # why, as a stable word
    reason = models.TextField()  # why, for people; nothing of the content
    # Its key, value and headers (`ingress.messages`), or the refused submission (`queues.refused`), in an envelope
    # (`sealing.whole`); empty once it is settled, unless it is under a legal hold.
    content = models.JSONField(db_default=models.Value([], models.JSONField()))
    created_at = models.DateTimeField(db_default=Now())
    state = models.CharField(max_length=11, choices=State, blank=True, db_default=State.OPEN)
    # For a refused submission: its key, if it has a valid one; and while it is open or held, the hashes of its search
    # keys under each of SEARCH_KEYS, if it can be read.
    idempotency_key = models.UUIDField(null=True)
    hashes = ArrayField(models.BinaryField(), null=True)
    left_with_broker = models.IntegerField(db_default=0)  # see LEFT_WITH_BROKER

    class Meta:
        default_permissions = ("view",)
        permissions = [("settle_undeliveredmessage", "Can redeliver or discard an undelivered message")]
        constraints = [
            models.UniqueConstraint(name="undelivered_once", fields=["topic", "partition", "offset", "sent_at_ms"]),
            models.CheckConstraint(
                name="refused_is_sealed",
                condition=~Q(topic__startswith=REFUSED)
                | Q(content=[])
                | Q(StartsWith(Cast("content", models.TextField()), Value('"sealed:'))),
            ),
        ]
        indexes = [
            models.Index(name="undelivered_open", fields=["topic"], condition=Q(state="")),
            models.Index(
                name="undelivered_of_key", fields=["idempotency_key"], condition=Q(idempotency_key__isnull=False)
            ),
            GinIndex(name="undelivered_of_hash", fields=["hashes"], fastupdate=False),
        ]

    def __str__(self) -> str:
        if self.webhook:
            return f"webhook of {self.webhook}"
        if self.code == LEFT_WITH_BROKER:
            return f"{self.left_with_broker} refused submissions of {self.queue} that the broker has"
        if self.queue:
            return f"refused submission {self.partition}:{self.offset} of {self.queue}"
        return f"message {self.offset} of {self.topic} {self.partition}"

    @property
    def webhook(self) -> str:
        """The source of a webhook's event; empty for others."""
        return self.topic.removeprefix(WEBHOOK) if self.topic.startswith(WEBHOOK) else ""

    @property
    def queue(self) -> str:
        """The topic or queue of a refused submission; empty for others."""
        return self.topic.removeprefix(REFUSED) if self.topic.startswith(REFUSED) else ""

    @property
    def sealed_for(self) -> tuple[UUID, str]:
        return UUID(int=self.offset), f"a message of {self.topic} {self.partition} {self.sent_at_ms}"
