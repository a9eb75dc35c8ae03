"""The cause of a failure; failures are grouped by it."""

from __future__ import annotations

from typing import NamedTuple

from django.conf import settings
from django.db import models
from django.db.models import Q

from workflows.models.clock import ClockTimestamp
from workflows.models.service import LONGEST_NAME


class Cause(NamedTuple):
    """`code` is the error's class if it has no code. The names are those of the filters of the list of workflows."""

    workflow_type: str
    step: str
    code: str

    @property
    def name(self) -> str:
        """By this name workflows are parked on it, and its history is kept."""
        return f"{self.workflow_type}/{self.step}: {self.code}"[:LONGEST_NAME]


def of_code(code: str) -> Q:
    return Q(last_error_code=code) | Q(last_error_code="", last_error_class=code)


class AssignedCause(models.Model):
    """The person who looks after the failures of a cause. Valid while a failure remains from before the assignment."""

    workflow_type = models.TextField()
    step = models.TextField()
    code = models.TextField()
    release = models.TextField()  # empty; an earlier version assigned the failures of one release
    assignee = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    at = models.DateTimeField(db_default=ClockTimestamp())

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(name="assigned_cause_once", fields=[*Cause._fields, "release"])]

    def __str__(self) -> str:
        return f"failures of {self.workflow_type} at {self.step}: {self.code}"
