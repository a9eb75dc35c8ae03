"""ONCE: the ledger of effects. A call that changes something elsewhere is written down before it is made, and after.

| state | means | the next attempt |
|---|---|---|
| INTENT | begun, and no more is known: the worker died in the call | asks whether it happened |
| UNKNOWN | it timed out, broke off after sending, or raised something unforeseen | asks whether it happened |
| DONE | it happened, and the result is recorded | merges the result, calls nothing |
| NOT_DONE | refused, or never sent | calls, under the same key |
| SKIPPED | the step did not apply | evaluates it again |
| UNDONE | it happened, and was undone (`workflows.compensation`) | calls, under a new key |
| KEPT | it happened, and a person let it stand when the rest was undone | as DONE: a retry makes it that |

*Did it happen?* A lookup tells, if the step has one. Else the call is repeated under its key while the downstream still
honours that (`key_ttl`). Else a person is asked. A repeat settles the doubt by its success only: that it is refused, or
finds nobody, is true of the repeat, and says nothing of the first call.

INTENT and everything that a later attempt decides are fenced (see `workflows.journal`), and written only over the state
that was read. The result of a call is written wherever the effect still holds the token of the attempt that made it,
also when the claim is lost: it is the truth.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from math import inf
from time import monotonic
from typing import Any

from workflows import failpoints, inbox, journal, waits
from workflows.definition import Lookup, Step, WorkflowDefinition, left_step, undo_of
from workflows.errors import ClaimLost, RetryableStepError, StepError, Suspend, UnknownOutcome, all_of
from workflows.journal import FENCE, OpenAttempt
from workflows.models import Effect, Workflow
from workflows.postgres.jsonb import as_json
from workflows.timeouts import StepTimeout, call_within

DONE, INTENT, NOT_DONE = Effect.State.DONE, Effect.State.INTENT, Effect.State.NOT_DONE
SKIPPED, UNKNOWN, UNDONE = Effect.State.SKIPPED, Effect.State.UNKNOWN, Effect.State.UNDONE
IN_DOUBT = (INTENT, UNKNOWN)
MAY_HAVE_HAPPENED = (*IN_DOUBT, DONE)

# How long a person has to say whether an effect happened: a month, with all holidays in it.
DOUBT_TIMEOUT = timedelta(days=30)

DOUBT_TASK = "effect_in_doubt"

# What a repeat has failed with that found that the step does not apply any more.
DOES_NOT_APPLY = "does_not_apply"
# What a step has failed with that had its idempotency key in hand, and returned None all the same.
NONE_AFTER_KEY = "none_after_key"

# Seconds. An INTENT that takes longer to be committed (a disk or a replica that stalls) is written again before the
# call: how old a call is, is measured from there.
PROMPTLY = 1.0

# A deploy takes minutes, and one that is taken back an hour.
UNDECLARED_PATIENCE = timedelta(hours=1)
UNDECLARED_LOOK = timedelta(minutes=1)
UNDECLARED_TASK = "step_undeclared"

Result = Mapping[str, Any]
Describe = Callable[[BaseException], dict[str, str]]


@dataclass(frozen=True, slots=True)
class KnownEffect:
    """What the ledger knows of an effect; given to a step's lookup and undo. Ages are seconds, by the database's clock.

    `undoes` is the effect that this one undoes, if it does; `undo_failures` counts those of its own undo.
    `asked_if_gone`: a release that did not declare the step has asked a person whether that is right.
    """

    id: int
    step: str
    generation: int
    state: str
    idempotency_key: str
    result: dict[str, Any] | None
    key_age: float
    call_age: float
    has_undo: bool = False
    undo_failures: int = 0
    error: str = ""
    error_code: str = ""
    asked_if_gone: bool = False
    undoes: int | None = None
    seen_at: float = field(default_factory=monotonic)

    @property
    def undo_key(self) -> str:
        """The idempotency key of its undo."""
        return f"{self.idempotency_key}:undo"

    def since_key(self) -> float:
        """Seconds since its key was first sent."""
        return self.key_age + monotonic() - self.seen_at

    def since_call(self) -> float:
        """Seconds since the call was last begun."""
        return self.call_age + monotonic() - self.seen_at


class Unanswered(waits.WaitFailed):
    """Nobody has said in time whether a call has happened. A retry asks again."""


class Undeclared(waits.WaitFailed):
    """The ledger holds a call of a step that this release does not declare, and a person said that it should."""


class Unsettled(RetryableStepError):
    """Whether a call has happened cannot be told before so many `seconds`: it may still be on its way.

    No failure of the step: however little patience it has, it does not fail for good by that.
    """

    def __init__(self, message: str, *, code: str, seconds: float) -> None:
        super().__init__(message, code=code, base_delay=seconds, max_delay=seconds, jitter_factor=0)


class DoesNotApply(UnknownOutcome):
    """A repeat has found that the step does not apply any more, which says nothing of its first call."""


class Ledger:
    """A workflow's effects, read once and kept up to date through one attempt."""

    def __init__(self, definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt) -> None:
        self.workflow = workflow
        self.attempt = attempt
        self._definition = definition
        self._effects = _load(attempt)
        # Once, and not before each call: what this attempt adds is declared.
        self._undeclared = [
            effect
            for effect in self.effects()
            if effect.state in MAY_HAVE_HAPPENED and not definition.declares(effect.step)
        ]
        for effect in self.effects():
            if effect.asked_if_gone and definition.declares(effect.step):
                self._forget_what_was_said_of(effect)

    def perform(
        self, step: Step, context: Any, call: Callable[[], Result | None], describe: Describe
    ) -> tuple[dict[str, Any] | None, bool]:
        """Make a `once` step's call, unless it has been made: then return what is recorded.

        Returns the result (None when the step did not apply) and whether it had been recorded before. `call` makes the
        call; `describe` says what may be told of an error. Raises what the call raises; RetryableStepError or Suspend
        while nobody can tell whether an earlier call has happened.
        """
        effect = self._find(step)
        if effect and effect.state in IN_DOUBT:
            effect = self._did_it_happen(step, context, effect)
        if effect and effect.state == DONE:
            return effect.result, True
        repeats = effect is not None and effect.state in IN_DOUBT
        begun = self._begin(step, effect)
        try:
            return self._call(begun, call, describe, timeout=step.timeout, repeats_a_doubt=repeats), False
        except DoesNotApply as error:
            # No failure of the step: a person is asked as soon as no call can be on its way any more.
            raise Unsettled(str(error), code=error.code, seconds=step.settle) from error

    def require_certainty(self, context: Any) -> None:
        """Before COMPLETE: find out about each call in doubt that no step has found out about.

        Those are the calls of steps that have left the list, and calls under another name of a step. What a best-effort
        step may have done, nobody needs to know.
        """
        for effect in self.effects():
            step = self._definition.step_called(effect.step)
            if not (step and step.once):
                step = left_step(effect.step)
            if effect.state in IN_DOUBT and not step.best_effort:
                self.find_out(step, context, effect, look_every=UNDECLARED_PATIENCE)

    def effects(self) -> list[KnownEffect]:
        """The latest generation of each effect, in the order in which their calls were begun.

        Not that of the rows: a person's "did not happen" makes the next generation's, long before its call.
        """
        return sorted(self._effects.values(), key=lambda effect: (-effect.call_age, effect.id))

    def _find(self, step: Step) -> KnownEffect | None:
        """The step's effect of the latest generation, under its oldest name or, from before that was so, another.

        Of several names that one counts whose call has happened, or else may have: a release that did not declare the
        older one may have made the call, where that had come to nothing.
        """
        known = [self._effects[name] for name in step.names if name in self._effects]
        return min(known, key=lambda effect: (effect.state != DONE, effect.state not in IN_DOUBT), default=None)

    # --- Making the call ----------------------------------------------------------------------------

    def _begin(self, step: Step, known: KnownEffect | None) -> KnownEffect:
        """Write the INTENT; together with the outcome of the call before, in one statement and one commit.

        Raises WorkflowCancelled when somebody has asked for that: the last moment to look is the one to look in. Raises
        ClaimLost when the effect is no longer what was read: a worker that has lost the row has told its result since.
        """
        name, generation, over = (known.step, known.generation, known.state) if known else (step.identity, 1, None)
        if over == UNDONE:
            generation, over = generation + 1, None
        if over not in IN_DOUBT:
            self._require_declared()
        key, has_undo = _key(self.workflow, name, generation), step.undo is not None
        written = self._write_intent(name, generation, key, over=over, has_undo=has_undo)
        if not written:
            journal.prove(self.attempt)
            lost = ClaimLost("the effect is not as it was read: an earlier attempt has told its result since")
            raise inbox.cancellation(self.workflow.pk) or lost
        effect_id, key_age = written
        return self._know(KnownEffect(effect_id, name, generation, INTENT, key, None, key_age, 0.0, has_undo))

    def _write_intent(
        self,
        step: str,
        generation: int,
        key: str,
        *,
        over: str | None = None,
        undo: bool = False,
        has_undo: bool = False,
    ) -> tuple[int, float] | None:
        """The effect's id and the age of its key; None when it was not written.

        `over` is the state that was read of the effect of this generation, or of its undo; None when there was none.
        """
        at = _boundary(step, undo)
        failpoints.reach("before_intent", at)
        while True:
            asked_at = monotonic()
            rows = journal.execute_with_deferred(
                self.attempt,
                _WRITE_INTENT,
                [
                    *(self.workflow.pk, step, generation, undo, key, self.attempt.id, self.attempt.token, has_undo),
                    *(self.attempt.claim_xid, undo, self.workflow.pk, over),
                ],
            )
            if not rows:
                return None
            # By now it may be as old as `settle` for the next worker, should the claim have ended meanwhile: that one
            # would believe that a call cannot be on its way any more which is only about to be made.
            if monotonic() < asked_at + PROMPTLY:
                break
            over = INTENT
        failpoints.reach("after_intent", at)
        return rows[0]

    def _call(
        self,
        effect: KnownEffect,
        call: Callable[[], Result | None],
        describe: Describe,
        *,
        timeout: float = inf,
        repeats_a_doubt: bool = False,
    ) -> dict[str, Any] | None:
        _keys_in_use[self.workflow.pk] = _KeyInUse(effect.idempotency_key)
        out_of_time_at = monotonic() + timeout
        try:
            recorded = self._result(effect, call, repeats_a_doubt)
            if recorded is None and monotonic() >= out_of_time_at:
                raise StepTimeout  # the step has swallowed it, and may have called before
        except ClaimLost:
            raise
        except BaseException as error:
            in_time = monotonic() < out_of_time_at
            nothing_happened = in_time and _says_that_nothing_happened(error, repeats_a_doubt)
            self._settle(effect, NOT_DONE if nothing_happened else UNKNOWN, error=describe(error))
            raise
        finally:
            del _keys_in_use[self.workflow.pk]
        self._settle(effect, SKIPPED if recorded is None else DONE, result=recorded)
        return recorded

    def _result(
        self, effect: KnownEffect, call: Callable[[], Result | None], repeats_a_doubt: bool
    ) -> dict[str, Any] | None:
        """What the call returns, in its JSON form; None when the step did not apply."""
        try:
            result = call()
        except Suspend:
            self.attempt.suspended = None  # an error now: the steps after a best-effort one would wait for it
            raise StepError(
                f"{effect.step} makes a call that is kept, and may not wait; let a step before it wait."
            ) from None
        if effect.undoes is not None:
            result = result or {}  # an undo that has nothing to tell has happened all the same
        if result is None and repeats_a_doubt:
            told = f"{effect.step} does not apply any more, and nobody knows whether its first call has happened."
            raise DoesNotApply(told, code=DOES_NOT_APPLY)
        if result is None and _keys_in_use[self.workflow.pk].asked_for:
            told = f"{effect.step} asked for its idempotency key and returned None, so that it may have made its call."
            raise UnknownOutcome(told, code=NONE_AFTER_KEY)
        with journal.blaming_the_step(self.attempt):
            return None if result is None else as_json(result)

    def _settle(
        self,
        effect: KnownEffect,
        state: Effect.State,
        *,
        result: dict[str, Any] | None = None,
        error: dict[str, str] | None = None,
    ) -> None:
        """Write the outcome of a call, with the next statement or, at the latest, before anything else is done."""
        at = _boundary(effect.step, effect.undoes is not None)
        if state != SKIPPED:  # then there was no call
            failpoints.reach("after_call", at)
        statement = _settled(effect, state, result, error or _NO_ERROR, self.attempt)
        if effect.undoes is None:
            self._know(replace(effect, state=state, result=result))
        elif state == DONE:
            self._know(replace(self._effects[effect.step], state=UNDONE))
            statement = _undone(effect, result, self.attempt)
        journal.defer(self.attempt, *statement)
        failpoints.reach_when_written("after_result", at)

    # --- Did it happen? -----------------------------------------------------------------------------

    def _did_it_happen(self, step: Step, context: Any, effect: KnownEffect) -> KnownEffect:
        """Find out about a call. Returns its effect: DONE, NOT_DONE, or as it is, to be repeated.

        1. By the step's lookup. "Not found" counts only `settle` seconds after the call began: it may be on its way.
        2. By repeating it under its key, while the downstream honours that, unless a repeat has found that the step
           does not apply any more: it would find that again.
        3. By asking a person; not before it is settled, either: their no gives the call a new key.
        """
        if step.lookup:
            return self._look_up(step, step.lookup, context, effect)
        honoured = step.key_ttl is not None and effect.since_key() < step.key_ttl.total_seconds()
        if honoured and effect.error_code != DOES_NOT_APPLY:
            return effect
        if step.best_effort:  # what may fail is not worth a person's time, nor the wait
            raise StepError(f"Whether {effect.step} happened cannot be told.", code="effect_in_doubt")
        self._wait_until_settled(step, effect)
        return self._ask(effect)

    def find_out(
        self, step: Step, context: Any, effect: KnownEffect, *, look_every: timedelta | None = None
    ) -> KnownEffect:
        """Find out about a call without repeating it, as one that is to be undone. Returns it as DONE or NOT_DONE.

        A question to a person that nobody has answered in time is asked again.
        """
        if step.lookup:
            return self._look_up(step, step.lookup, context, effect)
        self._wait_until_settled(step, effect)
        while True:
            try:
                return self._ask(effect, look_every)
            except Unanswered:
                waits.withdraw(self.workflow, _doubt(effect))

    def _look_up(self, step: Step, lookup: Lookup, context: Any, effect: KnownEffect) -> KnownEffect:
        journal.flush(self.attempt)
        journal.prove(self.attempt)
        with journal.blaming_the_step(self.attempt):
            told = call_within(step.timeout, lambda: lookup(workflow=self.workflow, context=context, effect=effect))
            found = None if told is None else as_json(told)
        if found is None:
            self._wait_until_settled(step, effect)
            effect = self._decide(effect, NOT_DONE, by="lookup")
        else:
            effect = self._decide(effect, DONE, result=found, by="lookup")
        waits.withdraw(self.workflow, _doubt(effect))  # should a release without a lookup have asked
        return effect

    def _wait_until_settled(self, step: Step, effect: KnownEffect) -> None:
        unsettled = step.settle - effect.since_call()
        if unsettled > 0:
            told = f"Whether {effect.step} happened can be told when its call can no longer be on its way."
            raise Unsettled(told, code="unsettled", seconds=unsettled)

    def _ask(self, effect: KnownEffect, look_every: timedelta | None = None) -> KnownEffect:
        """Ask a person. Their yes comes with the result's fields; their no begins a new generation, with a new key."""
        journal.flush(self.attempt)
        answer = waits.ask(
            self.workflow,
            _doubt(effect),
            question=f"Did {effect.step} happen?",
            facts={
                "What we know": "The call was begun, and its answer never came.",
                "Idempotency key": effect.idempotency_key,
            },
            task_type=DOUBT_TASK,
            timeout=DOUBT_TIMEOUT,
            look_every=look_every,
        )
        match answer.outcome:
            case "approved":
                return self._decide(effect, DONE, result=answer.result.get("answer") or {}, by=answer.result["by"])
            case "rejected":
                return self._begin_new_generation(effect, by=answer.result["by"])
        told = f"Nobody has said whether {effect.step} happened."
        raise Unanswered(told, code="effect_in_doubt", wait_id=answer.wait_id)

    # --- Steps that have left the list --------------------------------------------------------------

    def _require_declared(self) -> None:
        """Begin no new call beside one of a step that this release does not declare: it may be that very call, renamed.

        The workflow waits, looking every minute, for a release that does; after an hour a person is asked, too.
        """
        for effect in self._undeclared:
            self._require_word_of(effect)

    def _forget_what_was_said_of(self, effect: KnownEffect) -> None:
        """Its step is declared again: should it leave the list once more, that is another question."""
        with journal.current(self.attempt):
            for name in (_undeclared(effect), _undeclared_asked(effect)):
                waits.withdraw(self.workflow, name)

    def _require_word_of(self, effect: KnownEffect) -> None:
        journal.flush(self.attempt)
        waits.wait_for_time(
            self.workflow,
            _undeclared(effect),
            UNDECLARED_PATIENCE,
            look_every=UNDECLARED_LOOK,
            waiting_for=f"a release that declares the step {effect.step}, whose call is on the ledger",
        )
        while True:
            answer = waits.ask(
                self.workflow,
                _undeclared_asked(effect),
                question=f"Is it right that this release has no step {effect.step}?",
                facts={
                    "What we know": f"The ledger holds a call of {effect.step}; this release declares no such step.",
                    "What may be wrong": "The step was renamed, and its call would be made a second time.",
                    "State of the call": Effect.State(effect.state).label,
                    "Idempotency key": effect.idempotency_key,
                },
                task_type=UNDECLARED_TASK,
                timeout=DOUBT_TIMEOUT,
                look_every=UNDECLARED_PATIENCE,
            )
            match answer.outcome:
                case "approved":
                    return
                case "rejected":
                    told = f"{answer.result['by']} said that this release should have the step {effect.step}."
                    raise Undeclared(told, code=UNDECLARED_TASK, wait_id=answer.wait_id)
            waits.withdraw(self.workflow, _undeclared_asked(effect))  # nobody has answered in time: it is asked again

    # --- Undoing it ---------------------------------------------------------------------------------

    def undo(self, effect: KnownEffect, call: Callable[[], Result | None], describe: Describe) -> None:
        """Call the undo of an effect under its key, and write what came of it. Raises what the call raises.

        One whose answer was lost is simply called again: an undo is repeatable.
        """
        over = self._state_of_undo(effect)
        written = self._write_intent(effect.step, effect.generation, effect.undo_key, over=over, undo=True)
        if not written:
            raise ClaimLost(
                "the claim ended before the undo was begun, or an earlier attempt has told its result since"
            )
        undo_id, key_age = written
        undo = KnownEffect(
            undo_id, effect.step, effect.generation, INTENT, effect.undo_key, None, key_age, 0.0, undoes=effect.id
        )
        self._call(undo, call, describe, repeats_a_doubt=over in IN_DOUBT)

    def _state_of_undo(self, effect: KnownEffect) -> str | None:
        """What the ledger says of its undo; None before that was called. Raises ClaimLost when it is DONE by now."""
        rows = journal.execute(
            "SELECT state FROM workflows_effect WHERE workflow_id = %s AND step = %s AND generation = %s AND undo",
            [self.workflow.pk, effect.step, effect.generation],
        )
        if rows == [(DONE,)]:
            raise ClaimLost("an earlier attempt has told since that the undo is done")
        return rows[0][0] if rows else None

    def undo_failed(self, effect: KnownEffect, error: dict[str, str]) -> int:
        """Count a failure of its undo, or of finding out whether there is something to undo; how many there were."""
        failures = self._effects[effect.step].undo_failures + 1
        return self.set_undo_failures(effect, failures, error).undo_failures

    def settle_for_good(self, effect: KnownEffect, state: Effect.State, *, by: str, reference: str = "") -> KnownEffect:
        """A person has dealt with it: it is UNDONE by hand, or KEPT as it is.

        What was done by hand is what its undo has returned: DONE, with the outside reference.
        """
        if state != UNDONE:
            return self._decide(effect, state, result=effect.result, by=by)
        by_hand = [
            self.workflow.pk,
            effect.step,
            effect.generation,
            effect.undo_key,
            self.attempt.id,
            self.attempt.token,
        ]
        told = _dump({"reference": reference} if reference else {})
        self._fenced(_UNDONE_BY_HAND, [*self._decided(effect, state, effect.result, by), *by_hand, told, by])
        return self._know(replace(effect, state=state))

    def set_undo_failures(self, effect: KnownEffect, failures: int, error: dict[str, str] | None = None) -> KnownEffect:
        """Have its undo given up (as many as are allowed, and why), or tried again as often as before (0)."""
        told = error or _NO_ERROR
        journal.flush(self.attempt)
        self._fenced(
            f"""UPDATE workflows_effect
                   SET undo_failures = %s, error_class = %s, error_code = %s, error_message = %s
                 WHERE id = %s AND {FENCE} RETURNING id""",  # noqa: S608 (FENCE is ours)
            [failures, *told.values(), effect.id, self.attempt.claim_xid],
        )
        known = self._effects[effect.step]
        return self._know(replace(known, undo_failures=failures, error=_tell(*told.values())))

    # --- Deciding -----------------------------------------------------------------------------------

    def _decide(
        self, effect: KnownEffect, state: Effect.State, *, result: dict[str, Any] | None = None, by: str
    ) -> KnownEffect:
        """Decide on what an earlier attempt began. Fenced: only the holder of the row may.

        Not if that attempt has told its result since we read the effect: ClaimLost, and the next one knows the truth.
        """
        self._fenced(_DECIDE, self._decided(effect, state, result, by))
        return self._know(replace(effect, state=state, result=result))

    def _decided(
        self, effect: KnownEffect, state: Effect.State, result: dict[str, Any] | None, by: str
    ) -> tuple[Any, ...]:
        """The parameters of _DECIDE."""
        this = self.attempt
        return (state, _dump(result), by, this.id, this.token, effect.id, effect.state, this.claim_xid)

    def _begin_new_generation(self, effect: KnownEffect, *, by: str) -> KnownEffect:
        generation = effect.generation + 1
        key = _key(self.workflow, effect.step, generation)
        rows = self._fenced(
            f"""WITH old AS ({_DECIDE})
                INSERT INTO workflows_effect (
                       workflow_id, step, generation, state, idempotency_key, attempt, attempt_token, has_undo)
                SELECT %s, %s, %s, 'not_done', %s, %s, %s, %s FROM old RETURNING id""",  # noqa: S608 (ours)
            [
                *self._decided(effect, NOT_DONE, None, by),
                *(self.workflow.pk, effect.step, generation, key, self.attempt.id, self.attempt.token, effect.has_undo),
            ],
        )
        return self._know(
            KnownEffect(rows[0][0], effect.step, generation, NOT_DONE, key, None, 0.0, 0.0, effect.has_undo)
        )

    def _fenced(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        rows = journal.execute(sql, parameters)
        if not rows:
            raise ClaimLost("the claim ended before the effect was decided")
        return rows

    def _know(self, effect: KnownEffect) -> KnownEffect:
        self._effects[effect.step] = effect
        return effect


def key_for(workflow: Workflow, step: str) -> str:
    """The idempotency key for a step's call: inside a `once` step that of its effect, else one of the same form.

    It names the workflow, the step (by its oldest name) and the generation; never an attempt, a position in the list or
    a release.
    """
    if in_use := _keys_in_use.get(workflow.pk):
        in_use.asked_for = True
        return in_use.key
    if asked_outside_once:
        asked_outside_once(workflow)
    return _key(workflow, step, 1)


def key_in_use(workflow: Workflow) -> str:
    """The idempotency key of the call that the workflow is making just now; empty when it makes none."""
    in_use = _keys_in_use.get(workflow.pk)
    return in_use.key if in_use else ""


# Is given the workflow whose step asks for a key and is not `once`. For `workflows.testing`; nobody else listens.
asked_outside_once: Callable[[Workflow], None] | None = None


@dataclass(slots=True)
class _KeyInUse:
    """The idempotency key of a call that is being made, and whether its step has asked for it."""

    key: str
    asked_for: bool = False


# By workflow, and not in a ContextVar, which a step's own threads do not see: theirs would be the key of generation 1.
_keys_in_use: dict[int, _KeyInUse] = {}

_WRITE_INTENT = f"""
    INSERT INTO workflows_effect AS e
           (workflow_id, step, generation, undo, state, idempotency_key, attempt, attempt_token, has_undo)
    SELECT %s, %s, %s, %s, 'intent', %s, %s, %s, %s WHERE {FENCE} AND (%s OR NOT {inbox.cancelled("%s")})
    ON CONFLICT (workflow_id, step, generation, undo) DO UPDATE
       SET state = 'intent', attempt = excluded.attempt, attempt_token = excluded.attempt_token,
           begun_at = clock_timestamp(),
           has_undo = excluded.has_undo OR (e.has_undo AND e.state IN ('intent', 'unknown')),
           first_begun_at = CASE e.state WHEN 'skipped' THEN clock_timestamp() ELSE e.first_begun_at END,
           settled_at = NULL, settled_by = '', error_class = '', error_code = '', error_message = ''
     WHERE e.state = %s
    RETURNING id, extract(epoch FROM clock_timestamp() - first_begun_at)::float"""  # noqa: S608 (FENCE is ours)

_DECIDE = f"""
    UPDATE workflows_effect
       SET state = %s, result = %s, settled_by = %s, settled_at = clock_timestamp(), attempt = %s, attempt_token = %s
     WHERE id = %s AND state = %s AND {FENCE} RETURNING id"""  # noqa: S608 (FENCE is ours)

# The undo's own attempt keeps the right to write its result: should it have been on its way all the same, it is told.
_UNDONE_BY_HAND = f"""
    WITH effect AS ({_DECIDE})
    INSERT INTO workflows_effect
           (workflow_id, step, generation, undo, state, idempotency_key, attempt, attempt_token, result, settled_at,
            settled_by)
    SELECT %s, %s, %s, true, 'done', %s, %s, %s::uuid, %s::jsonb, clock_timestamp(), %s FROM effect
    ON CONFLICT (workflow_id, step, generation, undo) DO UPDATE
       SET state = 'done', result = excluded.result, settled_at = excluded.settled_at, settled_by = excluded.settled_by,
           error_class = '', error_code = '', error_message = ''
    RETURNING id"""  # noqa: S608 (_DECIDE is ours)


def _load(attempt: OpenAttempt) -> dict[str, KnownEffect]:
    """The effects of the attempt's workflow by step, the latest generation of each."""
    rows = journal.execute(
        """SELECT id, step, generation, state, idempotency_key, result::text,
                  extract(epoch FROM statement_timestamp() - first_begun_at)::float,
                  extract(epoch FROM statement_timestamp() - begun_at)::float,
                  has_undo, undo_failures,
                  concat_ws(': ', coalesce(nullif(error_code, ''), nullif(error_class, '')), nullif(error_message, '')),
                  error_code,
                  EXISTS (SELECT FROM workflows_wait w
                           WHERE w.workflow_id = e.workflow_id AND w.name = 'undeclared:' || e.step || ':asked'
                             AND NOT w.superseded)
             FROM workflows_effect e WHERE workflow_id = %s AND NOT undo ORDER BY generation""",
        [attempt.workflow_id],
    )
    return {
        step: KnownEffect(effect_id, step, generation, state, key, json.loads(result) if result else None, *known)
        for effect_id, step, generation, state, key, result, *known in rows
    }


def _settled(
    effect: KnownEffect,
    state: Effect.State,
    result: dict[str, Any] | None,
    error: dict[str, str],
    attempt: OpenAttempt,
) -> tuple[str, list[Any]]:
    """The statement that writes what came of a call, if the effect still holds the token of the attempt that made it.

    The token, not ids: a failover to a server that lacks the last moments gives ids out again, and what is written on a
    new connection would land on the effect of another workflow.
    """
    return (
        """UPDATE workflows_effect
              SET state = %s, result = %s, error_class = %s, error_code = %s, error_message = %s,
                  settled_at = clock_timestamp(), settled_by = 'call'
            WHERE id = %s AND attempt_token = %s""",
        [state, _dump(result), *error.values(), effect.id, attempt.token],
    )


def _undone(undo: KnownEffect, result: dict[str, Any] | None, attempt: OpenAttempt) -> tuple[str, list[Any]]:
    """The statement that writes an undo that is DONE, and with it the effect that is UNDONE."""
    return (
        """UPDATE workflows_effect
              SET state = CASE id WHEN %s THEN 'done' ELSE 'undone' END,
                  result = CASE id WHEN %s THEN %s::jsonb ELSE result END,
                  error_class = '', error_code = '', error_message = '',
                  settled_at = clock_timestamp(), settled_by = CASE id WHEN %s THEN 'call' ELSE 'undo' END
            WHERE id IN (%s, %s)
              AND EXISTS (SELECT FROM workflows_effect u WHERE u.id = %s AND u.attempt_token = %s)""",
        [undo.id, undo.id, _dump(result), undo.id, undo.id, undo.undoes, undo.id, attempt.token],
    )


def _says_that_nothing_happened(error: BaseException, repeats_a_doubt: bool) -> bool:
    """A StepError is a refusal, a RetryableStepError says that nothing was sent. All else may have happened.

    Of a repeat that is true of the repeat alone, and says nothing of the first call, unless it answers to their key.
    Nor does a step know better by catching that nobody knows, and raising an error of its own.
    """
    if not isinstance(error, StepError) or isinstance(error, UnknownOutcome):
        return False
    nobody_knows = any(isinstance(each, _NOBODY_KNOWS) for each in all_of(error))
    return error.answers_key or not (repeats_a_doubt or nobody_knows)


# A wait, because the step may have called before it.
_NOBODY_KNOWS = (UnknownOutcome, StepTimeout, Suspend, waits.WaitError)


def _boundary(step: str, undo: bool) -> str:
    """What a failpoint calls a step's call, or its undo's."""
    return undo_of(step) if undo else step


def _doubt(effect: KnownEffect) -> str:
    """The name of the wait for whether it happened."""
    return f"effect:{effect.step}:{effect.generation}"


def _undeclared(effect: KnownEffect) -> str:
    """The name of the wait for a release that declares its step."""
    return f"undeclared:{effect.step}"


def _undeclared_asked(effect: KnownEffect) -> str:
    """The name of the wait for a person who says whether the release is right."""
    return f"{_undeclared(effect)}:asked"


def asked_about(wait_name: str) -> tuple[str, int]:
    """The step and the generation of the effect that a question to a person is about: of its call, or of its undo."""
    step, _, generation = wait_name.partition(":")[2].rpartition(":")
    return step, int(generation)


_NO_ERROR = {"error_class": "", "error_code": "", "error_message": ""}


def _tell(error_class: str, error_code: str, message: str) -> str:
    return ": ".join(part for part in (error_code or error_class, message) if part)


def _key(workflow: Workflow, step: str, generation: int) -> str:
    return f"{workflow.key}:{step}" if generation == 1 else f"{workflow.key}:{step}:{generation}"


def _dump(result: dict[str, Any] | None) -> str | None:
    return None if result is None else json.dumps(result)
