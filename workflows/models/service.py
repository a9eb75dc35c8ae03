"""What many workflows may wait for: services that they call, and causes of failures."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Value

from workflows.models.clock import ClockTimestamp

# Seconds until an open circuit is tried first. See workflows.features.outages.circuits.
FIRST_COOL_OFF = 5.0

# The longest name of a cause: those of a type and a step, and an error's class.
LONGEST_NAME = 410


class Service(models.Model):
    """One service, or one cause, and its circuit: closed, suspected (`since`) or open (`opened_at`). No row: closed.

    A cause (`workflows.features.brake`) has a `step`, a service has none.
    """

    name = models.CharField(max_length=LONGEST_NAME, primary_key=True)

    # Suspected: the workers' votes since then, and the first workflows that found it unavailable.
    since = models.DateTimeField(null=True)
    failed = models.PositiveIntegerField(db_default=0)  # votes: a call found it unavailable
    answered = models.PositiveIntegerField(db_default=0)  # votes: a call was answered
    suspects = ArrayField(models.BigIntegerField(), db_default=Value("{}"))
    failed_at = models.DateTimeField(null=True)  # when a call last found it unavailable

    # Open: no worker calls it before `retry_at`; after that one at a time.
    opened_at = models.DateTimeField(null=True)
    retry_at = models.DateTimeField(null=True)
    cool_off = models.FloatField(db_default=FIRST_COOL_OFF)  # seconds from one trial to the next
    trial_until = models.DateTimeField(null=True)  # a worker tries it until then
    closed_at = models.DateTimeField(null=True)
    held_by = models.CharField(max_length=150, db_default="")  # the user who holds it open
    held_reason = models.TextField(db_default="")

    # For a cause: where workflows fail, and with which code or error class.
    workflow_type = models.CharField(max_length=100, db_default="")
    step = models.CharField(max_length=100, db_default="")
    code = models.CharField(max_length=200, db_default="")
    traceback = models.TextField(db_default="")  # of the last failure: files, lines and functions
    # The recent results of each release's workers (see `brake.causes`).
    tallies = models.JSONField(db_default=Value({}, models.JSONField()))
    releases = ArrayField(models.CharField(max_length=100), db_default=Value("{}"))  # it is open for; empty means all
    # A live worker has another release: parked workflows are left to such workers.
    elsewhere = models.BooleanField(db_default=False)
    judged = ArrayField(models.BigIntegerField(), db_default=Value("{}"))  # the workflows that failed before it opened
    # Workflows parked by then are let fail. If they are many, two people decide: the first has asked.
    let_fail_until = models.DateTimeField(null=True)
    let_fail_by = models.CharField(max_length=150, db_default="")
    let_fail_reason = models.TextField(db_default="")
    asked_at = models.DateTimeField(null=True)
    asked_by = models.CharField(max_length=150, db_default="")
    asked_reason = models.TextField(db_default="")

    # Making parked workflows due.
    cohort = models.PositiveIntegerField(db_default=0)  # the size of the last release batch
    released_at = models.DateTimeField(null=True)

    class Meta:
        default_permissions = ("view",)
        permissions = [
            ("hold_service", "Can hold a service: no workflow calls it"),
            ("try_service", "Can have a service tried now"),
            ("let_fail_service", "Can let the workflows fail that are parked on a cause"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_cause(self) -> bool:
        return bool(self.step)


class CircuitEvent(models.Model):
    """An event in the history of a service's circuit, or of a queue or type that was held or paced."""

    class Kind(models.TextChoices):
        OPENED = "opened"
        CLOSED = "closed"
        HELD = "held"
        TRIED = "tried", "To be tried"
        ASKED = "asked", "Asked to let fail"
        LET_FAIL = "let_fail", "Let fail"
        RELEASED = "released"
        PACED = "paced"
        CAPPED = "capped"
        NOTED = "noted", "Note"  # what a user has written about a cause, for colleagues

    # By name, because the history outlives the row. For a `Pace` its key.
    service = models.CharField(max_length=LONGEST_NAME)
    at = models.DateTimeField(db_default=ClockTimestamp())
    kind = models.CharField(max_length=10, choices=Kind)
    reason = models.TextField(db_default="")
    actor = models.CharField(max_length=150, db_default="")  # the user who did it; empty for the engine

    class Meta:
        default_permissions = ("view",)
        indexes = [
            models.Index(name="circuit_event_of_service", fields=["service", "-id"]),
            # The audit: see Event.
            models.Index(name="circuit_event_of_people", fields=["-at", "-id"], condition=~models.Q(actor="")),
            models.Index(name="circuit_event_of_actor", fields=["actor", "-at", "-id"], condition=~models.Q(actor="")),
        ]

    def __str__(self) -> str:
        return f"{self.service} {self.kind}"
