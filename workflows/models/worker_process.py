from __future__ import annotations

from django.db import models
from django.db.models import Q

from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import Workflow


class WorkerProcess(models.Model):
    """A worker process, with its heartbeat and what it was doing then. For people; no decision depends on it.

    The supervisor closes the row of a process that died. If the whole host is gone, the row is deleted after a day.
    """

    name = models.CharField(max_length=200)  # host/mark:process, as on attempts; each supervisor has its own mark
    host = models.CharField(max_length=150)
    pid = models.PositiveIntegerField()
    release = models.CharField(max_length=100, db_default="")
    queue = models.CharField(max_length=63)
    # What it takes from the queue, such as compensation; empty for everything.
    only = models.CharField(max_length=20, db_default="")
    started_at = models.DateTimeField(db_default=ClockTimestamp())
    last_seen = models.DateTimeField(db_default=ClockTimestamp())
    workflow = models.ForeignKey(  # without a constraint: see Attempt
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, null=True, related_name="+"
    )
    attempt = models.PositiveIntegerField(null=True)  # the attempt's number
    step = models.CharField(max_length=100, db_default="")
    since = models.DateTimeField(null=True)  # when it started the step
    stopped_at = models.DateTimeField(null=True)
    ended_how = models.CharField(max_length=50, db_default="")  # empty when it stopped in good order

    class Meta:
        default_permissions = ("view",)
        verbose_name = "worker"
        indexes = [
            # Live workers, which each beat counts. A beat changes none of its columns, and so writes no entry.
            models.Index(name="workerprocess_live", fields=["queue"], condition=Q(stopped_at=None)),
        ]

    def __str__(self) -> str:
        return f"worker {self.name}"
