"""How fast workflows start: holds, paces and caps that people have set."""

from __future__ import annotations

from typing import NamedTuple

from django.db import models


class Scope(models.TextChoices):
    """What a hold, pace or cap applies to."""

    QUEUE = "queue"
    TYPE = "type"
    TENANT = "tenant"
    SERVICE = "service"  # with a cap only


class Key(NamedTuple):
    """The name of a row, such as "queue:default"."""

    scope: Scope
    name: str

    def __str__(self) -> str:
        return f"{self.scope}:{self.name}"

    @classmethod
    def of(cls, text: str) -> Key | None:
        scope, _, name = text.partition(":")
        return cls(Scope(scope), name) if scope in Scope and name else None


class Pace(models.Model):
    """A queue, type or tenant in which fewer workflows start than could. No row: as fast as the workers can.

    Started workflows go on: retries, waits that end, and reversals.
    """

    key = models.CharField(max_length=110, primary_key=True)
    # Nothing starts before this time; each hold has an end.
    held_until = models.DateTimeField(null=True)
    held_by = models.CharField(max_length=150, db_default="")
    held_reason = models.TextField(db_default="")
    # At most so many start in a second, over all workers.
    per_second = models.FloatField(null=True)
    paced_by = models.CharField(max_length=150, db_default="")
    paced_reason = models.TextField(db_default="")
    # While so many are in workers' hands, nothing starts.
    at_once = models.PositiveIntegerField(null=True)
    capped_by = models.CharField(max_length=150, db_default="")
    capped_reason = models.TextField(db_default="")
    next_at = models.DateTimeField(null=True)  # the first free turn: see workflows.engine.turns

    class Meta:
        verbose_name = "queue, type or tenant"
        verbose_name_plural = "queues, types and tenants"
        default_permissions = ("view",)
        permissions = [("set_pace", "Can hold a queue or a type, and set its pace")]

    def __str__(self) -> str:
        return self.key
