"""UNDO: when a workflow fails for good, is cancelled or expires, its calls are undone, newest first.

docs/internals/ledger.md ("Undoing") says how. A question to a person about an undo may answer itself: the step's
`lookup`, if the call is in doubt, or its `undo_lookup`, if the undo has failed, is asked again every hour and, after an
outage, when the service is back. An effect that has been undone is UNDONE. One that still stands, and whose undo failed
only for an outage, is undone now, once. Else the question stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from workflows import waits
from workflows.definition import Step, Undo, WorkflowDefinition, definitions, is_to_be_undone, removed_step, undo_of
from workflows.effects import DONE, MAY_HAVE_HAPPENED, NOT_DONE, KnownEffect
from workflows.effects.ledger import Ledger
from workflows.effects.reconcile import DOUBT_TASK_TYPE, DOUBT_TIMEOUT, LOOK_EVERY, Unsettled, found_by
from workflows.engine import retry_budget, step_session, undo_question
from workflows.engine.extension import Hooks
from workflows.engine.outcomes import Compensated, Held, StartAgain, UndoFailed, UndoOutcome, WorkerStopping
from workflows.engine.results import Results, describe, describe_engine_error
from workflows.engine.retry_budget import OUTAGE_ATTEMPTS
from workflows.engine.runner import StepEntry, call_in_time, ensure_sound, finish_tries, run_in_savepoint
from workflows.errors import StepError, Suspend
from workflows.models import Attempt, Effect, ManualTask, StepOutcome, Wait, Workflow
from workflows.signals import store
from workflows.state import attempt_log, transitions
from workflows.state.attempt_log import OpenAttempt
from workflows.state.boundary import MustStop
from workflows.state.transitions import NONE, UNCHANGED, ExtraColumns, Failures, Parking
from workflows.wording import words_for_step

# Failures of an undo before a person is asked.
MAX_UNDO_FAILURES = 3

UNDO_TASK_TYPE = "undo_in_doubt"
# The codes of the errors by which an undo is given up without a call (`engine.poison`). A lookup might do the same.
DEATHS_TASK_TYPE, LOSSES_TASK_TYPE = "keeps_dying", "keeps_being_lost"
# Questions that a person has to answer though the workflow is cancelled.
KEPT_ON_CANCEL = (DOUBT_TASK_TYPE, UNDO_TASK_TYPE)
# The names of the waits for an answer about an undo start with it.
QUESTION_PREFIX = "undo:"


def parked_untried(definition: WorkflowDefinition, workflow: Workflow, error: StepError, hooks: Hooks) -> UndoFailed:
    """The outcome of a compensation that is parked by this error of a feature's, before any undo is called."""
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
    """Fail a workflow for good: it is FAILED, or due at once for its compensation. Returns whether it has one.

    Called in the transaction that holds the row. Questions that people are still asked are closed with it. `step` and
    `failures` say where it failed, and how often in a row; `extra_columns` holds the other columns to be written.
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
    """Close the questions to people, except whether an effect happened: the compensation has to know that.

    The questions of a compensation stay open too, for the workflow may have failed by itself just now: without an
    answer, its compensation would never come to an end.
    """
    _close_tasks(ManualTask.objects.filter(workflow=workflow_id).exclude(task_type__in=KEPT_ON_CANCEL))


def _close_tasks(tasks: QuerySet[ManualTask]) -> None:
    """Close the tasks in the order in which a cancellation locks them, for both may happen at the same time."""
    in_order = tasks.filter(state=ManualTask.State.OPEN).order_by("pk").select_for_update(no_key=True)
    ManualTask.objects.filter(pk__in=in_order.values("pk")).update(state=ManualTask.State.CLOSED)


def close_pending_work(workflow: Workflow) -> None:
    """The workflow finishes: its questions to people are closed, and its unused signals are ignored."""
    _close_tasks(ManualTask.objects.filter(workflow=workflow.pk))
    # A retry makes a new wait for the children; until then no maintenance task need look whether they have finished.
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
    """Undo the effects that are to be undone, until one fails or waits. Adds what was done to `attempt.steps`.

    `give_up` says why the first undo is not called, but a person asked about it.
    """
    outcome = _Compensation(definition, workflow, attempt, hooks).run(give_up)
    finish_tries(attempt, rolled_back=not isinstance(outcome, Compensated))
    return outcome


class _Compensation:
    """One pass over what is to be undone."""

    def __init__(self, definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt, hooks: Hooks) -> None:
        self.definition = definition
        self.attempt = attempt
        self.hooks = hooks
        self.results = Results(definition, workflow, attempt)
        self.workflow = self.results.workflow_copy
        self.ledger = Ledger(definition, self.workflow, attempt)
        self.parking: Parking | None = None
        self.left_by: str | None = None  # once a person was asked before the first undo, or need not be

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
            self.attempt.boundary.after()  # if that opens the circuit, the workflow is parked
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
        return UndoFailed(step, error, description, verdict, None if verdict.is_over else parking)

    def _park_instead(self, step: Step, error: BaseException, description: dict[str, str]) -> Parking | None:
        if isinstance(error, Unsettled):
            return None
        return self.hooks.park_instead(self.workflow, undo_of(step.name), error, description, judges=False)

    def _undo(self, step: Step, effect: KnownEffect, give_up: StepError | None) -> None:
        """Deal with one effect; its outcome is an entry of the attempt's steps."""
        self.attempt.boundary.before(replace(step, name=undo_of(step.name)))
        attempt_log.flush(self.attempt)
        entry: dict[str, Any] = {"step": step.name, "undo": True, "outcome": StepOutcome.UNDO_FAILED}
        with StepEntry(entry, self.attempt, self.results):
            entry["outcome"] = self._deal_with(step, effect, give_up)
            ensure_sound(f"The undo of {step.name}", self.attempt)
        step_session.reset(self.attempt)

    def _deal_with(self, step: Step, effect: KnownEffect, give_up: StepError | None) -> str:
        """Have a person decide, or find out whether the effect happened and undo it. Returns its state after that."""
        if effect.state == Effect.State.DONE and self._is_left(effect):
            return Effect.State.KEPT
        if broken := step_session.find_broken(self.attempt.past, at=undo_of(step.name)):
            give_up = step_session.failure_of(broken)
        if give_up:  # written down, for a later attempt gets the person's answer
            effect = self.ledger.rows.set_undo_failures(
                effect, Failures(MAX_UNDO_FAILURES), describe_engine_error(give_up)
            )
        # The person comes first: else what cannot be reconciled would be tried for ever, and no person would know.
        while not step.undo or self._has_failed_too_often(effect):
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
        """Whether a person, asked before the first undo, leaves what was done as it is: the effect is then KEPT."""
        if self.left_by is None:
            to_undo = [each.step for each in self._to_undo()]
            self.left_by = undo_question.who_leaves_it(self.definition, self.workflow, to_undo)
        if self.left_by:
            self.ledger.rows.decide_undo(effect, Effect.State.KEPT, by=self.left_by, result={})
        return bool(self.left_by)

    def _has_failed_too_often(self, effect: KnownEffect) -> bool:
        return retry_budget.is_spent(self.ledger.rows.failures_of_undo(effect), allowed=MAX_UNDO_FAILURES)

    def _call(self, step: Step, undo: Undo, effect: KnownEffect) -> None:
        arguments = {"workflow": self.workflow, "context": self._context(), "effect": effect}
        call = partial(call_in_time, step, self.attempt, undo, **arguments)
        self.ledger.undo(effect, call, lambda error: describe(error, self.results))

    def _context(self) -> Any:
        """The context as the ledger alone gives it: the results of the `once` steps that happened."""
        with attempt_log.attribute_to_step(self.attempt):  # the context's model may query the database
            for effect in self.ledger.rows.latest():
                if effect.result:
                    self.results.merge(removed_step(effect.step), effect.result, recorded_before=True)
        return self.results.context

    def _ask_or_find_out(self, step: Step, effect: KnownEffect) -> KnownEffect:
        """Have a person decide; until their answer has come, the lookup of the step may.

        Returns the effect: UNDONE, KEPT or NOT_DONE, or one that may have happened, and is to be undone now.
        """
        try:
            return self._ask(step, effect)
        except Suspend:
            found = self._find_out(step, effect) if _may_answer_itself(step, effect) else None
            if found is None:
                raise
            return found

    def _find_out(self, step: Step, effect: KnownEffect) -> KnownEffect | None:
        """Look up an effect that a person is asked about; None if that decides nothing, and the question stays.

        A lookup that fails is not a failure of the undo: the person is asked already.
        """
        self.attempt.suspended = None  # by the question; the lookup may not wait
        found: list[KnownEffect | None] = []
        failed = run_in_savepoint(self.attempt, lambda: found.append(self._look_up(step, effect)), transaction.atomic())
        if failed is None:
            return found[0]
        self.attempt.steps[-1].update(describe(failed, self.results))  # else nobody would know of it
        self.attempt.boundary.after()  # if that opens the circuit, the workflow is parked
        self.parking = self.hooks.find_parking(self.workflow, failed)
        return None

    def _look_up(self, step: Step, effect: KnownEffect) -> KnownEffect | None:
        """What the service says of the effect, written on the ledger; None when a person goes on being asked.

        The question is withdrawn first, unless it has been answered meanwhile: then it is the answer that counts, or
        what a person has undone by hand would be undone again. What a person has claimed is not undone again either.
        """
        rows, reconciler, question = self.ledger.rows, self.ledger.reconciler, _question(effect)
        lookup, context = step.undo_lookup, self._context()
        if effect.state != Effect.State.DONE:
            assert step.lookup is not None
            found = reconciler.find(step, step.lookup, context, effect)
            ensure_sound(f"The lookup of {step.name}", self.attempt)
            if not waits.withdraw_unanswered(self.workflow, question):
                return None
            # The failures first: a retry may make this very call, and its undo has not failed.
            return reconciler.record_found(rows.set_undo_failures(effect, NONE), found)
        assert lookup is not None
        result = call_in_time(step, self.attempt, lookup, workflow=self.workflow, context=context, effect=effect)
        with attempt_log.attribute_to_step(self.attempt):
            result = found_by("undo_lookup", step, result)
        ensure_sound(f"The lookup of the undo of {step.name}", self.attempt)
        if result is None and not self._may_be_undone_now(effect):
            return None
        if not waits.withdraw_unanswered(self.workflow, question, even_claimed=result is not None):
            return None
        if result is None:
            return rows.set_undo_failures(effect, NONE)
        return rows.decide_undo(effect, Effect.State.UNDONE, by="lookup", result=result)

    def _may_be_undone_now(self, effect: KnownEffect) -> bool:
        """Whether what still stands is undone without a person's word: after an outage, and once.

        What was refused would be again. And a service that answers each undo of this charge as if it were down, but its
        lookup, would have the question withdrawn whenever it is asked, so that no person ever saw it.
        """
        return effect.undo_unavailable >= OUTAGE_ATTEMPTS and not waits.was_withdrawn(self.workflow, _question(effect))

    def _ask(self, step: Step, effect: KnownEffect) -> KnownEffect:
        """Have a person decide. Returns the effect: UNDONE, KEPT or NOT_DONE, or as it was, to be tried again."""
        is_lookup = bool(step.undo) and effect.state != Effect.State.DONE
        failures = effect.undo_failures + effect.undo_unavailable
        why = f"failed {failures} times" if step.undo else "is not in this release"
        titled = words_for_step(self.definition.wording, step.name).titled
        answer = waits.ask(
            self.workflow,
            _question(effect),
            question=f"The {'lookup' if is_lookup else 'reversal'} of {titled} {why}. Has someone reversed it?",
            facts={
                "What we know of the call": Effect.State(effect.state).label,
                "The last error": effect.error or "none",
                "Idempotency key of the call": effect.idempotency_key,
                "Idempotency key of its reversal": effect.undo_key,
            },
            task_type=UNDO_TASK_TYPE,
            timeout=DOUBT_TIMEOUT,
            due=waits.URGENT,
            look_every=LOOK_EVERY if _may_answer_itself(step, effect) else None,
        )
        if answer.outcome == "approved":
            effect = self._settle(effect, answer.result.get("answer") or {}, by=answer.result["by"])
        elif answer.outcome == "rejected":
            effect = self.ledger.rows.set_undo_failures(effect, NONE)
        # The next time is another question, also after one that expired: an effect that is kept now may be up for
        # undoing again after a retry, and its undo may fail again.
        waits.withdraw(self.workflow, _question(effect))
        return effect

    def _settle(self, effect: KnownEffect, form: Mapping[str, Any], *, by: str) -> KnownEffect:
        """Write down what became of the call, as a person says (`operations.answer_models.DealtWith`)."""
        rows, reference = self.ledger.rows, form.get("reference", "")
        if form.get("never_happened") is True:
            # The failures first: a retry may make this very call, and its undo has not failed.
            effect = rows.set_undo_failures(effect, NONE)
            # Its answer may have come meanwhile: then it is undone, now.
            return effect if effect.state == DONE else rows.decide(effect, NOT_DONE, result=None, by=by)
        state = Effect.State.KEPT if form.get("kept") is True else Effect.State.UNDONE
        return rows.decide_undo(effect, state, by=by, result={"reference": reference} if reference else {})


def _may_answer_itself(step: Step, effect: KnownEffect) -> bool:
    """Whether a lookup may answer the question about an effect: never about one that has killed its workers."""
    if effect.error_code in (DEATHS_TASK_TYPE, LOSSES_TASK_TYPE):
        return False
    return bool(step.undo and (step.undo_lookup if effect.state == Effect.State.DONE else step.lookup))


def _question(effect: KnownEffect) -> str:
    """The name of the wait for a person's answer about the effect's undo."""
    return f"{QUESTION_PREFIX}{effect.step}:{effect.generation}"
