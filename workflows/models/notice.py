from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import Workflow

LONGEST_TOPIC = 30


class Notice(models.Model):
    """Something that waits for people, and when they were told of it: see `features.notices`.

    `subject` is the key of a task, or of what `code` names: a request, a note, a bulk operation, an erasure. `since`
    and `whom` are as they were told: when they change, the row is told again.
    """

    topic = models.CharField(max_length=LONGEST_TOPIC)
    code = models.CharField(max_length=100)
    subject = models.BigIntegerField()
    workflow = models.ForeignKey(  # without constraints: see Attempt
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, null=True, related_name="+"
    )
    team = models.CharField(max_length=150)
    whom = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        null=True,
        related_name="+",
    )
    since = models.DateTimeField()
    noticed_at = models.DateTimeField(db_default=ClockTimestamp())
    told_at = models.DateTimeField(null=True)  # when an event was stored for webhooks and Kafka
    mailed_at = models.DateTimeField(null=True)  # when one was stored for e-mail

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(name="notice_once", fields=["topic", "code", "subject"])]
        indexes = [
            models.Index(name="notice_untold", fields=["id"], condition=Q(told_at=None) | Q(mailed_at=None)),
            models.Index(name="notice_last_told", fields=["topic", "code", "team", "told_at"]),
            models.Index(name="notice_last_mailed", fields=["topic", "code", "team", "mailed_at"]),
            models.Index(name="notice_of_workflow", fields=["workflow"]),
            models.Index(name="notice_of_assignee", fields=["subject"], condition=~Q(whom=None)),
        ]

    def __str__(self) -> str:
        return f"{self.topic} {self.subject}"


class MutedMail(models.Model):
    """A user who wants no e-mail about what waits; they get it all the same if nobody else would."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="+")
    at = models.DateTimeField(db_default=ClockTimestamp())

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"no e-mail for user {self.pk}"
