"""PARKING: a workflow that met a service unavailable waits for it, parked, while the service's circuit is open.

A parked workflow takes no worker, makes no call and counts no failure. It is PENDING and due in an hour, so whatever
makes a row due makes this one due, too. When its hour runs out, it counts a failure: nothing is parked for ever. While
a person holds the service no hour counts, because a hold has an end.

The release reads the state, not events: a workflow that parks while a circuit closes is found a second later. While a
circuit is open and a trial is due, one workflow is released; `parked_on` is its permit to call the service. Once the
circuit is closed, release batches follow, each spread over a second and when the one before is decided: 1, 2, 4 ...
until a call meets the service unavailable. From then on the next one is an eighth smaller after a second with such a
call, and an eighth larger after one without. The longest parked go first. A workflow that parks again goes to the end,
or one bad payload would make every trial (see also `circuits.STUBBORN`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from workflows import failpoints
from workflows.errors import ServiceUnavailable, error_chain, is_braked, is_busy, unavailable_service
from workflows.features.outages import circuits, places
from workflows.features.outages.circuits import HOUR
from workflows.models import Service, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import is_parked_on
from workflows.signals.waking import Slice
from workflows.state import transitions
from workflows.state.parking import services, turn_at
from workflows.state.transitions import Parking

# One that only needs the service is parked behind all that have failed at it: they make the trial.
DAY = timedelta(days=1)

LARGEST_BATCH = 256
# From one release batch to the next, at the least, and from its first workflow to the one after its last: workers look
# once a second, and the rest is for the last ones to be decided.
PACE = timedelta(seconds=0.9)
# Seconds to the next look while nothing is parked: what is parked meanwhile waits longer for its first trial.
UNTIL_PARKED = 1.0
# A worker that has found nothing looks again within this.
JUST_DUE = timedelta(seconds=0.5)
# A release batch that no worker has taken up by then (its queue may have none) no longer holds up the next one.
TAKEN_UP_WITHIN = timedelta(seconds=60)


def find_parking(workflow: Workflow, error: BaseException) -> Parking | None:
    """How to park the workflow whose attempt has ended with `error`; None if no open circuit is the reason.

    If the circuit closes just now, the workflow is parked all the same, and the next release finds it.
    """
    service = unavailable_service(error)
    if service and is_busy(error):  # however long: its turn comes
        return Parking(service, HOUR, mend=turn_at(service))
    circuit = circuits.find_open(service) if service and not is_braked(error) else None
    if circuit is None:
        return None
    longest = longest_of(error)
    if workflow.parked_on != service:
        return Parking(service, longest)
    was_parked = Workflow.objects.filter(pk=workflow.pk, parked_at__lte=ClockTimestamp() - longest)
    is_over = not circuit.held_by and was_parked.exists()
    return Parking(service, longest, since=None if is_over else workflow.parked_at, is_over=is_over)


def longest_of(error: BaseException) -> timedelta:
    """How long to park what has ended with `error`: one that only needs the service, behind those that met it."""
    needs_only = any(isinstance(each, ServiceUnavailable) and each.needed for each in error_chain(error))
    return DAY if needs_only else HOUR


def release_parked(after: int = 0) -> Slice:
    """Make due what may call its service again. A maintenance task."""
    waited_for = services()
    released = sum(map(_release, waited_for))
    return Slice(released, rest=0.0 if waited_for or released else UNTIL_PARKED)


def _release(name: str) -> int:
    with circuits.locked(name) as service:
        if service is None:
            return 0
        return release_next(service, close=circuits.close, in_earnest=_try_in_earnest)


def release_next(service: Service, *, close: Callable[..., None], in_earnest: Callable[[Service], int]) -> int:
    """Make the next workflows due that are parked on a locked circuit; how many.

    `close` closes it, on probation. `in_earnest` is asked before a trial: it may release one, and returns how many.
    """
    if circuits.waits_for_trial(service) and not circuits.is_trial_due(service):
        return 0
    if _is_too_soon(service) or _is_batch_under_way(service):
        return 0
    if circuits.waits_for_trial(service) and circuits.was_released_to_try(service) and not _is_undecided(service):
        # Its attempt is over, and did not call the service.
        close(service, "The workflow that was to try it made no call.", on_probation=True)
    what, size = ("trial", 1) if circuits.waits_for_trial(service) else ("cohort", _next_batch(service))
    failpoints.reach("before_release", what)
    released = in_earnest(service) if circuits.waits_for_trial(service) else 0
    released = released or transitions.release_parked(service.name, limit=size, over=PACE)
    failpoints.reach("after_release", what)
    if released:
        service.cohort, service.released_at = size, service.now  # type: ignore[attr-defined]  # annotated
    return released


def _try_in_earnest(service: Service) -> int:
    return try_in_earnest(service, circuits.IN_EARNEST_EVERY) if circuits.is_stubborn(service) else 0


def try_in_earnest(service: Service, every: int, *, not_of: str | None = None) -> int:
    """For one of so many trials, release one that has not met the trouble itself; of another client, if there is one.

    Returns how many were released.
    """
    if random.randrange(every) != 0:  # noqa: S311 (no secret)
        return 0
    release = partial(transitions.release_parked, service.name, limit=1, over=PACE, due_after=HOUR)
    return (release(not_of=not_of) if not_of is not None else 0) or release()


def _is_too_soon(service: Service) -> bool:
    """Whether a release batch was released just now; not if its time is in the future: the clock was set back."""
    if circuits.waits_for_trial(service) or not service.cohort or service.released_at is None:
        return False
    now = service.now  # type: ignore[attr-defined]  # annotated
    return bool(now - PACE < service.released_at <= now)


def _is_batch_under_way(service: Service) -> bool:
    """Whether a released workflow is not decided yet: its row, as it was committed, is parked and due.

    Once the circuit is closed, those that have just become due do not count: else each release batch would wait for the
    worker that comes by last.
    """
    parked = Workflow.objects.filter(is_parked_on(service.name))
    now = ClockTimestamp()
    due_since = now if circuits.waits_for_trial(service) else now - JUST_DUE
    return parked.filter(invisible_until__lte=due_since, invisible_until__gt=now - TAKEN_UP_WITHIN).exists()


def _is_undecided(service: Service) -> bool:
    """Whether what was released last is parked and due as before: no worker has taken it up, or one still works at it.

    After TAKEN_UP_WITHIN another one is to try it: that no worker has taken it up says nothing of the service.
    """
    parked = Workflow.objects.filter(is_parked_on(service.name))
    return parked.filter(invisible_until__gte=service.released_at, invisible_until__lte=ClockTimestamp()).exists()


def _next_batch(service: Service) -> int:
    if (left := places.left(service.name)) is not None:
        return max(1, left, _next_under_cap(service))
    if not service.cohort:
        return 1
    assert service.released_at is not None
    if service.failed_at is not None and service.failed_at > service.released_at:
        return max(1, service.cohort * 7 // 8)
    if service.failed_at is not None and service.closed_at is not None and service.failed_at > service.closed_at:
        return min(LARGEST_BATCH, service.cohort * 9 // 8 + 1)
    return min(LARGEST_BATCH, service.cohort * 2)


def _next_under_cap(service: Service) -> int:
    """Twice as many as last, for calls may be short, or an eighth less if one has found no place since."""
    if service.released_at is None or service.released_at < service.now - TAKEN_UP_WITHIN:  # type: ignore[attr-defined]
        return 0
    if Workflow.objects.filter(is_parked_on(service.name), parked_at__gte=service.released_at).exists():
        return service.cohort * 7 // 8
    return min(LARGEST_BATCH, service.cohort * 2)
