from __future__ import annotations

from django.db import models

from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import Workflow


class Wait(models.Model):
    """Something a workflow waits for. Its deadline is fixed when it is first met; its outcome is recorded once.

    Unique by workflow, name and generation. A later generation is made when the question is asked again, and the
    old row is then `superseded`: when a person retries a workflow that this wait has failed, or in a compensation.
    """

    workflow = models.ForeignKey(  # without a constraint: see Attempt
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="waits"
    )
    name = models.CharField(max_length=200)
    generation = models.PositiveIntegerField(db_default=1)
    waiting_for = models.TextField(help_text="In words, for people.")
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    deadline = models.DateTimeField()
    outcome = models.CharField(max_length=30, db_default="", help_text="Empty until it is answered.")
    result = models.JSONField(db_default=models.Value({}, models.JSONField()))
    resolved_at = models.DateTimeField(null=True)
    superseded = models.BooleanField(db_default=False)

    class Meta:
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(name="wait_unique_generation", fields=["workflow", "name", "generation"])
        ]

    def __str__(self) -> str:
        return f"wait {self.name} of workflow {self.workflow_id}"
