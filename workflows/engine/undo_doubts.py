"""What is not known about an undo: a person is asked, and until they answer, the step's lookup.

The question may answer itself. Every hour, and when a service is back after an outage, the engine calls the step's
`lookup` if the call is in doubt, or its `undo_lookup` if the undo has failed. An effect that turns out to be undone
becomes UNDONE. An effect that still stands, and whose undo failed only because of an outage, is undone now, but only
once. Otherwise the question stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from workflows import waits
from workflows.definition import Lookup, Step, WorkflowDefinition, removed_step
from workflows.effects import DONE, NOT_DONE, KnownEffect
from workflows.effects.ledger import Ledger
from workflows.effects.reconcile import DOUBT_TIMEOUT, LOOK_EVERY, found_by
from workflows.engine.extension import Hooks
from workflows.engine.results import Results, describe
from workflows.engine.retry_budget import OUTAGE_ATTEMPTS
from workflows.engine.runner import call_in_time, ensure_sound, run_in_savepoint
from workflows.errors import Suspend
from workflows.models import Effect, Workflow
from workflows.state import attempt_log
from workflows.state.attempt_log import OpenAttempt
from workflows.state.transitions import NONE, Parking
from workflows.wording import words_for_step

UNDO_TASK_TYPE = "undo_in_doubt"
# Codes with which `engine.poison` gives up an undo before calling it. No lookup is made: it may kill workers, too.
DEATHS_TASK_TYPE, LOSSES_TASK_TYPE = "keeps_dying", "keeps_being_lost"
# The prefix of the names of waits for an answer about an undo.
QUESTION_PREFIX = "undo:"


class UndoDoubts:
    """The calls of one compensation, and the questions about them."""

    def __init__(self, definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt, hooks: Hooks) -> None:
        self.definition = definition
        self.attempt = attempt
        self.hooks = hooks
        self.results = Results(definition, workflow, attempt)
        self.workflow = self.results.workflow_copy
        self.ledger = Ledger(definition, self.workflow, attempt)
        self.parking: Parking | None = None

    def _found_by(self, what: str, step: Step, lookup: Lookup, effect: KnownEffect) -> dict[str, Any] | None:
        result = call_in_time(
            step, self.attempt, lookup, workflow=self.workflow, context=self._context(), effect=effect
        )
        with attempt_log.attribute_to_step(self.attempt):
            found = found_by(what, step, result)
        ensure_sound(f"The {what} of {step.name}", self.attempt)
        return found

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
        rows, reconciler, asked = self.ledger.rows, self.ledger.reconciler, question(effect)
        lookup = step.undo_lookup
        if effect.state != Effect.State.DONE:
            assert step.lookup is not None
            found = reconciler.find(step, step.lookup, self._context(), effect)
            ensure_sound(f"The lookup of {step.name}", self.attempt)
            if not waits.withdraw_unanswered(self.workflow, asked):
                return None
            # The failures are reset first: a retry may make this very call, and its undo has not failed.
            return reconciler.record_found(rows.set_undo_failures(effect, NONE), found)
        assert lookup is not None
        result = self._found_by("undo_lookup", step, lookup, effect)
        if result is None and not self._may_be_undone_now(effect):
            return None
        if not waits.withdraw_unanswered(self.workflow, asked, even_claimed=result is not None):
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
        return effect.undo_unavailable >= OUTAGE_ATTEMPTS and not waits.was_withdrawn(self.workflow, question(effect))

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
            question(effect),
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
        waits.withdraw(self.workflow, question(effect))
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


def question(effect: KnownEffect) -> str:
    """The name of the wait for a person's answer about the effect's undo."""
    return f"{QUESTION_PREFIX}{effect.step}:{effect.generation}"
