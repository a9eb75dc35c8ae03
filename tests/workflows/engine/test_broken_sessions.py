"""A step that ends the claim's transaction, or leaves its connection busy, fails at the first time, by name.

The row is free by then, so another worker may have it: nothing is decided but by the next one that holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, connections

from tests import engine
from tests.engine import define, elsewhere, kinds, last_attempt, submit, worker
from tests.workflows.undoing import ada
from workflows import operations
from workflows.definition import Step, WorkflowDefinition
from workflows.engine.extension import Feature
from workflows.errors import RetryableStepError, StepError
from workflows.models import Attempt, Effect, ManualTask, Workflow
from workflows.postgres.statements import execute
from workflows.state.attempt_log import OpenAttempt
from workflows.timeouts import StepTimeout

pytestmark = [*engine.ENGINE, pytest.mark.slow]

OPEN: list[Any] = []  # what a step has entered and never left


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    connections.close_all()
    OPEN.clear()


def sql(statement: str) -> None:
    execute(statement)


def commit_and_write() -> None:
    connection.connection.commit()
    Group.objects.create(name="after the commit")


def enter(block: Any) -> None:
    OPEN.append(block)
    block.__enter__()


def copy() -> None:
    with connection.cursor():  # psycopg's own connection is known by then
        enter(connection.connection.cursor().copy("COPY auth_group (name) FROM STDIN"))


def pipeline() -> None:
    with connection.cursor():
        enter(connection.connection.pipeline())
    Group.objects.count()


def stream() -> None:
    sql("SELECT 1")
    OPEN.append(connection.connection.cursor().stream("SELECT generate_series(1, 100000)"))
    next(OPEN[-1])


BREAKS: dict[str, tuple[Callable[[], None], str]] = {
    "COMMIT": (lambda: sql("COMMIT"), "breaks ended"),
    "ROLLBACK": (lambda: sql("ROLLBACK"), "breaks ended"),
    "psycopg's commit": (commit_and_write, "breaks ended"),
    "COMMIT AND CHAIN": (lambda: sql("COMMIT AND CHAIN"), "{}, or a step before it, ended"),
    "COMMIT; BEGIN": (lambda: sql("COMMIT; BEGIN"), "{}, or a step before it, ended"),
    "a COPY": (copy, "breaks left a COPY"),
    "a pipeline": (pipeline, "breaks left a COPY"),
    "a stream": (stream, "breaks left a COPY"),
    "a closed connection": (lambda: connection.close(), "breaks closed"),
}


def breaking(how: Callable[[], None], then: BaseException | None = None) -> tuple[Any, list[int]]:
    """A step that breaks its session, and the attempts at which it ran."""
    ran: list[int] = []

    def breaks(*, workflow: Workflow, context: Any, **_: Any) -> dict[str, Any]:
        ran.append(last_attempt(workflow).number)
        how()
        if then:
            raise then
        return {}

    return breaks, ran


def charge(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {}


def undo(*, workflow: Workflow, context: Any, effect: Any) -> None: ...


def drain() -> None:
    worker().run(drain=True)


def ends(workflow: Workflow) -> list[tuple[str, str]]:
    return list(Attempt.objects.filter(workflow=workflow).order_by("number").values_list("outcome", "died_how"))


@pytest.mark.parametrize(
    ("how", "told", "then"),
    [
        *(pytest.param(*each, None, id=name) for name, each in BREAKS.items()),
        pytest.param(*BREAKS["COMMIT"], RetryableStepError("Later."), id="COMMIT, and fails"),
        pytest.param(*BREAKS["a COPY"], RetryableStepError("Later."), id="a COPY, and fails"),
    ],
)
def test_it_is_the_step_s_failure_at_the_first_time_and_what_was_charged_is_refunded(
    how: Callable[[], None], told: str, then: BaseException | None
) -> None:
    breaks, ran = breaking(how, then)
    later, called = breaking(lambda: None)
    define([Step(charge, once=True, undo=undo), breaks, Step(later, name="later", once=True)])
    workflow = submit()
    drain()
    workflow.refresh_from_db()
    assert (ran, called, workflow.status, workflow.last_error_code) == ([1], [], "FAILED", "broken_session")
    assert workflow.last_error_message.startswith(told.format(workflow.current_step))
    assert workflow.current_step in told or "a step before it" in told
    assert [outcome for outcome, _ in ends(workflow)] == ["lost", "failed", "compensated"]
    assert Effect.objects.get(step="charge", undo=False).state == "undone"
    assert kinds(workflow) == ["lost", "failed", "compensating", "compensated"]


def test_a_call_that_its_own_step_made_before_it_committed_is_on_the_ledger_and_is_refunded() -> None:
    breaks, ran = breaking(commit_and_write)
    define([Step(breaks, once=True, undo=undo)])
    workflow = submit()
    drain()
    workflow.refresh_from_db()
    assert (ran, workflow.status, workflow.last_error_code) == ([1], "FAILED", "broken_session")
    assert [effect.state for effect in Effect.objects.order_by("id")] == ["undone", "done"]


def test_what_another_worker_decides_meanwhile_stands() -> None:
    """The row is free from the commit on, while the step still runs."""

    def breaks(*, workflow: Workflow, context: Any) -> None:
        if last_attempt(workflow).number == 1:
            sql("COMMIT")
            elsewhere(worker().process_next)

    define([breaks])
    workflow = submit()
    drain()
    workflow.refresh_from_db()
    assert (workflow.status, kinds(workflow)) == ("COMPLETE", ["lost", "completed"])
    assert ends(workflow) == [("lost", "the step ended the transaction"), ("complete", "")]


@pytest.mark.parametrize("alias", ["default", "attempt_log"])
def test_a_server_that_ends_the_session_is_no_fault_of_the_step_s(alias: str) -> None:
    """Nor does libpq know of it before something is sent."""

    def is_ended(*, workflow: Workflow, context: Any) -> None:
        sql("SELECT 1")
        if last_attempt(workflow).number == 1:
            engine.terminate(alias)

    define([is_ended, Step(charge, once=True)])
    workflow = submit()
    drain()
    assert (Workflow.objects.get().status, [outcome for outcome, _ in ends(workflow)]) == (
        "COMPLETE",
        ["lost", "complete"],
    )


def test_a_statement_of_the_engine_s_own_that_fails_before_any_step_is_no_fault_of_a_step() -> None:
    """The row is free then, as if a step had ended the transaction."""

    class Gate(Feature):
        def gate(self, definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt) -> None:
            sql(f"SELECT 1 / {attempt.number - 1}")

    define([Step(charge, once=True)])
    workflow = submit()
    worker(features=[Gate()]).run(drain=True)
    assert (Workflow.objects.get().status, [outcome for outcome, _ in ends(workflow)]) == (
        "COMPLETE",
        ["lost", "complete"],
    )


def test_a_timeout_that_leaves_a_statement_unread_is_no_more_than_a_loss() -> None:
    def interrupted(*, workflow: Workflow, context: Any) -> None:
        if last_attempt(workflow).number == 1:
            stream()
            raise StepTimeout(1)

    define([interrupted])
    workflow = submit()
    drain()
    assert (Workflow.objects.get().status, [outcome for outcome, _ in ends(workflow)]) == (
        "COMPLETE",
        ["lost", "complete"],
    )


# --- Undos and deferred steps ---------------------------------------------------------------------------


def fail(*, workflow: Workflow, context: Any) -> None:
    raise StepError("No.")


def test_an_undo_that_has_committed_has_undone() -> None:
    breaks, ran = breaking(lambda: sql("COMMIT"))
    define([Step(charge, name="first", once=True, undo=undo), Step(charge, once=True, undo=breaks), fail])
    workflow = submit()
    drain()
    workflow.refresh_from_db()
    assert (len(ran), workflow.status, last_attempt(workflow).outcome) == (1, "FAILED", "compensated")
    assert not ManualTask.objects.exists()


def test_a_person_is_asked_at_once_about_an_undo_that_fails_as_well() -> None:
    breaks, ran = breaking(lambda: sql("COMMIT"), RetryableStepError("Later."))
    define([Step(charge, once=True, undo=breaks), fail])
    submit()
    drain()
    task = ManualTask.objects.get()
    assert len(ran) == 1
    assert "undo charge ended the worker's transaction" in dict(task.facts)["The last error"]
    operations.reject(task.pk, user=ada(), reason="Not yet.")
    drain()
    assert (len(ran), ManualTask.objects.filter(state="open").count()) == (2, 1), "asked again"
