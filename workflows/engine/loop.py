"""THE LOOP of a worker: claim the next due workflow, run it, decide, do maintenance, and start again.

It works on one workflow at a time, with two connections: docs/internals/claim.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic

from workflows import failpoints
from workflows.definition import TIMEOUT, WorkflowDefinition, definitions
from workflows.engine import (
    compensation,
    executor,
    poison,
    process_status,
    sessions,
    step_session,
    unknown_types,
    unreadable,
)
from workflows.engine.backoff import Delay
from workflows.engine.claim import Claim, DueWorkflows
from workflows.engine.commit import transaction_or_claim_lost
from workflows.engine.decide import decide
from workflows.engine.extension import Feature, Hooks, Instead, Onlooker, Source
from workflows.engine.heartbeat import Heartbeat
from workflows.engine.in_hand import LOST_DELAY, InHand
from workflows.engine.listening import Listener
from workflows.engine.maintenance import Maintenance, make_due_for_this_release
from workflows.engine.outcomes import Complete, Outcome, Rescheduled, failed_before_any_step
from workflows.engine.process_status import NEVER, PublishedStatus, Slot
from workflows.engine.worker_boundary import WorkersBoundary
from workflows.errors import ClaimLost, WorkflowCancelled, WorkflowExpired
from workflows.models import Workflow
from workflows.postgres import migrating, sqlstates
from workflows.signals import store, waking
from workflows.state import attempt_log
from workflows.state.attempt_log import OpenAttempt
from workflows.stop_flag import Flag

logger = logging.getLogger(__name__)

# The longest time, in seconds, between attempts to reach a lost database.
MAX_LOST_DELAY = 1.5
MAINTENANCE_EVERY = LOOK_EVERY = 1.0
# A database that is restored, or fails over, while a worker runs may lack the maintenance rows of this release.
MAINTENANCE_KNOWN_EVERY = 60.0
SOURCES_EVERY = 10  # turns
# Seconds for all on_commit hooks of an attempt together: the default timeout of a step.
HOOKS_TIMEOUT = TIMEOUT


class Worker:
    """Works through the due workflows of one queue, in this process, one at a time.

    Each attempt records the worker's `name` (host/mark:process). `stopping` ends the loop after the current workflow.
    When `must_stop`, called before each step, returns True, the worker gives that workflow back as well. `slot` shows
    the supervisor what the worker does. `features` and `onlookers` take part as `engine.extension` says. With `only`
    "compensation" it takes no other workflows.
    """

    def __init__(
        self,
        *,
        queue: str = "default",
        only: str = "",
        name: str,
        features: Iterable[Feature],
        stopping: Flag,
        must_stop: Callable[[], bool] = lambda: False,
        slot: Slot | None = None,
        onlookers: Sequence[Onlooker] = (),
    ) -> None:
        self.queue, self._only = queue, only
        self.stopping = stopping
        self.status = PublishedStatus(slot or process_status.allocate(1)[0])
        self.in_hand = InHand(name, self.status, must_stop)
        features = tuple(features)
        self._hooks = hooks = Hooks.of(features)
        self._maintenance = Maintenance(features)
        reads = hooks.claim_reads
        # A worker for reversals only must be free for them.
        self._sources = [] if only else [each for feature in features if (each := feature.source(queue, reads))]
        self._due = DueWorkflows(queue, only=only, reads=reads, leaves=hooks.claim_leaves)
        self._heartbeat = Heartbeat(name, queue, only=only)
        self._listener = Listener("" if only else queue, stopping)
        self._boundary = WorkersBoundary(self.status, hooks.parts, self._heartbeat, self._beat, must_stop)
        self._onlookers = onlookers
        self._turns = 0
        self._maintenance_at = self._known_at = self._sources_at = self._looked_at = float("-inf")
        self._starts = True  # until the rows that waited for this release have been made due
        self._held_up = False  # by a migration

    def run(self, *, drain: bool = False) -> None:
        """Process workflows until `stopping` is set; with `drain`, until none is due. Raises `UnfitSessions`."""
        lost = Delay(LOST_DELAY, MAX_LOST_DELAY)
        while not self.stopping.is_set():
            try:
                if not self._take_turn(drain=drain):
                    break
            except step_session.SessionBroken as broken:
                logger.error("workflow %s: its next attempt fails: %s", self.status.now.workflow_id, str(broken))
                self.in_hand.close_lost(how=broken.how)
            except (ClaimLost, *sqlstates.DATABASE_ERRORS) as error:
                how = sqlstates.loggable(error)
                trouble = f"{how}, at {sqlstates.host_port(attempt_log.ALIAS)}"
                self.status.update(lost=True, deadline=NEVER, trouble=trouble)
                logger.warning("lost the database, nothing is decided: %s", trouble)
                if sqlstates.is_statement_error(error):
                    logger.error("it refused a statement of the engine's own", exc_info=error)
                self.stopping.wait(lost.next())
                self.in_hand.close_lost(how=how.removeprefix("ClaimLost: "))
            except sessions.UnfitSessions:
                raise
            except Exception as error:
                # An error of the engine, not of a step.
                self.status.update(lost=True, deadline=NEVER)
                logger.error("the engine itself failed, nothing is decided", exc_info=error)
                self.in_hand.close_lost(
                    how="the engine itself failed",
                    reschedule_reason="The engine itself failed; the worker's log tells how.",
                )
                self.stopping.wait(lost.next())
            else:
                lost.reset()
        self.in_hand.write_what_is_left()

    def sign_off(self) -> None:
        """Record that this worker stops in good order. If that fails, the supervisor records that it has ended.

        Without a database it does nothing, because connecting would take the rest of the grace.
        """
        if self.status.now.lost:
            return
        with suppress(ClaimLost):
            self._heartbeat.stop()
            self.status.update(worker_id=0)

    def _take_turn(self, *, drain: bool) -> bool:
        """Do what is due, or rest. Returns False when nothing is left to `drain`."""
        sessions.ensure_fit()
        self._maintenance.forget_lost()
        held_up = self._is_held_up()
        if self._starts:
            make_due_for_this_release(self.queue)
            self._starts = False
        busy = not held_up and self._take_up(thorough=drain)
        self.run_maintenance()
        self._beat()
        if busy:
            self._listener.end()
        else:
            turn_in = self._due.lanes.turns.next_in()
            if drain and not held_up and turn_in is None:
                return False
            self.status.update(heard_at=monotonic(), trouble="")
            self._listener.rest(live_workers=self._heartbeat.live_workers, at_most=turn_in)
        return True

    def _take_up(self, *, thorough: bool) -> bool:
        """Process the next due workflow, or else work from a feature's source. Returns False when the worker may rest.

        Every tenth time the sources come first, so that a backlog of workflows cannot starve them.
        """
        self._turns += 1
        first = self._turns % SOURCES_EVERY == 0 and self._look_at_sources()
        busy = first or self.process_next(thorough=thorough) or self._look_at_sources(thorough=thorough)
        return busy or self._due.is_cut_short

    # --- Claim, run, decide, release ------------------------------------------------------------------

    def process_next(self, *, thorough: bool = True) -> bool:
        """Process one due workflow. Returns False when none is due (unless `thorough`: when this look has found none).

        Raises ClaimLost or a database error when a connection was lost. Then nothing was decided, or everything was and
        only the answer to the COMMIT is missing.
        """
        self.in_hand.make_ready()
        with transaction_or_claim_lost(self._announce_hooks):
            claim = self._due.claim_next(thorough=thorough)
            if claim is None:
                return False
            workflow = claim.workflow
            cancelled = store.cancellation(workflow.pk) if claim.cancelled and not workflow.compensating else None
            outcome = None
            if cancelled or workflow.workflow_type in definitions():
                with self._attempt_at(claim) as attempt:
                    outcome = self._outcome_of(claim, attempt, cancelled)  # in its own savepoint
                # After the savepoint: see workflows.engine.decide.
                ended = decide(workflow, attempt, outcome, self._hooks)
            else:
                unknown_types.reschedule(workflow)
            decided = type(outcome).__name__.lower()
            failpoints.reach("before_commit", decided)
        failpoints.reach("after_commit", decided)
        self.in_hand.clear(heard_at=monotonic(), trouble="")
        if not isinstance(outcome, Complete):
            waking.wake(workflow.pk)
        if workflow.parent_id is not None:
            store.notify_parent(workflow.pk)
        for after_commit in self._hooks.after_commit:
            after_commit(workflow, outcome)
        for onlooker in self._onlookers if outcome else ():
            onlooker.record(workflow, attempt, ended)
        return True

    def process_from_sources(self) -> bool:
        """Do one piece of due work from the sources. Returns False when none is due. Raises as `process_next` does."""
        return any(map(self._process_from, self._sources))

    def _process_from(self, source: Source) -> bool:
        self.in_hand.make_ready()
        with transaction_or_claim_lost(self._announce_hooks):
            claim = source.claim_next()
            if claim is None:
                return False
            with self._attempt_at(claim) as attempt:
                outcome = source.run(claim, attempt)
            ended = source.decide(claim, attempt, outcome)
        self.in_hand.clear(heard_at=monotonic(), trouble="")
        for onlooker in self._onlookers:
            onlooker.record(claim.workflow, attempt, ended)
        return True

    def _outcome_of(self, claim: Claim, attempt: OpenAttempt, cancelled: WorkflowCancelled | None) -> Outcome:
        workflow = claim.workflow
        if cancelled:  # any type: none of its steps runs
            return failed_before_any_step(definitions().get(workflow.workflow_type), workflow, cancelled)
        definition = definitions()[workflow.workflow_type]
        if workflow.compensating:
            if elsewhere := unreadable.open_secrets(definition, workflow):
                return elsewhere
            if (crash := poison.last_crash(attempt)) and (error := self._hooks.crashed(workflow, crash)):
                return compensation.parked_untried(definition, workflow, error, self._hooks)
            verdict = poison.judge_compensation(attempt)
            if isinstance(verdict, Rescheduled):
                return verdict
            return compensation.run(definition, workflow, attempt, self._hooks, give_up=verdict)
        if claim.expires_in <= 0:
            return failed_before_any_step(definition, workflow, WorkflowExpired())
        if let_fail := self._boundary.let_fail(workflow):
            return failed_before_any_step(definition, workflow, let_fail)
        return (
            poison.judge(definition, workflow, attempt, self._hooks)
            or self._ask_at_gates(definition, workflow, attempt)
            or unreadable.open_secrets(definition, workflow)
            or executor.run(definition, workflow, attempt)
        )

    def _ask_at_gates(self, definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt) -> Instead | None:
        for gate in self._hooks.gates:
            if instead := gate(definition, workflow, attempt):
                return instead
        return None

    @contextmanager
    def _attempt_at(self, claim: Claim) -> Iterator[OpenAttempt]:
        """Open an attempt in which the features take part, and bind it to this thread for the code that steps call."""
        attempt = self.in_hand.open(claim)
        for onlooker in self._onlookers:
            onlooker.begin(claim, attempt)
        attempt.boundary = self._boundary
        with attempt_log.bound_to(attempt):
            try:
                self._boundary.begin(claim, attempt, self._due.lanes.service_caps)
                with step_session.guarded(attempt):
                    yield attempt
            finally:
                self._boundary.end()
        self.status.update(deadline=NEVER)  # no step runs any more

    def _announce_hooks(self) -> None:
        """Let the supervisor know that on_commit hooks of steps run now: no timer ends a hook that hangs."""
        if self.in_hand.attempt:
            now, step = monotonic(), f"an on_commit hook, after {self.status.now.step}"
            self.status.update(step=step, since=now, deadline=now + HOOKS_TIMEOUT)

    # --- Beside that ----------------------------------------------------------------------------------

    def run_maintenance(self) -> None:
        """Do the due maintenance, at most once a second; each task is done by one worker at a time."""
        if monotonic() >= self._maintenance_at + MAINTENANCE_EVERY:
            if monotonic() >= self._known_at + MAINTENANCE_KNOWN_EVERY:
                self._maintenance.make_known()
                self._known_at = monotonic()
            self._maintenance_at = monotonic()
            self._maintenance.run()

    def _look_at_sources(self, *, thorough: bool = False) -> bool:
        """Process from sources. Unless `thorough`, a look that finds nothing is repeated after a second only."""
        if not thorough and monotonic() < self._sources_at:
            return False
        found = self.process_from_sources()
        self._sources_at = monotonic() + (0.0 if found else LOOK_EVERY)
        return found

    def _is_held_up(self) -> bool:
        """Whether a migration waits for the claims to end, so that nothing new may be taken up. Checked once a second.

        While a migration waits, each call checks whether it is over.
        """
        if self._held_up or monotonic() >= self._looked_at + LOOK_EVERY:
            self._looked_at = monotonic()
            was, self._held_up = self._held_up, migrating.is_announced()
            if was != self._held_up:
                logger.info(
                    "a migration waits: nothing new is taken up" if self._held_up else "no migration waits any more"
                )
        return self._held_up

    def _beat(self) -> None:
        self._heartbeat.beat(self.status.now, self.in_hand.attempt)
        self._due.live_workers = self._heartbeat.live_workers
        if self.status.now.worker_id != self._heartbeat.row_id:
            self.status.update(worker_id=self._heartbeat.row_id)
