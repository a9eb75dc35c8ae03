from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from workflows.models.clock import ClockTimestamp


class SideProcess(models.Model):
    """A consumer of topics or queues, or a relay of the outbox, with its heartbeat. For people; nothing depends on it.

    No supervisor closes the row of a killed process: it falls silent, and is deleted after a day.
    """

    class Kind(models.TextChoices):
        CONSUMER = "consumer"
        RELAY = "relay"

    name = models.CharField(max_length=200)  # host/mark:process, as a worker's; a mark for each process
    host = models.CharField(max_length=150)
    pid = models.PositiveIntegerField()
    release = models.CharField(max_length=100)
    kind = models.CharField(max_length=8, choices=Kind)
    takes = ArrayField(models.CharField(max_length=249))  # topics and queues; for a relay the destinations
    started_at = models.DateTimeField(db_default=ClockTimestamp())
    last_seen = models.DateTimeField(db_default=ClockTimestamp())
    last_message_at = models.DateTimeField(null=True)
    stopped_at = models.DateTimeField(null=True)
    ended_how = models.CharField(max_length=50, db_default="")  # empty when it stopped in good order

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"
