"""What the sessions of a worker ask of the server."""

from contextlib import closing
from typing import Any

import pytest
from django.db import connections

from tests import engine
from tests.engine import define
from workflows.definition import Step
from workflows.engine import lease

pytestmark = engine.ENGINE


def step(*, workflow: Any, context: Any) -> None: ...


def session(alias: str, setting: str) -> str:
    with closing(connections.create_connection(alias)) as made, made.cursor() as cursor:
        cursor.execute(f"SHOW {setting}")
        return str(cursor.fetchone()[0])


@pytest.fixture(autouse=True)
def as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """The options of the connections, after the test."""
    for alias in ("default", "attempt_log"):
        database = connections[alias].settings_dict
        monkeypatch.setitem(database, "OPTIONS", database.get("OPTIONS", {}))


def test_neither_end_waits_for_ever_for_the_other() -> None:
    """A claim may be silent longer than the longest step takes, and no longer.

    The claim may hold what the attempt log waits for; and a statement may run for a worker that is long gone.
    """
    define([step, Step(step, timeout=90, name="longest"), Step(step, timeout=0.5, name="short")])
    lease.describe_connections("test-host:1")
    asked = {
        "default": {"idle_in_transaction_session_timeout": "2min", "statement_timeout": "2min", "lock_timeout": "0"},
        "attempt_log": {"idle_in_transaction_session_timeout": "10s", "statement_timeout": "0", "lock_timeout": "5s"},
    }
    for alias, values in asked.items():
        settings = {**values, "client_connection_check_interval": "1s"}
        assert {setting: session(alias, setting) for setting in settings} == settings


def test_a_lookup_before_the_call_takes_its_time_too() -> None:
    define([Step(step, once=True, timeout=90, lookup=lambda **_: None)])
    assert lease.lease_seconds() == 210


def test_the_lease_may_be_stated(settings: Any) -> None:
    define([step])
    settings.WORKER_LEASE_SECONDS = 0.5
    lease.describe_connections("test-host:1")
    assert session("default", "idle_in_transaction_session_timeout") == "500ms"


def test_what_the_url_of_the_database_says_beats_it(settings: Any) -> None:
    define([step])
    connections["default"].settings_dict["OPTIONS"] = {
        **connections["default"].settings_dict["OPTIONS"],
        "options": "-c statement_timeout=7000",
    }
    lease.describe_connections("test-host:1")
    assert session("default", "statement_timeout") == "7s"


def test_what_the_attempt_log_repeats_is_prepared_and_reads_by_an_index_forever() -> None:
    """A plan made while a table is empty is kept; and an empty table is read fastest from end to end."""
    define([step])
    lease.describe_connections("test-host:1")
    with closing(connections.create_connection("attempt_log")) as made, made.cursor() as cursor:
        cursor.execute("ANALYZE workflows_effect")
        for number in range(20):
            cursor.execute("UPDATE workflows_effect SET state = %s WHERE id = %s", ["done", number])
        cursor.execute("SELECT name FROM pg_prepared_statements WHERE statement LIKE 'UPDATE%' AND generic_plans > 0")
        ((name,),) = cursor.fetchall()
        cursor.execute(f"EXPLAIN EXECUTE {name}('done', 1)")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Index Scan using workflows_effect_pkey" in plan, plan
