"""What people have looked at. Like searches and events, rows are only added: the database refuses any other write."""

from __future__ import annotations

from django.db import models

from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import Workflow


class Access(models.Model):
    """Somebody opened a page about a workflow, revealed values that are masked elsewhere, or exported something.

    `detail` has the names of what was revealed, and the purpose; never a value.
    """

    class Kind(models.TextChoices):
        VIEWED = "viewed", "Opened the page"
        REVEALED = "revealed"
        EXPORTED = "exported", "Exported the audit"
        LISTED = "listed", "Exported a list of workflows"

    at = models.DateTimeField(db_default=ClockTimestamp())
    actor = models.CharField(max_length=150)  # by name: the record outlives the user
    kind = models.CharField(max_length=10, choices=Kind)
    workflow = models.ForeignKey(  # without a constraint: see Attempt
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, null=True, related_name="+"
    )
    detail = models.JSONField(db_default=models.Value({}, models.JSONField()))

    class Meta:
        default_permissions = ()
        permissions = [
            ("view_audit", "Can see who did what, and who looked at whom"),
            ("reveal_workflow", "Can see a patient's masked values, for a purpose that is recorded"),
        ]
        indexes = [
            models.Index(name="access_of_workflow", fields=["workflow", "-at", "-id"]),
            models.Index(name="access_newest", fields=["-at", "-id"]),
            models.Index(name="access_of_actor", fields=["actor", "-at", "-id"]),
            models.Index(name="access_revealed", fields=["-at", "actor"], condition=models.Q(kind="revealed")),
        ]

    def __str__(self) -> str:
        return f"{self.kind} by {self.actor}"
