"""What any server of the intake must do, seen from outside: directly, and through the nginx of deploy/.

Together with test_intake.py, test_intake_connections.py and test_intake_deaths.py. docs/adr/0036 has what others did.
"""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from errno import EISCONN
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from select import select
from uuid import uuid4

import psutil
import pytest

from tests.acceptance.test_intake import CANARY, connected, post, raw_post, send_raw
from tests.acceptance.test_intake_connections import HEALTH, connect, intake, locked_table, status_of
from tests.acceptance.test_nginx import NGINX, Nginx
from tests.engine import until_blocked
from tests.processes import PATIENCE, children_of, until
from tests.servers import ROOT, Gunicorn, Server, database_url
from workflows.models import Workflow
from workflows.sealing.key_register import register

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed"),
]


@contextmanager
def behind_nginx(server: Gunicorn, folder: Path) -> Iterator[Nginx]:
    shipped = (ROOT / "deploy" / "nginx" / "upstreams.conf").read_text()
    with Nginx(folder, shipped.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}"), connections=256) as nginx:
        yield nginx


class Client(threading.Thread):
    """Sends one submission after the other on a connection that it keeps, until it is told to stop.

    `lost`: what happened to each that was sent, and not stored, or stored without an answer. A connection may be closed
    while it is idle, just as the client sends: nothing of that request was done, and the client repeats it once, under
    its key (https://www.rfc-editor.org/rfc/rfc9112#section-9.3.1).
    """

    def __init__(self, server: Server, key: str) -> None:
        super().__init__(daemon=True)
        self.server, self.key = server, key
        self.stored: list[str] = []
        self.lost: list[str] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        with connected(self.server) as http:
            while not self.stopping.is_set():
                if http.sock and select([http.sock], [], [], 0)[0]:
                    http.close()
                self._send(http, str(uuid4()))

    def _send(self, http: HTTPConnection, name: str) -> None:
        met = [self._try(http, name)]
        if met[0]:
            met.append(self._try(http, name))
        if met[-1]:
            self.lost.append(f"{met[0]}, then {met[-1]}")
        else:
            self.stored.append(name)

    def _try(self, http: HTTPConnection, name: str) -> str:
        """What is wrong; empty if it is stored, by this request."""
        try:
            answer = post(http, self.key, idempotency_key=name)
        except (OSError, HTTPException) as error:
            http.close()
            return repr(error)
        if answer.status != 202:
            return str(answer.status)
        return "its answer was lost" if answer.json()["replayed"] else ""


def test_20_reloads_lose_no_request(key: str, tmp_path: Path) -> None:
    with intake(tmp_path) as server, behind_nginx(server, tmp_path) as nginx:
        clients = [Client(each, key) for each in (server, nginx) for _ in range(4)]
        for client in clients:
            client.start()
        for _ in range(20):
            before = {*children_of(server.process.pid)}
            server.process.send_signal(signal.SIGHUP)
            until(lambda: not before.intersection(children_of(server.process.pid)))  # noqa: B023 (at once)
            goals = [(client, len(client.stored) + 20) for client in clients]
            until(lambda: all(len(client.stored) >= goal or client.lost for client, goal in goals))  # noqa: B023
        for client in clients:
            client.stopping.set()
        for client in clients:
            client.join(PATIENCE)
    stored = [name for client in clients for name in client.stored]
    assert [client.lost for client in clients] == [[]] * 8, f"of {len(stored)}"
    assert all(client.stored for client in clients)
    assert {str(each) for each in Workflow.objects.values_list("idempotency_key", flat=True)} == {*stored}


def most_memory_of(process: int) -> int:
    """The most bytes that were ever resident."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found
    return int(found[1]) * 1024


def test_1200_bodies_of_256_kib_at_once_are_answered_and_few_are_held(key: str, tmp_path: Path) -> None:
    body = b'{"a": "' + b"x" * (256 * 1024 - 9) + b'"}'

    async def send(port: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(raw_post(key, body, f"Content-Length: {len(body)}"))
        answer = await reader.read(12)
        writer.close()
        return status_of(answer)

    async def send_all(port: int) -> list[int]:
        return await asyncio.gather(*(send(port) for _ in range(1200)))

    with intake(tmp_path, INTAKE_HELD_MEGABYTES="8") as server:
        (worker,) = children_of(server.process.pid)
        before = most_memory_of(worker)
        statuses = Counter(asyncio.run(send_all(server.port)))
        assert most_memory_of(worker) - before < 64_000_000
    assert {*statuses} <= {202, 503}, statuses
    assert Workflow.objects.count() == statuses[202] > 0


@pytest.mark.parametrize("through", ["directly", "through nginx"])
def test_what_is_under_way_at_sigterm_is_answered(key: str, tmp_path: Path, through: str) -> None:
    with intake(tmp_path) as server, behind_nginx(server, tmp_path) as nginx:
        entrance = server if through == "directly" else nginx
        with socket.create_connection(("127.0.0.1", entrance.port), timeout=30) as sock:
            with locked_table():
                sock.sendall(raw_post(key, b"{}", "Content-Length: 2"))
                until_blocked()
                server.process.terminate()
                time.sleep(3)  # what is idle is closed by then
            assert status_of(sock.recv(65536)) == 202
        assert server.process.wait(PATIENCE) == 0
    assert Workflow.objects.count() == 1


def holds_no_connection(process: psutil.Process) -> bool:
    try:
        return not process.net_connections("tcp")
    except psutil.NoSuchProcess:
        return True


def test_told_to_stop_among_idle_clients_it_does_not_wait_for_them(tmp_path: Path) -> None:
    """Nor for what they would still send: a client sees that its connection was closed as it uses it the next time."""
    with intake(tmp_path) as server, ExitStack() as stack:
        for _ in range(50):
            sock = stack.enter_context(connect(server, HEALTH))
            assert sock.recv(12) == b"HTTP/1.1 200"
        worker = psutil.Process(*children_of(server.process.pid))
        began = time.monotonic()
        server.process.terminate()
        until(lambda: holds_no_connection(worker))
        assert time.monotonic() - began < 2  # after three, did it linger
        assert server.process.wait(PATIENCE) == 0


def test_through_nginx_no_answer_and_no_log_quotes_a_body(key: str, tmp_path: Path) -> None:
    body = b'{"a": "' + CANARY.encode() + b'"}'
    with intake(tmp_path) as server, behind_nginx(server, tmp_path) as nginx:
        for bad in (
            raw_post(key, body, "Content-Length: 3"),
            raw_post(key, b"{}" + body + b"\r\n\r\n", "Content-Length: 2"),
            raw_post(key, body, "Content-Length: 200"),
            raw_post(key, b"3\r\n" + body, "Transfer-Encoding: chunked"),
            raw_post(key, body, "Transfer-Encoding: x"),
            raw_post("nobody's", body, f"Content-Length: {len(body)}"),
            body * 500 + b"\r\n\r\n",
        ):
            for entrance in (server, nginx):
                assert CANARY.encode() not in send_raw(entrance, bad)
        assert CANARY not in server.printed() + nginx.printed()


def test_as_many_clients_wait_to_be_accepted_as_the_backlog_says(tmp_path: Path) -> None:
    def are_connected(socks: list[socket.socket]) -> int:
        return sum(sock.connect_ex(("127.0.0.1", server.port)) in (0, EISCONN) for sock in socks)

    with intake(tmp_path, "--backlog", "20") as server, ExitStack() as stack:
        (worker,) = children_of(server.process.pid)
        psutil.Process(worker).suspend()
        socks = [stack.enter_context(socket.socket()) for _ in range(40)]
        for sock in socks:
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", server.port))
        waiting = are_connected(socks)
        psutil.Process(worker).resume()
    assert waiting == 21  # Linux takes one more than it is told


@pytest.mark.parametrize(
    "wrong",
    [
        {"DJANGO_SETTINGS_MODULE": "settings_that_are_not_there"},
        {"DEBUG": "0", "SECRET_KEY": ""},
        {"DATA_KEYS": "k" * 60},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_goes_wrong_at_its_start_ends_it(tmp_path: Path, wrong: dict[str, str]) -> None:
    register()  # the database has what is sealed under another key
    server = Gunicorn("config.intake", tmp_path / "gunicorn.log", database_url(), **wrong)
    try:
        assert server.process.wait(PATIENCE) > 0, server.printed()
    finally:
        server.process.kill()
