"""The services that workflows call, as the workers have met them, and the history of each circuit."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Value

from workflows.models.clock import ClockTimestamp

# Seconds until an open circuit is tried first. See workflows.outages.circuits.
FIRST_COOL_OFF = 5.0


class Service(models.Model):
    """One service, and its circuit: closed, suspected (`since`) or open (`opened_at`). No row: closed."""

    name = models.CharField(max_length=100, primary_key=True)

    # Suspected: the votes of the workers since then, and the first workflows that met it unavailable.
    since = models.DateTimeField(null=True)
    failed = models.PositiveIntegerField(db_default=0)  # votes: a call met it unavailable
    answered = models.PositiveIntegerField(db_default=0)  # votes: a call was answered
    suspects = ArrayField(models.BigIntegerField(), db_default=Value("{}"))
    failed_at = models.DateTimeField(null=True)  # when a call last met it unavailable

    # Open: no worker calls it before `retry_at`, and then one at a time.
    opened_at = models.DateTimeField(null=True)
    retry_at = models.DateTimeField(null=True)
    cool_off = models.FloatField(db_default=FIRST_COOL_OFF)  # seconds from one trial to the next
    trial_until = models.DateTimeField(null=True)  # a worker tries it, for as long as this
    closed_at = models.DateTimeField(null=True)
    held_by = models.CharField(max_length=150, db_default="")  # the user who holds it open
    held_reason = models.TextField(db_default="")

    # The release of what is parked on it.
    cohort = models.PositiveIntegerField(db_default=0)  # how many workflows were released together, last
    released_at = models.DateTimeField(null=True)

    class Meta:
        default_permissions = ("view",)
        permissions = [
            ("hold_service", "Can hold a service: no workflow calls it"),
            ("try_service", "Can have a service tried now"),
        ]

    def __str__(self) -> str:
        return self.name


class CircuitEvent(models.Model):
    """An event in the history of a service's circuit."""

    class Kind(models.TextChoices):
        OPENED = "opened"
        CLOSED = "closed"
        HELD = "held"
        TRIED = "tried", "To be tried"

    # By name: the history outlives the row.
    service = models.CharField(max_length=100)
    at = models.DateTimeField(db_default=ClockTimestamp())
    kind = models.CharField(max_length=10, choices=Kind)
    reason = models.TextField(db_default="")
    actor = models.CharField(max_length=150, db_default="")  # the user who did it; empty for the engine

    class Meta:
        default_permissions = ("view",)
        indexes = [models.Index(name="circuit_event_of_service", fields=["service", "-id"])]

    def __str__(self) -> str:
        return f"{self.service} {self.kind}"
