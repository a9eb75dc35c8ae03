"""What people may do with maintenance tasks: let one go on that was set aside because workers died in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workflows.errors import NotAllowed
from workflows.models import Chore
from workflows.models.clock import ClockTimestamp
from workflows.operations.guards import TRY_NOW, record_for, require, require_reason, short_transaction

if TYPE_CHECKING:
    from django.contrib.auth.models import User


BULK_OPERATIONS = "bulk operations"


def forget_deaths(name: str) -> None:
    """Forget the deaths of workers in a task: its next slice is about something else."""
    Chore.objects.filter(pk=name, deaths__gt=0).update(deaths=0)


def go_on(name: str, *, user: User, reason: str) -> None:
    """Let workers do a maintenance task again, from where the last one died. Three more deaths set it aside again."""
    require(user, TRY_NOW)
    require_reason(reason, "to let it go on")
    with short_transaction():
        chore = Chore.objects.select_for_update(no_key=True).filter(pk=name).first()
        if chore is None:
            raise NotAllowed("There is no such maintenance task.")
        if chore.set_aside_at is None:
            raise NotAllowed("It is not set aside: workers do it.")
        Chore.objects.filter(pk=name).update(set_aside_at=None, due_at=ClockTimestamp())
        record_for(chore, user, "Goes on", reason)
