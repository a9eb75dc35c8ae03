"""Real processes and sockets for tests: the database's address, gunicorn, and a network that can fail."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

from django.db import DEFAULT_DB_ALIAS, connection, connections

ROOT = Path(__file__).resolve().parent.parent


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


@contextmanager
def connecting_to(port: int) -> Iterator[None]:
    """Open this thread's connection to another port of this machine; what is open is closed, before and after."""
    wrapper = connections[DEFAULT_DB_ALIAS]
    parameters = wrapper.get_connection_params()
    wrapper.close()
    with patch.object(wrapper, "get_connection_params", lambda: {**parameters, "host": "127.0.0.1", "port": str(port)}):
        yield
        wrapper.close()


class Proxy:
    """The way to the database, on a port of its own: it can be cut, fall silent, and come back."""

    def __init__(self) -> None:
        connection.ensure_connection()
        assert connection.connection is not None
        info = connection.connection.info
        self._target: Any = f"{info.host}/.s.PGSQL.{info.port}" if info.host.startswith("/") else (info.host, info.port)
        self._open: list[socket.socket] = []
        self._passing = threading.Event()
        self._passing.set()
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

    def break_connections(self) -> None:
        for sock in self._open:
            _close(sock)
        self._open.clear()

    def cut(self) -> None:
        if self._listener is not None:
            _close(self._listener)
            self._listener = None
        self.break_connections()
        self._passing.set()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                if isinstance(self._target, str):
                    server = socket.socket(socket.AF_UNIX)
                    server.connect(self._target)
                else:
                    server = socket.create_connection(self._target)
                self._open += [client, server]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=[source, sink], daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._passing.wait()
                sink.sendall(data)
        _close(source)
        _close(sink)


def _close(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


class Gunicorn:
    """A gunicorn of the project on a free port, with everything that it prints."""

    def __init__(self, application: str, log: Path, url: str, *flags: str, **environment: str) -> None:
        self.log = log
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gunicorn", application, "--bind", f"127.0.0.1:{self.port}", *flags],
                cwd=ROOT,
                env={**os.environ, "DEBUG": "1", "DATABASE_URL": url, **environment},
                stdout=output,
                stderr=output,
            )

    def __enter__(self) -> Gunicorn:
        deadline = time.monotonic() + 30
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


@contextmanager
def gunicorn(application: str, folder: Path, *, url: str | None = None, **environment: str) -> Iterator[Gunicorn]:
    with Gunicorn(application, folder / "gunicorn.log", url or database_url(), **environment) as server:
        yield server
