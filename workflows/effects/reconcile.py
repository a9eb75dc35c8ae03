"""RECONCILE: find out whether a call in doubt happened: by a lookup, a repeat under its key, or a person's answer.

It also asks a person about a call whose step has left the list.
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
from workflows.postgres.jsonb import as_json
from workflows.state import attempt_log, transitions
from workflows.timeouts import call_within
from workflows.wording import words_for_step

# How long a person has to say whether an effect happened: a month, with all holidays in it.
DOUBT_TIMEOUT = timedelta(days=30)

DOUBT_TASK_TYPE = "effect_in_doubt"

# The error code of a repeat that found that the step no longer applies.
DOES_NOT_APPLY = "does_not_apply"

# A deploy takes minutes, and one that is rolled back an hour.
ASK_ABOUT_UNDECLARED_AFTER = timedelta(hours=1)
UNDECLARED_LOOK = timedelta(minutes=1)
UNDECLARED_TASK_TYPE = "step_undeclared"

# The longest time between two lookups that may answer the question to a person.
LOOK_EVERY = timedelta(hours=1)


# A call in doubt, `e` of the workflow `w`, of which nobody finds out any more whether it happened: that of a
# best-effort step whose key is honoured no longer. Parameters: `passed_over()`.
PASSED_OVER = """EXISTS (
    SELECT FROM unnest(%(passed_over_types)s::text[], %(passed_over_steps)s::text[], %(honoured)s::interval[])
             AS passed_over (type, step, honoured)
     WHERE passed_over.type = w.workflow_type AND passed_over.step = e.step AND NOT e.undo
       AND e.first_begun_at + passed_over.honoured < clock_timestamp())"""


def passed_over() -> dict[str, list[Any]]:
    """The parameters of PASSED_OVER. What charges is never passed over."""
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


# Seconds since a call was first started, as its workflow's attempts tell them: a clock that is set back between two of
# them takes away the time between these two, and no more.
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


class Unanswered(waits.WaitFailed):
    """No person has said in time whether a call has happened. A retry asks again."""


class Undeclared(waits.WaitFailed):
    """The ledger has a call of a step that this release does not declare, and a person said that it should be."""


class Unsettled(RetryableStepError):
    """For so many `seconds` nobody can know whether a call has happened. No failure: no policy's attempts count it."""

    def __init__(self, message: str, *, code: str, seconds: float) -> None:
        super().__init__(message, code=code, base_delay=seconds, max_delay=seconds, jitter_factor=0)


class Reconciler:
    """The calls of a workflow that may have happened, and how to find out whether they have."""

    def __init__(self, definition: WorkflowDefinition, rows: EffectRows) -> None:
        self.rows = rows
        self.workflow: Workflow = rows.workflow
        self.attempt = rows.attempt
        self._definition = definition
        latest = rows.latest()
        # Read once, not before each call: the calls that this attempt adds are declared.
        self._undeclared = [
            effect for effect in latest if effect.state in MAY_HAVE_HAPPENED and not definition.declares(effect.step)
        ]
        for effect in latest:
            if effect.asked_if_gone and definition.declares(effect.step):
                self._withdraw_questions_about(effect)

    def resolve_or_repeat(self, step: Step, context: Any, effect: KnownEffect) -> KnownEffect:
        """Find out whether a call has happened. Returns its effect: DONE, NOT_DONE, or unchanged, to be repeated.

        By the step's lookup, if it has one, and by nothing else. Without one, by repeating the call under its key,
        while the downstream honours it; but not once a repeat has found that the step no longer applies: the next
        would find the same. Else by asking a person; a no gives the call a new key. "Not found" counts, and a person
        is asked, only `settle` seconds after the call started: it may be on its way.
        """
        if step.lookup:
            return self.record_found(effect, self.find(step, step.lookup, context, effect))
        if self._is_honoured(step, effect) and effect.error_code != DOES_NOT_APPLY:
            return effect
        if step.best_effort:  # a step that may fail is worth neither a person's time nor the wait
            raise StepError(f"Whether {effect.step} happened cannot be told.", code="effect_in_doubt")
        self._require_arrived(step, effect)
        return self._ask(effect)

    def _is_honoured(self, step: Step, effect: KnownEffect) -> bool:
        """Whether the downstream still knows the key, by the clock; and by the attempts, as clocks may be set back.

        A key that it has forgotten makes a second call of a repeat: a second charge.
        """
        honoured = step.key_ttl.total_seconds() if step.key_ttl else 0.0
        if effect.since_key() >= honoured:
            return False
        ((passed,),) = attempt_log.execute(_PASSED, {"effect_id": effect.id, "workflow_id": self.workflow.pk})
        return float(passed) < honoured

    def resolve_without_repeat(
        self, step: Step, context: Any, effect: KnownEffect, *, look_every: timedelta | None = None
    ) -> KnownEffect:
        """Find out whether a call has happened without repeating it, before it is undone. Returns it DONE or NOT_DONE.

        A question that no person has answered in time is asked again.
        """
        if step.lookup:
            return self.record_found(effect, self.find(step, step.lookup, context, effect))
        self._require_arrived(step, effect)
        while True:
            try:
                return self._ask(effect, look_every)
            except Unanswered:
                waits.withdraw(self.workflow, _doubt(effect))

    def require_certainty(self, context: Any) -> None:
        """Before COMPLETE, reconcile each call in doubt that no step has reconciled.

        Those are the calls of removed steps, and calls under another name of a step; not those of best-effort steps.
        """
        for effect in self.rows.latest():
            step = self._definition.find_step(effect.step)
            if not (step and step.once):
                step = removed_step(effect.step)
            if effect.state in IN_DOUBT and not step.best_effort:
                self.resolve_without_repeat(step, context, effect, look_every=ASK_ABOUT_UNDECLARED_AFTER)

    def find(self, step: Step, lookup: Lookup, context: Any, effect: KnownEffect) -> dict[str, Any] | None:
        """Let the lookup find a call's result. None: it has not happened. Raises Unsettled while it still may."""
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
        """Write what a lookup has found. Returns the effect, DONE or NOT_DONE.

        A release without a lookup may have asked a person. If nothing was found, the person's answer counts: a service
        may have mislaid the call. What was found counts against a no, or the call would be made a second time.
        """
        if found is None and self._is_answered(_doubt(effect)):
            return self._ask(effect)
        state = NOT_DONE if found is None else DONE
        effect = self.rows.decide(effect, state, result=found, by="lookup")
        waits.withdraw(self.workflow, _doubt(effect))  # a release without a lookup may have asked
        return effect

    def _is_answered(self, question: str) -> bool:
        return not waits.withdraw_unanswered(self.workflow, question) and waits.is_answered(self.workflow, question)

    def _require_arrived(self, step: Step, effect: KnownEffect) -> None:
        unsettled = step.settle - effect.since_call()
        if unsettled > 0:
            message = f"Whether {self._titled(effect)} happened can be told when its call can no longer be on its way."
            raise Unsettled(message, code="unsettled", seconds=unsettled)

    def _ask(self, effect: KnownEffect, look_every: timedelta | None = None) -> KnownEffect:
        """Ask a person. A yes comes with the result's fields; a no starts a new generation, with a new key."""
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
            look_every=look_every,
        )
        match answer.outcome:
            case "approved":
                return self.rows.decide(effect, DONE, result=answer.result.get("answer") or {}, by=answer.result["by"])
            case "rejected":
                return self.rows.begin_new_generation(effect, by=answer.result["by"])
        message = f"Nobody has said whether {effect.step} happened."
        raise Unanswered(message, code="effect_in_doubt", wait_id=answer.wait_id)

    def _titled(self, effect: KnownEffect) -> str:
        """The effect's step as people know it."""
        step = self._definition.find_or_removed_step(effect.step)
        return words_for_step(self._definition.wording, step.name).titled

    # --- Removed steps ------------------------------------------------------------------------------

    def require_declared(self) -> None:
        """Start no new call while the ledger holds one of an undeclared step: it may be that very call, renamed.

        The workflow waits for a release that declares the step, and looks every minute; after an hour it also asks a
        person.
        """
        for effect in self._undeclared:
            self._wait_until_declared(effect)

    def _wait_until_declared(self, effect: KnownEffect) -> None:
        attempt_log.flush(self.attempt)
        waits.wait_for_time(
            self.workflow,
            _undeclared(effect),
            ASK_ABOUT_UNDECLARED_AFTER,
            look_every=UNDECLARED_LOOK,
            waiting_for=f"a release that declares the step {effect.step}, whose call is on the ledger",
        )
        while True:
            answer = waits.ask(
                self.workflow,
                _undeclared_question(effect),
                question=f"Is it right that this release has no step {effect.step}?",
                facts={
                    "What we know": f"The ledger holds a call of {effect.step}; this release declares no such step.",
                    "What may be wrong": "The step was renamed, and its call would be made a second time.",
                    "State of the call": Effect.State(effect.state).label,
                    "Idempotency key": effect.idempotency_key,
                },
                task_type=UNDECLARED_TASK_TYPE,
                timeout=DOUBT_TIMEOUT,
                due=waits.URGENT,
                look_every=ASK_ABOUT_UNDECLARED_AFTER,
            )
            match answer.outcome:
                case "approved":
                    return
                case "rejected":
                    message = f"{answer.result['by']} said that this release should have the step {effect.step}."
                    raise Undeclared(message, code=UNDECLARED_TASK_TYPE, wait_id=answer.wait_id)
            # Nobody has answered in time: the question is asked again.
            waits.withdraw(self.workflow, _undeclared_question(effect))

    def _withdraw_questions_about(self, effect: KnownEffect) -> None:
        """The step is declared again: if it leaves the list once more, that is another question."""
        for name in (_undeclared(effect), _undeclared_question(effect)):
            waits.withdraw(self.workflow, name)


def found_by(what: str, step: Step, result: Any) -> dict[str, Any] | None:
    """What a lookup returned, in its JSON form. Raises StepError for what is neither None nor a mapping.

    An empty list would pass for a result without fields: a charge that nobody has refunded would be settled.
    """
    if result is None:
        return None
    if not isinstance(result, Mapping):
        raise StepError(f"The {what} of {step.name} returned {type(result).__name__}, and no mapping or None.")
    return as_json(result)


def _doubt(effect: KnownEffect) -> str:
    """The name of the wait for the answer whether the call happened."""
    return f"effect:{effect.step}:{effect.generation}"


def _undeclared(effect: KnownEffect) -> str:
    """The name of the wait for a release that declares the effect's step."""
    return f"undeclared:{effect.step}"


def _undeclared_question(effect: KnownEffect) -> str:
    """The name of the wait for a person who says whether the release is right."""
    return f"{_undeclared(effect)}:asked"


def make_answerable_due(queue: str) -> int:
    """Make the workflows of `queue` due whose open question this release has a lookup for; return how many.

    A release without one has asked a person, and the workflow sleeps until the answer. Workflows that look by
    themselves within LOOK_EVERY are left alone, however often workers start. Each worker calls this once, when it
    starts.
    """
    steps = [(each.name, step, name) for each in definitions().values() for step in each.steps for name in step.names]
    questions = [(kind, f"effect:{name}") for kind, step, name in steps if step.lookup]
    questions += [(kind, f"undo:{name}") for kind, step, name in steps if step.undo_lookup]
    return transitions.make_due_where(
        """w.queue = %(queue)s AND w.invisible_until > statement_timestamp() + %(look_every)s::interval
           AND (w.id, w.workflow_type) IN (
            SELECT t.workflow_id, known.type
              FROM workflows_manualtask t JOIN workflows_wait q ON q.id = t.wait_id
              JOIN unnest(%(types)s::text[], %(names)s::text[]) AS known(type, name)
                ON known.name = regexp_replace(q.name, ':[0-9]+$', '')
             WHERE t.state = 'open')""",
        {
            "queue": queue,
            "look_every": LOOK_EVERY,
            "types": [workflow_type for workflow_type, _ in questions],
            "names": [name for _, name in questions],
        },
    )


def effect_in_question(wait_name: str) -> tuple[str, int]:
    """The step and the generation of the effect that a question to a person is about."""
    step, _, generation = wait_name.partition(":")[2].rpartition(":")
    return step, int(generation)
