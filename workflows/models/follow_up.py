from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import Workflow

# Steps that need a person. A step that is run again, and given up again, is no longer acknowledged.
GIVEN_UP = Q(due_at=None) & ~Q(acknowledged_failure=F("created_at"))


class FollowUp(models.Model):
    """A best-effort step of a COMPLETE workflow that has yet to be done (`workflows.features.deferred_steps`)."""

    workflow = models.ForeignKey(  # without a constraint: see Attempt
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="follow_ups"
    )
    step = models.CharField(max_length=100)
    queue = models.CharField(max_length=63)
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    asked_by = models.CharField(max_length=150, db_default="")  # the user who let it run again, if any
    due_at = models.DateTimeField(null=True)  # no worker takes it before this time; empty once it is given up
    tries = models.PositiveIntegerField(db_default=0)  # workers that have started it since its last decision
    failures = models.PositiveIntegerField(db_default=0)
    # The acknowledged failure, named by the time at which it was created.
    acknowledged_failure = models.DateTimeField(null=True)
    unavailable = models.PositiveIntegerField(db_default=0)  # failures at an unavailable service

    class Meta:
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(name="follow_up_unique_step", fields=["workflow", "step"])]
        indexes = [
            models.Index(name="follow_up_due", fields=["queue", "due_at", "id"], condition=~Q(due_at=None)),
            # Given up and not acknowledged, oldest first.
            models.Index(name="follow_up_oldest_left", fields=["created_at", "id"], condition=GIVEN_UP),
        ]

    def __str__(self) -> str:
        return f"{self.step} of workflow {self.workflow_id}"
