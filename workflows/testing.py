"""For the tests of people who write workflows: run a definition in the test's own process, on the real engine.

    pytestmark = testing.databases()

    def test_an_order_is_shipped() -> None:
        run = testing.run(ORDER, {"sku": "A-1"})
        assert (run.status, run.context["parcel_id"]) == ("COMPLETE", "p-1")

    @testing.every_failure(ORDER)
    def test_whatever_fails_is_undone(failure: testing.Failure) -> None:
        testing.check_compensation(ORDER, {"sku": "A-1"}, failure)

    @testing.every_crash(ORDER)
    def test_a_crash_changes_nothing(boundary: str) -> None:
        run = testing.run(ORDER, {"sku": "A-1"}, crash=boundary)
        assert (run.status, run.called("charge")) == ("COMPLETE", 1)

    def test_a_payment_that_never_comes_gives_the_goods_back() -> None:
        assert testing.run(ORDER, {"sku": "A-1"}, overdue=["payment"]).undone == ["charge", "reserve"]

Nothing of the engine is replaced: rows, claims, savepoints, ledger and journal are real, and so they need real
transactions. Time is not waited for: what is put off is made due, and what is measured against the clock made older.
Questions to people are answered as `decide` says, in the name of a user "testing", or of "another" for four eyes.

In every such test a step that is not `once`, asks for an idempotency key (`key_for`) and runs twice is an
AssertionError: it may have made its call twice. `Step(..., repeatable=True)` says that this does no harm. So is a
`once` step that asks for its key and returns None: whether it made its call cannot be known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from django.db import connection, connections
from django.db.models.functions import Now
from django.test.utils import override_settings
from django.utils import timezone

from workflows import compensation, doubts, effects, failpoints, inbox, journal, ledger, operations
from workflows.definition import Step, Undo, WorkflowDefinition, WorkflowStep, definitions
from workflows.errors import ClaimLost, StepError
from workflows.models import Attempt, Effect, ManualTask, Wait, Workflow
from workflows.stop_flag import Flag
from workflows.worker.loop import Worker

if TYPE_CHECKING:
    import pytest
    from django.contrib.auth.models import User

# Runs of one workflow before it counts as one that never comes to rest.
MOST_RUNS = 200

# What `decide` says of a question: no, yes, or yes with the answer's fields.
Decide = Callable[[ManualTask], bool | Mapping[str, Any]]
Signals = Mapping[str, Mapping[str, Any] | Callable[[Workflow], Mapping[str, Any]]]


class Crash(ClaimLost):
    """As good as the death of the process: nothing is written, nothing closed, and nobody is told."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A step that fails for good. `happened`: its call was made all the same, and nobody knows what came of it."""

    step: str
    happened: bool = False

    def __str__(self) -> str:
        return f"{self.step} fails, having called" if self.happened else f"{self.step} fails"


class Run:
    """One workflow, and what was called for it: `calls` are (step, key) of each call that returned, in order.

    The call of an undo is named "undo <step>". The key is the idempotency key, empty for a step that is not `once`.
    """

    def __init__(self, definition: WorkflowDefinition, workflow: Workflow) -> None:
        self.definition = definition
        self.workflow = workflow
        self.calls: list[tuple[str, str]] = []
        self.failed = self.crashed = False  # as it was told to
        self.results: dict[str, Any] = {}  # of the calls that returned, by step

    @property
    def status(self) -> str:
        return self.workflow.status

    @property
    def context(self) -> dict[str, Any]:
        """The copy that people read, as JSON."""
        return dict(self.workflow.context)

    @property
    def undone(self) -> list[str]:
        """The steps whose undo was called and returned, in that order."""
        return [name.removeprefix("undo ") for name, _ in self.calls if name.startswith("undo ")]

    @property
    def effects(self) -> dict[str, str]:
        """What the ledger says: the state of each `once` step's latest call."""
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
        return f"<Run {self.definition.name}: {self.status} {where} {self.workflow.last_error_message}>"


def databases() -> Any:
    """The mark that a module of such tests needs: `pytestmark = testing.databases()`."""
    import pytest

    return pytest.mark.django_db(transaction=True, databases=["default", journal.ALIAS])


def run(
    definition: WorkflowDefinition,
    payload: Mapping[str, Any],
    *,
    failure: Failure | None = None,
    crash: str = "",
    decide: Decide = lambda task: True,
    signals: Signals | None = None,
    overdue: Collection[str] = (),
    children: Sequence[WorkflowDefinition] = (),
) -> Run:
    """Run a new workflow until it is COMPLETE or FAILED, or waits for what nobody here tells it.

    `failure` makes a step fail for good, `crash` the worker at a boundary (one of `boundaries`), once. `decide` answers
    the questions; whether a call happened is answered by whether it did. An undo that has failed three times is an
    AssertionError: it should not have. So is a step that ran twice and each time asked for an idempotency key, unless
    it is `once` or `repeatable`; whether it returned or failed says nothing of its call.

    A `once` step, or its lookup, that returned other fields than its `returns` says is an AssertionError.

    `signals` are sent when they are waited for: name -> payload, or a function that makes it of the workflow. The waits
    named in `overdue` ("payment of *") nobody answers, and their deadlines pass. A time is not waited for, and a wait
    with a `look` looks twice. `children` are the definitions of the workflows that this one starts; they are run, too,
    and answered in the same way.
    """
    if connection.in_atomic_block:
        raise RuntimeError("A worker commits; give the test real transactions: pytestmark = testing.databases().")
    queue = f"testing-{uuid4().hex}"
    workflow = Workflow.objects.create(
        workflow_type=definition.name,
        idempotency_key=uuid4(),
        payload=dict(payload),
        queue=queue,
        linking_id=definition.linking_id_in(payload),
        expires_at=Now() + definition.expires_after if definition.expires_after else None,
    )
    workflow.refresh_from_db()
    this = Run(definition, workflow)
    world = _World(this, decide, signals or {}, overdue)
    keys = _Keys()
    watched = _watched(keys.counted(definition), this, failure)
    run_here = [watched, *(_moved(keys.counted(child), queue) for child in children)]
    with ExitStack() as stack:
        stack.callback(connections[journal.ALIAS].close)
        stack.enter_context(_known(*run_here))
        stack.enter_context(keys.asked_for())
        if crash:
            stack.enter_context(failpoints.armed(crash, _crasher(this)))
        while this.status == Workflow.Status.PENDING and (next_one := world.next_of(queue)):
            _let_time_pass(next_one)
            _process(queue)
            workflow.refresh_from_db()
    keys.check(queue)
    _require_declared(this)
    return this


# --- Everything that can go wrong ---------------------------------------------------------------------


def failures(definition: WorkflowDefinition) -> list[Failure]:
    """Every step failing for good; of each `once` step also after its call has happened."""
    return [
        Failure(step.name, happened)
        for step in definition.steps
        if not step.best_effort
        for happened in ([False, True] if step.once else [False])
    ]


def boundaries(definition: WorkflowDefinition) -> list[str]:
    """Every boundary of every `once` step at which a crash could repeat or forget a call, and those of the commit.

    Of the first commit, which may be that of a wait, and of the last one: before it, every step has run.
    """
    calls = [step.identity for step in definition.steps if step.once]
    around_calls = [name for name in failpoints.BOUNDARIES if not name.endswith("_commit")]
    of_commits = ["before_commit", "after_commit", "before_commit:complete"]
    return [f"{name}:{call}" for call in calls for name in around_calls] + of_commits


def every_failure(definition: WorkflowDefinition) -> pytest.MarkDecorator:
    """Parametrise a test by `failure`: the compensation matrix."""
    import pytest

    return pytest.mark.parametrize("failure", failures(definition), ids=str)


def every_crash(definition: WorkflowDefinition) -> pytest.MarkDecorator:
    """Parametrise a test by `boundary`."""
    import pytest

    return pytest.mark.parametrize("boundary", boundaries(definition))


def check_compensation(
    definition: WorkflowDefinition,
    payload: Mapping[str, Any],
    failure: Failure,
    *,
    decide: Decide = lambda task: True,
    signals: Signals | None = None,
    children: Sequence[WorkflowDefinition] = (),
) -> Run:
    """Let a step fail, and check that what had happened and can be undone was: each once, the newest first.

    Returns the run, for what else there is to check. A step that makes no call for this payload cannot fail having
    called: then the workflow must be COMPLETE. One that is not reached at all is an AssertionError, for nothing would
    be proven.
    """
    this = run(definition, payload, failure=failure, decide=decide, signals=signals, children=children)
    if this.failed:
        assert this.status == Workflow.Status.FAILED, f"{failure}, and yet: {this}"
    else:
        assert this.status == Workflow.Status.COMPLETE, f"{failure}: it is not reached; {this}"
        assert failure.happened, f"{failure}: it is not reached; {this}"
    undoable = [step.name for step in definition.steps if step.undo]
    happened = [name for name, _ in this.calls if name in undoable and this.results[name] is not None]
    expected = list(dict.fromkeys(reversed(happened))) if this.status == Workflow.Status.FAILED else []
    assert this.undone == expected, f"{failure}: undone are {this.undone}, and not {expected}; {this}"
    left = Effect.objects.filter(workflow=this.workflow.pk, undo=False, has_undo=True)
    standing = left.filter(state__in=effects.MAY_HAVE_HAPPENED)
    if this.status == Workflow.Status.FAILED:
        assert not standing, f"{failure}: the ledger still says of {standing[0].step} that it is {standing[0].state}"
    return this


# --- How it is done -----------------------------------------------------------------------------------


class _World:
    """Everybody else: who answers, tells, or lets a deadline pass. `this` is the run that is watched."""

    def __init__(self, this: Run, decide: Decide, signals: Signals, overdue: Collection[str]) -> None:
        self.this = this
        self.decide = decide
        self.signals = signals
        self.overdue = overdue
        self.runs: Counter[int] = Counter()
        self.looked: set[int] = set()  # the waits that have looked for themselves

    def next_of(self, queue: str) -> Workflow | None:
        """The next workflow that can go on, a parent before its children; None when all wait for nothing we know."""
        for workflow in Workflow.objects.filter(queue=queue, status=Workflow.Status.PENDING).order_by("pk"):
            if self._can_go_on(workflow):
                self.runs[workflow.pk] += 1
                if self.runs[workflow.pk] > MOST_RUNS:
                    raise AssertionError(f"{self.this} does not come to rest")
                return workflow
        return None

    def _can_go_on(self, workflow: Workflow) -> bool:
        """Whether it is due, or would be after some time; what it waits for is told it first, if somebody would."""
        if not workflow.waiting_for or workflow.invisible_until <= timezone.now():
            return True
        wait = Wait.objects.filter(workflow=workflow.pk, outcome="", superseded=False).order_by("pk").last()
        if wait and (wait.kind == Wait.Kind.TIME or any(fnmatchcase(wait.name, name) for name in self.overdue)):
            Workflow.objects.filter(pk=workflow.pk).update(invisible_until=wait.deadline)
            return True
        if task := ManualTask.objects.open().filter(workflow=workflow.pk).first():
            _answer(task, self.this, self.decide)
            return True
        if name := next((name for name in workflow.wake_on if name in self.signals), None):
            told = self.signals[name]
            payload = told(workflow) if callable(told) else told
            inbox.send(source="testing", dedupe_key=str(uuid4()), name=name, workflow_id=workflow.pk, payload=payload)
            return True
        if wait and workflow.invisible_until < wait.deadline and wait.pk not in self.looked:
            self.looked.add(wait.pk)
            return True
        return False


class _Keys:
    """Which runs of which steps asked for an idempotency key, of those that are not `repeatable`.

    A run that did may have made its call, whatever came of it. Threads of a step ask for the step that is running.
    """

    def __init__(self) -> None:
        self.runs = count()
        self.running: dict[int, tuple[str, str, int, int]] = {}  # workflow -> definition, step, workflow, run
        self.asked: set[tuple[str, str, int, int]] = set()

    def counted(self, definition: WorkflowDefinition) -> WorkflowDefinition:
        """The definition with those steps watched."""
        counted = copy(definition)
        counted.steps = tuple(
            step if step.repeatable else replace(step, function=self._counted_function(definition, step))
            for step in definition.steps
        )
        return counted

    def _counted_function(self, definition: WorkflowDefinition, step: Step) -> WorkflowStep:
        def function(*, workflow: Workflow, context: Any) -> Mapping[str, Any] | None:
            self.running[workflow.pk] = (definition.name, step.name, workflow.pk, next(self.runs))
            try:
                return step.function(workflow=workflow, context=context)
            finally:
                del self.running[workflow.pk]

        function.__name__ = step.name
        return function

    @contextmanager
    def asked_for(self) -> Iterator[None]:
        """Listen to what is asked for."""
        effects.asked_outside_once = self._note
        try:
            yield
        finally:
            effects.asked_outside_once = None

    def _note(self, workflow: Workflow) -> None:
        if running := self.running.get(workflow.pk):
            self.asked.add(running)

    def check(self, queue: str) -> None:
        """Raise AssertionError, naming each step of a workflow that may have made its call, or makes it, again."""
        times = Counter((definition, step, workflow) for definition, step, workflow, _ in self.asked)
        repeated = [
            f"The step {step} of {definition} ran {ran} times and asked for its idempotency key each time, so its call "
            f"may have been made {ran} times. Make it Step({step}, once=True, ...); or say that its call does no harm "
            f"whenever it comes again: Step({step}, repeatable=True)."
            for (definition, step, _), ran in sorted(times.items())
            if ran > 1
        ]
        untold = [
            f"The step {step} of {definition} is once, asked for its idempotency key and returned None, which says "
            f"that it did not apply: whether it made its call is not known, and a person is asked. Let it return {{}} "
            f"when it has called and has nothing to tell."
            for definition, step in sorted(_untold(queue))
        ]
        faults = repeated + untold
        assert not faults, "\n".join(faults)


def _untold(queue: str) -> set[tuple[str, str]]:
    """The definition and the name of each `once` step that asked for its key and returned None."""
    said = {"error_code": ledger.NONE_AFTER_KEY}
    attempts = Attempt.objects.filter(workflow__queue=queue, steps__contains=[said])
    return {
        (definition, entry["step"])
        for definition, steps in attempts.values_list("workflow__workflow_type", "steps")
        for entry in steps
        if said.items() <= entry.items()
    }


@contextmanager
def _known(*known: WorkflowDefinition) -> Iterator[None]:
    """Let the engine know these definitions, and no other."""
    paths = {f"DEFINITION_{place}": definition for place, definition in enumerate(known)}
    globals().update(paths)
    with override_settings(WORKFLOWS=[f"{__name__}.{name}" for name in paths]):
        definitions.cache_clear()
        try:
            yield
        finally:
            definitions.cache_clear()


def _moved(definition: WorkflowDefinition, queue: str) -> WorkflowDefinition:
    moved = copy(definition)
    moved.queue = queue
    return moved


def _watched(definition: WorkflowDefinition, this: Run, failure: Failure | None) -> WorkflowDefinition:
    """The definition with its functions watched, and one made to fail."""
    watched = copy(definition)
    watched.steps = tuple(
        replace(
            step,
            function=_watched_function(step, this, failure if failure and failure.step == step.name else None),
            undo=_watched_undo(step, step.undo, this) if step.undo else None,
        )
        for step in definition.steps
    )
    return watched


def _watched_function(step: Step, this: Run, failure: Failure | None) -> WorkflowStep:
    def function(*, workflow: Workflow, context: Any) -> Mapping[str, Any] | None:
        if failure and not failure.happened:
            this.failed = True
            raise StepError("Made to fail.", code="made_to_fail")
        result = step.function(workflow=workflow, context=context)
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
        result = undo(workflow=workflow, context=context, effect=effect)
        this.calls.append((f"undo {step.name}", effect.undo_key))
        return result

    return function


def _crasher(this: Run) -> Callable[[], None]:
    def crash() -> None:
        if not this.crashed:
            this.crashed = True
            raise Crash

    return crash


def _process(queue: str) -> None:
    worker = Worker(queue=queue, name="testing:1", stopping=Flag())
    try:
        worker.process_next()
    except Crash:
        connections.close_all()  # and with them the claim; the next worker finds the attempt open


def _answer(task: ManualTask, this: Run, decide: Decide) -> None:
    said: bool | Mapping[str, Any]
    if task.task_type == compensation.TASK_TYPE:
        raise AssertionError(f"{task.question} {dict(task.facts)['The last error']}")
    if task.task_type == doubts.DOUBT_TASK and task.workflow_id == this.workflow.pk:
        name = task.wait.name.removeprefix("effect:").rpartition(":")[0]
        step = this.definition.step_called(name)
        result = this.results.get(step.name) if step else None
        said = False if result is None else result
    else:
        said = decide(task)
    user = _user("another" if task.four_eyes else "testing")
    if said is False:
        operations.reject(task.pk, user=user, reason="In a test.")
    else:
        answer = dict(said) if isinstance(said, Mapping) else None
        operations.approve(task.pk, user=user, reason="In a test.", answer=answer)


def _require_declared(this: Run) -> None:
    """What is recorded of a `once` step has the fields that the step says: the engine takes it as it comes."""
    recorded = Effect.objects.filter(workflow=this.workflow.pk, undo=False)
    for name, result in recorded.values_list("step", "result"):
        step = this.definition.step_called(name)
        if step and result is not None and step.returns is not None and set(result) != set(step.returns):
            told = f"{', '.join(sorted(result)) or 'nothing'}, and says {', '.join(step.returns) or 'nothing'}"
            raise AssertionError(f"{step.name} returned {told}: a person who is asked has to fill in what it says.")


def _user(name: str) -> User:
    from django.contrib.auth.models import User

    return User.objects.get_or_create(username=name, is_superuser=True)[0]


def _let_time_pass(workflow: Workflow) -> None:
    """Make the workflow due, before any other, as if the time until then had passed for what it measures, too."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH due AS (
                SELECT id, greatest(invisible_until - clock_timestamp(), interval '0') AS passed
                  FROM workflows_workflow WHERE id = %s),
            effects AS (
                UPDATE workflows_effect e SET begun_at = begun_at - passed, first_begun_at = first_begun_at - passed
                  FROM due WHERE e.workflow_id = due.id),
            waits AS (
                UPDATE workflows_wait w SET created_at = created_at - passed, deadline = deadline - passed
                  FROM due WHERE w.workflow_id = due.id AND w.outcome = ''),
            tasks AS (
                UPDATE workflows_manualtask t SET due_at = due_at - passed, expires_at = expires_at - passed
                  FROM due WHERE t.workflow_id = due.id AND t.state = 'open')
            UPDATE workflows_workflow w
               SET invisible_until = least(created_at, invisible_until - passed), expires_at = expires_at - passed
              FROM due WHERE w.id = due.id
            """,
            [workflow.pk],
        )
