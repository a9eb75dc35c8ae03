"""What a step leaves in its session, and RESET ALL does not reset: no decision and no other workflow meets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, connections, transaction

from tests import engine
from tests.engine import define, last_attempt, submit, work, worker
from tests.workflows.cancelling import nothing
from workflows.definition import Step
from workflows.engine import worker_boundary
from workflows.errors import RetryableStepError, StepError
from workflows.models import Workflow
from workflows.postgres.statements import execute
from workflows.waits import wait_for_signal

pytestmark = engine.ENGINE


def sql(*statements: str) -> Any:
    def step(*, workflow: Workflow, context: Any) -> None:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    return step


def in_session(query: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchone()[0]


def held_by_us(lock: int) -> bool:
    with engine.another_connection() as other:
        row = other.execute("SELECT pg_try_advisory_lock(%s)", [lock]).fetchone()
        assert row
        return not row[0]


@pytest.mark.parametrize("become", ["SET ROLE {}", "SET SESSION AUTHORIZATION {}"])
def test_a_step_that_becomes_another_role_does_not_keep_the_decision_from_being_written(become: str, role: str) -> None:
    us = in_session("SELECT current_user")
    define([sql(become.format(role))])
    assert work(submit()).status == "COMPLETE"
    assert in_session("SELECT current_user") == in_session("SELECT session_user") == us


def test_the_role_that_the_connection_asked_for_is_kept(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    us = in_session("SELECT current_user")
    given = connection.settings_dict.get("OPTIONS", {})
    with engine.another_connection() as other:
        other.execute(f"GRANT {us} TO {role}")
        other.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
        other.execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}")
    define([sql("SET SESSION AUTHORIZATION DEFAULT", "RESET ROLE")])
    submit()
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {**given, "options": f"-c role={role}"})
    connection.close()
    try:
        assert worker().process_next()
        assert in_session("SELECT current_user") == role
        assert Workflow.objects.get().status == "COMPLETE"
    finally:
        connection.close()


def after_the_commit(do: Callable[[], object]) -> Any:
    return lambda *, workflow, context: transaction.on_commit(do)


@pytest.mark.parametrize(
    "step",
    [
        sql("CREATE TEMP TABLE import (line text)"),
        sql("DECLARE lines CURSOR WITH HOLD FOR SELECT 1"),  # another workflow failed for good: its name was taken
        sql("DECLARE lines CURSOR WITH HOLD FOR SELECT 1 / (n - 1) FROM generate_series(1, 2) n"),  # the commit runs it
        after_the_commit(lambda: connection.cursor().execute("SELECT 1")),  # what was prepared is gone
        after_the_commit(lambda: engine.terminate("default")),
    ],
    ids=["a table", "a cursor", "a cursor whose query fails", "a hook", "a hook that ends its session"],
)
def test_what_a_step_leaves_is_gone_for_the_next_workflow(step: Any) -> None:
    define([Step(step, name="step")])
    this = worker()
    for _ in range(2):
        workflow = submit()
        assert this.process_next()
        assert Workflow.objects.get(pk=workflow.pk).status == "COMPLETE"


def test_nothing_is_listened_to_any_more() -> None:
    define([sql("LISTEN arrivals")])
    assert work(submit()).status == "COMPLETE"
    assert in_session("SELECT count(*) FROM pg_listening_channels()") == 0


def fail(*, workflow: Workflow, context: Any) -> None:
    raise StepError("No.")


def wait(*, workflow: Workflow, context: Any) -> None:
    wait_for_signal(workflow, "parcel")


LEAVE = ("PREPARE ours AS SELECT 1", "SELECT pg_advisory_lock(4711)")


@pytest.mark.parametrize("then", [nothing, wait])
def test_a_lock_of_the_session_and_a_prepared_statement_are_let_go_of_whatever_came_of_it(then: Any) -> None:
    """Neither is undone by the savepoint's rollback."""
    define([sql(*LEAVE), then])
    this = worker()
    submit()
    assert this.process_next()
    assert not held_by_us(4711)
    assert in_session("SELECT count(*) FROM pg_prepared_statements WHERE name = 'ours'") == 0


def test_a_look_for_a_cancellation_drops_nothing_that_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each second comes one; what is claimed and decided after it would be planned anew."""
    monkeypatch.setattr(worker_boundary, "CHECK_EVERY", 0.0)
    define([nothing])
    this, kept = worker(), []
    for _ in range(2):
        submit()
        assert this.process_next()
        kept.append(in_session("SELECT array_agg(name) FROM pg_prepared_statements WHERE name LIKE 'onramp%'"))
    assert set(kept[0]) <= set(kept[1])


@pytest.mark.parametrize("fails", [False, True])
def test_an_undo_leaves_nothing_either(fails: bool, role: str) -> None:
    us = in_session("SELECT current_user")

    def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        return {}

    def undo(*, workflow: Workflow, context: Any, effect: Any) -> None:
        sql(*LEAVE, f"SET ROLE {role}")(workflow=workflow, context=context)
        if fails:
            raise RetryableStepError("Not now.")

    define([Step(call, once=True, undo=undo), fail])
    workflow = work(work(submit()))
    assert workflow.status == ("PENDING" if fails else "FAILED")
    assert last_attempt(workflow).outcome == ("retry" if fails else "compensated")
    assert in_session("SELECT current_user") == us
    assert not held_by_us(4711)


# --- What a hook leaves, after the commit ---------------------------------------------------------------

SESSION = """SELECT format('%s, %s, %s, %s locks, %s statements, %s tables', current_user,
                           current_setting('synchronous_commit'), current_setting('timezone'),
                           (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
                           (SELECT count(*) FROM pg_prepared_statements WHERE name = 'ours'),
                           (SELECT count(*) FROM pg_class WHERE relname = 'import'))"""


@pytest.mark.parametrize(
    "leave",
    [
        "SET SESSION AUTHORIZATION {}",
        "; ".join(
            ("SET synchronous_commit = off", "SET TIME ZONE 'Asia/Tokyo'", "CREATE TEMP TABLE import (x int)", *LEAVE)
        ),
        "BEGIN",
    ],
)
def test_a_hook_leaves_nothing_for_the_next_workflow(leave: str, role: str) -> None:
    seen: list[str] = []

    def look_and_leave(*, workflow: Workflow, context: Any) -> None:
        seen.append(in_session(SESSION))
        transaction.on_commit(lambda: connection.cursor().execute(leave.format(role)))

    with engine.another_connection() as other:
        other.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
        other.execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}")
    define([look_and_leave])
    this = worker()
    for _ in range(2):
        submit()
        assert this.process_next()
    assert len(seen) == 2
    assert len(set(seen)) == 1, seen


def test_after_a_hook_a_session_that_was_told_something_is_told_it_again() -> None:
    def reset_later(*, workflow: Workflow, context: Any) -> None:
        transaction.on_commit(lambda: connection.cursor().execute("SET synchronous_commit = off"))

    define([reset_later])
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        (name,) = cursor.fetchone()
        cursor.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    connections.close_all()
    try:
        submit()
        assert worker().process_next()
        assert in_session("SHOW synchronous_commit") == "on"
    finally:
        execute(f"ALTER DATABASE {name} RESET synchronous_commit")
        connections.close_all()
