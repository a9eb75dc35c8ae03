"""A worker looks at its sessions before it claims: what it refuses, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import psycopg
import pytest
from django.db import OperationalError, connection, connections

from tests import engine
from tests.engine import define, submit, worker
from workflows.engine import lease, sessions
from workflows.models import Workflow
from workflows.postgres import sqlstates

pytestmark = engine.ENGINE


@pytest.fixture(autouse=True)
def as_a_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Connections as a worker opens them; the options are as they were after the test."""
    for alias in ("default", "attempt_log"):
        database = connections[alias].settings_dict
        monkeypatch.setitem(database, "OPTIONS", database.get("OPTIONS", {}))
    define([lambda *, workflow, context: None])
    lease.describe_connections("test-host:1")
    connections.close_all()
    yield
    connections.close_all()


def test_it_looks_at_new_connections_only(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    check = sessions._check
    monkeypatch.setattr(sessions, "_check", lambda *wrappers: (looked.append(1), check(*wrappers)))
    for _ in range(3):
        sessions.ensure_fit()
    assert len(looked) == 1
    connections["attempt_log"].close()
    sessions.ensure_fit()
    assert len(looked) == 2


@pytest.mark.parametrize("alias", ["default", "attempt_log"])
def test_what_is_asked_for_and_not_in_force_is_named(alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where somebody on the way drops the startup options; the worker believes that it has sent them."""
    wrapper = connections[alias]
    parameters = wrapper.get_connection_params()
    monkeypatch.setattr(wrapper, "get_connection_params", lambda: {**parameters, "options": ""})
    with pytest.raises(
        sessions.UnfitSessions, match=r"ignores what a worker asks of its session.*statement_timeout|seqscan"
    ):
        sessions.ensure_fit()


def test_what_it_was_told_once_open_and_is_not_in_force_is_named() -> None:
    """As where the next statement is another backend's."""
    sessions._open(connection, "here")
    connection.connection.execute("RESET ALL")
    with pytest.raises(sessions.UnfitSessions, match=r"ignores what a worker asks of its session.*synchronous_commit"):
        sessions._open(connection, "here")


class Pool:
    """A pool of backends that lends one for a transaction: the last one that was free, or each in its turn."""

    def __init__(self, *, size: int, in_turns: bool) -> None:
        parameters = connection.get_connection_params()
        parameters = {name: value for name, value in parameters.items() if name not in ("cursor_factory", "context")}
        self.free = [psycopg.connect(**parameters, autocommit=True) for _ in range(size)]
        self.all = list(self.free)
        self.in_turns = in_turns

    def lend(self) -> Any:
        assert self.free, "a client would wait here until another one has ended its transaction"
        return self.free.pop(0 if self.in_turns else -1)

    def close(self) -> None:
        for each in self.all:
            each.close()


class Client:
    """What a worker takes for its session; PgBouncer in transaction mode behaves so."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.lent: Any = None

    def execute(self, *args: Any, **options: Any) -> Any:
        if self.lent:
            return self.lent.execute(*args, **options)
        backend = self.pool.lend()
        try:
            return backend.execute(*args, **options)
        finally:
            self.pool.free.append(backend)

    def transaction(self) -> Any:
        return self

    def __enter__(self) -> None:
        self.lent = self.pool.lend()
        self.lent.execute("BEGIN")

    def __exit__(self, *_: object) -> None:
        self.lent.execute("ROLLBACK")
        self.pool.free.append(self.lent)
        self.lent = None


@pytest.mark.parametrize(("size", "in_turns"), [(1, False), (2, False), (2, True), (3, True)])
def test_a_pool_that_lends_backends_is_found_out(size: int, in_turns: bool) -> None:
    """Whatever it lends: the settings may all be in force, as where they were set for the role."""
    pool = Pool(size=size, in_turns=in_turns)
    try:
        assert not sessions._is_one_backend_each(Client(pool), Client(pool))
    finally:
        pool.close()


def test_a_worker_refuses_it_and_names_the_cause() -> None:
    pool = Pool(size=2, in_turns=False)

    class Wrapper:
        """A connection that Django has opened to the pool, and that asks for nothing of its own."""

        alias = "default"
        settings_dict: ClassVar[dict[str, Any]] = {}

        def __init__(self) -> None:
            self.connection = Client(pool)

        def ensure_connection(self) -> None: ...

    try:
        with pytest.raises(sessions.UnfitSessions, match="lends a session one backend after another"):
            sessions._check(Wrapper(), Wrapper())
    finally:
        pool.close()


@pytest.mark.parametrize("lost", ["the lock", "what was set"])
def test_a_session_that_keeps_its_backend_and_nothing_else_is_found_out(lost: str) -> None:
    """A pool that resets between two transactions; a server that answers for others, and has locks of its own."""

    class Forgetful:
        def __init__(self, session: Any) -> None:
            self.session = session

        def execute(self, sql: str, *args: Any, **options: Any) -> Any:
            if lost == "the lock":
                return self.session.execute(
                    sql.replace("pg_try_advisory_xact_lock(%s)", "%s::bigint > 0"), *args, **options
                )
            found = self.session.execute(sql, *args, **options)
            self.session.execute("RESET ALL")
            return found

        def transaction(self) -> Any:
            return self.session.transaction()

    sessions.ensure_fit()
    pair = (connections["default"].connection, connections["attempt_log"].connection)
    assert sessions._is_one_backend_each(*pair)
    assert not sessions._is_one_backend_each(*map(Forgetful, pair))


def test_a_read_only_server_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """A failover. It is no reason to refuse, nor to end."""
    workflow, this = submit(), worker()
    database = connection.ops.quote_name(connection.settings_dict["NAME"])
    with engine.another_connection() as other:
        connections.close_all()
        other.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
        waited: list[float] = []

        def wait(seconds: float) -> bool:
            waited.append(seconds)
            if len(waited) == 3:
                other.execute(f"ALTER DATABASE {database} RESET default_transaction_read_only")
            return False

        this.stopping.wait = wait  # type: ignore[method-assign]
        try:
            sessions.refuse_unfit("test-host:1")
            this.run(drain=True)
        finally:
            other.execute(f"ALTER DATABASE {database} RESET default_transaction_read_only")
    assert len(waited) == 3
    assert "ClaimLost: the server is read-only: a standby, or set to be, at " in caplog.text
    assert Workflow.objects.get(pk=workflow.pk).status == "COMPLETE"


def test_a_server_that_takes_no_startup_options_is_refused_and_one_that_is_away_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = [f"FATAL: {sqlstates.NO_STARTUP_OPTIONS}: options", "Connection refused"]

    def fail() -> None:
        raise OperationalError from psycopg.OperationalError(said.pop(0))

    monkeypatch.setattr(connections["default"], "ensure_connection", fail)
    with pytest.raises(sessions.UnfitSessions, match="takes no startup options"):
        sessions.ensure_fit()
    with pytest.raises(OperationalError):
        sessions.ensure_fit()


def test_what_a_worker_refuses_ends_it_and_is_no_fault_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise sessions.UnfitSessions("no")

    monkeypatch.setattr(sessions, "_check", refuse)
    with pytest.raises(sessions.UnfitSessions):
        worker().run()
