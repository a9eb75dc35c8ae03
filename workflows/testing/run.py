"""Runs a workflow in a test until it has finished or waits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from django.db import connection, connections
from django.db.models.functions import Now
from django.test.utils import override_settings

from workflows import effects, extension, failpoints
from workflows.definition import Step, Undo, WorkflowDefinition, WorkflowStep, definitions
from workflows.engine.loop import Worker
from workflows.errors import ClaimLost, StepError
from workflows.models import Attempt, Effect, Workflow
from workflows.redaction import class_name, place
from workflows.sealing import payloads
from workflows.spelling import did_you_mean
from workflows.state import attempt_log
from workflows.stop_flag import Flag
from workflows.testing.keys import Keys
from workflows.testing.people import Decide, answer, say_yes
from workflows.testing.world import Signals, World, let_time_pass
from workflows.waits.children import UnknownChild

logger = logging.getLogger(__name__)


class Crash(ClaimLost):
    """A crash, as if the process died: nothing is written or closed, and no other workflow is notified."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A step that fails for good, of the definition or, if it has none of that name, of each child that has one.

    `happened`: its call was still made, and its outcome is unknown.
    """

    step: str
    happened: bool = False

    def __str__(self) -> str:
        return f"{self.step} fails, having called" if self.happened else f"{self.step} fails"


class Run:
    """A workflow and its calls: `calls` has (step, key) for each call that returned, in order.

    The call of an undo is named "undo <step>". The key is the idempotency key, empty for a step that is not `once`.
    """

    def __init__(self, definition: WorkflowDefinition, workflow: Workflow) -> None:
        self.definition = definition
        self.workflow = workflow
        self.calls: list[tuple[str, str]] = []
        self.failed = self.crashed = False  # whether the test's failure or crash has happened
        self.results: dict[str, Any] = {}  # of the calls that returned, by step
        self.errors: list[Exception] = []  # what steps and undos raised, also those of children

    @property
    def status(self) -> str:
        return self.workflow.status

    @property
    def context(self) -> dict[str, Any]:
        """The workflow's context, as JSON."""
        return dict(self.workflow.context)

    @property
    def undone(self) -> list[str]:
        """The steps whose undo was called and returned, in that order."""
        return [name.removeprefix("undo ") for name, _ in self.calls if name.startswith("undo ")]

    @property
    def effects(self) -> dict[str, str]:
        """The state, on the ledger, of each `once` step's latest call."""
        rows = Effect.objects.filter(workflow=self.workflow.pk, undo=False).order_by("generation")
        return dict(rows.values_list("step", "state"))

    @property
    def outcomes(self) -> dict[str, str]:
        """What each step of the last attempt did."""
        steps = Attempt.objects.filter(workflow=self.workflow.pk).latest("number").steps
        return {entry["step"]: entry["outcome"] for entry in steps}

    def called(self, step: str) -> int:
        """How many calls of a step, or of "undo <step>", returned."""
        return sum(name == step for name, _ in self.calls)

    def __repr__(self) -> str:
        where = self.workflow.waiting_for or self.workflow.current_step
        last = f"{type(self.errors[-1]).__name__}: {self.errors[-1]}" if self.errors else ""
        return f"<Run {self.definition.name}: {self.status} {where} {last or self.workflow.last_error_message}>"


def databases() -> Any:
    """The mark that a module of such tests needs: `pytestmark = testing.databases()`."""
    import pytest

    return pytest.mark.django_db(transaction=True, databases=["default", attempt_log.ALIAS])


def run(
    definition: WorkflowDefinition,
    payload: Mapping[str, Any],
    *,
    failure: Failure | None = None,
    crash: str = "",
    decide: Decide = say_yes,
    signals: Signals | None = None,
    overdue: Collection[str] = (),
    children: Sequence[WorkflowDefinition] = (),
) -> Run:
    """Run a new workflow until it is COMPLETE or FAILED, or waits for something that this test does not send.

    `failure` makes a step fail for good, and `crash` crashes the worker once at a boundary (one of `boundaries`).
    `decide` answers questions, yes by default. Whether a call happened (the task type "effect_in_doubt") is answered as
    it was: its step returned, or never started. Of a step that raised, or ran out of time, only `decide` can say. What
    takes two people is confirmed by a second one. `signals` are sent when the workflow waits for them: name -> payload,
    or a function of the workflow that makes it. The waits named in `overdue` ("payment of *") get no answer, and their
    deadlines pass. Times pass at once, and a wait with a `look` looks twice. `children` are the definitions of the
    workflows that this one starts; they run and are answered in the same way.

    Raises AssertionError for an undo that failed three times; for a call of which neither the test nor `decide` knows
    whether it happened; for an answer that the console would refuse; for a step that ran twice and asked for an
    idempotency key each time, unless it is `once` or `repeatable`; for a `once` step, or its lookup, that returned
    other fields than its `returns` says; for a started workflow that is not in `children`; and for a name in `overdue`
    that no wait has, unless a `failure` or `crash` may have come before it. Raises ValueError for a `failure` or a
    `crash` that names no step or boundary: such a test would prove nothing.
    """
    _require_known([definition, *children], failure, crash)
    if connection.in_atomic_block:
        raise RuntimeError("A worker commits; give the test real transactions: pytestmark = testing.databases().")
    queue = f"testing-{uuid4().hex}"
    key = uuid4()
    workflow = Workflow.objects.create(
        workflow_type=definition.name,
        idempotency_key=key,
        payload=payloads.seal(definition, payload, key),
        queue=queue,
        linking_id=definition.linking_id_in(payload),
        expires_at=Now() + definition.expires_after if definition.expires_after else None,
    )
    workflow.refresh_from_db()
    this = Run(definition, workflow)
    keys = Keys()
    world = World(this, lambda task: answer(task, decide, keys), signals or {}, overdue)
    of_child = failure if failure and not definition.find_step(failure.step) else None
    watched = _watched(keys.counted(definition), this, failure)
    run_here = [watched, *(_on_queue(_watched_child(keys.counted(child), this, of_child), queue) for child in children)]
    with ExitStack() as stack:
        stack.callback(connections[attempt_log.ALIAS].close)
        stack.enter_context(_registered(*run_here))
        stack.enter_context(keys.asked_for())
        if crash:
            stack.enter_context(failpoints.armed(crash, _crasher(this)))
        while this.status == Workflow.Status.PENDING and (next_one := world.next_of(queue)):
            let_time_pass(next_one)
            _process(queue)
            workflow.refresh_from_db()
    keys.check(queue)
    _require_declared(this)
    _require_told(this)
    if not (failure or crash):
        world.require_met()
    return this


def _require_known(definitions: Sequence[WorkflowDefinition], failure: Failure | None, crash: str) -> None:
    names = [step.name for each in definitions for step in each.steps]
    if failure and failure.step not in names:
        raise ValueError(f"No step is called {failure.step!r}.{did_you_mean(failure.step, names)}")
    at, _, step = crash.partition(":")
    if crash and at not in failpoints.BOUNDARIES:
        raise ValueError(f"No boundary is called {at!r}: {', '.join(failpoints.BOUNDARIES)}.")
    calls = [call.identity for each in definitions for call in each.steps if call.once]
    calls += [f"undo {name}" for name in calls]
    if step and not at.endswith("_commit") and step not in calls:
        raise ValueError(f"No once step is called {step!r}.{did_you_mean(step, calls)}")


def _require_told(this: Run) -> None:
    """Raise AssertionError for a workflow that was to be started, and is not in `children`."""
    for error in this.errors:
        assert not isinstance(error, UnknownChild), (
            f"{this.definition.name} starts a {error.workflow_type}: add its definition, "
            "testing.run(..., children=[...])."
        )


@contextmanager
def _registered(*registered: WorkflowDefinition) -> Iterator[None]:
    """Register only these definitions with the engine."""
    paths = {f"DEFINITION_{place}": definition for place, definition in enumerate(registered)}
    globals().update(paths)
    with override_settings(WORKFLOWS=[f"{__name__}.{name}" for name in paths]):
        definitions.cache_clear()
        try:
            yield
        finally:
            definitions.cache_clear()


def _on_queue(definition: WorkflowDefinition, queue: str) -> WorkflowDefinition:
    moved = copy(definition)
    moved.queue, moved.business_key = queue, ()
    return moved


def _watched(definition: WorkflowDefinition, this: Run, failure: Failure | None) -> WorkflowDefinition:
    """The definition with its functions watched, and one made to fail."""
    watched = copy(definition)
    watched.business_key = ()  # otherwise a second run of the same payload would be a duplicate
    watched.steps = tuple(
        replace(
            step,
            function=_watched_function(step, this, failure if failure and failure.step == step.name else None),
            undo=_watched_undo(step, step.undo, this) if step.undo else None,
        )
        for step in definition.steps
    )
    return watched


def _watched_child(definition: WorkflowDefinition, this: Run, failure: Failure | None) -> WorkflowDefinition:
    watched = copy(definition)
    watched.steps = tuple(
        replace(
            step,
            function=_watched_function(
                step, this, failure if failure and failure.step == step.name else None, of_child=True
            ),
        )
        for step in definition.steps
    )
    return watched


def _watched_function(step: Step, this: Run, failure: Failure | None, *, of_child: bool = False) -> WorkflowStep:
    def function(*, workflow: Workflow, context: Any) -> Mapping[str, Any] | None:
        if failure and not failure.happened:
            this.failed = True
            raise StepError("Made to fail.", code="made_to_fail")
        with _noted(step.name, workflow, this):
            result = step.function(workflow=workflow, context=context)
        if not of_child:
            this.results[step.name] = result
            this.calls.append((step.name, effects.key_in_use(workflow)))
        if failure and result is not None:
            this.failed = True
            raise ValueError("made to fail, after the call")
        return result

    function.__name__ = step.name
    return function


def _watched_undo(step: Step, undo: Undo, this: Run) -> Undo:
    def function(*, workflow: Workflow, context: Any, effect: Any) -> Mapping[str, Any] | None:
        with _noted(f"undo {step.name}", workflow, this):
            result = undo(workflow=workflow, context=context, effect=effect)
        this.calls.append((f"undo {step.name}", effect.undo_key))
        return result

    return function


@contextmanager
def _noted(name: str, workflow: Workflow, this: Run) -> Iterator[None]:
    """Keep an error whole, and log it: the row has neither its message nor its traceback."""
    try:
        yield
    except Exception as error:
        this.errors.append(error)
        # As a text, because the project's logs may replace an exception by its class.
        told = f"{name} of {workflow.workflow_type} raised {class_name(error)}: {error} ({place(error)})"
        logger.warning("%s", told)
        raise


def _crasher(this: Run) -> Callable[[], None]:
    def crash() -> None:
        if not this.crashed:
            this.crashed = True
            raise Crash

    return crash


def _process(queue: str) -> None:
    worker = Worker(queue=queue, name="testing:1", features=extension.of_workers(), stopping=Flag())
    try:
        worker.process_next()
    except Crash:
        connections.close_all()  # also ends the claim; the next worker finds the attempt open


def _require_declared(this: Run) -> None:
    """Check that a `once` step's recorded result has the fields that it declares, which the engine does not check."""
    recorded = Effect.objects.filter(workflow=this.workflow.pk, undo=False)
    for name, result in recorded.values_list("step", "result"):
        step = this.definition.find_step(name)
        if step and result is not None and step.returns is not None and set(result) != set(step.returns):
            fields = f"{', '.join(sorted(result)) or 'nothing'}, and says {', '.join(step.returns) or 'nothing'}"
            raise AssertionError(f"{step.name} returned {fields}: a person who is asked has to fill in what it says.")
