"""ONCE: the ledger of effects. A call that changes something elsewhere is written down before it is made, and after.

| state | means | the next attempt |
|---|---|---|
| INTENT | begun, and no more is known: the worker died in the call | asks whether it happened |
| UNKNOWN | it timed out, broke off after sending, or raised something unforeseen | asks whether it happened |
| DONE | it happened, and the result is recorded | merges the result, calls nothing |
| NOT_DONE | refused, or never sent | calls, under the same key |
| SKIPPED | the step did not apply | evaluates it again |

*Did it happen?* A lookup tells, if the step has one. Else the call is repeated under its key while the downstream still
honours that (`key_ttl`). Else a person is asked.

INTENT and everything that a later attempt decides are fenced (see `workflows.journal`). The result of a call is
written wherever the effect still names the attempt that made it, also when the claim is lost: it is the truth.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import timedelta
from time import monotonic
from typing import Any

from workflows import failpoints, journal, waits
from workflows.definition import Lookup, Step
from workflows.errors import ClaimLost, RetryableStepError, StepError, Suspend, UnknownOutcome
from workflows.journal import FENCE, OpenAttempt
from workflows.jsonb import as_json
from workflows.models import Effect, Workflow
from workflows.timeouts import call_within

DONE, INTENT, NOT_DONE = Effect.State.DONE, Effect.State.INTENT, Effect.State.NOT_DONE
SKIPPED, UNKNOWN = Effect.State.SKIPPED, Effect.State.UNKNOWN

# How long a person has to say whether an effect happened: a month, with all holidays in it.
DOUBT_TIMEOUT = timedelta(days=30)

Result = Mapping[str, Any]
Describe = Callable[[BaseException], dict[str, str]]


@dataclass(frozen=True, slots=True)
class KnownEffect:
    """What the ledger knows of an effect; given to a step's lookup. Ages are seconds, by the database's clock."""

    id: int
    step: str
    generation: int
    state: str
    idempotency_key: str
    result: dict[str, Any] | None
    key_age: float
    call_age: float
    seen_at: float = field(default_factory=monotonic)

    def since_key(self) -> float:
        """Seconds since its key was first sent."""
        return self.key_age + monotonic() - self.seen_at

    def since_call(self) -> float:
        """Seconds since the call was last begun."""
        return self.call_age + monotonic() - self.seen_at


class Ledger:
    """A workflow's effects, read once and kept up to date through one attempt."""

    def __init__(self, workflow: Workflow, attempt: OpenAttempt) -> None:
        self.workflow = workflow
        self.attempt = attempt
        self._effects = _load(attempt)

    def perform(
        self, step: Step, context: Any, call: Callable[[], Result | None], describe: Describe
    ) -> tuple[dict[str, Any] | None, bool]:
        """Make a `once` step's call, unless it has been made: then return what is recorded.

        Returns the result (None when the step did not apply) and whether it had been recorded before. `call` makes the
        call; `describe` says what may be told of an error. Raises what the call raises; RetryableStepError or Suspend
        while nobody can tell whether an earlier call has happened.
        """
        effect = self._find(step)
        if effect and effect.state in (INTENT, UNKNOWN):
            effect = self._did_it_happen(step, context, effect)
        if effect and effect.state == DONE:
            return effect.result, True
        return self._call(self._begin(step, effect), call, describe), False

    def _find(self, step: Step) -> KnownEffect | None:
        """The step's effect of the latest generation, under its oldest name or, from before that was so, another."""
        return next((self._effects[name] for name in (*step.formerly, step.name) if name in self._effects), None)

    # --- Making the call ----------------------------------------------------------------------------

    def _begin(self, step: Step, known: KnownEffect | None) -> KnownEffect:
        """Write the INTENT; together with the outcome of the call before, in one statement and one commit."""
        name, generation = (known.step, known.generation) if known else (step.identity, 1)
        key = _key(self.workflow, name, generation)
        failpoints.reach("before_intent", name)
        rows = journal.execute_with_deferred(
            self.attempt,
            _WRITE_INTENT,
            [self.workflow.pk, name, generation, key, self.attempt.id, self.attempt.claim_xid],
        )
        if not rows:
            raise ClaimLost("the claim ended before the effect was begun")
        (effect_id, key_age), *_ = rows
        failpoints.reach("after_intent", name)
        return self._know(KnownEffect(effect_id, name, generation, INTENT, key, None, float(key_age), 0.0))

    def _call(
        self, effect: KnownEffect, call: Callable[[], Result | None], describe: Describe
    ) -> dict[str, Any] | None:
        token = _key_in_use.set(effect.idempotency_key)
        try:
            result = call()
            recorded = None if result is None else as_json(result)
        except ClaimLost:
            raise
        except Suspend:
            error = StepError(f"{effect.step} is a once step, and may not wait; let a step before it wait.")
            self._settle(effect, NOT_DONE, error=describe(error))
            raise error from None
        except BaseException as error:
            # A StepError is a refusal, a RetryableStepError says that nothing was sent. All else may have happened.
            refused = isinstance(error, StepError) and not isinstance(error, UnknownOutcome)
            self._settle(effect, NOT_DONE if refused else UNKNOWN, error=describe(error))
            raise
        finally:
            _key_in_use.reset(token)
        self._settle(effect, SKIPPED if recorded is None else DONE, result=recorded)
        return recorded

    def _settle(
        self,
        effect: KnownEffect,
        state: Effect.State,
        *,
        result: dict[str, Any] | None = None,
        error: dict[str, str] | None = None,
    ) -> None:
        """Write the outcome of a call, with the next statement or, at the latest, before anything else is done."""
        failpoints.reach("after_call", effect.step)
        self._know(replace(effect, state=state, result=result))
        told = error or {"error_class": "", "error_code": "", "error_message": ""}
        journal.defer(
            self.attempt,
            """UPDATE workflows_effect
                  SET state = %s, result = %s, error_class = %s, error_code = %s, error_message = %s,
                      settled_at = clock_timestamp(), settled_by = 'call'
                WHERE id = %s AND attempt = %s""",
            [state, _dump(result), *told.values(), effect.id, self.attempt.id],
        )
        failpoints.reach_when_written("after_result", effect.step)

    # --- Did it happen? -----------------------------------------------------------------------------

    def _did_it_happen(self, step: Step, context: Any, effect: KnownEffect) -> KnownEffect:
        """Find out about a call. Returns its effect: DONE, NOT_DONE, or as it is, to be repeated.

        1. By the step's lookup. "Not found" counts only `settle` seconds after the call began: it may be on its way.
        2. By repeating it under its key, while the downstream honours that.
        3. By asking a person; not before it is settled, either: their no gives the call a new key.
        """
        journal.flush(self.attempt)
        if step.lookup:
            return self._look_up(step, step.lookup, context, effect)
        if step.key_ttl and effect.since_key() < step.key_ttl.total_seconds():
            return effect
        if step.best_effort:  # what may fail is not worth a person's time, nor the wait
            raise StepError(f"Whether {effect.step} happened cannot be told.", code="effect_in_doubt")
        self._wait_until_settled(step, effect)
        return self._ask(effect)

    def _look_up(self, step: Step, lookup: Lookup, context: Any, effect: KnownEffect) -> KnownEffect:
        journal.prove(self.attempt)
        found = call_within(step.timeout, lambda: lookup(workflow=self.workflow, context=context, effect=effect))
        if found is not None:
            return self._decide(effect, DONE, result=as_json(found), by="lookup")
        self._wait_until_settled(step, effect)
        return self._decide(effect, NOT_DONE, by="lookup")

    def _wait_until_settled(self, step: Step, effect: KnownEffect) -> None:
        unsettled = step.settle - effect.since_call()
        if unsettled > 0:
            raise RetryableStepError(
                f"Whether {effect.step} happened can be told when its call can no longer be on its way.",
                code="unsettled",
                base_delay=unsettled,
                max_delay=unsettled,
                jitter_factor=0,
            )

    def _ask(self, effect: KnownEffect) -> KnownEffect:
        """Ask a person. Their yes comes with the result's fields; their no begins a new generation, with a new key."""
        answer = waits.ask(
            self.workflow,
            f"effect:{effect.step}:{effect.generation}",
            question=f"Did {effect.step} happen? Approve if it did, reject if it did not.",
            facts={
                "What we know": "The call was begun, and its answer never came.",
                "Idempotency key": effect.idempotency_key,
            },
            task_type="effect_in_doubt",
            timeout=DOUBT_TIMEOUT,
        )
        match answer.outcome:
            case "approved":
                return self._decide(effect, DONE, result=answer.result.get("answer") or {}, by=answer.result["by"])
            case "rejected":
                return self._begin_new_generation(effect, by=answer.result["by"])
        raise StepError(f"Nobody has said whether {effect.step} happened.", code="effect_in_doubt")

    def _decide(
        self, effect: KnownEffect, state: Effect.State, *, result: dict[str, Any] | None = None, by: str
    ) -> KnownEffect:
        """Decide on what an earlier attempt began. Fenced: only the holder of the row may."""
        self._fenced(_DECIDE, [state, _dump(result), by, self.attempt.id, effect.id, self.attempt.claim_xid])
        return self._know(replace(effect, state=state, result=result))

    def _begin_new_generation(self, effect: KnownEffect, *, by: str) -> KnownEffect:
        generation = effect.generation + 1
        key = _key(self.workflow, effect.step, generation)
        rows = self._fenced(
            f"""WITH old AS ({_DECIDE})
                INSERT INTO workflows_effect (workflow_id, step, generation, state, idempotency_key, attempt)
                SELECT %s, %s, %s, 'not_done', %s, %s FROM old RETURNING id""",  # noqa: S608 (ours)
            [
                *(NOT_DONE, None, by, self.attempt.id, effect.id, self.attempt.claim_xid),
                *(self.workflow.pk, effect.step, generation, key, self.attempt.id),
            ],
        )
        return self._know(KnownEffect(rows[0][0], effect.step, generation, NOT_DONE, key, None, 0.0, 0.0))

    def _fenced(self, sql: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
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
    return _key_in_use.get() or _key(workflow, step, 1)


_key_in_use: ContextVar[str | None] = ContextVar("idempotency_key", default=None)

_WRITE_INTENT = f"""
    INSERT INTO workflows_effect AS e (workflow_id, step, generation, state, idempotency_key, attempt)
    SELECT %s, %s, %s, 'intent', %s, %s WHERE {FENCE}
    ON CONFLICT (workflow_id, step, generation) DO UPDATE
       SET state = 'intent', attempt = excluded.attempt, begun_at = clock_timestamp(),
           first_begun_at = CASE e.state WHEN 'skipped' THEN clock_timestamp() ELSE e.first_begun_at END,
           settled_at = NULL, settled_by = '', error_class = '', error_code = '', error_message = ''
    RETURNING id, extract(epoch FROM clock_timestamp() - first_begun_at)"""  # noqa: S608 (FENCE is ours)

_DECIDE = f"""
    UPDATE workflows_effect
       SET state = %s, result = %s, settled_by = %s, settled_at = clock_timestamp(), attempt = %s
     WHERE id = %s AND {FENCE} RETURNING id"""  # noqa: S608 (FENCE is ours)


def _load(attempt: OpenAttempt) -> dict[str, KnownEffect]:
    """The effects of the attempt's workflow by step, the latest generation of each."""
    rows = journal.execute(
        """SELECT id, step, generation, state, idempotency_key, result::text,
                  extract(epoch FROM clock_timestamp() - first_begun_at),
                  extract(epoch FROM clock_timestamp() - begun_at)
             FROM workflows_effect WHERE workflow_id = %s ORDER BY generation""",
        [attempt.workflow_id],
    )
    return {
        step: KnownEffect(
            *(effect_id, step, generation, state, key, json.loads(result) if result else None),
            *(float(key_age), float(call_age)),
        )
        for effect_id, step, generation, state, key, result, key_age, call_age in rows
    }


def _key(workflow: Workflow, step: str, generation: int) -> str:
    return f"{workflow.key}:{step}" if generation == 1 else f"{workflow.key}:{step}:{generation}"


def _dump(result: dict[str, Any] | None) -> str | None:
    return None if result is None else json.dumps(result)
