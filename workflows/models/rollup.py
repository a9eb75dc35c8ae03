from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from workflows.models.xids import Snapshot

# Upper bounds of the histograms, in seconds; one more bucket follows the last. A change of them needs a migration that
# deletes these rows, so that the histograms start again.
_OF_RUNS = (1, 2, 3, 5, 10, 30, 60, 300, 600)
_OF_WAITS = (1, 10, 60, 600, 3_600, 21_600, 86_400, 172_800, 604_800)
_OF_STEPS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


# The outcome of a step that was stopped before it called its service.
PARKED = "parked"


class Metric(models.TextChoices):
    """What a row of the rollup counts, and its labels besides the workflow's type."""

    STARTED = "started"  # workflows that came
    FINISHED = "finished"  # outcome: complete, failed, cancelled; step and code of the failure. Seconds: in all
    ACTIVE = "active"  # the same workflows. Seconds: without waiting
    WAITING = "waiting"  # the same workflows. Seconds: for a person, a signal, a time, children, or a service
    ATTEMPT = "attempt"  # outcome
    RELEASE = "release"  # attempts, by the release of their worker, as code; of all types
    CORRECTED = "corrected"  # attempts that were counted as vanished before it was known how they ended
    STEP = "step"  # step, outcome, code: what each attempt did. Seconds: of the step
    RERUN = "rerun"  # step: runs that repeat those of an earlier attempt of the workflow
    UNDO = "undo"  # the same as STEP, for compensations


BOUNDS: dict[str, tuple[float, ...]] = {
    Metric.FINISHED: _OF_RUNS,
    Metric.ACTIVE: _OF_RUNS,
    Metric.WAITING: _OF_WAITS,
    Metric.STEP: _OF_STEPS,
    Metric.UNDO: _OF_STEPS,
}


class Grain(models.TextChoices):
    """The length of time that a row covers. Days and hours are those of UTC; the total has no time."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    TOTAL = "total"


class Rollup(models.Model):
    """How many there were of something, and how long they took. Only `engine.rollup` writes it."""

    pk = models.CompositePrimaryKey("grain", "metric", "at", "workflow_type", "step", "outcome", "code")
    grain = models.CharField(max_length=6, choices=Grain)
    metric = models.CharField(max_length=20, choices=Metric)
    at = models.DateTimeField()  # the start of its minute, hour or day
    workflow_type = models.CharField(max_length=100)
    step = models.CharField(max_length=100)
    outcome = models.CharField(max_length=30)
    code = models.CharField(max_length=200)
    count = models.BigIntegerField()
    seconds = models.FloatField()  # of all of them
    buckets = ArrayField(models.BigIntegerField())  # by `BOUNDS`, not cumulative; empty if the metric has none

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.metric} of the {self.grain} {self.at}"


class RollupProgress(models.Model):
    """What the rollup has counted: the transactions that had committed in `seen`, on this server.

    The floors are 0, except in a database that was copied from another server: rows up to there have its transaction
    ids.
    """

    name = models.CharField(max_length=20, primary_key=True)
    seen = Snapshot()
    server = models.CharField(max_length=30, db_default="")
    workflow_floor = models.BigIntegerField(db_default=0)
    attempt_floor = models.BigIntegerField(db_default=0)
    event_floor = models.BigIntegerField(db_default=0)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.name
