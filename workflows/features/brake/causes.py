"""CAUSES: many workflows fail at one step for a reason that nobody explains: as likely our mistake as theirs.

A cause is a type, a step, and the code or class of the failures there; its circuit is a brake. The patient's own
failures (a declined card) and outages of services are none. A credential that was rotated, a route that has changed, or
a release with a bug would fail everybody, one by one: instead, workflows are parked.

- closed -> suspected: an unexplained failure. It is a verdict still: the workflow fails.
- suspected -> open: in the last five minutes five workflows have failed, and half of the last twenty.
- open -> closed: a workflow that was released to try the step has passed it.

Each release has its own tally, and its own entry in `Service.releases` when the brake is on for it: workers of another
release go on, and if there are any, everything that is parked is left to them (`elsewhere`).
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple

from django.db import connections
from django.db.models import Exists, OuterRef, Q

from workflows.definition import Brake, WorkflowDefinition, definitions
from workflows.errors import StepError, unavailable_service
from workflows.features.outages import circuits
from workflows.models import CircuitEvent, Service, WorkerProcess, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.models.service import FIRST_COOL_OFF
from workflows.models.workflow import PARKED, is_parked_on
from workflows.sealing import payloads
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
# The share is that of so many outcomes, the last ones.
LAST = 20
# Clients that a tally tells apart, and failures that `judged` keeps.
MOST_CLIENTS, MOST_FAILURES = 50, 50
# A service that answers each workflow with a code of its own makes a cause of each; every pass is counted for all.
MOST_SUSPECTED = 20
# A worker that has not been seen for this long takes up nothing: it is in a long step, or dead.
LIVE = timedelta(seconds=60)


# The causes that are not closed, as JSON for `WorkersBrake.of`: as `circuits.NOT_CLOSED`, and where it is, for which
# releases, and what is let fail, which goes on when it is closed. The claim reads it.
NOT_CLOSED = """
    SELECT json_agg(json_build_array(
               name, opened_at IS NOT NULL, extract(epoch FROM retry_at - clock_timestamp()), held_by <> '',
               workflow_type, step, code, releases, let_fail_until, let_fail_by, let_fail_reason))
      FROM workflows_service
     WHERE step <> '' AND (opened_at IS NOT NULL OR let_fail_until IS NOT NULL
        OR since IS NOT NULL AND failed_at > clock_timestamp() - interval '1 hour')"""

# What is parked on a cause that this release has met, and others live that have not: else it would be taken up, and
# parked again, in turns with them.
LEFT_TO_OTHERS = """
    parked_on <> ''
    AND parked_on = ANY (ARRAY(SELECT name FROM workflows_service WHERE elsewhere AND %(release)s = ANY (releases)))"""


class Outcome(NamedTuple):
    """Workflows that have passed the step, or one that has failed there: when (epoch seconds), and which client's.

    Of a failure: the workflow, and a hash of what was sent.
    """

    at: float
    client: str
    passes: int
    workflow_id: int
    payload: str


class Counted(NamedTuple):
    failed: int
    passed: int


def is_unexplained(definition: WorkflowDefinition, error: BaseException) -> bool:
    """Whether a failure is neither the patient's own, by a code with words, nor an outage's: it may be our mistake."""
    if unavailable_service(error):
        return False
    return not (isinstance(error, StepError) and is_explained(definition.wording, str(error.code)))


# --- The rules, for the locked row of a cause ---------------------------------------------------------


def count_failure(row: Any, workflow: Workflow, *, release: str, limits: Brake) -> bool:
    """Count a failure of a worker of `release`. True: the brake is on for it, and the workflow is parked."""
    circuits.note_failure(row)
    if row.opened_at is not None and is_on_for(row, release):
        circuits.end_trial_in_vain(row)
        _put_off_trials(row)
        return True
    tally = _Tally(row, release, limits)
    tally.add_failure(workflow)
    if row.opened_at is not None:
        # Others have met it: that this release has not, its first workflows show. One odd payload among many does not.
        on = tally.is_half()
    else:
        if row.since is None:
            _forget_others(row)
            row.since, row.judged = row.now, row.judged if _was_on_lately(row, limits) else []
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
                # Another client's odd ones do not turn it on again.
                _Tally(row, release, limits).add_passes(dict.fromkeys(by_client, 1))
        return
    tally = _Tally(row, release, limits)
    tally.add_passes(by_client)
    if row.since and row.opened_at is None and row.failed_at < row.now - limits.within:
        row.since, row.judged, row.tallies = None, [], {}


def is_on_for(row: Service, release: str) -> bool:
    """Whether the open circuit of a cause holds for workers of `release`. Held by a person, it may hold for all."""
    return not row.releases or release in row.releases


def let_go(row: Service, reason: str, *, on_probation: bool = False) -> None:
    """Let the brake go: what is parked is released. `on_probation`, nothing has passed: the next failure is enough.

    What people let fail still fails, or they would have told a patient what is not so.
    """
    circuits.close(row, reason, on_probation=on_probation)
    row.since, row.failed = None, 1 if on_probation else AGAIN
    row.tallies, row.releases, row.elsewhere = {}, [], False
    _forget_who_asked(row)
    logger.warning("the brake is off for %s: %s", row.name, reason)


# --- By people ----------------------------------------------------------------------------------------


def ask_to_let_fail(row: Any, *, by: str, reason: str) -> None:
    """Another person has to say so, too."""
    row.asked_at, row.asked_by, row.asked_reason = row.now, by, reason
    circuits.record(row, CircuitEvent.Kind.ASKED, reason, by)


def let_fail(row: Any, *, by: str, reason: str) -> None:
    """Let everything fail that is parked by now: it is released, and fails before its next step."""
    row.let_fail_until, row.let_fail_by, row.let_fail_reason = row.now, by, reason
    _forget_who_asked(row)
    circuits.record(row, CircuitEvent.Kind.LET_FAIL, reason, by)


def is_let_fail(row: Service) -> bool:
    """Whether something parked is still to be let fail; forgotten once nothing is."""
    if row.let_fail_until is None:
        return False
    if Workflow.objects.filter(is_parked_on(row.name), parked_at__lte=row.let_fail_until).exists():
        return True
    row.let_fail_until, row.let_fail_by, row.let_fail_reason = None, "", ""
    _forget_who_asked(row)
    return False


def _forget_who_asked(row: Service) -> None:
    row.asked_at, row.asked_by, row.asked_reason = None, "", ""


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
        else:
            row.elsewhere = live.filter(~met, only="").exists()
        return
    row.elsewhere = live.filter(~met, queue=queue, only="").exists()


def _put_off_trials(row: Any) -> None:
    if row.code == CRASHED and not row.held_by:
        row.retry_at = None


def in_earnest_every(row: Any) -> int:
    """One of so many trials is made by a workflow that has not met the cause; 0 is none.

    The second one is: a few odd ones that came at once may have turned the brake on, while nothing else came by. And
    every other one if the brake was let go lately: then, too, the few that fail may be to blame themselves.
    """
    if row.cool_off == 2 * FIRST_COOL_OFF:
        return 1
    let_go_lately = row.closed_at is not None and row.closed_at > row.opened_at - LATELY
    return 2 if let_go_lately else 0


def only_client(row: Any) -> str | None:
    """The API client whose workflows have met the cause, if all of them are one client's: it may be to blame."""
    outcomes = [Outcome._make(each) for tally in row.tallies.values() for each in tally]
    clients = {each.client for each in outcomes if not each.passes}
    return clients.pop() if len(clients) == 1 else None


def forget_old() -> int:
    """Delete the causes that nobody has met for a day, and that nothing waits for; how many."""
    old = Service.objects.exclude(step="").filter(opened_at=None, failed_at__lt=ClockTimestamp() - OLD)
    return old.exclude(Exists(Workflow.objects.filter(PARKED, parked_on=OuterRef("name")))).delete()[0]


def _forget_others(row: Any) -> None:
    """Before a cause is suspected: of the others, all but those that failed last are so no more; their tallies stay."""
    with connections[row._state.db].cursor() as cursor:
        cursor.execute(
            """UPDATE workflows_service SET since = NULL WHERE name IN (
                   SELECT name FROM workflows_service
                    WHERE step <> '' AND since IS NOT NULL AND opened_at IS NULL
                    ORDER BY failed_at DESC OFFSET %s FOR NO KEY UPDATE SKIP LOCKED)""",
            [MOST_SUSPECTED - 1],
        )


def _needed(row: Any, limits: Brake) -> int:
    again = row.failed if _was_on_lately(row, limits) else 0
    return min(again, limits.failures) if again else limits.failures


def _was_on_lately(row: Any, limits: Brake) -> bool:
    return row.closed_at is not None and row.closed_at > row.now - limits.within


class _Tally:
    """The last outcomes of the step for workers of one release, oldest first: passes by the batch, and failures.

    Of each client it keeps as many as decide. The share is that of the last ones: what has passed all the day says
    nothing about a credential that was rotated a moment ago.
    """

    def __init__(self, row: Any, release: str, limits: Brake) -> None:
        self._row, self._release = row, release
        self._at = row.now.timestamp()
        self._limits = limits
        self._last = max(LAST, int(limits.failures / limits.share))
        since = self._at - limits.within.total_seconds()
        self._outcomes = [
            each for each in map(Outcome._make, row.tallies.get(release, ())) if since < each.at <= self._at
        ]

    def add_failure(self, workflow: Workflow) -> None:
        definition = definitions().get(workflow.workflow_type)
        sent = payloads.without_secrets(definition, workflow.payload) if definition else workflow.payload
        digest = sha256(json.dumps(sent, sort_keys=True).encode()).hexdigest()[:16]
        self._outcomes = [each for each in self._outcomes if each.workflow_id != workflow.pk]
        self._add(Outcome(self._at, workflow.submitted_by, 0, workflow.pk, digest))

    def add_passes(self, by_client: Mapping[str, int]) -> None:
        for client, number in by_client.items():
            self._add(Outcome(self._at, client, number, 0, ""))

    def is_enough(self, needed: int) -> bool:
        """Whether so many workflows have failed, and half of the last that came by; of one client's, not while others
        pass.
        """
        failures = [each for each in self._outcomes if not each.passes]
        if self._counted(self._outcomes).failed < needed or not self.is_half():
            return False
        ((worst, _),) = Counter(each.client for each in failures).most_common(1)
        return self._is_half_of([each for each in self._outcomes if each.client != worst])

    def is_half(self) -> bool:
        return self._is_half_of(self._outcomes)

    def told(self) -> str:
        failed, passed = self._counted(self._outcomes)
        return f"{failed} of the last {failed + passed} workflows have failed"

    def _is_half_of(self, outcomes: Sequence[Outcome]) -> bool:
        failed, passed = self._counted(outcomes)
        return failed >= self._limits.share * (failed + passed)

    def _counted(self, outcomes: Sequence[Outcome]) -> Counted:
        """How many of the last ones failed, and passed. While anything passes, one payload counts once."""
        failures: set[Any] = set()
        passed, any_passes = 0, any(each.passes for each in outcomes)
        for each in reversed(outcomes):
            if len(failures) + passed >= self._last:
                break
            if each.passes:
                passed = min(passed + each.passes, self._last - len(failures))
            else:
                failures.add(each.payload if any_passes else each.workflow_id)
        return Counted(len(failures), passed)

    def _add(self, outcome: Outcome) -> None:
        """Of each client the last ones stay; of one payload as many, beside all others."""
        seen: Counter[str] = Counter()
        payloads: Counter[str] = Counter()
        kept = []
        for each in reversed([*self._outcomes, outcome]):
            if seen[each.client] < self._last and payloads[each.payload] < self._last and len(seen) <= MOST_CLIENTS:
                kept.append(each)
            seen[each.client] += each.passes or not payloads[each.payload]
            payloads[each.payload] += not each.passes
        self._outcomes = kept[::-1]
        self._row.tallies = {**self._row.tallies, self._release: self._outcomes}
