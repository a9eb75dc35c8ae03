"""How many savepoints a workflow takes: past 64 that have written, all of the server's snapshots become slower."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth.models import Group
from django.db import connection

from tests import engine
from tests.engine import define, submit, work
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
    """By the server's own count, too, of those that have written; its room is 64 (PGPROC_MAX_CACHED_SUBXIDS)."""
    counted = []

    def count(*, workflow: Workflow, context: Any) -> None:
        assert connection.connection is not None
        if connection.pg_version >= 160000:  # PostgreSQL tells it since then
            with engine.another_connection() as other:
                sql = """SELECT subxact_count, subxact_overflowed
                           FROM pg_stat_get_backend_idset() id, pg_stat_get_backend_subxact(id)
                          WHERE pg_stat_get_backend_pid(id) = %s"""
                counted.append(other.execute(sql, [connection.connection.info.backend_pid]).fetchone())

    define([*steps_of_two_kinds(), Step(count)])
    with savepoints() as made:
        workflow = work(submit())
    assert (workflow.status, len(written())) == ("COMPLETE", 102)
    assert len(made) == 1 + 2
    assert set(counted) <= {(1 + 2, False)}
