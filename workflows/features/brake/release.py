"""RELEASE: what is parked on a cause goes on as what is parked on a service does, or is let fail.

It differs in what opens and closes the brake (`causes`), and in who tries it.
"""

from __future__ import annotations

from django.db.models import Q

from workflows.errors import Braked, is_braked, unavailable_service
from workflows.features.brake import causes
from workflows.features.outages import circuits, parking
from workflows.features.outages.circuits import HOUR
from workflows.models import Service, Workflow
from workflows.signals.waking import Slice
from workflows.state import transitions
from workflows.state.parking import mend_of, names
from workflows.state.transitions import Parking


def find_parking(workflow: Workflow, error: BaseException) -> Parking | None:
    """How to park the workflow whose attempt has ended with `error`; None if it has met no cause."""
    if not is_braked(error):
        return None
    cause = unavailable_service(error)
    circuit = circuits.find_open(cause)
    if circuit is None:  # the brake was let go since the vote: that is not a verdict on this one
        return Parking(cause, HOUR) if isinstance(error, Braked) else None
    since = workflow.parked_at if workflow.parked_on == cause else None
    # However long: nobody is failed by the hundred, a person is asked about the cause.
    return Parking(cause, parking.longest_of(error), since=since, mend=mend_of(circuit))


def release_braked(after: int = 0) -> Slice:
    """Make due what may try its step again, or is let fail. A maintenance task."""
    waited_for = names()
    on = Q(opened_at__isnull=False) | Q(let_fail_until__isnull=False) | Q(name__in=waited_for)
    found = Service.objects.exclude(step="").filter(on).order_by("name").values_list("name", flat=True)
    released = sum(map(_release, found))
    return Slice(released, rest=0.0 if waited_for or released else parking.UNTIL_PARKED)


def _release(name: str) -> int:
    with circuits.locked(name) as row:
        if row is None:
            return 0
        causes.look_around(row)
        if causes.is_let_fail(row):
            return transitions.release_parked(
                name, limit=parking.LARGEST_BATCH, over=parking.PACE, parked_by=row.let_fail_until
            )
        return parking.release_next(row, close=causes.let_go, in_earnest=_try_in_earnest)


def _try_in_earnest(row: Service) -> int:
    every = causes.in_earnest_every(row)
    if not every and circuits.is_open_for_long(row):  # more than a few have opened it, and may be of one odd kind
        every = circuits.IN_EARNEST_EVERY
    return parking.try_in_earnest(row, every, not_of=causes.only_client(row)) if every else 0
