"""DEPUTIES: who stands in for whom while somebody is away, and who counts as one person (docs/adr/0045)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models
from django.db.models import F, Func, OuterRef, Q, Subquery
from django.db.models.functions import Now

from workflows.models.clock import ClockTimestamp

if TYPE_CHECKING:
    from datetime import datetime

    from django.contrib.auth.models import User
    from django.db.models.expressions import Combinable


class DeputyQuerySet(models.QuerySet["Deputy"]):
    def now(self) -> DeputyQuerySet:
        """Those that hold at this moment."""
        return self.filter(begins_at__lte=Now(), ends_at__gt=Now())


class Deputy(models.Model):
    """A colleague gets what is asked of somebody who is away, until `ends_at`. Ending it early moves that forward."""

    absent = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, db_index=False, related_name="+")
    deputy = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, db_index=False, related_name="+")
    begins_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    set_by = models.CharField(max_length=150)
    set_at = models.DateTimeField(db_default=ClockTimestamp())

    objects = DeputyQuerySet.as_manager()

    class Meta:
        default_permissions = ()
        constraints = [
            models.CheckConstraint(name="deputy_is_another", condition=~Q(absent=F("deputy"))),
            models.CheckConstraint(name="deputy_ends_after_it_begins", condition=Q(ends_at__gte=F("begins_at"))),
        ]
        indexes = [
            models.Index(name="deputy_of_absent", fields=["absent", "ends_at"]),
            models.Index(name="deputy_of_deputy", fields=["deputy", "ends_at"]),
        ]

    def __str__(self) -> str:
        return f"deputy {self.pk}"


def away() -> models.QuerySet[Deputy]:
    """The keys of the users who are away now."""
    return Deputy.objects.now().values("absent")  # type: ignore[return-value]  # of one column


def represented_by(user: User) -> models.QuerySet[Deputy]:
    """The keys of the users for whom `user` stands in now."""
    return Deputy.objects.now().filter(deputy=user).values("absent")  # type: ignore[return-value]  # as above


def deputy_of(whom: OuterRef, column: str = "deputy") -> Subquery:
    """SQL for who stands in for a user now; NULL if nobody does."""
    return Subquery(Deputy.objects.now().filter(absent=whom).values(column)[:1])


def count_as_one(first: Combinable | object, second: Combinable | object, since: Combinable | datetime) -> Func:
    """SQL for whether two users are one person, for what was done at `since`: the database's rule for four eyes.

    They are one if they are the same, if one has been the other's deputy at any time from `since` on, or if both have
    been deputies of a third.
    """
    return Func(first, second, since, function="workflows_count_as_one", output_field=models.BooleanField())
