"""A session whose answer does not come: whether it goes on, and what becomes of the old one at the server."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, connections, transaction

from tests import engine
from tests.processes import until
from tests.servers import Proxy, connecting_to
from workflows.models import Service
from workflows.postgres import half_open, wire
from workflows.postgres.deadlines import DatabaseUnavailable, query_in_time
from workflows.postgres.half_open import Backend
from workflows.postgres.statements import fetch_row
from workflows.state import attempt_log

pytestmark = engine.ENGINE


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "SILENCE", 0.2)
    monkeypatch.setattr(wire, "LOOK_EVERY", 0.2)
    monkeypatch.setattr(half_open, "ON_ITS_WAY", 0.2)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """The way of this thread's connections; the server has no number of theirs left at the end."""
    with Proxy() as proxy, connecting_to(proxy.port), connecting_to(proxy.port, attempt_log.ALIAS):
        yield proxy


def pid(alias: str = "default") -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def is_there(backend: int) -> bool:
    with engine.another_connection() as other:
        return bool(other.execute("SELECT FROM pg_stat_activity WHERE pid = %s", [backend]).fetchall())


@pytest.mark.parametrize("limited", [False, True], ids=["without a limit", "in time"])
def test_its_transaction_and_this_threads_other_session_are_ended(proxy: Proxy, limited: bool) -> None:
    """By one that waits, or one whose time is over: they hold locks that others wait for."""
    Service.objects.create(name="letters")
    sessions = pid(), pid(attempt_log.ALIAS)

    def run_into_it() -> None:
        with transaction.atomic():
            Service.objects.update(suspects=[])
            proxy.freeze()
            fetch_row("SELECT 1")

    with pytest.raises(DatabaseUnavailable if limited else OperationalError):
        query_in_time(run_into_it, seconds=1) if limited else run_into_it()
    assert not any(map(is_there, sessions))
    assert connections[attempt_log.ALIAS].connection.closed, "or its next statement would wait as long"
    with engine.another_connection() as other:
        other.execute("SELECT FROM workflows_service FOR UPDATE NOWAIT")
    connections.close_all()
    assert not {pid(), pid(attempt_log.ALIAS)} & {*sessions}


def test_a_statement_that_takes_its_time_goes_on(proxy: Proxy) -> None:
    before = pid()
    assert fetch_row("SELECT 1 FROM pg_sleep(1)") == (1,)
    assert list(connection.connection.notifies(timeout=1)) == [], "it waits for nothing that was asked"
    assert pid() == before


def test_so_does_one_while_no_new_connection_is_made(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole server is silent: nothing is known."""
    before, looks = pid(), []
    connect = psycopg.connect
    monkeypatch.setattr(wire, "LOOK_EVERY", 1000.0)  # a look that reached no server is repeated sooner
    monkeypatch.setattr(psycopg, "connect", lambda **given: looks.append(1) or connect(**given))  # type: ignore[func-returns-value]
    proxy.fall_silent()
    with ThreadPoolExecutor(1) as pool:
        over = pool.submit(lambda: (until(lambda: len(looks) > 1), proxy.connect()))
        assert fetch_row("SELECT 1") == (1,)
        over.result()
    assert pid() == before


def test_one_whose_time_is_over_is_cancelled_by_a_server_that_takes_no_more_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, refused = pid(), {**connection.get_connection_params(), "dbname": "nowhere"}
    with monkeypatch.context() as for_now:
        for_now.setattr(connection, "get_connection_params", lambda: refused)
        with pytest.raises(DatabaseUnavailable):
            query_in_time(lambda: fetch_row("SELECT 1 FROM pg_sleep(60)"), seconds=0.5)
    until(lambda: not is_there(before))


def test_so_does_one_whose_answer_has_come_by_then() -> None:
    before, raw = pid(), connection.connection
    raw.pgconn.send_query(b"SELECT 1")
    assert half_open._hears(raw)
    assert not wire.wire_of(raw).close_if_half_open(1.0)
    raw.pgconn.get_result()
    assert raw.pgconn.get_result() is None
    assert pid() == before


def test_another_session_that_has_its_number_is_not_ended(proxy: Proxy) -> None:
    pid()
    proxy.freeze()
    with engine.another_connection() as other:
        connection.connection.onramp_backend = Backend(other.info.backend_pid, Decimal(0))
        with pytest.raises(OperationalError):
            pid()
        other.execute("SELECT 1")


def test_behind_a_pooler_it_is_one_of_those_of_its_role(proxy: Proxy) -> None:
    """Which backend is at its statement nobody knows: it goes on as long as one is at any for as long."""
    pid()
    connection.connection.onramp_backend = None
    close_if_half_open = wire.wire_of(connection.connection).close_if_half_open
    with ThreadPoolExecutor(1) as pool, engine.another_connection() as busy:
        sleeps = pool.submit(busy.execute, "SELECT pg_sleep(1.5)")
        until(lambda: _runs_for(busy, 0.5))
        assert not close_if_half_open(0.5)
        sleeps.result()
        assert close_if_half_open(0.5), "that one is idle by now"
        busy.execute("SELECT 1")
    assert connection.connection.closed


def test_and_not_one_of_those_that_have_begun_since(proxy: Proxy) -> None:
    pid()
    connection.connection.onramp_backend = None
    with ThreadPoolExecutor(1) as pool, engine.another_connection() as busy:
        sleeps = pool.submit(busy.execute, "SELECT pg_sleep(1)")
        until(lambda: _runs_for(busy, 0.0))
        assert wire.wire_of(connection.connection).close_if_half_open(60.0)
        sleeps.result()


def test_and_not_one_of_those_in_another_database(proxy: Proxy) -> None:
    pid()
    connection.connection.onramp_backend = None
    with ThreadPoolExecutor(1) as pool, engine.another_connection(dbname="postgres") as busy:
        sleeps = pool.submit(busy.execute, "SELECT pg_sleep(1)")
        until(lambda: _runs_for(busy, 0.1))
        assert wire.wire_of(connection.connection).close_if_half_open(0.0)
        sleeps.result()


def _runs_for(session: psycopg.Connection[Any], seconds: float) -> bool:
    with engine.another_connection() as other:
        sql = "SELECT state, clock_timestamp() - query_start > %s * interval '1 s' FROM pg_stat_activity WHERE pid = %s"
        return other.execute(sql, [seconds, session.info.backend_pid]).fetchone() == ("active", True)
