"""RECONCILE: find out whether a call in doubt happened: by a lookup, a repeat under its key, or a person's answer.

A person is also asked about a call whose step is no longer in the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from workflows import waits
from workflows.definition import Lookup, Step, WorkflowDefinition, definitions, removed_step
from workflows.effects import DONE, IN_DOUBT, MAY_HAVE_HAPPENED, NOT_DONE, KnownEffect
from workflows.effects.rows import EffectRows
from workflows.errors import RetryableStepError, StepError
from workflows.models import Effect, Workflow
from workflows.models.workflow import PAUSED
from workflows.postgres.jsonb import as_json
from workflows.state import attempt_log, transitions
from workflows.timeouts import StepTimeout, call_within
from workflows.waits import declared
from workflows.wording import words_for_step

# How long a person has to say whether a call happened: a month allows for holidays.
DOUBT_TIMEOUT = timedelta(days=30)

DOUBT_TASK_TYPE = "effect_in_doubt"

# The error code of a repeat which found that the step no longer applies.
DOES_NOT_APPLY = "does_not_apply"

# The longest time between two lookups that may answer a question to a person.
LOOK_EVERY = timedelta(hours=1)


# Whether a call in doubt, `e` of the workflow `w`, will never be resolved: its step is best-effort, and the service no
# longer honours its idempotency key. Parameters: `passed_over()`.
PASSED_OVER = """EXISTS (
    SELECT FROM unnest(%(passed_over_types)s::text[], %(passed_over_steps)s::text[], %(honoured)s::interval[])
             AS passed_over (type, step, honoured)
     WHERE passed_over.type = w.workflow_type AND passed_over.step = e.step AND NOT e.undo
       AND e.first_begun_at + passed_over.honoured < clock_timestamp())"""


def passed_over() -> dict[str, list[Any]]:
    """The parameters of PASSED_OVER. A call that charges is never among them."""
    found = [
        (definition.name, name, step.key_ttl or timedelta(0))
        for definition in definitions().values()
        for step in definition.steps
        if step.once and step.best_effort and not {*step.names} & {*definition.charge_names}
        for name in step.names
    ]
    return {
        "passed_over_types": [workflow_type for workflow_type, _, _ in found],
        "passed_over_steps": [step for _, step, _ in found],
        "honoured": [honoured for _, _, honoured in found],
    }


# Seconds since a call was first started, summed up over its workflow's attempts. A clock that is set back between two
# attempts removes only the time between those two.
_PASSED = """
    WITH call AS (
        SELECT first_begun_at, (
                   SELECT min(number) FROM workflows_attempt a
                    WHERE a.workflow_id = %(workflow_id)s
                      AND (a.closed_at IS NULL OR a.closed_at >= e.first_begun_at)) AS first
          FROM workflows_effect e WHERE e.id = %(effect_id)s),
    each AS (
        SELECT number, opened_at, lead(opened_at, 1, clock_timestamp()) OVER (ORDER BY number) AS following
          FROM workflows_attempt WHERE workflow_id = %(workflow_id)s)
    SELECT coalesce(extract(epoch FROM sum(greatest(interval '0', following -
               CASE WHEN number = first THEN greatest(opened_at, first_begun_at) ELSE opened_at END))), 0)::float8
      FROM each, call WHERE number >= first"""

# Whether people want to say if this call happened, and not a later one (`features.doubts`).
_WANTED = """SELECT FROM workflows_event
              WHERE workflow_id = %s AND kind = 'doubt_asked' AND detail ->> 'call' = %s LIMIT 1"""


class Unanswered(waits.WaitFailed):
    """No person has said in time whether a call happened. A retry asks again."""


class Unsettled(RetryableStepError):
    """For `seconds` nobody can know whether a call happened. It is not a failure, so no policy counts it."""

    def __init__(self, message: str, *, code: str, seconds: float) -> None:
        super().__init__(message, code=code, base_delay=seconds, max_delay=seconds, jitter_factor=0)


class Reconciler:
    """The calls of a workflow that may have happened, and the ways to find out."""

    def __init__(self, definition: WorkflowDefinition, rows: EffectRows) -> None:
        self.rows = rows
        self.workflow: Workflow = rows.workflow
        self.attempt = rows.attempt
        self._definition = definition
        latest = rows.latest()
        # Read once, not before each call: all calls that this attempt adds are declared.
        self._undeclared = [
            effect for effect in latest if effect.state in MAY_HAVE_HAPPENED and not definition.declares(effect.step)
        ]
        for effect in latest:
            if effect.asked_if_gone and definition.declares(effect.step):
                declared.withdraw_questions(self.workflow, _undeclared(effect))

    def resolve_or_repeat(self, step: Step, context: Any, effect: KnownEffect) -> KnownEffect:
        """Find out whether a call happened. Returns its effect: DONE, NOT_DONE, or unchanged, to be repeated.

        A step with a lookup uses only that, and people's word if they want to give it. Otherwise the call is repeated
        under its key, while the service honours the key, unless a repeat has already found that the step no longer
        applies: the next one would, too. Otherwise a person is asked; a "no" gives the call a new key. "Not found"
        counts, and a person is asked, only `settle` seconds after the call started: it may still be on its way.
        """
        if step.lookup:
            return self._look_up(step, step.lookup, context, effect) or self._ask(effect)
        if self._is_honoured(step, effect) and effect.error_code != DOES_NOT_APPLY:
            return effect
        if step.best_effort:  # not worth a person's time, nor the wait
            raise StepError(f"Whether {effect.step} happened cannot be told.", code="effect_in_doubt")
        return self._ask(effect)

    def _is_honoured(self, step: Step, effect: KnownEffect) -> bool:
        """Whether the service still honours the key: by the clock, and by the attempts, because clocks may be set back.

        After that a repeat would be a second call: a second charge.
        """
        honoured = step.key_ttl.total_seconds() if step.key_ttl else 0.0
        if effect.since_key() >= honoured:
            return False
        ((passed,),) = attempt_log.execute(_PASSED, {"effect_id": effect.id, "workflow_id": self.workflow.pk})
        return float(passed) < honoured

    def resolve_without_repeat(
        self, step: Step, context: Any, effect: KnownEffect, *, look_every: timedelta | None = None
    ) -> KnownEffect:
        """Find out whether a call happened without repeating it, before it is undone. Returns it DONE or NOT_DONE.

        A question that no person answered in time is asked again.
        """
        if step.lookup and (known := self._look_up(step, step.lookup, context, effect)):
            return known
        while True:
            try:
                return self._ask(effect, look_every)
            except Unanswered:
                waits.withdraw(self.workflow, _doubt(effect))

    def require_certainty(self, context: Any) -> None:
        """Before COMPLETE, reconcile each call in doubt that no step has reconciled.

        These are calls of removed steps, and calls under another name of a step; but no calls of best-effort steps.
        """
        for effect in self.rows.latest():
            if effect.state not in IN_DOUBT:
                continue
            step = self._definition.find_step(effect.step)
            if not (step and step.once):
                step = removed_step(effect.step)
            if not step.best_effort:
                self.resolve_without_repeat(step, context, effect, look_every=declared.ASK_AFTER)

    def _look_up(self, step: Step, lookup: Lookup, context: Any, effect: KnownEffect) -> KnownEffect | None:
        """Look the call up, and record that. Returns None if that failed, and people want to say it (`_WANTED`)."""
        try:
            found = self.find(step, lookup, context, effect)
        except (Exception, StepTimeout):
            if not attempt_log.execute(_WANTED, [self.workflow.pk, str(effect.call_number)]):
                raise
            return None
        return self.record_found(effect, found)

    def find(self, step: Step, lookup: Lookup, context: Any, effect: KnownEffect) -> dict[str, Any] | None:
        """The result that the lookup finds; None if the call has not happened. Raises Unsettled while it still may."""
        attempt_log.flush(self.attempt)
        attempt_log.require_claim(self.attempt)
        self.attempt.boundary.calling()
        with attempt_log.attribute_to_step(self.attempt):
            result = call_within(step.timeout, partial(lookup, workflow=self.workflow, context=context, effect=effect))
            found = found_by("lookup", step, result)
        if found is None:
            self._require_arrived(step, effect)
        return found

    def record_found(self, effect: KnownEffect, found: dict[str, Any] | None) -> KnownEffect:
        """Write what a lookup found. Returns the effect, DONE or NOT_DONE.

        A person may have been asked. If nothing was found, their answer counts, because a service may have lost the
        call. If the call was found, that overrides a "no", or the call would be made a second time.
        """
        asked = self.workflow, _doubt(effect)
        if found is None and not waits.withdraw_unanswered(*asked) and waits.is_answered(*asked):
            return self._ask(effect)
        state = NOT_DONE if found is None else DONE
        effect = self.rows.decide(effect, state, result=found, by="lookup")
        waits.withdraw(*asked)  # perhaps asked by a release without a lookup
        return effect

    def _require_arrived(self, step: Step, effect: KnownEffect) -> None:
        unsettled = step.settle - effect.since_call()
        if unsettled > 0:
            message = f"Whether {self._titled(effect)} happened can be told when its call can no longer be on its way."
            raise Unsettled(message, code="unsettled", seconds=unsettled)

    def _ask(self, effect: KnownEffect, look_every: timedelta | None = None) -> KnownEffect:
        """Ask a person. A "yes" comes with the result's fields; a "no" starts a new generation, with a new key."""
        step = self._definition.find_or_removed_step(effect.step)
        self._require_arrived(step, effect)
        attempt_log.flush(self.attempt)
        answer = waits.ask(
            self.workflow,
            _doubt(effect),
            question=f"Unclear call: did {self._titled(effect)} happen?",
            facts={
                "What we know": "The call was started, and its answer never came.",
                "Idempotency key": effect.idempotency_key,
            },
            task_type=DOUBT_TASK_TYPE,
            timeout=DOUBT_TIMEOUT,
            due=waits.URGENT,
            look_every=LOOK_EVERY if step.lookup else look_every,
        )
        match answer.outcome:
            case "approved":
                return self.rows.decide(effect, DONE, result=answer.result.get("answer") or {}, by=answer.result["by"])
            case "rejected":
                return self.rows.begin_new_generation(effect, by=answer.result["by"])
        message = f"Nobody has said whether {effect.step} happened."
        raise Unanswered(message, code="effect_in_doubt", wait_id=answer.wait_id)

    def _titled(self, effect: KnownEffect) -> str:
        step = self._definition.find_or_removed_step(effect.step)
        return words_for_step(self._definition.wording, step.name).titled

    # --- Removed steps ------------------------------------------------------------------------------

    def require_declared(self) -> None:
        """Start no new call while the ledger holds a call of an undeclared step, which may be this very step, renamed.

        The workflow waits for a release that declares the step, and looks every minute; after an hour it asks, too.
        """
        for effect in self._undeclared:
            step = effect.step
            declared.require_declared(
                self.workflow,
                _undeclared(effect),
                waiting_for=f"a release that declares the step {step}, whose call is on the ledger",
                question=f"Is it right that this release has no step {step}?",
                facts={
                    "What we know": f"The ledger holds a call of {step}; this release declares no such step.",
                    "What may be wrong": "The step was renamed, and its call would be made a second time.",
                    "State of the call": Effect.State(effect.state).label,
                    "Idempotency key": effect.idempotency_key,
                },
                should=f"this release should have the step {step}",
            )


def found_by(what: str, step: Step, result: Any) -> dict[str, Any] | None:
    """A lookup's result in its JSON form. Raises StepError if it is neither None nor a mapping.

    An empty list would pass as a result without fields, and an unrefunded charge would count as settled.
    """
    if result is None:
        return None
    if not isinstance(result, Mapping):
        raise StepError(f"The {what} of {step.name} returned {type(result).__name__}, and no mapping or None.")
    return as_json(result)


def _doubt(effect: KnownEffect) -> str:
    """The name of the wait for an answer on whether the call happened."""
    return f"effect:{effect.step}:{effect.generation}"


def _undeclared(effect: KnownEffect) -> str:
    """The name of the wait for a release that declares the effect's step."""
    return f"undeclared:{effect.step}"


def make_answerable_due(queue: str) -> int:
    """Make due the workflows of `queue` with an open question for which this release has a lookup; return how many.

    An earlier release without the lookup has asked a person, and the workflow sleeps until the answer. A workflow that
    looks by itself within LOOK_EVERY is left alone, however often workers start. Each calls this once, at its start.
    """
    steps = [(each.name, step, name) for each in definitions().values() for step in each.steps for name in step.names]
    questions = [(kind, f"effect:{name}") for kind, step, name in steps if step.lookup]
    questions += [(kind, f"undo:{name}") for kind, step, name in steps if step.undo_lookup]
    return transitions.make_due_where(
        f"""w.queue = %(queue)s AND w.waiting_for <> '{PAUSED}'
           AND w.invisible_until > statement_timestamp() + %(look_every)s::interval
           AND (w.id, w.workflow_type) IN (
            SELECT t.workflow_id, known.type
              FROM workflows_manualtask t JOIN workflows_wait q ON q.id = t.wait_id
              JOIN unnest(%(types)s::text[], %(names)s::text[]) AS known(type, name)
                ON known.name = regexp_replace(q.name, ':[0-9]+$', '')
             WHERE t.state = 'open')""",  # noqa: S608 (ours)
        {
            "queue": queue,
            "look_every": LOOK_EVERY,
            "types": [workflow_type for workflow_type, _ in questions],
            "names": [name for _, name in questions],
        },
    )


def effect_in_question(wait_name: str) -> tuple[str, int]:
    step, _, generation = wait_name.partition(":")[2].rpartition(":")
    return step, int(generation)
