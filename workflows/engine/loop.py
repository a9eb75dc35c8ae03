"""THE LOOP of a worker: claim the next due workflow, run it, decide it, do maintenance, and start again.

One workflow at a time, on two connections: the claim (`default`) holds the row's lock in a transaction until the
outcome is committed, the attempt log writes what must outlive it. The lock is the lease: a worker that dies closes its
connection, and the row is due again at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep
from typing import Any

from django.conf import settings
from django.db import connections, transaction
from django.db.models.functions import Now

from workflows import failpoints
from workflows.definition import TIMEOUT, WorkflowDefinition, definitions
from workflows.effects import reconcile
from workflows.engine import (
    compensation,
    deferred_steps,
    executor,
    maintenance,
    poison,
    process_status,
    sessions,
    unknown_types,
)
from workflows.engine.backoff import Delay
from workflows.engine.claim import Claim, DueWorkflows
from workflows.engine.commit import verified_transaction
from workflows.engine.executor import Complete
from workflows.engine.heartbeat import Heartbeat
from workflows.engine.listening import Listener
from workflows.engine.outcome import Decidable, decide
from workflows.engine.poison import Rescheduled
from workflows.engine.process_status import NEVER, PublishedStatus, Slot
from workflows.engine.worker_boundary import WorkersBoundary
from workflows.errors import ClaimLost, WorkflowCancelled, WorkflowExpired
from workflows.models import Event, Workflow
from workflows.outages.calls import WorkersCalls
from workflows.postgres import migrating, sqlstates
from workflows.redaction import frames
from workflows.signals import store, waking
from workflows.state import attempt_log, history, transitions
from workflows.state.attempt_log import OpenAttempt
from workflows.stop_flag import Flag

logger = logging.getLogger(__name__)

# Seconds between attempts to reach a lost database, doubling.
LOST_DELAY, MAX_LOST_DELAY = 0.1, 5.0
# The longest of these while the worker stops and has a result to write: its grace may be over before the next attempt.
MAX_LAST_DELAY = 1.0
MAINTENANCE_EVERY = LOOK_EVERY = 1.0
# A database that is restored, or fails over, under a worker may lack the rows of this release's maintenance.
MAINTENANCE_KNOWN_EVERY = 60.0
DEFERRED_STEP_EVERY = 10  # turns
# Seconds for all the on_commit hooks of an attempt: as long as a step that states no time of its own.
HOOKS_TIMEOUT = TIMEOUT


class Worker:
    """Works through the due workflows of one queue, in this process, one at a time.

    Its `name` (host:process) is written on each attempt. `stopping` ends the loop after the workflow in hand; when
    `must_stop`, called before each step, returns True, the worker gives that workflow back, too. In `slot` the
    supervisor sees what the worker is doing. With `only` "compensation" it takes no other workflows.
    """

    def __init__(
        self,
        *,
        queue: str = "default",
        only: str = "",
        name: str,
        stopping: Flag,
        must_stop: Callable[[], bool] = lambda: False,
        slot: Slot | None = None,
    ) -> None:
        self.queue = queue
        self._due, self._only = DueWorkflows(queue, only=only), only
        self._turns = 0
        self.name = name
        self.stopping = stopping
        self.must_stop = must_stop
        self.status = PublishedStatus(slot or process_status.allocate(1)[0])
        self._heartbeat = Heartbeat(name, queue, only=only)
        self._listener = Listener("" if only else queue, stopping)
        self._calls = WorkersCalls()
        self._boundary = WorkersBoundary(self.status, self._calls, self._beat, must_stop)
        self._attempt: OpenAttempt | None = None
        self._why_unrecorded = ""  # how that was lost
        self._maintenance_at = self._known_at = self._deferred_steps_at = self._looked_at = float("-inf")
        self._starts = True  # until the rows that waited for this release are due
        self._held_up = False  # by a migration

    def run(self, *, drain: bool = False) -> None:
        """Process workflows until `stopping` is set; with `drain`, until none is due. Raises `UnfitSessions`."""
        self._work(drain=drain)
        self._write_what_is_left()

    def _work(self, *, drain: bool) -> None:
        lost = Delay(LOST_DELAY, MAX_LOST_DELAY)
        while not self.stopping.is_set():
            try:
                sessions.ensure_fit()
                held_up = self._is_held_up()
                if self._starts:
                    self._make_due_for_this_release()
                busy = not held_up and self._take_up(thorough=drain)
                self.run_maintenance()
                self._beat()
                if busy:
                    self._listener.end()
                elif drain and not held_up:
                    return
                else:
                    self.status.update(heard_at=monotonic(), trouble="")
                    self._listener.rest(live_workers=self._heartbeat.live_workers)
            except (ClaimLost, *sqlstates.DATABASE_ERRORS) as error:
                how = sqlstates.loggable(error)
                trouble = f"{how}, at {sqlstates.host_port(attempt_log.ALIAS)}"
                self.status.update(lost=True, deadline=NEVER, trouble=trouble)
                logger.warning("lost the database, nothing is decided: %s", trouble)
                if sqlstates.is_statement_error(error):
                    logger.error("it refused a statement of the engine's own:\n%s", frames(error))
                self.stopping.wait(lost.next())
                self._close_lost_attempt(how=how.removeprefix("ClaimLost: "))
            except sessions.UnfitSessions:
                raise
            except Exception as error:
                # The engine's own error, and not a step's.
                self.status.update(lost=True, deadline=NEVER)
                logger.error("the engine itself failed, nothing is decided:\n%s", frames(error))
                self._close_lost_attempt(
                    how="the engine itself failed",
                    reschedule_reason="The engine itself failed; the worker's log tells how.",
                )
                self.stopping.wait(lost.next())
            else:
                lost.reset()

    def sign_off(self) -> None:
        """Record that this worker stops in good order. If that fails, the supervisor records that it has ended."""
        with suppress(ClaimLost):
            self._heartbeat.stop()
            self.status.update(worker_id=0)

    def _take_up(self, *, thorough: bool) -> bool:
        """Process the next thing that is due: a workflow, or a deferred step if there is none. False when nothing is
        due.

        Every tenth time a deferred step first: else a backlog of workflows would let none be done.
        """
        self._turns += 1
        first = self._turns % DEFERRED_STEP_EVERY == 0 and self._look_for_deferred_step()
        return first or self.process_next(thorough=thorough) or self._look_for_deferred_step(thorough=thorough)

    def _look_for_deferred_step(self, *, thorough: bool = False) -> bool:
        """Do one deferred step that is due. Unless `thorough`, one look a second that finds nothing is enough."""
        if not thorough and monotonic() < self._deferred_steps_at:
            return False
        found = self.process_deferred_step()
        self._deferred_steps_at = monotonic() + (0.0 if found else LOOK_EVERY)
        return found

    def process_deferred_step(self) -> bool:
        """Do one deferred step that is due. Return False when none is. Raises as `process_next`."""
        if self._only:
            return False
        self._require_closed()
        with verified_transaction(self._announce_hooks):
            claim = deferred_steps.claim_next(self.queue)
            follow_up = deferred_steps.begin(claim) if claim else None
            if claim is None or follow_up is None:
                return False
            attempt = self._open_attempt(claim.workflow, claim.xid)
            attempt.boundary = self._boundary.of(claim.workflow.pk, heeds_requests=False)
            with attempt_log.in_hand(attempt), self._calls.of(claim.workflow, claim.not_closed):
                outcome = deferred_steps.run(follow_up, claim.workflow, attempt)
            self.status.update(deadline=NEVER)
            deferred_steps.decide(follow_up, attempt, outcome)
        self._clear_current(heard_at=monotonic(), trouble="")
        return True

    def process_next(self, *, thorough: bool = True) -> bool:
        """Process one due workflow. Return False when none is due (not `thorough`: when this look has found none).

        Raises ClaimLost or a database error when a connection was lost on the way. Then nothing was decided (or all of
        it was, and only the answer to the COMMIT is missing).
        """
        self._require_closed()
        with verified_transaction(self._announce_hooks):
            claim = self._due.claim_next(thorough=thorough)
            if claim is None:
                return False
            workflow = claim.workflow
            cancelled = store.cancellation(workflow.pk) if claim.cancelled and not workflow.compensating else None
            outcome = None
            if cancelled or workflow.workflow_type in definitions():
                attempt = self._open_attempt(workflow, claim.xid)
                with attempt_log.in_hand(attempt), self._calls.of(workflow, claim.not_closed):
                    outcome = self._outcome_of(claim, attempt, cancelled)  # inside a savepoint of its own
                decide(workflow, attempt, outcome)  # after its release: see workflows.engine.outcome
            else:
                unknown_types.reschedule(workflow)
            failpoints.reach("before_commit", type(outcome).__name__.lower())
        failpoints.reach("after_commit", type(outcome).__name__.lower())
        self._clear_current(heard_at=monotonic(), trouble="")
        if not isinstance(outcome, Complete):
            waking.wake(workflow.pk)
        if workflow.parent_id is not None:
            store.notify_parent(workflow.pk)
        return True

    def _require_closed(self) -> None:
        """Close an attempt that was lost, before another is opened. Raises ClaimLost while that cannot be written."""
        if self._attempt:  # forgotten, it would look like a death
            self._close_lost_attempt()
        if self._attempt:  # taking another workflow would forget it
            raise ClaimLost(f"what came of the last attempt cannot be written yet: {self._why_unrecorded}")
        attempt_log.connect()

    def _open_attempt(self, workflow: Workflow, claim_xid: str) -> OpenAttempt:
        attempt = attempt_log.open_attempt(workflow, claim_xid=claim_xid, worker=self.name, release=settings.RELEASE)
        self._attempt = attempt
        self.status.update(attempt_id=attempt.id, workflow_id=workflow.pk)
        return attempt

    def _make_due_for_this_release(self) -> None:
        """Once, as the worker starts: make due what waited for a release that knows its type, or can look up a call."""
        waited_for = {"a release that knows them": unknown_types.make_due, "a lookup": reconcile.make_answerable_due}
        for what, make_due in waited_for.items():
            if made := make_due(self.queue):
                logger.info("%s workflows waited for %s, and are due now", made, what)
        self._starts = False

    def _is_held_up(self) -> bool:
        """Whether to take up nothing now, for a migration waits for the claims to end; looked at once a second.

        Of one that waits, each poll looks whether it is through.
        """
        if self._held_up or monotonic() >= self._looked_at + LOOK_EVERY:
            self._looked_at = monotonic()
            was, self._held_up = self._held_up, migrating.is_announced()
            if was != self._held_up:
                logger.info(
                    "a migration waits: nothing new is taken up" if self._held_up else "no migration waits any more"
                )
        return self._held_up

    def run_maintenance(self) -> None:
        """Do the maintenance that is due, after a look once a second; each is done by one worker of all at a time."""
        if monotonic() >= self._maintenance_at + MAINTENANCE_EVERY:
            if monotonic() >= self._known_at + MAINTENANCE_KNOWN_EVERY:
                maintenance.make_known()
                self._known_at = monotonic()
            self._maintenance_at = monotonic()
            maintenance.run()

    def _outcome_of(self, claim: Claim, attempt: OpenAttempt, cancelled: WorkflowCancelled | None) -> Decidable:
        workflow = claim.workflow
        if cancelled:  # whatever its type, for nothing of it is run
            return executor.failed_before_any_step(definitions().get(workflow.workflow_type), workflow, cancelled)
        definition = definitions()[workflow.workflow_type]
        attempt.boundary = self._boundary.of(
            workflow.pk, expires_in=claim.expires_in, heeds_requests=not workflow.compensating
        )
        if workflow.compensating:
            outcome = self._compensate(definition, workflow, attempt)
        elif claim.expires_in <= 0:
            outcome = executor.failed_before_any_step(definition, workflow, WorkflowExpired())
        else:
            outcome = poison.judge(definition, workflow, attempt) or executor.run(definition, workflow, attempt)
        self.status.update(deadline=NEVER)  # no step runs any more
        return outcome

    def _compensate(self, definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt) -> Decidable:
        verdict = poison.judge_compensation(attempt)
        if isinstance(verdict, Rescheduled):
            return verdict
        return compensation.run(definition, workflow, attempt, give_up=verdict)

    def _announce_hooks(self) -> None:
        """Let the supervisor know that the on_commit hooks of steps run now: no timer ends one that hangs."""
        if self._attempt:
            now, step = monotonic(), f"an on_commit hook, after {self.status.now.step}"
            self.status.update(step=step, since=now, deadline=now + HOOKS_TIMEOUT)

    def _beat(self) -> None:
        self._heartbeat.beat(self.status.now, self._attempt)
        self._due.live_workers = self._heartbeat.live_workers
        if self.status.now.worker_id != self._heartbeat.row_id:
            self.status.update(worker_id=self._heartbeat.row_id)

    def _clear_current(self, **changes: Any) -> None:
        """No workflow is in hand any more."""
        self._attempt = None
        self.status.update(attempt_id=0, workflow_id=0, since=0.0, deadline=NEVER, lost=False, step="", **changes)

    def _close_lost_attempt(self, *, how: str = "", reschedule_reason: str = "") -> None:
        """Close both connections, and the attempt in hand as lost. If that fails, the worker tries again later.

        The row is rescheduled after a fault of the engine (`reschedule_reason`), and from its second loss in a row on,
        whichever workers lost it: the row is then a more likely cause than the database. If it were due at once, it
        would be the first row again for every worker, and nothing else would run. A worker that takes the row before
        this one has come back reschedules it instead (see `workflows.engine.poison`).
        """
        connections.close_all()
        try:
            if self._attempt:
                attempt_log.close_as_lost(self._attempt, how)
                losses = len(poison.losses(self._attempt)) + 1
                if reschedule_reason or losses > 1:
                    self._back_off(self._attempt, losses, reschedule_reason or poison.describe_losses(losses))
            self._clear_current()
        except (ClaimLost, *sqlstates.DATABASE_ERRORS) as error:
            self._why_unrecorded = sqlstates.loggable(error).removeprefix("ClaimLost: ")
            connections.close_all()

    def _write_what_is_left(self) -> None:
        """As the worker stops, try to write a result that only this process knows, for as long as `must_stop` allows.

        A result that still cannot be written is lost with this process, and the log says so.
        """
        delay = Delay(LOST_DELAY, MAX_LAST_DELAY)
        while self._attempt and self._attempt.deferred and not self.must_stop():
            sleep(delay.next())
            self._close_lost_attempt()
        if self._attempt and self._attempt.deferred:
            logger.error(
                "workflow %s: what came of the call of %s is lost, it could not be written before the end (%s); "
                "the next attempt asks whether it happened",
                self._attempt.workflow_id,
                self._attempt.deferred_step,
                self._why_unrecorded,
            )

    def _back_off(self, attempt: OpenAttempt, losses: int, reason: str) -> None:
        """Postpone the row, unless it is locked already. No signal cuts the delay short."""
        due = Workflow.objects.filter(pk=attempt.workflow_id, status="PENDING", invisible_until__lte=Now())
        with transaction.atomic():
            if due.select_for_update(skip_locked=True, no_key=True).first():
                transitions.reschedule(attempt.workflow_id, poison.due_after_losses(losses))
                history.record_in(attempt, Event.Kind.RESCHEDULED, reason=reason)
