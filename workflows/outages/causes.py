"""CAUSES: many workflows fail at one step for a reason that nobody explains: as likely our mistake as theirs.

A cause is a type, a step, and the code or class of the failures there; its circuit is a brake. The patient's own
failures (a declined card) and outages of services are none. A credential that was rotated, a route that has changed, or
a release with a bug would fail everybody, one by one: instead, workflows are parked.

- closed -> suspected: an unexplained failure. It is a verdict still: the workflow fails.
- suspected -> open: in the last five minutes five workflows have failed, and no more have passed the step.
- open -> closed: a workflow that was released to try the step has passed it.

Each release has its own tally, and its own entry in `Service.releases` when the brake is on for it: workers of another
release go on, and if there are any, everything that is parked is left to them (`elsewhere`).
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple

from django.db.models import Exists, OuterRef, Q

from workflows.definition import Brake, WorkflowDefinition
from workflows.errors import StepError
from workflows.models import CircuitEvent, Service, WorkerProcess, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.models.service import LONGEST_NAME
from workflows.models.workflow import PARKED, is_parked_on
from workflows.outages import circuits
from workflows.outages.calls import unavailable_service
from workflows.wording import is_explained

logger = logging.getLogger(__name__)

# The code of the cause whose workflows each crashed a worker. No worker of the release tries it again by itself: a
# trial would cost another worker, and all that it has in hand.
CRASHED = "worker_crashed"

# After a brake was let go, for as long as its window, it is on again with this many workflows: the trial that passed
# may have been luck. One is not enough: a single odd payload among those that were parked would hold up all the others.
AGAIN = 2
LATELY = timedelta(minutes=5)
# A row for each code that any service has ever answered with would be many.
OLD = timedelta(days=1)
# Passes are counted by the minute.
MINUTE = 60
# Failures that a tally keeps, newest last; clients whose passes it tells apart.
MOST_FAILURES, MOST_CLIENTS = 50, 50
# A worker that has not been seen for this long takes up nothing: it is in a long step, or dead.
LIVE = timedelta(seconds=60)


class Failure(NamedTuple):
    """One unexplained failure: when (epoch seconds), whose, sent by which API client, and a hash of what was sent."""

    at: float
    workflow_id: int
    client: str
    payload: str


def name_of(workflow_type: str, step: str, code: str) -> str:
    """The name of a cause, by which workflows are parked on it."""
    return f"{workflow_type}/{step}: {code}"[:LONGEST_NAME]


def is_unexplained(definition: WorkflowDefinition, error: BaseException) -> bool:
    """Whether a failure is neither the patient's own, by a code with words, nor an outage's: it may be our mistake."""
    if unavailable_service(error):
        return False
    return not (isinstance(error, StepError) and is_explained(definition.wording, str(error.code)))


def failure_of(workflow: Workflow, *, now: datetime) -> Failure:
    digest = sha256(json.dumps(workflow.payload, sort_keys=True).encode()).hexdigest()[:16]
    return Failure(now.timestamp(), workflow.pk, workflow.submitted_by, digest)


# --- The rules, for the locked row of a cause ---------------------------------------------------------


def count_failure(row: Any, workflow: Workflow, *, release: str, limits: Brake) -> bool:
    """Count a failure of a worker of `release`. True: the brake is on for it, and the workflow is parked."""
    circuits.note_failure(row)
    if row.opened_at is not None and is_on_for(row, release):
        circuits.end_trial_in_vain(row)
        _put_off_trials(row)
        return True
    tally = _Tally(row, release, limits)
    tally.add_failure(failure_of(workflow, now=row.now))
    if row.opened_at is not None:
        # Others have met it: that this release has not, its first workflows show. One odd payload among many does not.
        on = tally.is_half()
    else:
        if row.since is None and not _was_on_lately(row, limits):
            row.judged = []
        row.since = row.since or row.now
        on = tally.is_enough(_needed(row, limits))
    if not on:
        return False
    row.releases = sorted({*row.releases, release})
    if row.opened_at is None:
        reason = f"{tally.told()} at this step{f' in release {release}' if release else ''}."
        circuits.open_circuit(row, reason)
        _put_off_trials(row)
        logger.error("the brake is on for %s: %s Such workflows are parked from now on", row.name, reason)
    return True


def count_passes(row: Any, by_client: Mapping[str, int], *, release: str, limits: Brake, tried: bool) -> None:
    """Count what has passed the step. `tried`: among these a workflow that was released to try it."""
    if row.opened_at is not None and is_on_for(row, release):
        if tried and circuits.is_trial_due(row):
            row.releases = [each for each in row.releases if each != release]
            if not row.releases:
                let_go(row, "A workflow has passed the step.")
        return
    tally = _Tally(row, release, limits)
    tally.add_passes(by_client)
    if row.opened_at is None and not any(each["failures"] for each in row.tallies.values()):
        row.since, row.judged = None, []


def is_on_for(row: Service, release: str) -> bool:
    """Whether the open circuit of a cause holds for workers of `release`. Held by a person, it may hold for all."""
    return not row.releases or release in row.releases


def let_go(row: Service, reason: str, *, on_probation: bool = False) -> None:
    """Let the brake go: what is parked is released. `on_probation`, nothing has passed: the next failure is enough."""
    circuits.close(row, reason, on_probation=on_probation)
    row.since, row.failed = None, 1 if on_probation else AGAIN
    row.tallies, row.releases, row.elsewhere = {}, [], False
    _forget_what_is_let_fail(row)
    logger.warning("the brake is off for %s: %s", row.name, reason)


# --- By people ----------------------------------------------------------------------------------------


def ask_to_let_fail(row: Any, *, by: str, reason: str) -> None:
    """Another person has to say so, too."""
    row.asked_at, row.asked_by, row.asked_reason = row.now, by, reason
    circuits.record(row, CircuitEvent.Kind.ASKED, reason, by)


def let_fail(row: Any, *, by: str, reason: str) -> None:
    """Let everything fail that is parked by now: it is released, and fails before its next step."""
    row.let_fail_until, row.let_fail_by, row.let_fail_reason = row.now, by, reason
    row.asked_at, row.asked_by, row.asked_reason = None, "", ""
    circuits.record(row, CircuitEvent.Kind.LET_FAIL, reason, by)


def is_let_fail(row: Service) -> bool:
    """Whether something parked is still to be let fail; forgotten once nothing is."""
    if row.let_fail_until is None:
        return False
    if Workflow.objects.filter(is_parked_on(row.name), parked_at__lte=row.let_fail_until, compensating=False).exists():
        return True
    _forget_what_is_let_fail(row)
    return False


def _forget_what_is_let_fail(row: Service) -> None:
    row.let_fail_until = row.asked_at = None
    row.let_fail_by = row.let_fail_reason = row.asked_by = row.asked_reason = ""


# --- What the workers see of each other ---------------------------------------------------------------


def look_around(row: Service) -> None:
    """See whether live workers are of a release that has not met the cause, or none is left that has."""
    if row.opened_at is None or not row.releases:
        row.elsewhere = False
        return
    now: datetime = row.now  # type: ignore[attr-defined]  # annotated
    live = WorkerProcess.objects.filter(stopped_at=None, last_seen__gt=now - LIVE)
    met = Q(release__in=row.releases)
    parked = Workflow.objects.filter(is_parked_on(row.name)).order_by("invisible_until", "id")
    queue = parked.values_list("queue", flat=True).first()
    if queue is None:
        if live.exists() and not live.filter(met).exists():
            let_go(row, f"No worker of release {', '.join(row.releases)} is left.")
        return
    row.elsewhere = live.filter(~met, queue=queue, only="").exists()


def _put_off_trials(row: Any) -> None:
    if row.code == CRASHED and not row.held_by:
        row.retry_at = None


def was_let_go_lately(row: Any) -> bool:
    """Whether the brake came on soon after something had passed: then the few that fail may be to blame themselves."""
    return row.closed_at is not None and row.opened_at is not None and row.closed_at > row.opened_at - LATELY


def forget_old() -> int:
    """Delete the causes that nobody has met for a day, and that nothing waits for; how many."""
    old = Service.objects.exclude(step="").filter(opened_at=None, failed_at__lt=ClockTimestamp() - OLD)
    return old.exclude(Exists(Workflow.objects.filter(PARKED, parked_on=OuterRef("name")))).delete()[0]


def _needed(row: Any, limits: Brake) -> int:
    again = row.failed if _was_on_lately(row, limits) else 0
    return min(again, limits.failures) if again else limits.failures


def _was_on_lately(row: Any, limits: Brake) -> bool:
    return row.closed_at is not None and row.closed_at > row.now - limits.within


class _Tally:
    """What workers of one release have met within the window: its failures, and the passes of each client."""

    def __init__(self, row: Any, release: str, limits: Brake) -> None:
        now = row.now.timestamp()
        since = now - limits.within.total_seconds()
        kept = {name: _recent(tally, since, now) for name, tally in row.tallies.items()}
        row.tallies = {name: tally for name, tally in kept.items() if tally["failures"] or name == release}
        self._minute = str(int(now // MINUTE))
        self._tally = row.tallies.setdefault(release, {"failures": [], "passes": {}})
        self._limits = limits

    @property
    def _failures(self) -> list[Failure]:
        return [Failure(*each) for each in self._tally["failures"]]

    def add_failure(self, failure: Failure) -> None:
        others = [each for each in self._failures if each.workflow_id != failure.workflow_id]
        self._tally["failures"] = [*others, failure][-MOST_FAILURES:]

    def add_passes(self, by_client: Mapping[str, int]) -> None:
        passes = self._tally["passes"]
        for client, number in by_client.items():
            minutes = passes.setdefault(client if client in passes or len(passes) < MOST_CLIENTS else "", {})
            minutes[self._minute] = minutes.get(self._minute, 0) + number

    def is_enough(self, needed: int) -> bool:
        """Whether so many workflows have failed, and half of all that came by; of one client's, not while others pass.

        While anything passes, one payload counts once, however often it is sent.
        """
        failed, passed = self._failed(), self._passed()
        if failed.total() < needed or not self._is_half_of(failed, passed):
            return False
        ((worst, _),) = failed.most_common(1)
        failed.pop(worst), passed.pop(worst, 0)
        return not passed.total() or self._is_half_of(failed, passed)

    def is_half(self) -> bool:
        return self._is_half_of(self._failed(), self._passed())

    def told(self) -> str:
        failed, passed = self._failed().total(), self._passed().total()
        return f"{failed} of {failed + passed} workflows have failed"

    def _is_half_of(self, failed: Counter[str], passed: Counter[str]) -> bool:
        return failed.total() >= self._limits.share * (failed.total() + passed.total())

    def _failed(self) -> Counter[str]:
        """How many have failed, by client."""
        each = self._failures
        if self._passed():
            each = list({failure.payload: failure for failure in each}.values())
        return Counter(failure.client for failure in each)

    def _passed(self) -> Counter[str]:
        return Counter({client: sum(minutes.values()) for client, minutes in self._tally["passes"].items()})


def _recent(tally: dict[str, Any], since: float, now: float) -> dict[str, Any]:
    """What of a tally is neither too old nor, as the clock was set back, of a time to come."""
    lately = range(int(since // MINUTE), int(now // MINUTE) + 1)
    passes = {
        client: {minute: number for minute, number in minutes.items() if int(minute) in lately}
        for client, minutes in tally["passes"].items()
    }
    return {
        "failures": [each for each in tally["failures"] if since < each[0] <= now],
        "passes": {client: minutes for client, minutes in passes.items() if minutes},
    }
