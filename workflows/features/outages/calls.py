"""CALLS: where the client of a service reports the result of each of its calls.

The client wraps each call, and says whether the service was *unavailable* (cannot be reached, no answer in time, an
answer that says "not now" or "I am broken") or has *answered* (a refusal is an answer, too):

    with call_to("letters") as call:
        try:
            return post_letter(...)
        except (ConnectionError, TimeoutError) as error:
            call.unavailable()
            raise RetryableStepError("The letters service cannot be reached.") from error

An error that leaves the block of an unavailable call carries the service's name, also when the step raises another one
from it: `errors.unavailable_service`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import get_ident
from time import monotonic, sleep
from typing import Any, NamedTuple

from workflows import effects, trace_context
from workflows.errors import ClaimLost, ServiceBusy, ServiceUnavailable, UnknownOutcome, mark_unavailable
from workflows.features.outages import circuits, outside, places
from workflows.models import Workflow
from workflows.state import attempt_log
from workflows.state.attempt_log import Made, OpenAttempt
from workflows.timeouts import StepTimeout, held_off

# Seconds between two votes of a worker about a service.
VOTE_EVERY = 1.0
# A trial's outcome is not dropped because the row is locked for milliseconds: an unknown trial looks like one that made
# no call, and closes the circuit.
TRIES, TRY_EVERY = 10, 0.02

LONGEST_NAME = 100

# Seconds for which a worker that has found no place at a service does not wait for one again.
FULL_FOR = 1.0


class Call:
    """One call to a service. It counts as answered when its block ends without an error, unless the client says
    otherwise. Whoever sends it sends its `trace_headers`: what the service does is then in the workflow's trace.

    An error that ends the block says nothing by itself: an answer that cannot be read is neither. Only a step that ran
    out of time in it met the service unavailable.
    """

    def __init__(self) -> None:
        self.met_unavailable: bool | None = None
        self.span_id = 0
        # The header `traceparent`, to be sent with the call. Empty where nothing is traced.
        self.trace_headers: Mapping[str, str] = {}

    def unavailable(self) -> None:
        """The service cannot be reached, did not answer in time, or says that it cannot do it now."""
        self.met_unavailable = True

    def answered(self) -> None:
        """The service has answered; a refusal is an answer."""
        self.met_unavailable = False


@contextmanager
def call_to(service: str) -> Iterator[Call]:
    """Wrap one call to a service, by its name: see the module.

    Raises ServiceUnavailable, before the block is entered, while the service's circuit is open: nothing was sent.
    Raises UnknownOutcome instead if the same `once` step has made a call before. Raises ServiceBusy while the service
    has as many calls as its cap lets.
    """
    ensure_name(service)
    outside.require_allowed(service)
    worker = _worker()
    if worker:
        worker.require_callable(service)
    place = worker.take_place(service) if worker else 0
    call = Call()
    if worker and (trace := worker.attempt.trace):
        call.span_id = trace_context.new_span_id()
        call.trace_headers = {trace_context.HEADER: trace.traceparent(call.span_id)}
    began = monotonic()
    try:
        if play := played.get(service):
            play(call)
        yield call
    except BaseException as error:
        if isinstance(error, StepTimeout):
            call.unavailable()
        if call.met_unavailable:
            mark_unavailable(error, service)
        raise
    else:
        call.met_unavailable = bool(call.met_unavailable)
    finally:
        if worker and place:
            worker.leave_place(service, place)
        if worker:
            worker.attempt.made.append(Made(service, began, monotonic(), bool(call.met_unavailable), call.span_id))
        if worker and call.met_unavailable is not None:
            worker.note(service, unavailable=call.met_unavailable)


def ensure_name(service: str) -> None:
    """Raise ValueError for a name that no row can hold: its votes would lose the claim, again and again."""
    if not 0 < len(service) <= LONGEST_NAME or "\0" in service:
        raise ValueError(f"The name of a service has 1 to {LONGEST_NAME} characters, and no NUL.")


# --- What a worker knows, and has met -------------------------------------------------------------------


class Known(NamedTuple):
    """A circuit that is not closed, as the claim has read it; by this process's clock, a trial is due at `trial_at`."""

    open: bool
    trial_at: float


class Met(NamedTuple):
    """How many calls to a service met it unavailable, how many were answered, and which workflow's met it last."""

    unavailable: int = 0
    answered: int = 0
    suspect: int = 0

    def plus(self, later: Met) -> Met:
        suspect = later.suspect or self.suspect
        return Met(self.unavailable + later.unavailable, self.answered + later.answered, suspect)


@dataclass(slots=True, eq=False)
class WorkersCalls:
    """The calls of one worker: what it knows of the circuits as of its claim, and what the calls of a step have met."""

    known: dict[str, Known] = field(default_factory=dict)
    met: dict[str, Met] = field(default_factory=dict)  # by the calls of one step
    unvoted: dict[str, Met] = field(default_factory=dict)  # by those of the steps since the last vote
    voted_at: dict[str, float] = field(default_factory=dict)
    trying: set[str] = field(default_factory=set)  # the services of which it has the lease for a trial
    caps: Mapping[str, int] = field(default_factory=dict)  # of each service that has one
    full_until: dict[str, float] = field(default_factory=dict)  # a call waits for no place of these services
    taken: list[tuple[str, int]] = field(default_factory=list)  # the places of the calls that are under way
    workflow: Workflow | None = None
    attempt: OpenAttempt = field(init=False)
    thread: int = 0

    def begin(self, workflow: Workflow, not_closed: list[Any] | None, attempt: OpenAttempt) -> None:
        """Until `end`, let the calls of steps find what the claim has read of the circuits (`circuits.NOT_CLOSED`)."""
        self.workflow, self.attempt, self.thread = workflow, attempt, get_ident()
        if self.met or self.trying:  # of an attempt that was lost
            self.met.clear()
            self.trying.clear()
        if not_closed or self.known or self.unvoted:  # rarely
            self._learn(not_closed or [])
        _at_work.append(self)

    def _learn(self, not_closed: list[Any]) -> None:
        self.known = {
            name: Known(is_open, monotonic() if circuits.is_over(seconds or 0.0, held=held) else monotonic() + seconds)
            for name, is_open, seconds, held in not_closed
        }
        suspected = {name for name, circuit in self.known.items() if not circuit.open}
        self.unvoted = {name: met for name, met in self.unvoted.items() if name in suspected}

    def end(self) -> None:
        if self in _at_work:
            _at_work.remove(self)
        for service, place in list(self.taken):  # a timer ended the step between the place and its call
            self.leave_place(service, place)

    def is_open(self, service: str) -> bool:
        return service in self.known and self.known[service].open

    def require_callable(self, service: str) -> None:
        """Raise ServiceUnavailable while the circuit is open, unless this call may try it."""
        assert self.workflow is not None
        in_use = effects.keys_in_use.get(self.workflow.pk)
        if self.is_open(service) and not self._may_try(service):
            refused = unavailable(service)
            if in_use and in_use.called:
                message = f"The {service} service is unavailable, after another call of the same step."
                raise UnknownOutcome(message, code=refused.code) from refused
            raise refused

    def take_place(self, service: str) -> int:
        """The number of the place that the call takes; 0 of a service without a cap. Raises ServiceBusy if it has none.

        After another call of the same `once` step it goes on without one: else that call would be in doubt. So does a
        call of a thread that a step has started, because the attempt log is the worker's own.
        """
        assert self.workflow is not None
        in_use, place = effects.keys_in_use.get(self.workflow.pk), 0
        if service in self.caps and get_ident() == self.thread:
            with held_off():
                place = places.take(
                    service, self.caps[service], patient=monotonic() > self.full_until.get(service, 0.0)
                )
                if place:
                    self.taken.append((service, place))
            if not place:
                self.full_until[service] = monotonic() + FULL_FOR
            if not place and not (in_use and in_use.called):
                error = ServiceBusy(f"The {service} service has as many calls as it may have.", code=ServiceBusy.CODE)
                mark_unavailable(error, service)
                raise error
        if in_use:
            in_use.called = True
        return place

    def leave_place(self, service: str, place: int) -> None:
        """If the attempt log is lost, so is the place; and the attempt finds that out."""
        with held_off(), suppress(ClaimLost):
            self.taken.remove((service, place))
            places.leave(service, place)

    def _may_try(self, service: str) -> bool:
        """Whether this call is the trial: a released workflow may make all its calls, else one worker at a time."""
        if monotonic() < self.known[service].trial_at:
            return False
        if self._was_parked_on(service) or service in self.trying:
            return True
        return self._take_trial(service)

    def require_available(self, services: Sequence[str]) -> None:
        """Raise ServiceUnavailable if one of the services that a step needs has an open circuit. None is called."""
        for service in services:
            if self.is_open(service) and not self._may_try_in_earnest(service):
                error = unavailable(service)
                error.needed = True
                raise error

    def _may_try_in_earnest(self, service: str) -> bool:
        """Whether a step that needs the service may start, to try it: alone, and long after the circuit opened."""
        is_due = self._was_parked_on(service) and monotonic() >= self.known[service].trial_at
        return is_due and self._take_trial(service, in_earnest=True)

    def _was_parked_on(self, service: str) -> bool:
        """Whether the workflow was released to call it."""
        return self.workflow is not None and self.workflow.parked_on == service

    def _take_trial(self, service: str, *, in_earnest: bool = False) -> bool:
        """Take the lease for a trial, if one is due; `in_earnest`, only of a stubborn circuit."""
        if get_ident() != self.thread:  # the attempt log is the worker's own
            return False
        with held_off(), attempt_log.errors_lose_the_claim(), circuits.locked(service, using=attempt_log.ALIAS) as row:
            if row is None or (in_earnest and not circuits.is_stubborn(row, using=attempt_log.ALIAS)):
                return False
            taken = circuits.take_trial(row)
        if taken:
            self.trying.add(service)
        return taken

    def note(self, service: str, *, unavailable: bool) -> None:
        """Remember what a call met, for the next vote. Answers count only while there is something to decide."""
        if unavailable or service in self.known:
            assert self.workflow is not None
            met = Met(unavailable=1, suspect=self.workflow.pk) if unavailable else Met(answered=1)
            self.met[service] = self.met.get(service, Met()).plus(met)

    def vote(self) -> None:
        """Write what the calls of a step have met: once a second at most, but the outcome of a trial always.

        The next vote stands for all calls since the last one. Where only the last calls of each second are too many for
        the service, a worker that voted about one call alone would vote about one of these each time.

        A released workflow also reports each call that met the service unavailable: the release goes by that. Written
        on the attempt log, to outlive the attempt. Raises ClaimLost when the attempt log fails.
        """
        for service, met in list(self.met.items()):  # a step may have left a thread that goes on calling
            self.unvoted[service] = self.unvoted.get(service, Met()).plus(met)
            if monotonic() < self.voted_at.get(service, float("-inf")) + VOTE_EVERY and not self.is_open(service):
                if met.unavailable and self._was_parked_on(service):
                    self._tell_the_release(service)
                continue
            for _ in range(TRIES if self.is_open(service) else 1):
                if self._write(service, met):
                    break
                sleep(TRY_EVERY)
        self.met.clear()

    def _write(self, service: str, met: Met) -> bool:
        """Vote about one service. False when its row is locked: another worker votes, or releases, just now."""
        with attempt_log.errors_lose_the_claim(), circuits.locked(service, using=attempt_log.ALIAS) as row:
            if row is None:
                return False
            answered = met.answered > 0
            if row.opened_at is None:  # else it is the outcome of a trial
                met = self.unvoted[service]
                answered = met.unavailable < circuits.TO_ONE_ANSWER * met.answered
            circuits.vote(row, unavailable=met.unavailable > 0, answered=answered, workflow_id=met.suspect)
        self.voted_at[service] = monotonic()
        self.unvoted.pop(service)
        # The next call of this attempt goes by what the circuit is now.
        self.known[service] = Known(row.opened_at is not None, _trial_at(row))
        self.trying.discard(service)
        return True

    def _tell_the_release(self, service: str) -> None:
        with attempt_log.errors_lose_the_claim(), circuits.locked(service, using=attempt_log.ALIAS) as row:
            if row:
                circuits.note_failure(row)


def unavailable(service: str) -> ServiceUnavailable:
    """The error of a call that is not made."""
    error = ServiceUnavailable(
        f"The {service} service is unavailable, and is not called.", code=ServiceUnavailable.CODE
    )
    mark_unavailable(error, service)
    return error


def _trial_at(row: Any) -> float:
    if row.opened_at is None or circuits.is_trial_due(row):
        return monotonic()
    return monotonic() + float((row.retry_at - row.now).total_seconds())


# What a test plays in place of a service, before the block is entered: see `workflows.testing`.
played: dict[str, Callable[[Call], None]] = {}

# A worker's process has one worker. A test may have several, each in a thread of its own.
_at_work: list[WorkersCalls] = []


def _worker() -> WorkersCalls | None:
    """The worker whose step calls just now, perhaps in a thread of the step's; None outside a worker."""
    in_this_thread = [each for each in _at_work if each.thread == get_ident()]
    return next(iter(in_this_thread or (_at_work if len(_at_work) == 1 else [])), None)
