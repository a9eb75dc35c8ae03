"""LEDGER: a call that changes something elsewhere is recorded before it is made, and after.

| state | means | the next attempt |
|---|---|---|
| INTENT | started; the worker died in the call | asks whether it happened |
| UNKNOWN | it timed out, broke off after sending, or raised something unforeseen | asks whether it happened |
| DONE | it happened, and the result is recorded | merges the result, calls nothing |
| NOT_DONE | refused, or never sent | calls, under the same key |
| SKIPPED | the step did not apply | evaluates it again |
| UNDONE | it happened, and was undone (`workflows.engine.compensation`) | calls, under a new key |
| KEPT | it happened, and a person left it as it is when the rest was undone | as DONE, which a retry sets |

`effects.reconcile` finds out whether a call in doubt happened. INTENT, and every decision of a later attempt, is fenced
(see `state.attempt_log`), and overwrites only the state that was read. A call's result is true, so it is written even
when the claim is lost, as long as the effect holds the token of the attempt that made the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from time import monotonic
from typing import Any

from workflows import effects, waits
from workflows.definition import Step, WorkflowDefinition
from workflows.effects import DONE, IN_DOUBT, NOT_DONE, SKIPPED, UNDONE, UNKNOWN, KnownEffect, key_of
from workflows.effects.reconcile import DOES_NOT_APPLY, Reconciler, Unsettled
from workflows.effects.rows import EffectRows
from workflows.errors import ClaimLost, PublishError, StepError, Suspend, UnknownOutcome, error_chain
from workflows.models import Workflow
from workflows.postgres.jsonb import as_json
from workflows.signals import store
from workflows.state import attempt_log
from workflows.state.attempt_log import OpenAttempt
from workflows.timeouts import StepTimeout

# The error code of a step that got its idempotency key and still returned None.
NONE_AFTER_KEY = "none_after_key"

Result = Mapping[str, Any]
Describe = Callable[[BaseException], dict[str, str]]


class DoesNotApply(UnknownOutcome):
    """A repeat has found that the step no longer applies; that says nothing about its first call."""


class Ledger:
    """The calls of a workflow's `once` steps, and their undos, in one attempt."""

    def __init__(self, definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt) -> None:
        self.workflow = workflow
        self.attempt = attempt
        self.rows = EffectRows(workflow, attempt)
        self.reconciler = Reconciler(definition, self.rows)

    def perform(
        self, step: Step, context: Any, call: Callable[[], Result | None], describe: Describe
    ) -> tuple[dict[str, Any] | None, bool]:
        """Make a `once` step's call, or return its recorded result if the call was already made.

        Returns the result (None when the step did not apply) and whether it was recorded before. `describe` describes
        an error as it may be shown. Raises what `call` raises; RetryableStepError or Suspend while nobody knows whether
        an earlier call happened.
        """
        effect = self.rows.find(step)
        if not (effect and effect.state == DONE):
            self.attempt.boundary.require_free(step)  # before a lookup, too: each workflow would repeat it
        if effect and effect.state in IN_DOUBT:
            effect = self.reconciler.resolve_or_repeat(step, context, effect)
        if effect and effect.state == DONE:
            return effect.result, True
        if step.needs:
            self.attempt.boundary.require_available(step.needs)
        repeats = effect is not None and effect.state in IN_DOUBT
        begun = self._begin(step, effect)
        try:
            return self._call(begun, call, describe, timeout=step.timeout, repeats_a_doubt=repeats), False
        except DoesNotApply as error:
            if step.best_effort:  # no person is asked, and later tries would find out no more
                raise StepError(str(error), code=error.code) from error
            # Not a failure of the step: a person is asked as soon as no call can be on its way any more.
            raise Unsettled(str(error), code=error.code, seconds=step.settle) from error

    def undo(self, effect: KnownEffect, call: Callable[[], Result | None], describe: Describe) -> None:
        """Call an effect's undo under its key, again if its answer was lost; write the outcome. Raises its errors."""
        expected = self.rows.state_of_undo(effect)
        undo = self.rows.write_intent(
            effect.step, effect.generation, effect.undo_key, expected=expected, undoes=effect.id
        )
        if undo is None:
            raise ClaimLost(
                "the claim ended before the undo was started, or an earlier attempt has written its result since"
            )
        self._call(undo, call, describe, repeats_a_doubt=expected in IN_DOUBT)

    def _begin(self, step: Step, known: KnownEffect | None) -> KnownEffect:
        """Write the INTENT, together with the outcome of the call before it, in one statement and one commit.

        Raises WorkflowCancelled if a person has requested that: this is the last moment to check. Raises ClaimLost if a
        worker that lost the row has written the effect's result since it was read.
        """
        name, generation, expected = (known.step, known.generation, known.state) if known else (step.identity, 1, None)
        if expected == UNDONE:
            generation, expected = generation + 1, None
        if expected not in IN_DOUBT:
            self.reconciler.require_declared()
        key, has_undo = key_of(self.workflow, name, generation), step.undo is not None
        begun = self.rows.write_intent(name, generation, key, expected=expected, has_undo=has_undo)
        if begun is None:
            attempt_log.require_claim(self.attempt)
            lost = ClaimLost("the effect is not as it was read: an earlier attempt has written its result since")
            raise store.cancellation(self.workflow.pk) or lost
        return begun

    def _call(
        self,
        effect: KnownEffect,
        call: Callable[[], Result | None],
        describe: Describe,
        *,
        timeout: float = inf,
        repeats_a_doubt: bool = False,
    ) -> dict[str, Any] | None:
        effects.keys_in_use[self.workflow.id] = effects.KeyInUse(effect.idempotency_key)
        out_of_time_at = monotonic() + timeout
        try:
            recorded = self._result(effect, call, repeats_a_doubt)
            if recorded is None and monotonic() >= out_of_time_at:
                raise StepTimeout(timeout)  # the step has swallowed it, and may already have called
        except ClaimLost:
            raise
        except BaseException as error:
            in_time = monotonic() < out_of_time_at
            nothing_happened = in_time and says_that_nothing_happened(error, repeats_a_doubt)
            self.rows.record_outcome(effect, NOT_DONE if nothing_happened else UNKNOWN, error=describe(error))
            raise
        finally:
            del effects.keys_in_use[self.workflow.id]
        self.rows.record_outcome(effect, SKIPPED if recorded is None else DONE, result=recorded)
        return recorded

    def _result(
        self, effect: KnownEffect, call: Callable[[], Result | None], repeats_a_doubt: bool
    ) -> dict[str, Any] | None:
        """The call's result in its JSON form; None when the step did not apply."""
        try:
            result = call()
        except Suspend:
            # It is now an error; if kept, it would suspend the steps after a best-effort step.
            self.attempt.suspended = None
            raise StepError(
                f"{effect.step} makes a call that is kept, and may not wait; let a step before it wait."
            ) from None
        if effect.undoes is not None:
            result = result or {}  # an undo that returns nothing has happened all the same
        if result is None and repeats_a_doubt:
            message = f"{effect.step} does not apply any more, and nobody knows whether its first call has happened."
            raise DoesNotApply(message, code=DOES_NOT_APPLY)
        if result is None and effects.keys_in_use[self.workflow.id].requested:
            message = (
                f"{effect.step} asked for its idempotency key and returned None, so that it may have made its call."
            )
            raise UnknownOutcome(f"{message} Return {{}} after a call, and None before the key.", code=NONE_AFTER_KEY)
        with attempt_log.attribute_to_step(self.attempt):
            return None if result is None else as_json(result)


def says_that_nothing_happened(error: BaseException, repeats_a_doubt: bool) -> bool:
    """Whether the error shows that the call did not happen: a StepError refuses it, a RetryableStepError never sent it.

    After any other error the call may have happened. An error on a repeat says nothing about the first call, unless the
    service has checked their key. Nor does an error that a step raises after catching an unknown outcome.
    """
    if not isinstance(error, StepError) or isinstance(error, UnknownOutcome):
        return False
    nobody_knows = any(isinstance(each, _NOBODY_KNOWS) for each in error_chain(error))
    return error.answers_key or not (repeats_a_doubt or nobody_knows)


# The last three count because the step may have made its call before it waited or published.
_NOBODY_KNOWS = (UnknownOutcome, StepTimeout, Suspend, waits.WaitError, PublishError)
