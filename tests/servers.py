"""Real processes and sockets for tests: the database's address, gunicorn, and a network that can fail."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol
from unittest.mock import patch
from urllib.parse import quote

import psutil
import psycopg
from django.db import DEFAULT_DB_ALIAS, connection, connections
from psycopg import sql

ROOT = Path(__file__).resolve().parent.parent

# With `--roles`: the role in the database that each application or command signs in as, see `tests.roles`.
ROLES: dict[str, str] = {}


def database_url(*, port: int | None = None) -> str:
    """The DATABASE_URL of the test database for another process, whatever engine the settings name.

    From the connection itself, so that an embedded server's socket is known too. With `port`, through a `Proxy`.
    """
    connection.ensure_connection()
    assert connection.connection is not None
    info = connection.connection.info
    password = f":{quote(info.password, safe='')}" if info.password else ""
    host = f"127.0.0.1:{port}" if port else f"{quote(info.host, safe='')}:{info.port}"
    return f"postgres://{quote(info.user, safe='')}{password}@{host}/{quote(info.dbname, safe='')}"


def url_of(process: str, url: str) -> str:
    """The same database with the role of this application or command, if it has one; only in the test database."""
    is_ours = url.rpartition("/")[2] == connection.settings_dict["NAME"]
    return re.sub("//[^@]*@", f"//{ROLES[process]}@", url) if is_ours and process in ROLES else url


def bash(script: str) -> str:
    """Run a script of the documentation on the test database, and return what it prints. It must end well."""
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail"],
        input=script,
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": database_url()},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def empty_database(name: str) -> Iterator[str]:
    """The URL of one more database on the server, without a table. It is dropped at the end."""
    server = database_url()
    _execute(server, sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield f"{server.rpartition('/')[0]}/{name}"
    finally:
        _execute(server, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _execute(url: str, statement: sql.Composed) -> None:
    with psycopg.connect(url, autocommit=True) as administrator:
        administrator.execute(statement)


@contextmanager
def connecting_to(port: int, alias: str = DEFAULT_DB_ALIAS) -> Iterator[None]:
    """Open this thread's connection to another port of this machine; what is open is closed, before and after."""
    wrapper = connections[alias]
    parameters = wrapper.get_connection_params()
    wrapper.close()
    with patch.object(wrapper, "get_connection_params", lambda: {**parameters, "host": "127.0.0.1", "port": str(port)}):
        yield
        wrapper.close()


class Session:
    """What a client of PostgreSQL says: just enough of the protocol to see its name, its transactions, its COMMITs.

    https://www.postgresql.org/docs/current/protocol-message-formats.html
    """

    STARTUP = 3 << 16  # version 3.0 of the protocol; other numbers ask for TLS, or to cancel

    def __init__(self) -> None:
        self.name = ""
        self.statements: list[bytes] = []  # of the transaction that is open, or was just committed
        self._prepared: dict[bytes, bytes] = {}
        self._started = False
        self._heard = b""

    def hear(self, data: bytes) -> bool:
        """Take in what the client has sent. True when the last thing it says is COMMIT."""
        self._heard += data
        commit = False
        while message := self._next():
            kind, body = message
            if not kind:
                self._start(body)
                continue
            first, second = (*body.split(b"\0", 2), b"")[:2]
            if kind == b"P":
                self._prepared[first] = second
            if kind in (b"Q", b"B"):
                text = first if kind == b"Q" else self._prepared[second]
                commit = text.strip(b" ;").upper() == b"COMMIT"
                if text.upper().startswith(b"BEGIN"):
                    self.statements = []
                self.statements.append(text)
        return commit

    def _next(self) -> tuple[bytes, bytes] | None:
        """The next message that is whole: its type (none at the start) and what it says."""
        start = 1 if self._started else 0
        if len(self._heard) < start + 4:
            return None
        end = start + int.from_bytes(self._heard[start : start + 4])
        if len(self._heard) < end:
            return None
        message = self._heard[:start], self._heard[start + 4 : end]
        self._heard = self._heard[end:]
        return message

    def _start(self, body: bytes) -> None:
        if int.from_bytes(body[:4]) >> 16 == self.STARTUP >> 16:
            self._started = True
            pairs = body[4:].split(b"\0")
            self.name = dict(zip(pairs[::2], pairs[1::2], strict=False)).get(b"application_name", b"").decode()


class Proxy:
    """The way to the database, on a port of its own: it can be cut, fall silent, freeze its connections, and come back.

    It can also swallow the answers to COMMITs: those of sessions whose name starts with `drops_answers_of`, and whose
    transaction has a statement with `drops_answers_about`, as often as `answers_to_drop` says. The server has committed
    by then; the client sees its connection break. `answers_dropped` counts them.

    As soon as a client sends `freezes_at`, it freezes, once.
    """

    freezes_at = b""

    drops_answers_of = ""
    drops_answers_about = b""
    answers_to_drop = 0
    answers_dropped = 0
    taken = 0  # connections

    def __init__(self) -> None:
        connection.ensure_connection()
        assert connection.connection is not None
        info = connection.connection.info
        self._target: Any = f"{info.host}/.s.PGSQL.{info.port}" if info.host.startswith("/") else (info.host, info.port)
        self._open: list[socket.socket] = []
        self._passing = threading.Event()
        self._passing.set()
        self._frozen: list[threading.Event] = []
        self._listener: socket.socket | None = None
        self.port = 0
        self.connect()

    def connect(self) -> None:
        self._passing.set()
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self.port = self._listener.getsockname()[1]
            threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()

    def fall_silent(self) -> None:
        """Connections stay, and new ones are taken; not a byte goes through any more."""
        self._passing.clear()

    def freeze(self) -> None:
        """Connections stay half-open: each end may send, and nothing arrives. New ones work."""
        frozen, self._passing = self._passing, threading.Event()
        self._passing.set()
        frozen.clear()
        self._frozen.append(frozen)

    def refuse(self) -> None:
        """Take no new connection; those there are stay as they are."""
        if self._listener is not None:
            _close(self._listener)
            self._listener = None

    def break_connections(self) -> None:
        for sock in self._open:
            _close(sock)
        self._open.clear()

    def cut(self) -> None:
        self.refuse()
        self.break_connections()
        for passing in (self._passing, *self._frozen):
            passing.set()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                self.taken += 1
                if isinstance(self._target, str):
                    server = socket.socket(socket.AF_UNIX)
                    server.connect(self._target)
                else:
                    server = socket.create_connection(self._target)
                self._open += [client, server]
                shared = Session(), self._passing, threading.Event()
                for pump, source, sink in ((self._ask, client, server), (self._answer, server, client)):
                    threading.Thread(target=pump, args=[source, sink, *shared], daemon=True).start()

    def _ask(
        self,
        client: socket.socket,
        server: socket.socket,
        session: Session,
        passing: threading.Event,
        committing: threading.Event,
    ) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self.freezes_at and self.freezes_at in data:
                    self.freezes_at = b""
                    self.freeze()
                passing.wait()
                if session.hear(data) and self._drops_answer(session):
                    committing.set()
                server.sendall(data)
        _close(client)
        _close(server)

    def _answer(
        self,
        server: socket.socket,
        client: socket.socket,
        session: Session,
        passing: threading.Event,
        committing: threading.Event,
    ) -> None:
        swallowed = b""
        with suppress(OSError):
            while data := server.recv(65536):
                passing.wait()
                if committing.is_set():  # nothing else is on its way: a client waits for its answer
                    swallowed += data
                    if b"COMMIT\0Z" in swallowed:  # CommandComplete, and ReadyForQuery
                        self.answers_dropped += 1
                        break
                    continue
                client.sendall(data)
        _close(client)
        _close(server)

    def _drops_answer(self, session: Session) -> bool:
        about = any(self.drops_answers_about in statement for statement in session.statements)
        if not self.answers_to_drop or not about or not session.name.startswith(self.drops_answers_of):
            return False
        self.answers_to_drop -= 1
        return True


def _close(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


class Server(Protocol):
    """What listens on a port of this machine."""

    port: int


class Gunicorn:
    """A gunicorn of the project on a free port, with everything that it prints."""

    python = sys.executable

    def __init__(self, application: str, log: Path, url: str, *flags: str, **environment: str) -> None:
        self.log = log
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [self.python, "-m", "gunicorn", application, "--bind", f"127.0.0.1:{self.port}", *flags],
                cwd=ROOT,
                env={**os.environ, "DEBUG": "1", "DATABASE_URL": url_of(application, url), **environment},
                stdout=output,
                stderr=output,
            )

    def __enter__(self) -> Gunicorn:
        deadline = time.monotonic() + 120  # it takes two seconds, on a machine that is not busy
        while time.monotonic() < deadline and self.process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=10) as sock:
                sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                if sock.recv(12) == b"HTTP/1.1 200":
                    return self
            time.sleep(0.1)
        self.__exit__(None, None, None)
        raise AssertionError(f"gunicorn did not start:\n{self.printed()}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def printed(self) -> str:
        return self.log.read_text(errors="replace")

    def clients(self) -> int:
        """How many connections its processes have taken up, and not closed."""
        processes = psutil.Process(self.process.pid).children()
        connections = [each for process in processes for each in process.net_connections("tcp")]
        return sum(each.laddr.port == self.port and each.status != psutil.CONN_LISTEN for each in connections)


@contextmanager
def gunicorn(application: str, folder: Path, *, url: str | None = None, **environment: str) -> Iterator[Gunicorn]:
    with Gunicorn(application, folder / "gunicorn.log", url or database_url(), **environment) as server:
        yield server
