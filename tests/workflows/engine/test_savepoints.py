"""How many savepoints a workflow takes: past 64 that have written, all of the server's snapshots become slower."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection

from tests import engine
from tests.engine import define, outcomes, submit, work
from workflows.definition import Step
from workflows.models import Workflow

pytestmark = engine.ENGINE


def writing(name: str, *, best_effort: bool = False) -> Step:
    def write(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        Group.objects.create(name=f"by {name}")
        return {}

    return Step(write, name=name, best_effort=best_effort)


def steps_of_two_kinds() -> list[Step]:
    ordinary = [writing(f"ordinary {number}") for number in range(100)]
    return [*ordinary[:50], writing("a", best_effort=True), *ordinary[50:], writing("b", best_effort=True)]


def written() -> set[str]:
    return set(Group.objects.filter(name__startswith="by ").values_list("name", flat=True))


@contextmanager
def savepoints() -> Iterator[list[str]]:
    """The savepoints that are made on the claim's connection."""
    made: list[str] = []

    def look(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("SAVEPOINT"):
            made.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(look):
        yield made


def test_ordinary_steps_share_one_savepoint_and_a_best_effort_step_has_its_own() -> None:
    define(steps_of_two_kinds())
    with savepoints() as made:
        workflow = work(submit())
    assert (workflow.status, len(written())) == ("COMPLETE", 102)
    assert len(made) == 1 + 2


def test_the_server_has_room_for_the_savepoints_of_a_hundred_steps() -> None:
    """Its own count, of those that have written; the room is 64 (PGPROC_MAX_CACHED_SUBXIDS)."""
    counted = []

    def count(*, workflow: Workflow, context: Any) -> None:
        assert connection.connection is not None
        with engine.another_connection() as other:
            sql = """SELECT subxact_count, subxact_overflowed
                       FROM pg_stat_get_backend_idset() id, pg_stat_get_backend_subxact(id)
                      WHERE pg_stat_get_backend_pid(id) = %s"""
            counted.append(other.execute(sql, [connection.connection.info.backend_pid]).fetchone())

    connection.ensure_connection()
    if connection.pg_version < 160000:
        pytest.skip("PostgreSQL tells its count since version 16")
    define([*steps_of_two_kinds(), Step(count)])
    assert work(submit()).status == "COMPLETE"
    assert counted == [(1 + 2, False)]


def test_what_a_best_effort_step_swallows_costs_only_that_step() -> None:
    """Left in the transaction, it would have aborted it: no later step could say a word to the database."""

    def swallow(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        Group.objects.create(name="by half")
        with suppress(DatabaseError):
            connection.cursor().execute("SELECT 1 / 0")
        return {"number": 1}

    define([writing("before"), Step(swallow, best_effort=True), writing("after")])
    workflow = work(submit())
    assert (workflow.status, workflow.context["number"]) == ("COMPLETE", None)
    assert outcomes(workflow)["swallow"] == "best_effort_failed"
    assert written() == {"by before", "by after"}
