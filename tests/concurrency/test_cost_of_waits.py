"""What it costs to find the signal that a wait is for, whatever else has come: the pages that the server reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import connection, connections, transaction

from tests import engine
from tests.engine import define, submit, work
from tests.workflows.waits.signals import await_signals, tell
from workflows.models import Workflow
from workflows.postgres.statements import execute
from workflows.state import attempt_log

pytestmark = engine.ENGINE

OTHERS = 20_000


def store_signals(name: str, address: str, value: str) -> None:
    """Store OTHERS signals; `value` is SQL, and so is the column `address`."""
    execute(
        f"""INSERT INTO workflows_signal (source, dedupe_key, name, {address}, payload)
            SELECT 'shop', gen_random_uuid(), %s, {value}, '{{"n": 1}}' FROM generate_series(1, %s) n""",
        [name, OTHERS],
    )


def pages_to_answer(workflow: Workflow) -> int:
    """How many pages the statement reads that answers the wait of the workflow, in its next attempt."""
    pages = []

    def explain(execute: Any, sql: str, parameters: Any, *rest: Any) -> Any:
        if "candidate" in sql:
            with transaction.atomic(using=attempt_log.ALIAS), connections[attempt_log.ALIAS].cursor() as cursor:
                cursor.cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", parameters)
                plan = _json(cursor.cursor.fetchall())["Plan"]
                transaction.set_rollback(True, using=attempt_log.ALIAS)
            pages.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
        return execute(sql, parameters, *rest)

    with connections[attempt_log.ALIAS].execute_wrapper(explain):
        work(workflow)
    (found,) = pages
    return int(found)


def _json(rows: Sequence[Sequence[Any]]) -> Any:
    ((found,),) = rows
    return (json.loads(found) if isinstance(found, str) else found)[0]


@pytest.mark.parametrize("linked", [True, False], ids=["by linking id", "addressed"])
@pytest.mark.parametrize("names", [["paid"], ["declined", "paid"], ["declined"]], ids=str)
def test_a_wait_reads_a_few_pages_however_many_signals_are_open(
    no_vacuum: None, names: list[str], linked: bool
) -> None:
    """Of its own names, of other names, and of others; those it waits for are all, some or none of what is there."""
    define([await_signals(names)])
    workflow = submit(linking_id="acc")
    store_signals("paid", "linking_id", "'acc-' || n")
    address = ("linking_id", "'acc'") if linked else ("workflow_id", str(workflow.pk))
    for name in ("paid", "shipped"):
        store_signals(name, *address)
    execute("ANALYZE workflows_signal")
    # Before PostgreSQL 17 the index is walked over all of the address, once, where none is of the name.
    assert pages_to_answer(workflow) <= (40 if connection.pg_version >= 170000 else 400)  # type: ignore[attr-defined]
    workflow.refresh_from_db()
    assert (workflow.status == "COMPLETE") is ("paid" in names)


def test_a_signal_of_another_name_or_address_that_sorts_near_is_no_answer() -> None:
    """Addresses and names are compared as pairs."""
    define([await_signals("paid")])
    workflow, before, after = submit(linking_id="acc"), submit(linking_id="ac"), submit(linking_id="acc1")
    for number, name in enumerate(["paic", "paid.", "pai", "paida"]):
        tell(workflow, name, number)
        tell(None, name, number, linking_id="acc", source="linked")
    for number, other in enumerate((before, after)):
        tell(other, "paid", number)
        tell(None, "paid", number, linking_id=other.linking_id, source="linked")
    assert work(workflow).status == "PENDING"
    tell(None, "paid", 7, linking_id="acc")
    assert work(workflow).context["number"] == 7
