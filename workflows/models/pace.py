"""How fast workflows begin: what people have held, and at which pace the rest goes."""

from __future__ import annotations

from typing import NamedTuple

from django.db import models


class Scope(models.TextChoices):
    """What is held or paced."""

    QUEUE = "queue"
    TYPE = "type"
    TENANT = "tenant"
    SERVICE = "service"  # with a cap only


class Key(NamedTuple):
    """The name of a row: "queue:default", say."""

    scope: Scope
    name: str

    def __str__(self) -> str:
        return f"{self.scope}:{self.name}"

    @classmethod
    def of(cls, text: str) -> Key | None:
        scope, _, name = text.partition(":")
        return cls(Scope(scope), name) if scope in Scope and name else None


class Pace(models.Model):
    """A queue, a type or a tenant of which fewer workflows begin than could. No row: as fast as the workers can.

    What has begun goes on: retries, waits that end, and reversals.
    """

    key = models.CharField(max_length=110, primary_key=True)
    # Nothing begins until then; each hold has an end.
    held_until = models.DateTimeField(null=True)
    held_by = models.CharField(max_length=150, db_default="")
    held_reason = models.TextField(db_default="")
    # So many begin in a second, over all workers.
    per_second = models.FloatField(null=True)
    paced_by = models.CharField(max_length=150, db_default="")
    paced_reason = models.TextField(db_default="")
    # So many are in workers' hands at a time: above that nothing begins.
    at_once = models.PositiveIntegerField(null=True)
    capped_by = models.CharField(max_length=150, db_default="")
    capped_reason = models.TextField(db_default="")
    next_at = models.DateTimeField(null=True)  # the turn of the next one: see workflows.engine.turns

    class Meta:
        verbose_name = "queue, type or tenant"
        verbose_name_plural = "queues, types and tenants"
        default_permissions = ("view",)
        permissions = [("set_pace", "Can hold a queue or a type, and set its pace")]

    def __str__(self) -> str:
        return self.key
