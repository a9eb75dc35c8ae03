"""The rows of a workflow's effects: read once, and written by one attempt.

A *fenced* statement writes only while the claim holds the workflow (see `state.attempt_log`), and overwrites only the
state that was read.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from operator import attrgetter
from time import monotonic
from typing import Any

from pydantic_core import to_json

from workflows import failpoints
from workflows.definition import Step, undo_of
from workflows.effects import DONE, IN_DOUBT, INTENT, NOT_DONE, SKIPPED, UNDONE, KnownEffect, key_of
from workflows.errors import ClaimLost
from workflows.models import Effect, Workflow
from workflows.postgres import sqlstates
from workflows.signals import store
from workflows.state import attempt_log
from workflows.state.attempt_log import FENCE, OpenAttempt
from workflows.state.transitions import Failures

# Seconds. A call's age is measured from its INTENT. If the INTENT takes longer than this to commit (a disk or a replica
# stalls), it is written again before the call.
MAX_INTENT_SECONDS = 1.0

# The columns of no error, and the SQL that sets the columns of an error.
_NO_ERROR = {"error_class": "", "error_code": "", "error_message": ""}
_SET_ERROR = ", ".join(f"{column} = %({column})s" for column in _NO_ERROR)


_CALL_NUMBER = attrgetter("call_number")


class EffectRows:
    """The effects of the attempt's workflow, the latest generation of each."""

    def __init__(self, workflow: Workflow, attempt: OpenAttempt) -> None:
        self.workflow = workflow
        self.attempt = attempt
        self._known = _load(workflow)
        self._is_complete = workflow.status == Workflow.Status.COMPLETE
        # Parameters that identify the workflow and the attempt.
        self._ours = {
            "workflow_id": workflow.pk,
            "attempt": attempt.id,
            "attempt_token": attempt.token,
            "claim_xid": attempt.claim_xid,
        }

    def latest(self) -> list[KnownEffect]:
        """The latest generation of each effect, in the order in which their calls were started.

        Each INTENT draws a number for that. The ids would not do: a person's "did not happen" makes the row of the next
        generation long before its call. Nor would the times: the clock may have been set back between two calls.
        """
        return sorted(self._known.values(), key=_CALL_NUMBER)

    def find(self, step: Step) -> KnownEffect | None:
        """The step's effect of the latest generation, under its oldest name or, from an older release, another name.

        If there are several, one that is DONE comes first, then one in doubt: a release that did not declare
        the older name may have made the call.
        """
        known = [self._known[name] for name in step.names if name in self._known]
        if not known:
            return None
        return min(known, key=lambda effect: (effect.state != DONE, effect.state not in IN_DOUBT))

    def remember(self, effect: KnownEffect) -> KnownEffect:
        """Remember an effect as it was written, and return it."""
        self._known[effect.step] = effect
        return effect

    # --- The call -------------------------------------------------------------------------------------

    def write_intent(
        self,
        step: str,
        generation: int,
        key: str,
        *,
        expected: str | None = None,
        undoes: int | None = None,
        has_undo: bool = False,
    ) -> KnownEffect | None:
        """Write the INTENT of a call, or of the undo of the effect `undoes`. Returns None if it was not written.

        `expected` is the state that was read for this generation's effect, or for its undo; None if there was none. A
        call is not written if a person has asked to cancel the workflow. An undo ignores such a request; so does a
        deferred step, whose workflow is complete. Raises ClaimLost if another worker, which has lost the row, is
        writing the same call.
        """
        undo = undoes is not None
        at = undo_of(step) if undo else step
        intent = {"step": step, "generation": generation, "undo": undo, "key": key, "has_undo": has_undo}
        intent["ignores_cancel"] = undo or self._is_complete
        failpoints.reach("before_intent", at)
        while True:
            sent_at = monotonic()
            statement = _WRITE_INTENT if expected is None else _WRITE_INTENT_AGAIN
            try:
                rows = attempt_log.execute_with_held_back(
                    self.attempt, statement, {**self._ours, **intent, "expected": expected}
                )
            except ClaimLost as lost:
                if not sqlstates.violates(lost, "effect_unique_call"):
                    raise
                # Raised without the database's error, because this is no defect that the worker should report.
                raise ClaimLost("another worker, which has lost the row, was beginning the same call") from None
            if not rows:
                return None
            # If the claim has ended meanwhile, this INTENT may already look older than `settle` to the next worker,
            # which would conclude that the call, about to be made, can no longer be on its way.
            if monotonic() < sent_at + MAX_INTENT_SECONDS:
                break
            expected = INTENT
        failpoints.reach("after_intent", at)
        ((effect_id, key_age, number),) = rows
        of_call = (effect_id, step, generation, INTENT, key, None, key_age, 0.0, monotonic())
        begun = KnownEffect(*of_call, has_undo=has_undo, call_number=number, undoes=undoes)
        if not undo:
            self._known[step] = begun
        return begun

    def record_outcome(
        self,
        effect: KnownEffect,
        state: Effect.State,
        *,
        result: dict[str, Any] | None = None,
        error: dict[str, str] | None = None,
    ) -> None:
        """Write a call's outcome with the next statement, but before anything else is done."""
        at = effect.step if effect.undoes is None else undo_of(effect.step)
        if state != SKIPPED:  # SKIPPED means that no call was made
            failpoints.reach("after_call", at)
        statement = _OUTCOME
        if effect.undoes is None:
            self._known[effect.step] = effect._replace(state=state, result=result)
        elif state == DONE:
            self.remember(self._known[effect.step]._replace(state=UNDONE))
            statement = _UNDONE
        own = {"effect_id": effect.id, "undoes": effect.undoes, "attempt_token": self.attempt.token}
        outcome = {"state": state, "result": _json_or_null(result), **(error or _NO_ERROR)}
        attempt_log.hold_back(self.attempt, statement, {**own, **outcome})
        failpoints.reach_when_written("after_result", at)

    def state_of_undo(self, effect: KnownEffect) -> str | None:
        """The state of the effect's undo; None if it was not called yet. Raises ClaimLost if it is DONE by now."""
        rows = attempt_log.execute(
            "SELECT state FROM workflows_effect WHERE workflow_id = %s AND step = %s AND generation = %s AND undo",
            [self.workflow.pk, effect.step, effect.generation],
        )
        if rows == [(DONE,)]:
            raise ClaimLost("an earlier attempt has written since that the undo is done")
        return rows[0][0] if rows else None

    # --- Decisions --------------------------------------------------------------------------------------

    def decide(
        self, effect: KnownEffect, state: Effect.State, *, result: dict[str, Any] | None = None, by: str
    ) -> KnownEffect:
        """Decide the state of a call that an earlier attempt started. Fenced: only the row lock's holder may.

        Raises ClaimLost if that attempt has written its result since the effect was read; the next attempt reads it.
        """
        self._fenced(_DECIDE, self._parameters_of(effect, state, result, by))
        return self.remember(effect._replace(state=state, result=result))

    def begin_new_generation(self, effect: KnownEffect, *, by: str) -> KnownEffect:
        generation = effect.generation + 1
        key = key_of(self.workflow, effect.step, generation)
        following = {"step": effect.step, "generation": generation, "key": key, "has_undo": effect.has_undo}
        ((effect_id,),) = self._fenced(
            _BEGIN_NEW_GENERATION, {**self._parameters_of(effect, NOT_DONE, None, by), **following}
        )
        return self.remember(
            KnownEffect(effect_id, effect.step, generation, NOT_DONE, key, None, 0.0, 0.0, monotonic(), effect.has_undo)
        )

    def decide_undo(
        self, effect: KnownEffect, state: Effect.State, *, by: str, result: Mapping[str, Any]
    ) -> KnownEffect:
        """Record that a person or a lookup has settled the effect's undo: it is UNDONE, or KEPT as it is.

        UNDONE also writes the undo's own row: DONE, with `result`. KEPT leaves an undo in doubt as it is, and it is
        reported as in doubt, because nobody has said that it did not happen.
        """
        if state != UNDONE:
            return self.decide(effect, state, result=effect.result, by=by)
        undo = {"step": effect.step, "generation": effect.generation, "undo_key": effect.undo_key}
        undo["undo_result"] = _json_or_null(result)
        self._fenced(_DECIDE_UNDO, {**self._parameters_of(effect, state, effect.result, by), **undo})
        return self.remember(effect._replace(state=state))

    def failures_of_undo(self, effect: KnownEffect) -> Failures:
        """How often the effect's undo failed, including the check whether to undo it."""
        known = self._known[effect.step]
        return Failures(known.undo_failures + known.undo_unavailable, known.undo_unavailable)

    def set_undo_failures(
        self, effect: KnownEffect, failures: Failures, error: dict[str, str] | None = None
    ) -> KnownEffect:
        """Set the failures of the effect's undo: to the maximum to give it up, to none to try it again."""
        description = error or _NO_ERROR
        refused = failures.number - failures.unavailable
        counts: dict[str, Any] = {"undo_failures": refused, "undo_unavailable": failures.unavailable}
        attempt_log.flush(self.attempt)
        self._fenced(
            f"""UPDATE workflows_effect
                   SET undo_failures = %(undo_failures)s, undo_unavailable = %(undo_unavailable)s, {_SET_ERROR}
                 WHERE id = %(effect_id)s AND {FENCE} RETURNING id""",  # noqa: S608 (FENCE is ours)
            {"effect_id": effect.id, **counts, **description, **self._ours},
        )
        code, text = description["error_code"], _error_text(*description.values())
        return self.remember(self._known[effect.step]._replace(**counts, error=text, error_code=code))

    def _parameters_of(
        self, effect: KnownEffect, state: Effect.State, result: dict[str, Any] | None, by: str
    ) -> dict[str, Any]:
        return {
            "effect_id": effect.id,
            "expected": effect.state,
            "state": state,
            "result": _json_or_null(result),
            "settled_by": by,
            **self._ours,
        }

    def _fenced(self, sql: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        rows = attempt_log.execute(sql, parameters)
        if not rows:
            raise ClaimLost("the claim ended before the effect was decided")
        return rows


# Writes only if the effect still holds the token of the attempt that made the call. Ids are not enough: a server that
# takes over, and lacks the last moments, uses ids again, and a late write would reach another workflow's effect.
_OUTCOME = f"""
    UPDATE workflows_effect
       SET state = %(state)s, result = %(result)s, {_SET_ERROR}, settled_at = clock_timestamp(), settled_by = 'call'
     WHERE id = %(effect_id)s AND attempt_token = %(attempt_token)s"""  # noqa: S608 (ours)


# A successful undo: it becomes DONE and its effect UNDONE.
_UNDONE = """
    UPDATE workflows_effect
       SET state = CASE id WHEN %(effect_id)s THEN 'done' ELSE 'undone' END,
           result = CASE id WHEN %(effect_id)s THEN %(result)s::jsonb ELSE result END,
           error_class = '', error_code = '', error_message = '',
           settled_at = CASE id WHEN %(effect_id)s THEN clock_timestamp() ELSE settled_at END,
           settled_by = CASE id WHEN %(effect_id)s THEN 'call' ELSE 'undo' END
     WHERE id IN (%(effect_id)s, %(undoes)s)
       AND EXISTS (
           SELECT FROM workflows_effect u WHERE u.id = %(effect_id)s AND u.attempt_token = %(attempt_token)s)"""


_INTENT = f"""
    INSERT INTO workflows_effect AS e
           (workflow_id, step, generation, undo, state, idempotency_key, attempt, attempt_token, has_undo)
    SELECT %(workflow_id)s, %(step)s, %(generation)s, %(undo)s, 'intent', %(key)s, %(attempt)s, %(attempt_token)s,
           %(has_undo)s
     WHERE {FENCE} AND (%(ignores_cancel)s OR NOT {store.cancel_requested_sql("%(workflow_id)s")})"""
_BEGUN = "RETURNING id, extract(epoch FROM clock_timestamp() - first_begun_at)::float, call_number"


# For a call that is not on the ledger. ON CONFLICT would write a second record to the WAL. If another worker that has
# lost the row is writing the same call, the unique key refuses this one, and the claim is lost.
_WRITE_INTENT = f"""{_INTENT}
       AND NOT EXISTS (
           SELECT FROM workflows_effect
            WHERE workflow_id = %(workflow_id)s AND step = %(step)s::varchar AND generation = %(generation)s
              AND undo = %(undo)s)
    {_BEGUN}"""


_WRITE_INTENT_AGAIN = f"""{_INTENT}
    ON CONFLICT (workflow_id, step, generation, undo) DO UPDATE
       SET state = 'intent', attempt = excluded.attempt, attempt_token = excluded.attempt_token,
           begun_at = clock_timestamp(),
           has_undo = excluded.has_undo OR (e.has_undo AND e.state IN ('intent', 'unknown')),
           first_begun_at = CASE e.state WHEN 'skipped' THEN clock_timestamp() ELSE e.first_begun_at END,
           call_number = excluded.call_number,
           settled_at = NULL, settled_by = '', error_class = '', error_code = '', error_message = ''
     WHERE e.state = %(expected)s
    {_BEGUN}"""  # noqa: S608 (ours)


# The time at which the call was answered stays, whatever happens to its undo, which has its own row. A call without an
# answer gets the time of the person's decision.
_DECIDE = f"""
    UPDATE workflows_effect
       SET state = %(state)s, result = %(result)s, settled_by = %(settled_by)s,
           settled_at = CASE WHEN %(state)s::varchar IN ('undone', 'kept') AND result IS NOT NULL
                             THEN coalesce(settled_at, clock_timestamp()) ELSE clock_timestamp() END,
           attempt = %(attempt)s, attempt_token = %(attempt_token)s
     WHERE id = %(effect_id)s AND state = %(expected)s AND {FENCE} RETURNING id"""  # noqa: S608 (FENCE is ours)


_BEGIN_NEW_GENERATION = f"""
    WITH old AS ({_DECIDE})
    INSERT INTO workflows_effect
           (workflow_id, step, generation, state, idempotency_key, attempt, attempt_token, has_undo)
    SELECT %(workflow_id)s, %(step)s, %(generation)s, 'not_done', %(key)s, %(attempt)s, %(attempt_token)s, %(has_undo)s
      FROM old RETURNING id"""  # noqa: S608 (_DECIDE is ours)


_DECIDE_UNDO = f"""
    WITH effect AS ({_DECIDE})
    INSERT INTO workflows_effect
           (workflow_id, step, generation, undo, state, idempotency_key, attempt, attempt_token, result, settled_at,
            settled_by)
    SELECT %(workflow_id)s, %(step)s, %(generation)s, true, 'done', %(undo_key)s, %(attempt)s, %(attempt_token)s,
           %(undo_result)s::jsonb, clock_timestamp(), %(settled_by)s FROM effect
    ON CONFLICT (workflow_id, step, generation, undo) DO UPDATE
       SET state = 'done', result = excluded.result, settled_at = excluded.settled_at, settled_by = excluded.settled_by,
           error_class = '', error_code = '', error_message = ''
    RETURNING id"""  # noqa: S608 (_DECIDE is ours)


def begin_again(workflow: Workflow, names: Collection[str]) -> None:
    """Give a new key to each call of these steps that was refused or never sent, in an operation's transaction.

    The next call has other content, which a service refuses under the previous key.
    """
    refused = Effect.objects.filter(workflow=workflow.pk, undo=False, step__in=names)
    latest = refused.order_by("step", "-generation").distinct("step")
    Effect.objects.bulk_create(
        Effect(
            workflow=workflow,
            step=each.step,
            generation=each.generation + 1,
            state=NOT_DONE,
            idempotency_key=key_of(workflow, each.step, each.generation + 1),
            attempt=each.attempt,
            # A refused charge stays one: without a name it would count as made by hand, and retracted.
            settled_by="call" if each.settled_by == "call" else "",
            has_undo=each.has_undo,
        )
        for each in latest
        if each.state == NOT_DONE
    )


def _load(workflow: Workflow) -> dict[str, KnownEffect]:
    """The workflow's effects by step, the latest generation of each."""
    rows = attempt_log.execute(
        """SELECT id, step, generation, state, idempotency_key, result::text,
                  extract(epoch FROM statement_timestamp() - first_begun_at)::float,
                  extract(epoch FROM statement_timestamp() - begun_at)::float,
                  has_undo, undo_failures, undo_unavailable,
                  concat_ws(': ', coalesce(nullif(error_code, ''), nullif(error_class, '')), nullif(error_message, '')),
                  error_code,
                  EXISTS (SELECT FROM workflows_wait w
                           WHERE w.workflow_id = e.workflow_id AND w.name = 'undeclared:' || e.step || ':asked'
                             AND NOT w.superseded),
                  call_number, by_hand
             FROM workflows_effect e WHERE workflow_id = %s AND NOT undo ORDER BY generation""",
        [workflow.pk],
    )
    return {
        step: KnownEffect(
            *(effect_id, step, generation, state, key or key_of(workflow, step, generation)),
            *(json.loads(result) if result else None, key_age, call_age, monotonic(), *known),
        )
        for effect_id, step, generation, state, key, result, key_age, call_age, *known in rows
    }


def _error_text(error_class: str, error_code: str, message: str) -> str:
    return ": ".join(part for part in (error_code or error_class, message) if part)


def _json_or_null(result: Mapping[str, Any] | None) -> str | None:
    return None if result is None else to_json(dict(result)).decode()
