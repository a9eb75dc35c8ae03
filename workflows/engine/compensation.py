"""UNDO: when a workflow fails for good, is cancelled or expires, its calls are undone, newest first.

See docs/internals/ledger.md, "Undoing". A question to a person about an undo may answer itself. Every hour, and when a
service is back after an outage, the engine calls the step's `lookup` if the call is in doubt, or its `undo_lookup` if
the undo has failed. An effect that turns out to be undone becomes UNDONE. An effect that still stands, and whose undo
failed only because of an outage, is undone now, but only once. Otherwise the question stays.

What a person did by hand is undone only if the step's `lookup` finds it as that person has said it: an undo under a
wrong reference would give another patient's money back. Otherwise a person is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from workflows import waits
from workflows.definition import (
    Lookup,
    Step,
    Undo,
    WorkflowDefinition,
    definitions,
    is_to_be_undone,
    removed_step,
    undo_of,
)
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
# Codes with which `engine.poison` gives up an undo before calling it. No lookup is made: it may kill workers, too.
DEATHS_TASK_TYPE, LOSSES_TASK_TYPE = "keeps_dying", "keeps_being_lost"
# Questions that stay open when the workflow is cancelled.
KEPT_ON_CANCEL = (DOUBT_TASK_TYPE, UNDO_TASK_TYPE)
# The prefix of the names of waits for an answer about an undo.
QUESTION_PREFIX = "undo:"


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


class _Compensation:
    def __init__(self, definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt, hooks: Hooks) -> None:
        self.definition = definition
        self.attempt = attempt
        self.hooks = hooks
        self.results = Results(definition, workflow, attempt)
        self.workflow = self.results.workflow_copy
        self.ledger = Ledger(definition, self.workflow, attempt)
        self.parking: Parking | None = None
        self.left_by: str | None = None  # set when a person has decided about the first undo, or need not

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
        return UndoFailed(step, error, description, verdict, None if verdict.is_over else parking)

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
        if not step.lookup or not step.returns or waits.is_asked(self.workflow, _question(effect)):
            return True
        found = self._found_by("lookup", step, step.lookup, effect) or {}
        return any(name not in found or found[name] != (effect.result or {}).get(name) for name in step.returns)

    def _found_by(self, what: str, step: Step, lookup: Lookup, effect: KnownEffect) -> dict[str, Any] | None:
        result = call_in_time(
            step, self.attempt, lookup, workflow=self.workflow, context=self._context(), effect=effect
        )
        with attempt_log.attribute_to_step(self.attempt):
            found = found_by(what, step, result)
        ensure_sound(f"The {what} of {step.name}", self.attempt)
        return found

    def _call(self, step: Step, undo: Undo, effect: KnownEffect) -> None:
        arguments = {"workflow": self.workflow, "context": self._context(), "effect": effect}
        call = partial(call_in_time, step, self.attempt, undo, **arguments)
        self.ledger.undo(effect, call, lambda error: describe(error, self.results))

    def _context(self) -> Any:
        """The context from the ledger alone: the results of the `once` steps that happened."""
        with attempt_log.attribute_to_step(self.attempt):  # the context's model may query the database
            for effect in self.ledger.rows.latest():
                if effect.result:
                    self.results.merge(removed_step(effect.step), effect.result, recorded_before=True)
        return self.results.context

    def _ask_or_find_out(self, step: Step, effect: KnownEffect) -> KnownEffect:
        """Ask a person; until the answer comes, try the step's lookup.

        Returns the effect: UNDONE, KEPT or NOT_DONE, or one that may have happened and is to be undone now.
        """
        try:
            return self._ask(step, effect)
        except Suspend:
            found = self._find_out(step, effect) if _may_answer_itself(step, effect) else None
            if found is None:
                raise
            return found

    def _find_out(self, step: Step, effect: KnownEffect) -> KnownEffect | None:
        """Look up an effect that a person is being asked about; None if the question stays.

        A failed lookup is not a failure of the undo, because a person is being asked anyway.
        """
        self.attempt.suspended = None  # the question has set it; a lookup may not wait
        found: list[KnownEffect | None] = []
        failed = run_in_savepoint(self.attempt, lambda: found.append(self._look_up(step, effect)), transaction.atomic())
        if failed is None:
            return found[0]
        self.attempt.steps[-1].update(describe(failed, self.results))  # the only record of this error
        self.attempt.boundary.after()  # if this opens the circuit, the workflow is parked
        self.parking = self.hooks.find_parking(self.workflow, failed)
        return None

    def _look_up(self, step: Step, effect: KnownEffect) -> KnownEffect | None:
        """Ask the service about the effect and write the answer on the ledger; None when the person's question stays.

        The question is withdrawn first. If a person has answered it meanwhile, their answer counts: otherwise a call
        that was undone by hand would be undone again. A call whose question a person has claimed is not undone again
        either.
        """
        rows, reconciler, question = self.ledger.rows, self.ledger.reconciler, _question(effect)
        lookup = step.undo_lookup
        if effect.state != Effect.State.DONE:
            assert step.lookup is not None
            found = reconciler.find(step, step.lookup, self._context(), effect)
            ensure_sound(f"The lookup of {step.name}", self.attempt)
            if not waits.withdraw_unanswered(self.workflow, question):
                return None
            # The failures are reset first: a retry may make this very call, and its undo has not failed.
            return reconciler.record_found(rows.set_undo_failures(effect, NONE), found)
        assert lookup is not None
        result = self._found_by("undo_lookup", step, lookup, effect)
        if result is None and not self._may_be_undone_now(effect):
            return None
        if not waits.withdraw_unanswered(self.workflow, question, even_claimed=result is not None):
            return None
        if result is None:
            return rows.set_undo_failures(effect, NONE)
        return rows.decide_undo(effect, Effect.State.UNDONE, by="lookup", result=result)

    def _may_be_undone_now(self, effect: KnownEffect) -> bool:
        """Whether an effect that still stands is undone without an answer from a person: after an outage, once.

        A service that refused the undo would refuse it again. The limit of one is for a service that answers each undo
        of this charge as if it were down, while its lookup works: the question would be withdrawn each time, and no
        person would see it.
        """
        return effect.undo_unavailable >= OUTAGE_ATTEMPTS and not waits.was_withdrawn(self.workflow, _question(effect))

    def _ask(self, step: Step, effect: KnownEffect) -> KnownEffect:
        """Ask a person. Returns the effect: UNDONE, KEPT or NOT_DONE, or unchanged, to be tried again."""
        is_lookup = bool(step.undo) and effect.state != Effect.State.DONE
        failures = effect.undo_failures + effect.undo_unavailable
        why = f"failed {failures} times" if step.undo else "is not in this release"
        titled = words_for_step(self.definition.wording, step.name).titled
        said = f"The {'lookup' if is_lookup else 'reversal'} of {titled} {why}."
        if effect.by_hand and not failures:
            said = f"{titled} was done by hand."
        answer = waits.ask(
            self.workflow,
            _question(effect),
            question=f"{said} Has someone reversed it?",
            facts={
                **({"Done by hand, under the reference": effect.by_hand} if effect.by_hand else {}),
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
        # The next question is a new one, even after this one expired: after a retry a kept effect may have to be
        # undone, and its undo may fail again.
        waits.withdraw(self.workflow, _question(effect))
        return effect

    def _settle(self, effect: KnownEffect, form: Mapping[str, Any], *, by: str) -> KnownEffect:
        """Write the call's state as a person reports it (`operations.answer_models.DealtWith`)."""
        rows, reference = self.ledger.rows, form.get("reference", "")
        if form.get("never_happened") is True:
            # The failures are reset first: a retry may make this very call, and its undo has not failed.
            effect = rows.set_undo_failures(effect, NONE)
            # The service's answer may have come meanwhile: then the call happened, and is undone now.
            return effect if effect.state == DONE else rows.decide(effect, NOT_DONE, result=None, by=by)
        state = Effect.State.KEPT if form.get("kept") is True else Effect.State.UNDONE
        return rows.decide_undo(effect, state, by=by, result={"reference": reference} if reference else {})


def _may_answer_itself(step: Step, effect: KnownEffect) -> bool:
    """Whether a lookup may answer the question about an effect.

    Never if it has killed its workers, nor of what was done by hand: its reference may be another patient's.
    """
    if effect.by_hand or effect.error_code in (DEATHS_TASK_TYPE, LOSSES_TASK_TYPE):
        return False
    return bool(step.undo and (step.undo_lookup if effect.state == Effect.State.DONE else step.lookup))


def _question(effect: KnownEffect) -> str:
    """The name of the wait for a person's answer about the effect's undo."""
    return f"{QUESTION_PREFIX}{effect.step}:{effect.generation}"
