from __future__ import annotations

from django.db import models

from workflows.models.clock import ClockTimestamp


class Chore(models.Model):
    """A maintenance task of the workers (`engine.maintenance`): when it is due, and where it goes on."""

    name = models.CharField(max_length=150, primary_key=True)
    due_at = models.DateTimeField(db_default=ClockTimestamp())
    after = models.BigIntegerField(db_default=0)  # the id after which its next slice starts
    failing_since = models.DateTimeField(null=True)
    error = models.TextField(db_default="")  # why its last slice failed; empty if it did not

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.name
