"""UNDO: when a workflow fails for good, is cancelled or expires, its calls are undone, newest first.

See docs/internals/ledger.md, "Undoing". What is not known, a person is asked (`engine.undo_doubts`).

What a person did by hand is undone only if the step's `lookup` finds it as that person has said it: an undo under a
wrong reference would give another patient's money back. Otherwise a person is asked.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from workflows import waits
from workflows.definition import Step, Undo, WorkflowDefinition, definitions, is_to_be_undone, undo_of
from workflows.effects import IN_DOUBT, MAY_HAVE_HAPPENED, KnownEffect
from workflows.effects.reconcile import DOUBT_TASK_TYPE, Unsettled
from workflows.engine import retry_budget, step_session, undo_question
from workflows.engine.extension import Hooks
from workflows.engine.outcomes import Compensated, Held, StartAgain, UndoFailed, UndoOutcome, WorkerStopping
from workflows.engine.results import describe, describe_engine_error
from workflows.engine.runner import StepEntry, call_in_time, ensure_sound, finish_tries, run_in_savepoint
from workflows.engine.undo_doubts import UNDO_TASK_TYPE, UndoDoubts, question
from workflows.errors import StepError, Suspend
from workflows.models import Attempt, Effect, ManualTask, StepOutcome, Wait, Workflow
from workflows.signals import store
from workflows.state import attempt_log, transitions
from workflows.state.attempt_log import OpenAttempt
from workflows.state.boundary import MustStop
from workflows.state.transitions import NONE, UNCHANGED, ExtraColumns, Failures, Parking

# Failures of an undo before a person is asked.
MAX_UNDO_FAILURES = 3
# Questions that stay open when the workflow is cancelled.
KEPT_ON_CANCEL = (DOUBT_TASK_TYPE, UNDO_TASK_TYPE)


def parked_untried(definition: WorkflowDefinition, workflow: Workflow, error: StepError, hooks: Hooks) -> UndoFailed:
    """The outcome of a compensation that a feature's error parks before any undo is called."""
    step, parking = definition.find_or_removed_step(workflow.current_step), hooks.find_parking(workflow, error)
    verdict = retry_budget.judge(error, NONE, allowed=MAX_UNDO_FAILURES, parking=parking)
    return UndoFailed(step, error, describe_engine_error(error), verdict, parking)


def fail_or_compensate(
    workflow: Workflow,
    *,
    step: str | transitions.Unchanged = UNCHANGED,
    failures: transitions.Failures | transitions.Unchanged = UNCHANGED,
    extra_columns: ExtraColumns,
) -> bool:
    """Fail a workflow for good: it becomes FAILED, or due at once for its compensation. Returns whether it has one.

    The caller's transaction holds the row lock. Open questions to people are closed. `step` and `failures` say where
    the workflow failed, and how often in a row; `extra_columns` are written with the row.
    """
    compensates = _is_needed(workflow)
    if compensates:
        close_questions(workflow.pk)
        transitions.begin_compensation(workflow.pk, step=step, failures=failures, extra_columns=extra_columns)
    else:
        close_pending_work(workflow)
        transitions.fail(workflow, step=step, failures=failures, extra_columns=extra_columns)
    return compensates


def close_questions(workflow_id: int) -> None:
    """Close the questions to people, except those about calls in doubt: the compensation needs their answers.

    Questions of a compensation stay open too, because the workflow may just have failed by itself; without an answer
    its compensation would never end.
    """
    _close_tasks(ManualTask.objects.filter(workflow=workflow_id).exclude(task_type__in=KEPT_ON_CANCEL))


def _close_tasks(tasks: QuerySet[ManualTask]) -> None:
    """Close the tasks in the order in which a cancellation locks them, because both may run at the same time."""
    in_order = tasks.filter(state=ManualTask.State.OPEN).order_by("pk").select_for_update(no_key=True)
    ManualTask.objects.filter(pk__in=in_order.values("pk")).update(state=ManualTask.State.CLOSED)


def close_pending_work(workflow: Workflow) -> None:
    """When the workflow finishes, close its questions to people and ignore its unused signals."""
    _close_tasks(ManualTask.objects.filter(workflow=workflow.pk))
    # A retry waits for the children anew; until then maintenance need not check whether they have finished.
    Wait.objects.filter(workflow=workflow.pk, kind=Wait.Kind.CHILDREN, outcome="").update(superseded=True)
    store.ignore_signals(workflow.pk)


def _is_needed(workflow: Workflow) -> bool:
    definition = definitions().get(workflow.workflow_type)
    effects = Effect.objects.filter(workflow=workflow.pk, undo=False, state__in=MAY_HAVE_HAPPENED)
    return any(is_to_be_undone(definition, *effect) for effect in effects.values_list("step", "has_undo"))


def run(
    definition: WorkflowDefinition,
    workflow: Workflow,
    attempt: OpenAttempt,
    hooks: Hooks,
    *,
    give_up: StepError | None = None,
) -> UndoOutcome:
    """Undo the effects that have to be undone, until one fails or waits. Adds what was done to `attempt.steps`.

    With `give_up` the first undo is not called: a person is asked, and `give_up` is the reason.
    """
    outcome = _Compensation(definition, workflow, attempt, hooks).run(give_up)
    finish_tries(attempt, rolled_back=not isinstance(outcome, Compensated))
    return outcome


class _Compensation(UndoDoubts):
    left_by: str | None = None  # set when a person has decided about the first undo, or need not

    def _to_undo(self) -> list[KnownEffect]:
        effects = reversed(self.ledger.rows.latest())
        return [
            effect
            for effect in effects
            if effect.state in MAY_HAVE_HAPPENED and is_to_be_undone(self.definition, effect.step, effect.has_undo)
        ]

    def run(self, give_up: StepError | None) -> UndoOutcome:
        for effect in self._to_undo():
            step = self.definition.find_or_removed_step(effect.step)
            ended_by = run_in_savepoint(self.attempt, partial(self._undo, step, effect, give_up), transaction.atomic())
            match ended_by:
                case MustStop():
                    return WorkerStopping(self.results.context_json, step)
                case Suspend():
                    return Held(step.name, ended_by, Attempt.Outcome.WAITING, self.parking)
                case StartAgain():
                    self.attempt.steps.pop()  # nothing was undone
                    return ended_by
            self.attempt.boundary.after()  # if this opens the circuit, the workflow is parked
            if ended_by is not None:
                return self._failed(step, effect, ended_by)
            give_up = None
        return Compensated([e.step for e in reversed(self.ledger.rows.latest()) if e.state == Effect.State.UNDONE])

    def _failed(self, step: Step, effect: KnownEffect, error: BaseException) -> UndoFailed:
        description, rows = describe(error, self.results), self.ledger.rows
        parking = self._park_instead(step, error, description) or self.hooks.find_parking(self.workflow, error)
        verdict = retry_budget.judge(error, rows.failures_of_undo(effect), allowed=MAX_UNDO_FAILURES, parking=parking)
        if verdict.counts:
            rows.set_undo_failures(effect, verdict.failures, description)
        unclear = any(each.id == effect.id and each.state in IN_DOUBT for each in rows.latest())
        return UndoFailed(step, error, description, verdict, None if verdict.is_over else parking, unclear)

    def _park_instead(self, step: Step, error: BaseException, description: dict[str, str]) -> Parking | None:
        if isinstance(error, Unsettled):
            return None
        return self.hooks.park_instead(self.workflow, undo_of(step.name), error, description, judges=False)

    def _undo(self, step: Step, effect: KnownEffect, give_up: StepError | None) -> None:
        """Handle one effect, and record its outcome as an entry of the attempt's steps."""
        self.attempt.boundary.before(replace(step, name=undo_of(step.name)))
        attempt_log.flush(self.attempt)
        entry: dict[str, Any] = {"step": step.name, "undo": True, "outcome": StepOutcome.UNDO_FAILED}
        with StepEntry(entry, self.attempt, self.results):
            entry["outcome"] = self._deal_with(step, effect, give_up)
            ensure_sound(f"The undo of {step.name}", self.attempt)
        step_session.reset(self.attempt)

    def _deal_with(self, step: Step, effect: KnownEffect, give_up: StepError | None) -> str:
        """Let a person decide, or find out whether the effect happened and undo it. Returns its new state."""
        if effect.state == Effect.State.DONE and self._is_left(effect):
            return Effect.State.KEPT
        if broken := step_session.find_broken(self.attempt.past, at=undo_of(step.name)):
            give_up = step_session.failure_of(broken)
        if give_up:  # written to the ledger, because a later attempt handles the person's answer
            effect = self.ledger.rows.set_undo_failures(
                effect, Failures(MAX_UNDO_FAILURES), describe_engine_error(give_up)
            )
        # The person comes first: otherwise a call that cannot be reconciled would be tried for ever, unseen.
        while not step.undo or self._has_failed_too_often(effect) or self._is_unknown_to_us(step, effect):
            effect = self._ask_or_find_out(step, effect)
            if effect.state not in MAY_HAVE_HAPPENED:
                return effect.state
        undo_step = replace(step, name=undo_of(step.name), formerly=())
        self.attempt.boundary.require_free(undo_step)
        if effect.state != Effect.State.DONE:
            effect = self.ledger.reconciler.resolve_without_repeat(step, self._context(), effect)
            if effect.state != Effect.State.DONE:
                return effect.state
        if self._is_left(effect):
            return Effect.State.KEPT
        self._call(step, step.undo, effect)
        self.attempt.boundary.passed(undo_step)
        return Effect.State.UNDONE

    def _is_left(self, effect: KnownEffect) -> bool:
        """Whether a person, asked before the first undo, leaves the calls as they are. The effect is then KEPT."""
        if self.left_by is None:
            to_undo = [each.step for each in self._to_undo()]
            self.left_by = undo_question.who_leaves_it(self.definition, self.workflow, to_undo)
        if self.left_by:
            self.ledger.rows.decide_undo(effect, Effect.State.KEPT, by=self.left_by, result={})
        return bool(self.left_by)

    def _has_failed_too_often(self, effect: KnownEffect) -> bool:
        return retry_budget.is_spent(self.ledger.rows.failures_of_undo(effect), allowed=MAX_UNDO_FAILURES)

    def _is_unknown_to_us(self, step: Step, effect: KnownEffect) -> bool:
        """Whether a person did it by hand, and the lookup does not find it. The answer to the question comes first."""
        if not effect.by_hand:
            return False
        if not step.lookup or not step.returns or waits.is_asked(self.workflow, question(effect)):
            return True
        found = self._found_by("lookup", step, step.lookup, effect) or {}
        return any(name not in found or found[name] != (effect.result or {}).get(name) for name in step.returns)

    def _call(self, step: Step, undo: Undo, effect: KnownEffect) -> None:
        arguments = {"workflow": self.workflow, "context": self._context(), "effect": effect}
        call = partial(call_in_time, step, self.attempt, undo, **arguments)
        self.ledger.undo(effect, call, lambda error: describe(error, self.results))
