"""Which workflow of a business key may run, as hashes."""

from __future__ import annotations

from django.db import models

from workflows.models.workflow import Workflow


class BusinessKeyHash(models.Model):
    """A hash of a workflow's business key, and the workflow's role among those with the same key (docs/adr/0020)."""

    class Role(models.TextChoices):
        HOLDER = "holder"  # it may run
        WAITING = "waiting"  # it waits for the holder to end
        FORMER = "former"  # it ended as a duplicate, or failed, and another workflow became the holder

    pk = models.CompositePrimaryKey("hash", "workflow_id")
    hash = models.BinaryField()
    workflow = models.ForeignKey(  # without a constraint: see Attempt
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="business_key_hashes"
    )
    key_id = models.IntegerField()  # the one of SEARCH_KEYS that made the hash
    role = models.CharField(max_length=7, choices=Role)

    class Meta:
        db_table = "workflows_businesskey"
        default_permissions = ()
        indexes = [
            # A business key that was sent a thousand times has one holder.
            models.Index(name="businesskey_holder", fields=["hash"], condition=models.Q(role="holder")),
            models.Index(name="businesskey_waiting", fields=["workflow"], condition=models.Q(role="waiting")),
        ]

    def __str__(self) -> str:
        return f"the business key of workflow {self.workflow_id}"
