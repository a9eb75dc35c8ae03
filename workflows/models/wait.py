from __future__ import annotations

from django.db import models
from django.db.models import Q

from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import Workflow


class Wait(models.Model):
    """Something a workflow waits for. Its deadline is fixed when it is first met; its outcome is recorded once.

    A wait is unique by workflow, name and generation. No step meets a `superseded` wait again: the next meeting makes
    the next generation. A wait is superseded when it has failed the workflow, when its question is withdrawn, and by a
    person's retry if it was for children or can no longer be answered. `signal` is what answered it: one wait of a
    workflow.
    """

    class Kind(models.TextChoices):
        APPROVAL = "approval", "A person's decision"
        SIGNAL = "signal"
        TIME = "time"
        CHILDREN = "children"

    workflow = models.ForeignKey(  # without a constraint: see Attempt
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="waits"
    )
    kind = models.CharField(max_length=10, choices=Kind, db_default=Kind.APPROVAL)
    name = models.CharField(max_length=200)
    generation = models.PositiveIntegerField(db_default=1)
    waiting_for = models.TextField()  # in words, for people
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    deadline = models.DateTimeField()
    outcome = models.CharField(max_length=30, db_default="")  # empty until it is answered
    result = models.JSONField(db_default=models.Value({}, models.JSONField()))
    resolved_at = models.DateTimeField(null=True)
    # Drawn when a worker reads a person's answer: calls with a higher one (`Effect`) were started since.
    call_number = models.BigIntegerField(null=True)
    signal = models.ForeignKey(
        "Signal", on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, null=True, related_name="answers"
    )
    superseded = models.BooleanField(db_default=False)

    class Meta:
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(name="wait_unique_generation", fields=["workflow", "name", "generation"]),
            models.UniqueConstraint(
                name="wait_unique_signal", fields=["workflow", "signal"], condition=~Q(signal=None)
            ),
        ]
        indexes = [
            # Maintenance: the waits whose children may all have finished.
            models.Index(
                name="wait_for_children_open",
                fields=["workflow"],
                condition=Q(kind="children", outcome="", superseded=False),
            )
        ]

    def __str__(self) -> str:
        return f"wait {self.name} of workflow {self.workflow_id}"
