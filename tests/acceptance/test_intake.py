"""The intake from outside: a gunicorn of its own, real HTTP on loopback, a database that goes away."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from config.server import LAST_REQUEST_SECONDS
from tests.postgres import without_triggers
from tests.processes import PATIENCE, until
from tests.servers import Gunicorn, Proxy, Server, database_url, gunicorn
from workflows.ingress import api_keys
from workflows.models import Workflow

pytestmark = pytest.mark.django_db(transaction=True)

CANARY = "canary-7f3a"


@pytest.fixture(scope="module", params=["config.intake", "config.wsgi"])
def server(
    request: pytest.FixtureRequest,
    django_db_setup: None,
    django_db_blocker: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Gunicorn]:
    with django_db_blocker.unblock():
        url = database_url()
    with gunicorn(request.param, tmp_path_factory.mktemp("gunicorn"), url=url) as server:
        yield server


class Answer:
    def __init__(self, response: HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.content = response.read()
        self.closes = response.will_close

    def json(self) -> Any:
        return json.loads(self.content)

    def assert_problem(self, status: int, code: str) -> None:
        assert self.headers["Content-Type"] == "application/problem+json"
        problem = self.json()
        assert (self.status, problem["status"], problem["code"]) == (status, status, code)
        assert CANARY.encode() not in self.content


@contextmanager
def connected(server: Server) -> Iterator[HTTPConnection]:
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=60)) as http:
        yield http


def post(
    to: Server | HTTPConnection, key: str, body: str | bytes = "{}", idempotency_key: str = "", **headers: str
) -> Answer:
    if not isinstance(to, HTTPConnection):
        with connected(to) as http:
            return post(http, key, body, idempotency_key, **headers)
    sent = {
        "Authorization": f"Bearer {key}",
        "Idempotency-Key": idempotency_key or str(uuid4()),
        "Content-Type": "application/json",
    }
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    to.request("POST", "/v1/submissions", body, {name: value for name, value in sent.items() if value})
    return Answer(to.getresponse())


def get(server: Server, path: str, key: str = "", method: str = "GET") -> Answer:
    with connected(server) as http:
        http.request(method, path, headers={"Authorization": f"Bearer {key}"} if key else {})
        return Answer(http.getresponse())


def send_raw(server: Server, data: bytes, *, half_close: bool = True) -> bytes:
    """Everything that the server answers to these bytes until it closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as sock:
        sock.sendall(data)
        if half_close:
            sock.shutdown(socket.SHUT_WR)
        answer = b""
        while received := sock.recv(65536):
            answer += received
    return answer


def raw_post(key: str, body: bytes, *headers: str) -> bytes:
    lines = [
        "POST /v1/submissions HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {key}",
        f"Idempotency-Key: {uuid4()}",
        "Content-Type: application/json",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def test_400_submissions_each_sent_twice_at_once_become_400_rows(server: Gunicorn, key: str) -> None:
    """16 connections; each submission is sent by two of them at the same moment."""
    keys = [str(uuid4()) for _ in range(400)]
    barriers = [threading.Barrier(2, timeout=60) for _ in range(8)]

    def send(sender: int) -> list[tuple[str, dict[str, Any]]]:
        pair = sender // 2
        answers = []
        with connected(server) as http:
            for idempotency_key in keys[pair::8]:
                barriers[pair].wait()
                answer = post(http, key, json.dumps({"of": idempotency_key}), idempotency_key)
                assert answer.status == 202
                answers.append((idempotency_key, answer.json()))
        return answers

    with ThreadPoolExecutor(16) as pool:
        answers = [answer for sent in pool.map(send, range(16)) for answer in sent]

    assert len(answers) == 800
    ids = {idempotency_key: answer["id"] for idempotency_key, answer in answers}
    assert all(ids[idempotency_key] == answer["id"] for idempotency_key, answer in answers)
    assert len(set(ids.values())) == 400
    assert sum(answer["replayed"] for _, answer in answers) == 400
    rows = {str(row.idempotency_key): row for row in Workflow.objects.all()}
    assert rows.keys() == set(keys)
    assert all(row.payload == {"of": idempotency_key} for idempotency_key, row in rows.items())
    assert all(rows[idempotency_key].pk == ids[idempotency_key] for idempotency_key in keys)


def test_it_is_found_under_its_location_by_its_owner_only(server: Gunicorn, key: str) -> None:
    answer = post(server, key, json.dumps({"a": CANARY}))
    location = answer.headers["Location"]
    found = get(server, location, key)
    assert found.status == 200
    assert found.json()["state"] == "queued"
    assert CANARY.encode() not in found.content
    get(server, location, api_keys.create("another")).assert_problem(404, "not_found")
    get(server, location).assert_problem(401, "api_key_missing")
    head = get(server, location, key, "HEAD")
    assert (head.status, head.content) == (200, b"")
    assert location.rpartition("/")[2] not in server.printed()
    assert head.headers["Content-Length"] == str(len(found.content))
    with connected(server) as http:  # nothing follows a 304, and the connection goes on
        for _ in range(2):
            mine = {"Authorization": f"Bearer {key}", "If-None-Match": found.headers["ETag"], "Prefer": "wait=1"}
            http.request("GET", location, headers=mine)
            unchanged = Answer(http.getresponse())
            assert (unchanged.status, unchanged.content) == (304, b"")


# One of each kind: the others are told apart by the same parser as in tests/workflows/postgres/test_jsonb.py.
BODIES: list[tuple[bytes, int, str]] = [
    (b"", 400, "malformed_json"),
    (b'{"a":"canary-7f3a\xff"}', 400, "not_utf8"),
    (b'{"a":"canary-7f3a\\u0000"}', 422, "null_character"),
    (b'{"a":"canary-7f3a","b":' + b"[" * 200_000 + b"}", 422, "too_deep"),
    (b'{"a":"canary-7f3a' + b" " * 256 * 1024 + b'"}', 413, "too_large"),
]


@pytest.mark.parametrize(("body", "status", "code"), BODIES, ids=[code for _, _, code in BODIES])
def test_a_bad_body_leaves_no_row_and_no_value_in_answer_or_log(
    server: Gunicorn, key: str, body: bytes, status: int, code: str
) -> None:
    post(server, key, body).assert_problem(status, code)
    assert not Workflow.objects.exists()
    assert CANARY not in server.printed()
    assert key not in server.printed()


def test_a_connection_goes_on_after_a_refused_request(server: Gunicorn, key: str) -> None:
    with connected(server) as http:
        for body, status in (("{}", 202), ("[", 400), ('{"a":"\\u0000"}', 422), ("{}", 202)):
            answer = post(http, key, body)
            assert (answer.status, answer.closes) == (status, False)
    assert Workflow.objects.count() == 2


@pytest.mark.parametrize("origin", ["http://localhost", "HTTPS://user@onramp.example:8443"])
def test_a_target_in_absolute_form_is_taken_for_its_path(origin: str, server: Gunicorn, key: str) -> None:
    request = raw_post(key, b"{}", "Content-Length: 2").replace(b"POST /", f"POST {origin}/".encode())
    assert b" 202 " in send_raw(server, request)[:20]
    (row,) = Workflow.objects.all()
    assert get(server, f"{origin}/v1/submissions/{row.idempotency_key}?x=/", key).status == 200
    assert get(server, origin, key).status in (404, 302)  # the intake has no page there, and the console leads to it


def test_a_body_without_a_length_is_not_read_and_nothing_after_it_is_a_request(server: Gunicorn, key: str) -> None:
    hidden = raw_post(key, b"{}", "Content-Length: 2")
    for answer in (
        send_raw(server, raw_post(key, b"0\r\n\r\n" + hidden, "Transfer-Encoding: chunked")),
        send_raw(server, raw_post(key, hidden)),
    ):
        assert answer.startswith(b"HTTP/1.1 411 ")
    chunked = send_raw(server, raw_post(key, b"0\r\n\r\n" + hidden, "Transfer-Encoding: chunked"))
    assert chunked.count(b"HTTP/1.1") == 1
    with without_triggers():
        Workflow.objects.all().delete()
    for headers in (
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 5"],
        ["Transfer-Encoding: chunked, chunked"],
        ["Transfer-Encoding: x"],
        ["Content-Length: 2", "Content-Length: 2"],
        ["Content-Length: +2"],
        ["Content-Length: -1"],
        ["Content-Length: 2,2"],
        ["Content-Length : 2"],
        [" Content-Length: 2"],
    ):
        answer = send_raw(server, raw_post(key, b"0\r\n\r\n" + hidden, *headers))
        assert answer.count(b"HTTP/1.1") == 1
        assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 ")), headers
        assert b"Content-Type: application/problem+json\r\n" in answer
    assert not Workflow.objects.exists()


def test_a_length_that_is_too_short_does_not_spill_the_rest_into_the_log(server: Gunicorn, key: str) -> None:
    body = b'{"a": "' + CANARY.encode() + b'"}'
    answer = send_raw(server, raw_post(key, body, "Content-Length: 3"))
    assert answer.startswith(b"HTTP/1.1 400 ")
    answer = send_raw(server, raw_post(key, b"{}" + body + b"\r\n\r\n", "Content-Length: 2"))
    assert answer.startswith(b"HTTP/1.1 202 ")
    assert b"\r\nHTTP/1.1 400 " in answer or b"}HTTP/1.1 400 " in answer
    assert CANARY.encode() not in answer
    assert CANARY not in server.printed()
    assert Workflow.objects.count() == 1


def test_a_body_that_ends_early_is_400_and_a_silent_client_is_let_go(server: Gunicorn, key: str) -> None:
    body = b'{"a": "' + CANARY.encode() + b'"}'
    answer = send_raw(server, raw_post(key, body, "Content-Length: 200"))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"body_incomplete" in answer
    started = time.monotonic()
    answer = send_raw(server, raw_post(key, body, "Content-Length: 200"), half_close=False)
    assert b"body_incomplete" in answer
    assert 5 < time.monotonic() - started < 25
    assert not Workflow.objects.exists()
    assert CANARY not in server.printed()


def test_a_length_that_is_too_large_is_refused_before_a_byte_of_it_is_sent(server: Gunicorn, key: str) -> None:
    for length in (256 * 1024 + 1, 10**12, 10**30):
        answer = send_raw(server, raw_post(key, b"", f"Content-Length: {length}"), half_close=False)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"Connection: close\r\n" in answer


def test_junk_is_answered_and_does_not_reach_the_log(server: Gunicorn, key: str) -> None:
    for junk in (
        CANARY.encode() + b"\r\n\r\n",
        b"\x16\x03\x01" + CANARY.encode() + b"\r\n\r\n",
        b"GET /" + CANARY.encode() * 1000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + CANARY.encode() + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + CANARY.encode() * 2000 + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ):
        answer = send_raw(server, junk)
        assert answer.startswith(b"HTTP/1.1 4"), junk[:20]
        assert b"application/problem+json" in answer
        assert CANARY.encode() not in answer
    assert CANARY not in server.printed()
    assert post(server, key).status == 202


def test_two_requests_sent_at_once_are_answered_in_order(server: Gunicorn, key: str) -> None:
    two = raw_post(key, b"{}", "Content-Length: 2") + raw_post(key, b"[]", "Content-Length: 2", "Connection: close")
    answer = send_raw(server, two, half_close=False)
    assert answer.index(b"HTTP/1.1 202 ") < answer.index(b"HTTP/1.1 400 ")


def is_refused(port: int) -> bool:
    """Whether nobody listens there any more."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
    except ConnectionRefusedError:
        return True
    return False


def connections_of(application: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", [application])
        return int(cursor.fetchone()[0])


def test_it_starts_without_a_connection_and_stops_without_losing_a_request(key: str, tmp_path: Any) -> None:
    sent: list[int] = []
    with gunicorn("config.intake", tmp_path, PGAPPNAME="intake-just-started") as server:
        until(
            lambda: not connections_of("intake-just-started")
        )  # it has only looked at the keys, and at the server's log
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as sock:
            request = raw_post(key, b"{}", "Content-Length: 2")
            sock.sendall(request[:-1])
            until(server.clients)
            time.sleep(0.5)
            server.process.terminate()
            until(lambda: is_refused(server.port))
            time.sleep(LAST_REQUEST_SECONDS + 0.5)  # what is idle is closed by then
            sock.sendall(request[-1:])
            sent.append(int(sock.recv(65536).split()[1]))
    assert sent == [202]
    assert Workflow.objects.count() == 1
    assert server.process.returncode == 0


def test_told_to_stop_while_a_process_still_loads_it_stops_at_once(tmp_path: Path) -> None:
    tell = "import os, signal, time\nos.kill(os.getppid(), signal.SIGTERM)\ntime.sleep(120)"
    (tmp_path / "settings_that_never_come.py").write_text(tell)
    loads = {"PYTHONPATH": str(tmp_path), "DJANGO_SETTINGS_MODULE": "settings_that_never_come"}
    patient = ("--graceful-timeout", "600")
    server = Gunicorn("config.intake", tmp_path / "gunicorn.log", "", *patient, WEB_CONCURRENCY="1", **loads)
    try:
        assert server.process.wait(PATIENCE) == 0, server.printed()
    finally:
        server.process.kill()


@pytest.fixture
def behind_proxy(tmp_path: Any) -> Iterator[tuple[Gunicorn, Proxy]]:
    with Proxy() as proxy, gunicorn("config.intake", tmp_path, url=database_url(port=proxy.port)) as server:
        yield server, proxy


def test_while_the_database_is_away_it_says_so_and_comes_back_by_itself(
    behind_proxy: tuple[Gunicorn, Proxy], key: str
) -> None:
    server, proxy = behind_proxy
    body = json.dumps({"a": CANARY})
    for _ in range(40):
        assert post(server, key, body).status == 202
    before = Workflow.objects.count()

    proxy.break_connections()
    for _ in range(40):  # every connection is dead, and no client notices
        assert post(server, key, body).status == 202

    proxy.cut()
    until = time.monotonic() + api_keys.MAX_AGE_SECONDS + 2  # also when the table of keys has become too old
    while time.monotonic() < until:
        for answer in (post(server, key, body), post(server, "onramp_perhaps_new", body), get(server, "/readyz")):
            answer.assert_problem(503, "database_unavailable")
            assert int(answer.headers["Retry-After"]) > 0
        time.sleep(0.1)
    assert get(server, "/healthz").status == 200

    proxy.connect()
    time.sleep(api_keys.RETRY_SECONDS + 0.1)
    for _ in range(40):
        assert post(server, key, body).status == 202
    assert get(server, "/readyz").status == 200
    assert Workflow.objects.count() == before + 80
    assert CANARY not in server.printed()
    assert key not in server.printed()


def test_a_database_that_falls_silent_is_503_in_seconds(behind_proxy: tuple[Gunicorn, Proxy], key: str) -> None:
    server, proxy = behind_proxy
    for _ in range(20):
        assert post(server, key).status == 202
    proxy.fall_silent()
    started = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        for answer in pool.map(lambda _: post(server, key), range(8)):
            answer.assert_problem(503, "database_unavailable")
    assert time.monotonic() - started < 15
    started = time.monotonic()
    get(server, "/readyz").assert_problem(503, "database_unavailable")
    assert time.monotonic() - started < 8
    proxy.break_connections()
    proxy.connect()
    time.sleep(api_keys.RETRY_SECONDS + 0.1)
    for _ in range(20):
        assert post(server, key).status == 202
