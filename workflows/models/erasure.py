from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import F, Q

from workflows.models.clock import ClockTimestamp


class Erasure(models.Model):
    """Some workflows are erased because a person asked for it: which, when, and by whom; nothing about that person.

    One user asks, another approves: without both the database lets nothing younger than a week be emptied.
    """

    class State(models.TextChoices):
        ASKED = "asked", "Waits for a second person"
        DONE = "done", "Erased"
        REFUSED = "refused"

    hash = models.BinaryField()  # of the given address, under the first of SEARCH_KEYS
    workflows = ArrayField(models.BigIntegerField())
    messages = ArrayField(models.BigIntegerField(), null=True)  # refused submissions (`UndeliveredMessage`)
    reason = models.TextField()
    state = models.CharField(max_length=7, choices=State, db_default=State.ASKED)
    asked_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", db_index=False)
    asked_at = models.DateTimeField(db_default=ClockTimestamp())
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+", db_index=False
    )
    decided_at = models.DateTimeField(null=True)

    class Meta:
        default_permissions = ()
        permissions = [("erase_workflow", "Can ask for an erasure, and approve a colleague's")]
        constraints = [
            models.CheckConstraint(
                name="erasure_four_eyes",
                condition=~Q(state="done") | Q(decided_by__isnull=False) & ~Q(decided_by=F("asked_by")),
            )
        ]
        # workflows_may_be_emptied().
        indexes = [GinIndex(name="erasure_of_workflow", fields=["workflows"])]

    def __str__(self) -> str:
        return f"erasure {self.pk}"
