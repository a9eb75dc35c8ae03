from __future__ import annotations

from django.db import models

from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import Workflow


class Pause(models.Model):
    """A person has paused a workflow, or asks for it while a worker has it. The row is deleted when the pause ends."""

    workflow = models.OneToOneField(  # without a constraint: see Attempt
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, related_name="pause"
    )
    asked_at = models.DateTimeField(db_default=ClockTimestamp())
    begun_at = models.DateTimeField(null=True)  # None: it begins as soon as no worker has the workflow
    until = models.DateTimeField()  # then somebody has to resume the workflow: nothing does so by itself
    actor = models.CharField(max_length=150)
    reason = models.TextField()

    class Meta:
        default_permissions = ()
        # health.needs_a_person.
        indexes = [models.Index(name="pause_until", fields=["until", "id"], condition=~models.Q(begun_at=None))]

    def __str__(self) -> str:
        return f"pause of workflow {self.workflow_id}"
