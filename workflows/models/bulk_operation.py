from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from workflows.models.clock import ClockTimestamp
from workflows.models.service import LONGEST_NAME


class BulkOperation(models.Model):
    """One operation on many rows, which were selected once; the workers carry it out (`features.bulk`)."""

    class State(models.TextChoices):
        DRAFT = "draft", "Not started"
        ASKED = "asked", "Waits for a second person"
        RUNNING = "running", "Under way"
        PAUSED = "paused"
        CANCELLED = "cancelled"
        DONE = "done", "Carried out"

    verb = models.CharField(max_length=20)  # the name of one of `operations.bulk_verbs`
    arguments = models.JSONField(db_default=models.Value({}, models.JSONField()))  # for the verb, besides the reason
    chosen_by = models.TextField()  # the filters of the selection, in words
    cause = models.CharField(max_length=LONGEST_NAME, db_default="")  # of failures, if the choice names one: its name
    selected = models.PositiveIntegerField()  # how many items it has
    state = models.CharField(max_length=10, choices=State, db_default=State.DRAFT)
    reason = models.TextField(db_default="")
    pace = models.PositiveIntegerField(db_default=5)  # at most so many items a second
    next_at = models.DateTimeField(db_default=ClockTimestamp())  # when the pace allows the next item
    paused_why = models.TextField(db_default="")
    # The items are carried out in this user's name.
    asked_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    asked_at = models.DateTimeField(db_default=ClockTimestamp())
    four_eyes = models.BooleanField(db_default=False)  # another user has to approve it
    approved_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    ended_at = models.DateTimeField(null=True)

    class Meta:
        default_permissions = ("view",)
        permissions = [("start_bulkoperation", "Can do the same to many workflows at once")]
        constraints = [
            models.CheckConstraint(
                name="bulk_operation_four_eyes",
                condition=Q(four_eyes=False)
                | Q(state__in=["draft", "asked", "cancelled"])
                | Q(approved_by__isnull=False) & ~Q(approved_by=F("asked_by")),
            )
        ]
        indexes = [models.Index(name="bulk_operation_running", fields=["next_at"], condition=Q(state="running"))]

    def __str__(self) -> str:
        return f"bulk operation {self.pk}"


class BulkItem(models.Model):
    """A row for a bulk operation, and its outcome."""

    class Outcome(models.TextChoices):
        OPEN = "", "To be done"
        DONE = "done"
        SKIPPED = "skipped"  # it was refused
        FAILED = "failed"

    operation = models.ForeignKey(BulkOperation, on_delete=models.CASCADE, db_index=False, related_name="items")
    row = models.BigIntegerField()  # the id of a workflow, a task or a message: the verb says which
    seen = models.BigIntegerField(null=True)  # the version that the user saw: see `operations.bulk.BulkVerb`
    outcome = models.CharField(max_length=7, choices=Outcome, blank=True, db_default=Outcome.OPEN)
    why = models.TextField(db_default="")  # why it was skipped, or failed
    at = models.DateTimeField(null=True)

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(name="bulk_item_once", fields=["operation", "row"])]
        indexes = [models.Index(name="bulk_item_outcome", fields=["operation", "outcome", "id"])]

    def __str__(self) -> str:
        return f"item {self.row} of bulk operation {self.operation_id}"
