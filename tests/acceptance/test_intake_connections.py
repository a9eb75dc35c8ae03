"""The intake among clients that are idle, slow, too many or half gone: none of them costs another one its turn."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import psycopg
import pytest

from tests.acceptance.test_intake import connected, get, post, raw_post, send_raw
from tests.processes import children_of, meanwhile, until
from tests.servers import Gunicorn, database_url
from workflows.models import Workflow

pytestmark = pytest.mark.django_db(transaction=True)

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def intake(folder: Path, *flags: str, **environment: str) -> Iterator[Gunicorn]:
    """One process, so that it is known which one a connection reaches."""
    environment["WEB_CONCURRENCY"] = "1"
    with Gunicorn("config.intake", folder / "gunicorn.log", database_url(), *flags, **environment) as server:
        yield server


# For all tests but those of its end, of limits of its own, and of its memory.
@pytest.fixture(scope="module")
def server(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gunicorn]:
    with django_db_blocker.unblock(), intake(tmp_path_factory.mktemp("gunicorn")) as server:
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


def answer_after_all_is_sent(sock: socket.socket, status: int) -> bytes:
    """What a client reads that is refused, and sends its request all the same: it would meet a reset connection."""
    while b"\r\n\r\n" not in (answer := sock.recv(4096, socket.MSG_PEEK)):
        time.sleep(0.01)
    assert status_of(answer) == status
    for _ in range(3):
        sock.sendall(b"x" * 20_000)
        time.sleep(0.05)
    return answer


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def is_reset(sock: socket.socket) -> bool:
    try:
        sock.sendall(b" ")
    except OSError:
        return True
    return False


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


def test_200_idle_and_200_trickling_clients_cost_the_others_nothing(key: str, server: Gunicorn) -> None:
    with ExitStack() as stack:
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
    with intake(tmp_path, INTAKE_HELD_MEGABYTES="1") as server, ExitStack() as stack:
        refused = stack.enter_context(connect(server, raw_post(key, b"", "Content-Length: 300000")))
        for _ in range(4):
            stack.enter_context(connect(server, large_post(key)))
        until(lambda: post(server, key, LARGE).status == 503)
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
            with suppress(OSError):
                refused.sendall(b" ")
        for thread in threads:
            thread.join(30)
        for sock in socks.values():
            sock.close()
        assert post(server, key, LARGE).status == 202  # what the others held is let go with them
        until(lambda: is_reset(refused))
    assert {name: status for name, (_, status) in ended.items()} == {"headers": 408, "body": 400, "pipelined": 408}
    assert all(10 < seconds < 25 for seconds, _ in ended.values()), ended
    assert Workflow.objects.count() == 1


def test_a_client_that_has_closed_its_half_gets_its_answer_and_leaves_nothing_open(key: str, server: Gunicorn) -> None:
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
        idle[0].sendall(HEALTH)
        assert idle[0].recv(12) == b"HTTP/1.1 200"
        assert post(server, key).status == 202
        assert status_of(answer_on(idle[1])) == 503  # the one that has been idle longest: its request may be on its way
        for sock in idle:
            sock.close()
        until(lambda: server.clients() == 0)
        for _ in range(10):
            stack.enter_context(connect(server, b"POST /v1/sub"))
        until(lambda: server.clients() == 10)
        time.sleep(0.2)
        for _ in range(30):
            sock = stack.enter_context(connect(server))
            assert b"Retry-After: " in answer_after_all_is_sent(sock, 503)
        assert server.clients() <= 20  # so many linger at most


def test_a_burst_of_clients_waits_until_it_is_accepted_and_each_is_answered(server: Gunicorn) -> None:
    with ExitStack() as stack:
        (worker,) = children_of(server.process.pid)
        psutil.Process(worker).suspend()
        socks = [stack.enter_context(connect(server, HEALTH)) for _ in range(500)]
        psutil.Process(worker).resume()
        assert [sock.recv(12) for sock in socks] == [b"HTTP/1.1 200"] * 500


def test_what_a_refused_client_sends_is_discarded_while_it_sends_but_not_without_end(
    key: str, server: Gunicorn
) -> None:
    with ExitStack() as stack:
        slow, endless = (
            stack.enter_context(connect(server, raw_post(key, b"", "Content-Length: 300000"))) for _ in range(2)
        )
        for _ in range(6):  # longer than a client may be silent
            answer_after_all_is_sent(slow, 413)
            time.sleep(0.5)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            endless.sendall(b"x" * 64 * 1024 * 1024)


# --- What the requests of a process hold -----------------------------------------------------------

LONG_HEADERS = (b"x: " + b"y" * 8000 + b"\r\n") * 30
LARGE = b'{"a": "' + b"x" * 240_000 + b'"}'


def large_post(key: str) -> bytes:
    return raw_post(key, b"", f"Content-Length: {len(LARGE)}")


@contextmanager
def locked_table() -> Iterator[None]:
    with psycopg.connect(database_url()) as other:
        other.execute("LOCK TABLE workflows_workflow IN ACCESS EXCLUSIVE MODE")
        yield


def test_beyond_what_a_process_may_hold_a_body_is_refused_unread_and_small_requests_are_not(
    key: str, tmp_path: Path
) -> None:
    with intake(tmp_path, INTAKE_HELD_MEGABYTES="1") as server, ExitStack() as stack:
        held = [stack.enter_context(connect(server, large_post(key) + LARGE[:10])) for _ in range(4)]
        rest = 1_000_000 - 4 * (len(large_post(key)) + len(LARGE))
        length = rest - len(raw_post(key, b"", f"Content-Length: {rest}"))
        stack.enter_context(connect(server, raw_post(key, b"", f"Content-Length: {length}")))
        for sock in held:
            assert get(server, "/healthz").status == 200  # what was sent before is read by then
            sock.sendall(LARGE[10:20])
        assert get(server, "/healthz").status == 200
        with connect(server, large_post(key)) as fifth:
            answer = answer_after_all_is_sent(fifth, 503)
        assert b"Retry-After: " in answer
        assert b'"overloaded"' in answer
        assert post(server, key).status == 202
        for sock in held:
            sock.sendall(LARGE[20:])
            assert sock.recv(12) == b"HTTP/1.1 202"
        with connected(server) as http:  # what was answered is held no longer
            assert [post(http, key, LARGE).status for _ in range(6)] == [202] * 6
            assert [post(http, key, b"x" * 240_000).status for _ in range(6)] == [400] * 6
        assert status_of(send_raw(server, raw_post(key, b"", "Content-Length: 3000000"), half_close=False)) == 413
    assert Workflow.objects.count() == 11


def test_what_a_client_has_sent_that_is_gone_is_held_until_nobody_waits_for_it(key: str, tmp_path: Path) -> None:
    with intake(tmp_path, INTAKE_HELD_MEGABYTES="1") as server:
        with locked_table():
            assert get(server, "/readyz").status == 200
            socks = [connect(server, large_post(key) + LARGE) for _ in range(4)]
            assert post(server, key, LARGE).status == 503
            for sock in socks:
                sock.setblocking(False)
                with pytest.raises(BlockingIOError):  # it waits, and was not refused
                    sock.recv(12)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
                sock.close()
            until(lambda: server.clients() == 0)
            assert post(server, key, LARGE).status == 503
        until(lambda: post(server, key, LARGE).status == 202)


def send_behind(server: Gunicorn, sock: socket.socket, *parts: bytes) -> None:
    """Each part after the server has read what was sent before."""
    for part in parts:
        assert get(server, "/healthz").status == 200
        sock.sendall(part)
    assert get(server, "/healthz").status == 200


def test_what_follows_a_request_that_waits_is_read_as_long_as_there_is_room(key: str, tmp_path: Path) -> None:
    with intake(tmp_path, INTAKE_HELD_MEGABYTES="1") as server, ExitStack() as stack:
        post(server, key)
        with locked_table():
            socks = [stack.enter_context(connect(server, raw_post(key, b"{}", "Content-Length: 2"))) for _ in range(9)]
            for sock in socks:
                send_behind(server, sock, HEALTH * 1_500, HEALTH * 1_500)
        assert [sock.recv(12) for sock in socks] == [b"HTTP/1.1 202"] * 9
        last = answer_on(socks[-1])
        assert b"Connection: close" in last
        assert b"HTTP/1.1 200" not in last


def test_what_has_come_of_the_next_request_is_held_when_the_first_one_is_answered(key: str, tmp_path: Path) -> None:
    with intake(tmp_path, INTAKE_HELD_MEGABYTES="1") as server, ExitStack() as stack:
        post(server, key)
        with locked_table():
            for _ in range(4):
                sock = stack.enter_context(connect(server, raw_post(key, b"{}", "Content-Length: 2")))
                send_behind(server, sock, b"GET / HTTP/1.1\r\n" + LONG_HEADERS)
        until(lambda: Workflow.objects.count() == 5)
        assert get(server, "/healthz").status == 200
        assert post(server, key, LARGE).status == 503


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (large_post("unknown") + LARGE, 401),
        (HEALTH.replace(b"\r\n\r\n", b"\r\n" + LONG_HEADERS + b"\r\n"), 200),
    ],
    ids=["a body that was not read", "headers"],
)
def test_a_connection_holds_nothing_of_what_was_answered(request_: bytes, status: int, tmp_path: Path) -> None:
    with intake(tmp_path) as server, ExitStack() as stack:
        (worker,) = map(psutil.Process, children_of(server.process.pid))
        before = worker.memory_info().rss
        for _ in range(300):
            assert status_of(stack.enter_context(connect(server, request_)).recv(12)) == status
        assert worker.memory_info().rss < before + 30_000_000


def test_what_waits_to_be_stored_takes_no_more_than_its_text(key: str, tmp_path: Path) -> None:
    """What Python reads of it, lists of lists, would take twenty times as much."""
    body = b'{"a": [' + b",".join([b"[]"] * 80_000) + b"]}"
    with intake(tmp_path) as server, ExitStack() as stack:
        (worker,) = map(psutil.Process, children_of(server.process.pid))
        assert post(server, key, body).status == 202
        before = worker.memory_info().rss
        with locked_table():
            for _ in range(30):
                stack.enter_context(connect(server, raw_post(key, body, f"Content-Length: {len(body)}")))
            until(lambda: get(server, "/healthz").status == 200 and worker.cpu_percent(0.3) < 20)
            assert worker.memory_info().rss < before + 80_000_000


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


def test_what_comes_after_an_answer_that_closes_is_not_read(key: str, server: Gunicorn) -> None:
    """The rest of a body that is refused, for one. The client gets its answer, not a reset connection."""
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
        with suppress(OSError):  # it waits for the server, or was cut off by it
            for _ in range(100):
                sock.sendall(requests)
        assert psutil.Process(worker).memory_info().rss < before + 20_000_000


def test_what_a_client_has_sent_that_is_gone_is_not_read_and_no_error(server: Gunicorn) -> None:
    requests = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5
    for _ in range(30):
        with connect(server, requests) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
    until(lambda: server.clients() == 0)
    assert get(server, "/readyz").status == 200
    assert "ERROR" not in server.printed()
