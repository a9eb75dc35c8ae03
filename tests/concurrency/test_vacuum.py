"""Autovacuum comes while few rows are dead, and a look pays no longer for what was drained before it came."""

from __future__ import annotations

import pytest
from django.db import connection

from tests import engine
from tests.concurrency.backlogs import analyze, say_one, store, store_backlog
from tests.concurrency.looks import look_once
from tests.engine import define, submit
from tests.processes import until
from workflows.models import Attempt, Signal, Wait, Workflow
from workflows.postgres.statements import execute

pytestmark = engine.ENGINE


@pytest.mark.parametrize("model", [Workflow, Attempt, Signal, Wait])
def test_what_is_worked_off_is_vacuumed_when_a_hundredth_of_it_is_dead(model: type) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT reloptions FROM pg_class WHERE relname = %s", [model._meta.db_table])  # type: ignore[attr-defined]
        (options,) = cursor.fetchone()
    assert {"autovacuum_vacuum_scale_factor=0.01", "vacuum_index_cleanup=on"} <= set(options)


def test_a_vacuum_removes_what_was_drained_however_few_of_the_pages_it_was_in(no_vacuum: None) -> None:
    """It would leave the indexes alone when less than 2% of the table's pages have something dead."""
    define([say_one])
    store(3_000, payload="'{}'", invisible_until="now() - interval '1 hour'")
    store_backlog()
    analyze()
    execute(
        "UPDATE workflows_workflow SET status = 'COMPLETE', completed_at = now() WHERE invisible_until < now()"
        " AND status = 'PENDING'"
    )
    submit()
    before = look_once().buffers
    assert before > 20

    def vacuum_and_look() -> int:
        with engine.another_connection() as other:
            other.execute("VACUUM workflows_workflow")
        submit()
        return look_once().buffers

    until(lambda: vacuum_and_look() <= 12)  # not while somebody, an ANALYZE by the server for one, still looks at them
