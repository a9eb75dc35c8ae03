from __future__ import annotations

from django.db import models

from workflows.models.clock import ClockTimestamp


class Chore(models.Model):
    """A maintenance task of the workers (`engine.maintenance`): when it is due, and where it continues."""

    name = models.CharField(max_length=150, primary_key=True)
    due_at = models.DateTimeField(db_default=ClockTimestamp())
    after = models.BigIntegerField(db_default=0)  # the id after which its next slice starts
    failing_since = models.DateTimeField(null=True)
    error = models.TextField(db_default="")  # why its last slice failed; empty if it did not
    begun_at = models.DateTimeField(null=True)  # when a worker began the current slice
    deaths = models.SmallIntegerField(db_default=0)  # workers in a row that died in a slice of it
    set_aside_at = models.DateTimeField(null=True)  # after too many deaths: no worker does it until a person allows it

    class Meta:
        verbose_name = "maintenance task"
        default_permissions = ()

    def __str__(self) -> str:
        return self.name
