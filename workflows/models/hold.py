from __future__ import annotations

from django.db import models
from django.db.models import Q

from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import Workflow


class Hold(models.Model):
    """A legal hold: until it ends, a workflow, or all workflows with a search key, keep their content."""

    workflow = models.ForeignKey(  # without a constraint: see Attempt
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, null=True, related_name="+"
    )
    hash = models.BinaryField(null=True)  # of the search key, as in SearchKeyHash
    key_id = models.IntegerField(null=True)  # the one of SEARCH_KEYS that made the hash
    reason = models.TextField()
    placed_by = models.CharField(max_length=150)
    placed_at = models.DateTimeField(db_default=ClockTimestamp())
    until = models.DateTimeField()  # the end; once lifted, the time of that
    lifted_by = models.CharField(max_length=150, db_default="")
    lifted_reason = models.TextField(db_default="")

    class Meta:
        default_permissions = ()
        verbose_name = "legal hold"
        permissions = [("place_hold", "Can place a legal hold, and lift one")]
        constraints = [
            models.CheckConstraint(
                name="hold_is_on_one",
                condition=Q(workflow=None, hash__isnull=False) | Q(workflow__isnull=False, hash=None),
            )
        ]

    def __str__(self) -> str:
        return f"legal hold {self.pk}"
