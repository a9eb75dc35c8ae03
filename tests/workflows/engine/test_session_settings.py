"""What holds for the sessions of a worker, whatever a step does to them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission
from django.db import connection, connections
from django.db.utils import ConnectionHandler

from tests import engine
from tests.engine import define, last_attempt, submit, work, worker
from tests.postgres import without_triggers
from tests.workflows.cancelling import nothing
from tests.workflows.engine.steps import say_one
from workflows import failpoints
from workflows.definition import Step
from workflows.engine import lease
from workflows.errors import ClaimLost, StepError
from workflows.models import Workflow
from workflows.postgres.statements import execute

pytestmark = engine.ENGINE


def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {}


def fail(*, workflow: Workflow, context: Any) -> None:
    raise StepError("No.")


def shown(setting: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW {setting}")
        return str(cursor.fetchone()[0])


def test_constraints_are_deferred_again_after_a_best_effort_step() -> None:
    """Checked where they stand, two rows that refer to each other could be written in no order at all."""

    def add_a_member_before_its_group(*, workflow: Workflow, context: Any) -> None:
        permission = Permission.objects.latest("id")
        Group.permissions.through.objects.create(group_id=987_654, permission_id=permission.pk)
        Group.objects.create(pk=987_654, name="late")

    define([Step(nothing, best_effort=True), add_a_member_before_its_group])
    workflow = work(submit())
    assert (workflow.status, workflow.last_error_class) == ("COMPLETE", "")


def test_the_time_zone_is_djangos_again_after_each_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    given = connection.settings_dict.get("OPTIONS", {})
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {**given, "options": "-c TimeZone=Asia/Tokyo"})
    connection.close()
    try:
        define([nothing])
        assert work(submit()).status == "COMPLETE"
        assert shown("TimeZone") == "UTC"
    finally:
        connection.close()


def test_an_undo_that_fails_leaves_no_writes_behind() -> None:
    def undo(*, workflow: Workflow, context: Any, effect: Any) -> None:
        Group.objects.create(name="by half")
        raise StepError("Not today.")

    define([Step(call, once=True, undo=undo), fail])
    workflow = work(work(submit()))
    assert engine.kinds(workflow)[-1] == "undo_failed"
    assert not Group.objects.filter(name="by half").exists()


def test_a_row_that_is_gone_is_not_decided() -> None:
    """A step has deleted it: that is retracted with all else, and the row is there again."""

    def delete_it(*, workflow: Workflow, context: Any) -> None:
        with without_triggers():
            Workflow.objects.filter(pk=workflow.pk).delete()

    define([delete_it])
    workflow = submit()
    with pytest.raises(ClaimLost):
        worker().process_next()
    assert Workflow.objects.get(pk=workflow.pk).status == "PENDING"


def test_a_connection_that_is_closed_right_before_the_commit_has_decided_nothing() -> None:
    """Django's `atomic()` exits without a word then, as if it had committed."""
    define([nothing])
    workflow = submit()
    with failpoints.armed("before_commit", connection.close), pytest.raises(ClaimLost):
        worker().process_next()
    assert Workflow.objects.get(pk=workflow.pk).status == "PENDING"


def test_a_worker_reads_what_is_committed_whatever_the_database_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for alias in ("default", "attempt_log"):
        monkeypatch.setitem(connections[alias].settings_dict, "OPTIONS", {})
    lease.describe_connections("test-host:1")
    database = connection.ops.quote_name(connection.settings_dict["NAME"])
    with engine.another_connection() as other:
        other.execute(f"ALTER DATABASE {database} SET default_transaction_isolation = 'repeatable read'")
        connections.close_all()
        try:
            define([say_one])
            workflow = work(submit())
            assert (workflow.status, last_attempt(workflow).outcome) == ("COMPLETE", "complete")
        finally:
            connections.close_all()
            other.execute(f"ALTER DATABASE {database} RESET default_transaction_isolation")


@pytest.mark.parametrize(
    ("name", "value"), [("search_path", "nowhere"), ("statement_timeout", "60s"), ("TimeZone", "Asia/Tokyo")]
)
def test_what_a_step_sets_for_the_session_ends_with_its_attempt(name: str, value: str) -> None:
    """Left alone it holds for the engine, which finds no table, and for the next workflow, whose times are wrong."""

    def set_it(*, workflow: Workflow, context: Any) -> None:
        execute(f"SET {name} = '{value}'")

    define([set_it])
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW {name}")
        before = cursor.fetchone()
        assert work(submit()).status == "COMPLETE"
        cursor.execute(f"SHOW {name}")
        assert cursor.fetchone() == before


def test_another_database_of_the_project_is_left_alone() -> None:
    sqlite = ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})["default"]
    with sqlite.cursor() as cursor:
        assert cursor.execute("SELECT 1").fetchone() == (1,)
    sqlite.close()
