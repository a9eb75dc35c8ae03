"""Everything that can go wrong, one test each: every failure, and a crash at every boundary."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workflows import effects, failpoints
from workflows.definition import WorkflowDefinition
from workflows.models import Effect, Workflow

if TYPE_CHECKING:
    import pytest

from workflows.testing.people import Decide, say_yes
from workflows.testing.run import Failure, Run, run
from workflows.testing.world import Signals


def failures(definition: WorkflowDefinition) -> list[Failure]:
    """Each step fails for good; each `once` step also fails after its call has happened."""
    return [
        Failure(step.name, happened)
        for step in definition.steps
        if not step.best_effort
        for happened in ([False, True] if step.once else [False])
    ]


def boundaries(definition: WorkflowDefinition) -> list[str]:
    """Every boundary at which a crash could repeat or forget a `once` step's call, and the first and last commit.

    The first commit may be that of a wait. Before the last one every step has run.
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
    decide: Decide = say_yes,
    signals: Signals | None = None,
    overdue: Collection[str] = (),
    children: Sequence[WorkflowDefinition] = (),
) -> Run:
    """Let a step fail, and check that each call that happened and has an undo was undone once, newest first.

    Returns the run. A step that makes no call for this payload cannot fail after its call: then the workflow must be
    COMPLETE. A step that is not reached is an AssertionError, because the test would prove nothing. With `overdue` it
    looks at the path past a deadline, which may end in a failure of its own: then every step need not be reached.
    Raises ValueError for a step of a child: `run(..., failure=...)` fails that.
    """
    if definition.find_step(failure.step) is None and any(child.find_step(failure.step) for child in children):
        raise ValueError(f"{failure.step!r} is a step of a child: testing.run(..., failure=...) lets it fail.")
    this = run(definition, payload, failure=failure, decide=decide, signals=signals, overdue=overdue, children=children)
    if overdue and not this.failed:
        assert this.status != Workflow.Status.PENDING, f"{failure}, and its wait is overdue: {this}"
    elif this.failed:
        assert this.status == Workflow.Status.FAILED, f"{failure}, and yet: {this}"
    else:
        assert this.status == Workflow.Status.COMPLETE, f"{failure}: it is not reached; {this}"
        assert failure.happened, f"{failure}: it is not reached; {this}"
    returned = {key for name, key in this.calls if this.results.get(name) is not None}
    on_record = Effect.objects.filter(workflow=this.workflow.pk, undo=False, has_undo=True).order_by("id")
    happened = [
        definition.find_or_removed_step(call.step).name
        for call in on_record
        if call.idempotency_key in returned or call.result is not None  # raised after its call, as its lookup says
    ]
    expected = list(dict.fromkeys(reversed(happened))) if this.status == Workflow.Status.FAILED else []
    assert this.undone == expected, f"{failure}: undone are {this.undone}, and not {expected}; {this}"
    left = Effect.objects.filter(workflow=this.workflow.pk, undo=False, has_undo=True)
    standing = left.filter(state__in=effects.MAY_HAVE_HAPPENED)
    if this.status == Workflow.Status.FAILED:
        assert not standing, f"{failure}: the ledger still says of {standing[0].step} that it is {standing[0].state}"
    return this
