"""CIRCUITS: whether a service is called; all workers find that out together. One row a service; no row: closed.

- closed -> suspected: a call met it unavailable. The workers vote from then on, each once a second at most.
- suspected -> closed: half a minute is over, and there were answers.
- suspected -> open: enough of the votes say that it is unavailable. No call is made; the workflows are parked.
- open -> open: `retry_at` is over, and a trial met it unavailable: the next one comes later.
- open -> closed: a trial was answered.

A workflow that was released from parking makes the trial; if none is parked, the worker that has taken the lease
`trial_until` does. There is no half-open state, which would wait for a probe whose worker may be dead. No worker waits
for a service's row: one that finds it locked votes the next time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import DEFAULT_DB_ALIAS, models, transaction
from django.utils.text import capfirst

from workflows import times
from workflows.models import CircuitEvent, Service, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.models.service import FIRST_COOL_OFF
from workflows.models.workflow import is_parked_on

# It takes so many votes of so many workflows: one bad payload, always answered with 500, opens nothing.
VOTES, SUSPECTS = 5, 3
# Three quarters of all votes, spread over two seconds: one host whose network is broken is not believed.
TO_ONE_ANSWER = 3
SPREAD = timedelta(seconds=2)
# A suspicion ends after this, if there were answers. Without answers it goes on: a worker whose calls last 10 s
# votes three times in it.
WINDOW = timedelta(seconds=30)

# How long people are shown a suspicion without answers. A step that failed by a service is tried again within six
# minutes (300 s and its jitter), so a suspicion that no call renews for longer is out of date. Votes count on.
RECENT = timedelta(minutes=10)

# Seconds from one trial to the next, doubling; from the first again when it has been closed for as long as CALM.
LONGEST_COOL_OFF = 60.0
CALM = timedelta(minutes=1)
# Plus or minus: services that went down together are not all tried at one moment.
JITTER = 0.2
# Workflows that failed at the service make the trials. If these are as few as open a circuit, they may be bad payloads
# that a healthy service answers with 500 for ever; so after this time one of so many trials is made, alone and in
# earnest, by a workflow that only needs the service. In an outage that more of them have met, nobody pays to find out.
STUBBORN = timedelta(minutes=10)
IN_EARNEST_EVERY = 10
# How long a workflow that failed at it is parked before that counts as a failure.
HOUR = timedelta(hours=1)
# A trial takes no longer than this, or its worker is dead: then the next one may try.
TRIAL = timedelta(seconds=15)

_COLUMNS = [field.name for field in Service._meta.fields if not field.primary_key]

# The services whose circuits are not closed, as JSON for `WorkersCalls.begin`: how long until the next trial is due,
# and whether a hold is on. The claim reads it.
NOT_CLOSED = """
    SELECT json_agg(json_build_array(
               name, opened_at IS NOT NULL, extract(epoch FROM retry_at - clock_timestamp()), held_by <> ''))
      FROM workflows_service
     WHERE step = '' AND (opened_at IS NOT NULL OR since IS NOT NULL)"""


@contextmanager
def locked(name: str, *, using: str = DEFAULT_DB_ALIAS, wait: bool = False) -> Iterator[Service | None]:
    """The service's row, locked, made if there was none; saved when the block ends. None if it is locked already.

    Its attribute `now` is the database's time. In a transaction of its own, or in the caller's. With `wait` it waits
    for the lock.
    """
    with transaction.atomic(using=using):
        services = Service.objects.using(using).filter(name=name).annotate(now=ClockTimestamp())
        free = services.select_for_update(skip_locked=not wait, no_key=True)
        service = free.first()
        if service is None:
            Service.objects.using(using).bulk_create([Service(name=name)], ignore_conflicts=True)
            service = free.first()
        yield service
        if service:
            service.save(using=using, update_fields=_COLUMNS)


def find_open(name: str) -> Service | None:
    """The service, if its circuit is open just now, with the attribute `now`. A name without a row is closed."""
    return Service.objects.filter(name=name, opened_at__isnull=False).annotate(now=ClockTimestamp()).first()


class CircuitState(models.TextChoices):
    """A circuit as people see it."""

    OPEN = "open", "Down"
    HELD = "held"
    TRIED = "tried", "Being tried"
    SUSPECTED = "suspected", "Maybe down"
    CLOSED = "closed", "Up"


def last_calls(service: Service) -> str:
    """What the workers have seen since the suspicion began, in words."""
    if not service.answered:
        return f"the last {service.failed} calls failed" if service.failed != 1 else "the last call failed"
    return f"{service.failed} of the last {service.failed + service.answered} calls failed"


def state_of(service: Service) -> CircuitState:
    """What the circuit is now. A hold whose time is over no longer counts: the circuit is open, and a trial is due.

    A suspicion that is over, or that no call has renewed lately, does not count either.
    """
    if service.opened_at is None:
        return CircuitState.SUSPECTED if _is_suspected_lately(service) else CircuitState.CLOSED
    if not is_trial_due(service):
        return CircuitState.HELD if service.held_by else CircuitState.OPEN
    return CircuitState.TRIED if _is_being_tried(service) else CircuitState.OPEN


def _is_suspected_lately(service: Service) -> bool:
    if service.since is None or _is_old(service):
        return False
    return max(service.since, service.failed_at or service.since) > _now(service) - RECENT


def _is_being_tried(service: Service) -> bool:
    leased = service.trial_until is not None and service.trial_until > _now(service)
    return leased or was_released_to_try(service)


# --- What a worker has met ----------------------------------------------------------------------------


def vote(service: Service, *, unavailable: bool, answered: bool, workflow_id: int) -> None:
    """Count what a worker's calls have met since its last vote; open or close the circuit if that decides it."""
    if unavailable:
        note_failure(service)
    if service.opened_at is not None:
        if is_trial_due(service):
            _end_trial(service, answered=answered, unavailable=unavailable)
        return  # else a call that was started before the circuit opened: it says nothing new
    if service.since is None or _is_old(service):
        _forget_votes(service)
        if not unavailable:
            return
        service.since = _now(service)
    service.failed += unavailable
    service.answered += answered
    if unavailable and workflow_id not in service.suspects and len(service.suspects) < SUSPECTS:
        service.suspects = [*service.suspects, workflow_id]
    if unavailable and _is_enough(service):
        open_circuit(service, f"{capfirst(last_calls(service))}.")


def _is_old(service: Service) -> bool:
    """Whether a suspicion is over. One that starts in the future is old, too: the clock was set back."""
    assert service.since is not None
    now = _now(service)
    return service.since > now or (service.answered > 0 and service.since < now - WINDOW)


def note_failure(service: Service) -> None:
    """A call has met it unavailable, which is not a vote by itself."""
    service.failed_at = _now(service)


def _is_enough(service: Service) -> bool:
    return (
        service.failed >= VOTES
        and service.failed >= TO_ONE_ANSWER * service.answered
        and len(service.suspects) == SUSPECTS
        and service.since is not None
        and service.since <= _now(service) - SPREAD
    )


def _end_trial(service: Service, *, answered: bool, unavailable: bool) -> None:
    if answered:
        close(service, "A call was answered.")
    elif unavailable:
        end_trial_in_vain(service)


def end_trial_in_vain(service: Service) -> None:
    """What tried an open circuit has met the trouble: the next trial comes later. It was none unless one was due."""
    if is_trial_due(service):
        service.held_by = service.held_reason = ""  # the hold is over
        _cool_off(service, min(service.cool_off * 2, LONGEST_COOL_OFF))


def open_circuit(service: Service, reason: str) -> None:
    """Open a circuit, with the first trial after a cool-off."""
    soon = service.closed_at is not None and service.closed_at > _now(service) - CALM
    service.opened_at = _now(service)
    service.cohort = 0
    _cool_off(service, min(service.cool_off * 2, LONGEST_COOL_OFF) if soon else FIRST_COOL_OFF)
    record(service, CircuitEvent.Kind.OPENED, reason)


def _cool_off(service: Service, seconds: float) -> None:
    service.cool_off, service.trial_until = seconds, None
    jitter = random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 (no secret depends on it)
    service.retry_at = _now(service) + timedelta(seconds=seconds * jitter)


def close(service: Service, reason: str, *, on_probation: bool = False) -> None:
    """Close the circuit. `on_probation`, without an answer: one more vote that it is unavailable opens it."""
    suspects = service.suspects
    _forget_votes(service)
    if on_probation:
        service.since, service.failed, service.suspects = _now(service) - SPREAD, VOTES - 1, suspects
    service.opened_at = service.retry_at = service.trial_until = None
    service.held_by = service.held_reason = ""
    service.closed_at, service.cohort = _now(service), 0
    record(service, CircuitEvent.Kind.CLOSED, reason)


def _forget_votes(service: Service) -> None:
    service.since, service.failed, service.answered, service.suspects = None, 0, 0, []


# --- Trials -------------------------------------------------------------------------------------------


def is_trial_due(service: Service) -> bool:
    """Whether an open circuit may be tried. Without `retry_at` it is tried only when a person says so."""
    if service.retry_at is None:
        return False
    seconds = (service.retry_at - _now(service)).total_seconds()
    return is_over(seconds, held=bool(service.held_by))


def is_over(seconds: float, *, held: bool) -> bool:
    """Whether no time is left until a trial: `seconds` from now. Longer than any cool-off, the clock was set back."""
    return seconds <= 0 or (not held and seconds > 2 * LONGEST_COOL_OFF)


def was_released_to_try(service: Service) -> bool:
    """Whether a workflow was released to make the trial that is due."""
    assert service.retry_at is not None
    return service.released_at is not None and service.released_at >= service.retry_at


def is_open_for_long(service: Service) -> bool:
    return service.opened_at is not None and service.opened_at < _now(service) - STUBBORN


def is_stubborn(service: Service, *, using: str = DEFAULT_DB_ALIAS) -> bool:
    """Whether it has been open for so long that the few workflows that make its trials may be to blame.

    Workflows that failed at it are due within an hour, those that only need it later, released ones now.
    """
    if not is_open_for_long(service):
        return False
    now = _now(service)
    parked = Workflow.objects.using(using).filter(is_parked_on(service.name))
    failed = parked.filter(invisible_until__gt=now, invisible_until__lte=now + HOUR)
    return failed[: SUSPECTS + 1].count() <= SUSPECTS


def waits_for_trial(service: Service) -> bool:
    """Whether the circuit is open, and what is parked is not for workers whom that does not concern."""
    return service.opened_at is not None and not service.elsewhere


def take_trial(service: Service) -> bool:
    """Take the lease for a trial, if one is due and no other worker has it. True also if it is closed by now."""
    now = _now(service)
    if service.opened_at is None:
        return True
    if not is_trial_due(service) or (service.trial_until and now < service.trial_until <= now + TRIAL):
        return False
    service.trial_until = now + TRIAL
    return True


# --- By people ----------------------------------------------------------------------------------------


def hold(service: Service, *, until: datetime, by: str, reason: str) -> None:
    """Open the circuit, or keep it open, for workers of all releases: no workflow calls the service before `until`.

    Then it is tried.
    """
    service.opened_at = service.opened_at or _now(service)
    service.releases, service.elsewhere = [], False
    service.retry_at, service.trial_until, service.cohort = until, None, 0
    service.held_by, service.held_reason = by, reason
    record(service, CircuitEvent.Kind.HELD, f"Until {times.both(until, dated=True)}. {reason}", by)


def try_now(service: Service, *, by: str, reason: str) -> None:
    """End the cool-off, or the hold, of an open circuit: the next workflow may try it."""
    service.retry_at, service.trial_until = _now(service), None
    service.held_by = service.held_reason = ""
    record(service, CircuitEvent.Kind.TRIED, reason, by)


def record(service: Service, kind: CircuitEvent.Kind, reason: str, actor: str = "") -> None:
    """Add a line to the history of a circuit."""
    CircuitEvent.objects.using(service._state.db).create(service=service.name, kind=kind, reason=reason, actor=actor)


def _now(service: Any) -> datetime:
    now: datetime = service.now
    return now
