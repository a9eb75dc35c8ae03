"""Hashes by which workflows are found, and a record of each search."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import Workflow


class SearchKeyHash(models.Model):
    """A hash by which a workflow is found (`workflows.search.search_keys`).

    It is a separate table, because updates of the workflow's row would write the index of an array again
    (docs/adr/0014). The primary key is the only index: a search reads it from the newest workflow down.
    """

    pk = models.CompositePrimaryKey("hash", "workflow_id")
    hash = models.BinaryField()
    workflow = models.ForeignKey(  # without a constraint: see Attempt
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="search_key_hashes"
    )
    key_id = models.IntegerField()  # the one of SEARCH_KEYS that made the hash

    class Meta:
        db_table = "workflows_searchkey"
        default_permissions = ()

    def __str__(self) -> str:
        return f"a search key of workflow {self.workflow_id}"


class Search(models.Model):
    """Somebody searched for a workflow: who, when, as what, and how many were found; never what they typed."""

    at = models.DateTimeField(db_default=ClockTimestamp())
    # By name: the record outlives the user.
    actor = models.CharField(max_length=150)
    tried = ArrayField(models.CharField(max_length=100))  # the kinds that the text could be, such as email
    api_key = models.CharField(max_length=100, db_default="")  # the name of their key, if a program has searched
    hits = models.PositiveIntegerField()  # workflows found; one more than shown means that there are more

    class Meta:
        default_permissions = ("view",)
        indexes = [
            models.Index(name="search_newest", fields=["-at", "-id"]),
            models.Index(name="search_of_person", fields=["actor", "-at", "-id"]),
        ]

    def __str__(self) -> str:
        return f"search {self.pk} by {self.actor}"
