"""What every session states, whatever the server, the database or the role would have it be."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from django.db import Error, connection, connections
from django.test import Client
from pytest_django import Settings

from tests import engine
from tests.engine import define, submit, worker
from tests.servers import ROOT, database_url
from workflows import failpoints
from workflows.engine import lease
from workflows.features.doctor.examination import examine
from workflows.models import Attempt, Workflow
from workflows.postgres import server_log, session_settings

pytestmark = engine.ENGINE

Administrator = Callable[..., None]


@pytest.fixture
def administrator() -> Iterator[Administrator]:
    """Sets defaults of the database, for the sessions that are opened from now on."""
    database = connection.ops.quote_name(connection.settings_dict["NAME"])
    with engine.another_connection() as other:

        def set_defaults(**settings: str) -> None:
            connections.close_all()
            for name, value in settings.items():
                other.execute(f"ALTER DATABASE {database} SET {name} = '{value}'")

        try:
            yield set_defaults
        finally:
            connections.close_all()
            other.execute(f"ALTER DATABASE {database} RESET ALL")


@pytest.fixture(autouse=True)
def as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """The options of the connections, and what they are told, after the test."""
    monkeypatch.setattr(session_settings, "_settings", {})
    for alias in ("default", "attempt_log"):
        database = connections[alias].settings_dict
        monkeypatch.setitem(database, "OPTIONS", database.get("OPTIONS", {}))


def shown(alias: str, setting: str) -> str:
    with closing(connections.create_connection(alias)) as made, made.cursor() as cursor:
        cursor.execute(f"SHOW {setting}")
        return str(cursor.fetchone()[0])


def is_known(setting: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_settings WHERE name = %s", [setting])
        return cursor.fetchone() == (1,)


def nothing(*, workflow: Workflow, context: Any) -> None: ...


@pytest.mark.parametrize(
    ("alias", "default", "stated"),
    [
        *((alias, "off", "on") for alias in ("default", "attempt_log")),
        *(("default", "remote_write", "on"), ("attempt_log", "remote_apply", "remote_apply")),
    ],
)
def test_what_was_committed_survives_a_crash_whatever_the_default_is(
    administrator: Administrator, alias: str, default: str, stated: str
) -> None:
    administrator(synchronous_commit=default)
    assert shown(alias, "synchronous_commit") == stated


def test_no_statement_is_compiled_unless_the_url_says_so(administrator: Administrator) -> None:
    administrator(jit="on")
    assert shown("default", "jit") == "off"
    connection.settings_dict["OPTIONS"] = {"options": "-c jit=on"}
    assert shown("default", "jit") == "on"


LOGGING = {
    "log_parameter_max_length": "-1",
    "log_parameter_max_length_on_error": "-1",
    "log_error_verbosity": "default",
}


def test_nothing_of_a_value_is_logged_as_far_as_the_role_may_say_so(
    administrator: Administrator, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A superuser may set all three; any other role one, and is told what a superuser has to set."""
    administrator(**LOGGING, log_statement="all")
    assert [shown("default", name) for name in LOGGING] == ["0", "0", "terse"]
    server_log.warn()
    assert caplog.messages == []
    with engine.another_connection() as other:
        other.execute(f"CREATE ROLE plain LOGIN PASSWORD '{connection.settings_dict['PASSWORD'] or 'none'}'")
        try:
            monkeypatch.setitem(connection.settings_dict, "USER", "plain")
            monkeypatch.setattr("config.embedded.base.USER", "plain")
            assert [shown("default", name) for name in LOGGING] == ["-1", "0", "default"]
            server_log.warn()
            cures = [message.partition("superuser: ")[2] for message in caplog.messages]
            assert cures == [
                "ALTER ROLE plain SET log_parameter_max_length = 0; Then delete those logs.",
                "ALTER ROLE plain SET log_error_verbosity = terse;",
            ]
            for cure in cures:
                other.execute(cure.partition(";")[0])
            caplog.clear()
            server_log.warn()
            assert caplog.messages == []
        finally:
            connections.close_all()
            other.execute("DROP ROLE plain")


def test_what_the_url_of_the_database_says_beats_it_but_for_formats() -> None:
    options = {**connection.settings_dict["OPTIONS"], "options": "-c synchronous_commit=off -c DateStyle=SQL"}
    connection.settings_dict["OPTIONS"] = options
    assert [shown("default", name) for name in ("synchronous_commit", "DateStyle")] == ["off", "ISO, MDY"]


def test_a_decision_is_committed_so_although_the_steps_settings_are_reset(administrator: Administrator) -> None:
    administrator(synchronous_commit="off")
    seen: list[str] = []

    def see() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SHOW synchronous_commit")
            seen.append(cursor.fetchone()[0])

    define([nothing])
    submit()
    with failpoints.armed("before_commit", see):
        assert worker().process_next()
    assert seen == ["on"]


@pytest.mark.parametrize("limit", ["transaction_timeout", "idle_session_timeout"])
def test_no_limit_of_the_servers_ends_a_worker_at_its_work(administrator: Administrator, limit: str) -> None:
    """In the midst of a step the claim is in its transaction, and the attempt log idle."""
    if not is_known(limit):
        pytest.skip("this PostgreSQL does not have it")

    def rest(*, workflow: Workflow, context: Any) -> None:
        with engine.another_connection() as other:
            other.execute("SET transaction_timeout = 0" if limit == "transaction_timeout" else f"SET {limit} = 0")
            other.execute("SELECT pg_sleep(0.2)")

    define([rest, rest])
    workflow = submit()
    administrator(**{limit: "100ms"})
    lease.describe_connections("test-host:1")
    worker().run(drain=True)
    assert list(Attempt.objects.filter(workflow=workflow).values_list("outcome", flat=True)) == ["complete"]


IDLE = "idle_in_transaction_session_timeout"


@pytest.mark.parametrize(("default", "stated"), [("0", "30s"), ("5s", "5s")])
def test_a_request_that_hangs_in_its_transaction_is_ended(
    administrator: Administrator, default: str, stated: str
) -> None:
    administrator(**{IDLE: default})
    assert shown("default", IDLE) == default
    session_settings.limit_idle_transactions()
    assert shown("default", IDLE) == stated
    assert shown("attempt_log", IDLE) == default


@pytest.mark.slow
@pytest.mark.parametrize("entry", ["config.intake", "config.wsgi"])
def test_the_processes_that_answer_requests_state_it(entry: str) -> None:
    shows = f"import {entry}; from django.db import connection as c; k = c.cursor(); k.execute('SHOW {IDLE}')"
    url = database_url()
    for given, stated in (
        (url, "30s"),
        (f"{url}?options=-c%20{IDLE}%3D7s", "7s"),
        (f"{url}?keepalives_idle=77", "30s"),
    ):
        process = subprocess.run(
            [sys.executable, "-c", f"{shows}; print(*k.fetchone(), c.connection.info.dsn)"],
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": given},
            capture_output=True,
            text=True,
            check=True,
        )
        found, *dsn = process.stdout.split()
        assert found == stated
        assert f"keepalives_idle={77 if '77' in given else 5}" in dsn
        assert {"keepalives_interval=2", "keepalives_count=3", "tcp_user_timeout=10000"} <= set(dsn)


def test_a_session_that_cannot_be_told_is_not_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = session_settings.Setting("synchronous_commit", "perhaps")
    monkeypatch.setattr(session_settings, "DURABLE", refused)
    with closing(connections.create_connection("default")) as made:
        with pytest.raises(Error) as error:
            made.ensure_connection()
        assert isinstance(error.value.__cause__, psycopg.errors.InvalidParameterValue)
        assert made.connection is None


# What changes how a value is written or read, with an odd value of it, and what a session states.
FORMATS = {
    "DateStyle": ("SQL, DMY", "ISO, MDY"),
    "IntervalStyle": ("iso_8601", "postgres"),
    "TimeZone": ("Asia/Tokyo", "UTC"),
    "extra_float_digits": ("-10", "1"),
    "bytea_output": ("escape", "hex"),
    "array_nulls": ("off", "on"),
    "standard_conforming_strings": ("off", "on"),
    "transform_null_equals": ("on", "off"),
    "gin_fuzzy_search_limit": ("1", "0"),
    "default_transaction_isolation": ("serializable", "read committed"),
}
READ = """
    SELECT '2026-03-02 14:00+00'::timestamptz, '03/02/2026'::date, '-1 2:03:04'::interval, 0.1::float8 + 0.2::float8,
           '\\x00ff'::bytea::text, '{NULL}'::text[], '\\d', NULL = NULL, current_setting('transaction_isolation')"""


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("alias", ["default", "attempt_log"])
def test_values_are_written_and_read_as_ever(administrator: Administrator, alias: str, name: str) -> None:
    def read() -> Any:
        with closing(connections.create_connection(alias)) as made, made.cursor() as cursor:
            cursor.execute(READ)
            return cursor.fetchone()

    before = read()
    odd, stated = FORMATS[name]
    administrator(**{name: odd})
    assert shown(alias, name) == stated
    assert read() == before


def test_with_all_of_them_odd_a_worker_works_and_a_step_that_sets_them_harms_no_other(
    administrator: Administrator, client: Client, settings: Settings
) -> None:
    def set_them(*, workflow: Workflow, context: Any) -> None:
        with connection.cursor() as cursor:
            for name, (odd, _) in FORMATS.items():
                cursor.execute(f"SET {name} = '{odd}'")

    administrator(**{name: odd for name, (odd, _) in FORMATS.items()})
    define([set_them])
    submit()
    submit()
    here = worker()
    assert (here.process_next(), here.process_next()) == (True, True)
    assert list(Attempt.objects.values_list("outcome", flat=True)) == ["complete"] * 2
    settings.METRICS_TOKEN = "token"
    assert client.get("/metrics", headers={"Authorization": "Bearer token"}).status_code == 200
    assert "not known" not in {finding.about for finding in examine()}
    assert {name: shown("default", name) for name in FORMATS} == {name: stated for name, (_, stated) in FORMATS.items()}
