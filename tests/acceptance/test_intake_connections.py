"""The intake among clients that are idle, slow, too many or half gone: none of them costs another one its turn."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from tests.acceptance.test_intake import connected, get, post, raw_post, send_raw
from tests.processes import children_of, meanwhile, until
from tests.servers import Gunicorn, database_url
from workflows.ingress import api_keys
from workflows.models import Workflow

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def key() -> str:
    return api_keys.create("shop")


@contextmanager
def intake(folder: Path, *flags: str) -> Iterator[Gunicorn]:
    """One process, so that it is known which one a connection reaches."""
    with Gunicorn("config.intake", folder / "gunicorn.log", database_url(), *flags, WEB_CONCURRENCY="1") as server:
        yield server


def connect(server: Gunicorn, sent: bytes = b"") -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    sock.sendall(sent)
    return sock


def answer_on(sock: socket.socket) -> bytes:
    """Everything until the server closes."""
    answer = b""
    with suppress(ConnectionResetError):
        while received := sock.recv(65536):
            answer += received
    return answer


def answer_to(server: Gunicorn) -> bytes:
    """What a client is told that only connects."""
    with connect(server) as sock:
        return answer_on(sock)


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


@contextmanager
def trickling(server: Gunicorn, count: int, request: bytes) -> Iterator[None]:
    """So many clients that send their request a byte at a time, each a few bytes a second."""
    bytes_of_it = (request[at : at + 1] for at in range(len(request)))
    with ExitStack() as stack:
        socks = [stack.enter_context(connect(server)) for _ in range(count)]

        def send() -> None:
            one = next(bytes_of_it)
            for sock in socks:
                with suppress(OSError):
                    sock.sendall(one)

        with meanwhile(send, every=0.2, times=len(request) - 1):
            yield


def test_200_idle_and_200_trickling_clients_cost_the_others_nothing(key: str, tmp_path: Path) -> None:
    with intake(tmp_path) as server, ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(connect(server))
        stack.enter_context(trickling(server, 100, raw_post(key, b"{}", "Content-Length: 2")))
        head, body = raw_post(key, b"", "Content-Length: 200"), b"x" * 200
        for _ in range(100):
            stack.enter_context(connect(server, head))
        stack.enter_context(trickling(server, 20, head + body))
        time.sleep(0.5)
        times = []
        with connected(server) as http:
            for _ in range(100):
                began = time.monotonic()
                assert post(http, key).status == 202
                times.append(time.monotonic() - began)
        assert sorted(times)[97] < 0.5
        assert get(server, "/readyz").status == 200
    assert Workflow.objects.count() == 100


def test_a_request_that_takes_too_long_is_let_go_however_it_trickles(key: str, tmp_path: Path) -> None:
    with intake(tmp_path) as server:
        request = raw_post(key, b"{" + b" " * 2000 + b"}", "Content-Length: 2002")
        headers_first = request.index(b"\r\n\r\n") + 4
        began = time.monotonic()
        in_headers, in_body = connect(server, request[:10]), connect(server, request[:headers_first])
        pipelined = connect(server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + request[:10])
        ended: dict[str, tuple[float, int]] = {}

        def read(name: str, sock: socket.socket) -> None:
            last = answer_on(sock).rpartition(b"HTTP/1.1")[2]
            ended[name] = (time.monotonic() - began, status_of(last))

        socks = {"headers": in_headers, "body": in_body, "pipelined": pipelined}
        threads = [threading.Thread(target=read, args=each) for each in socks.items()]
        for thread in threads:
            thread.start()
        for position in range(10, 400):
            if not any(thread.is_alive() for thread in threads):
                break
            time.sleep(0.1)
            with suppress(OSError):
                in_headers.sendall(request[position : position + 1])
            with suppress(OSError):
                in_body.sendall(b" ")
        for thread in threads:
            thread.join(30)
        for sock in socks.values():
            sock.close()
    assert {name: status for name, (_, status) in ended.items()} == {"headers": 408, "body": 400, "pipelined": 408}
    assert all(10 < seconds < 25 for seconds, _ in ended.values()), ended
    assert not Workflow.objects.exists()


def test_a_client_that_has_closed_its_half_gets_its_answer_and_leaves_nothing_open(key: str, tmp_path: Path) -> None:
    with intake(tmp_path) as server:
        (worker,) = children_of(server.process.pid)
        assert post(server, key).status == 202
        before = open_files(worker)
        for _ in range(30):
            assert status_of(send_raw(server, raw_post(key, b"{}", "Content-Length: 2"))) == 202
            assert status_of(send_raw(server, raw_post(key, b"{", "Content-Length: 2"))) == 400
            assert status_of(send_raw(server, b"GET /healthz HT")) == 400
            two = send_raw(server, raw_post(key, b"{", "Content-Length: 1") + b"GET /healthz HT")
            assert two.count(b"HTTP/1.1 400 ") == 2
            assert send_raw(server, b"") == b""
        until(lambda: open_files(worker) <= before + 1, what=lambda: (open_files(worker), before))
    assert Workflow.objects.count() == 31


def open_files(pid: int) -> int:
    return psutil.Process(pid).num_fds()


def test_when_there_is_no_room_an_idle_connection_makes_it_and_one_in_use_does_not(key: str, tmp_path: Path) -> None:
    with intake(tmp_path, "--worker-connections", "10") as server, ExitStack() as stack:
        until(lambda: server.clients() == 0)
        idle = [stack.enter_context(connect(server)) for _ in range(10)]
        until(lambda: server.clients() == 10)
        assert post(server, key).status == 202
        assert answer_on(idle[0]) == b""  # the one that has been there longest was closed
        for sock in idle:
            sock.close()
        until(lambda: server.clients() == 0)
        for _ in range(10):
            stack.enter_context(connect(server, b"POST /v1/sub"))
        until(lambda: server.clients() == 10)
        time.sleep(0.2)
        refused = answer_to(server)
        assert status_of(refused) == 503
        assert b"Retry-After: " in refused


def test_on_sigterm_each_request_that_was_sent_is_answered_and_idle_clients_are_not_waited_for(
    key: str, tmp_path: Path
) -> None:
    """Clients that send one request after the other, until an answer says that it is the last one."""
    sent: list[str] = []
    stored: list[str] = []

    def send_until_the_last_answer() -> None:
        with connected(server) as http:
            while True:
                name = str(uuid4())
                sent.append(name)
                answer = post(http, key, idempotency_key=name)
                assert answer.status == 202
                stored.append(name)
                if answer.closes:
                    return

    with intake(tmp_path) as server, ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(connect(server))
        clients = [threading.Thread(target=send_until_the_last_answer) for _ in range(8)]
        for client in clients:
            client.start()
        until(lambda: len(stored) > 50)
        began = time.monotonic()
        server.process.terminate()
        for client in clients:
            client.join(30)
        assert server.process.wait(30) == 0
        assert time.monotonic() - began < 8
    assert sorted(sent) == sorted(stored)
    assert {str(each) for each in Workflow.objects.values_list("idempotency_key", flat=True)} == set(stored)


def test_what_comes_after_an_answer_that_closes_is_not_read(key: str, tmp_path: Path) -> None:
    """The rest of a body that is refused, for one. The client gets its answer, not a reset connection."""
    with intake(tmp_path) as server:
        head = raw_post(key, b"", "Content-Length: 300000")
        with connect(server, head) as sock:
            sock.sendall(b"x" * 300_000 + raw_post(key, b"{}", "Content-Length: 2"))
            answer = answer_on(sock)
        assert status_of(answer) == 413
        assert answer.count(b"HTTP/1.1") == 1
        assert status_of(send_raw(server, b"x" * 3_000_000, half_close=False)) == 414
    assert not Workflow.objects.exists()


def test_a_client_that_sends_requests_and_reads_no_answer_is_not_read_without_end(tmp_path: Path) -> None:
    requests = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20_000
    with intake(tmp_path) as server, connect(server) as sock:
        (worker,) = children_of(server.process.pid)
        before = psutil.Process(worker).memory_info().rss
        sock.settimeout(5)
        with suppress(TimeoutError):
            for _ in range(100):
                sock.sendall(requests)
        assert psutil.Process(worker).memory_info().rss < before + 20_000_000


def test_what_a_client_has_sent_that_is_gone_is_not_read_and_no_error(tmp_path: Path) -> None:
    requests = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5
    with intake(tmp_path) as server:
        for _ in range(30):
            with connect(server, requests) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        until(lambda: server.clients() == 0)
        assert get(server, "/readyz").status == 200
    assert "ERROR" not in server.printed()
