"""What remains of a workflow whose row is deleted: the keys under which it must not be started again."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from workflows.models.workflow import Workflow


class SpentKey(models.Model):
    """The keys of a workflow that is deleted, or will be within an hour, and the answer to its sender. It stays for
    ever.

    The columns are the workflow's. The row is committed before the workflow's row is deleted, so a submission that is
    being stored at that moment meets one of the two (docs/adr/0030).
    """

    workflow_id = models.BigIntegerField(primary_key=True)
    idempotency_key = models.UUIDField(unique=True)
    business_key = models.CharField(max_length=200, null=True)  # noqa: DJ001 (as in Workflow); a hash
    workflow_type = models.CharField(max_length=100)
    tenant = models.CharField(max_length=100)
    submitted_by = models.CharField(max_length=100)
    status = models.CharField(max_length=8, choices=Workflow.Status)
    state = models.CharField(max_length=9)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(
                name="spentkey_business_key",
                fields=["business_key", "workflow_type", "tenant"],
                condition=~Q(business_key=None),
            )
        ]

    def __str__(self) -> str:
        return f"the spent key of workflow {self.workflow_id}"
