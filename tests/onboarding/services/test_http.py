from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest

from onboarding.services import accounts, http, messages, payments
from tests.sandbox_process import SandboxProcess
from workflows import request_ids
from workflows.definition import Retry
from workflows.engine import backoff
from workflows.errors import RetryableStepError, StepError, UnknownOutcome


@pytest.fixture
def patient(sandbox: SandboxProcess) -> UUID:
    return UUID(sandbox.account(email=f"{uuid4()}@example.com")["patient_uuid"])


def confirm(patient: UUID, key: str = "") -> None:
    messages.send_confirmation(patient, "body", idempotency_key=key or str(uuid4()))


def whole_request(connection: socket.socket) -> bytes:
    """Headers and body, however many packets they come in."""
    request = b""
    while part := connection.recv(65536):
        request += part
        headers, end, body = request.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", headers.lower())
        if end and len(body) >= int(length[1] if length else 0):
            break
    return request


@contextmanager
def raw_server(settings: Any, *answers: bytes) -> Iterator[list[bytes]]:
    """A server of the messages service that sends raw bytes, one answer a request, and then hangs up."""
    requests: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            for answer in answers:
                requests.append(whole_request(connection))
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    settings.SERVICES = dict.fromkeys(("messages", "payments"), f"http://127.0.0.1:{listener.getsockname()[1]}")
    settings.SERVICES_TIMEOUT = 10
    try:
        yield requests
    finally:
        thread.join()
        listener.close()


def response(status: str, body: bytes = b"{}", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


# --- never sent ----------------------------------------------------------------------------------


def test_a_refused_connection_is_retryable_and_asserts_that_nothing_happened(settings: Any) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    settings.SERVICES = {"messages": f"http://127.0.0.1:{port}"}
    with pytest.raises(RetryableStepError) as error:
        confirm(uuid4())
    assert not isinstance(error.value, UnknownOutcome)
    assert error.value.code == "unreachable"


def test_a_host_that_takes_no_connection_is_retryable_within_the_timeout(settings: Any) -> None:
    with closing(socket.create_server(("127.0.0.1", 0), backlog=0)) as listener:
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        settings.SERVICES = {"messages": f"http://127.0.0.1:{listener.getsockname()[1]}"}
        settings.SERVICES_TIMEOUT = 0.3
        with pytest.raises(RetryableStepError) as error:
            confirm(uuid4())
        for filler in fillers:
            filler.close()
    assert not isinstance(error.value, UnknownOutcome)


def test_a_call_says_for_which_request_it_is_made(settings: Any) -> None:
    with raw_server(settings, *[response("200 OK", CONFIRMATION)] * 2) as requests:
        confirm(uuid4())
        named = request_ids.current.set("shop-7")
        confirm(uuid4())
        request_ids.current.reset(named)
    assert [b"x-request-id: shop-7\r\n" in request.lower() for request in requests] == [False, True]
    assert all(b"idempotency-key" in request.lower() for request in requests)


# --- answers to the key --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "headers", "answers_key"),
    [
        ("402 Payment Required", ["Idempotent-Replayed: true"], True),
        ("402 Payment Required", ["Idempotent-Replayed: false"], False),
        ("402 Payment Required", [], False),
        ("401 Unauthorized", [], False),
        ("429 Too Many Requests", ["Idempotent-Replayed: true"], False),
    ],
)
def test_a_refusal_answers_the_key_only_where_the_service_says_so(
    settings: Any, status: str, headers: list[str], answers_key: bool
) -> None:
    refusal = response(status, b'{"code": "card_declined"}', *headers)
    with raw_server(settings, refusal), pytest.raises(StepError) as error:
        confirm(uuid4())
    assert error.value.answers_key == answers_key


# --- the sandbox's faults ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["timeout_after", "drop_after", "half", "replay_500"])
def test_without_a_clear_answer_a_change_is_unknown_and_a_read_is_retryable(
    sandbox: SandboxProcess, patient: UUID, kind: str, settings: Any
) -> None:
    sandbox.fault("messages", None, kind, count=1)
    sandbox.fault("payments", "find_charge", kind, count=1)
    settings.SERVICES_TIMEOUT = 0.5
    with pytest.raises(UnknownOutcome) as unknown:
        confirm(patient)
    assert unknown.value.code == "no_answer"
    with pytest.raises(RetryableStepError) as retryable:
        payments.find_charge("any")
    assert not isinstance(retryable.value, UnknownOutcome)
    settings.SERVICES_TIMEOUT = 3
    assert payments.find_charge("any") is None


def test_a_slow_answer_is_waited_for_until_the_timeout(sandbox: SandboxProcess, patient: UUID, settings: Any) -> None:
    sandbox.fault("messages", None, "slow", delay_s=0.2, count=1)
    confirm(patient)
    settings.SERVICES_TIMEOUT = 0.3
    sandbox.fault("messages", None, "slow", delay_s=1, count=1)
    with pytest.raises(UnknownOutcome):
        confirm(patient)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        *((status, UnknownOutcome) for status in (500, 502, 504)),
        *((status, RetryableStepError) for status in (408, 425, 429, 503)),
        *((status, StepError) for status in (400, 401, 403, 404, 410, 422)),
    ],
)
def test_a_status_says_whether_a_change_is_unknown_retryable_or_refused_for_good(
    sandbox: SandboxProcess, patient: UUID, status: int, error: type[StepError]
) -> None:
    sandbox.fault("messages", None, "status", status=status, count=1)
    with pytest.raises(StepError) as raised:
        confirm(patient)
    assert type(raised.value) is error


# --- what else a server can do -------------------------------------------------------------------


ITS_CLOCK = "Date: Tue, 15 Nov 1994 08:12:31 GMT"  # a date is as far off as the service's own clock says


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        ("30", 30, 45),
        ("240", 240, 360),
        ("86400", 240, 360),
        ("Tue, 15 Nov 1994 08:13:01 GMT", 30, 45),
        ("Sun Nov  6 08:49:37 1994", 1.6, 2.4),
    ],
)
def test_it_is_not_tried_again_before_retry_after_nor_long_after_our_own_longest_delay(
    settings: Any, value: str, least: float, most: float
) -> None:
    answer = response("503 Service Unavailable", b"", f"Retry-After: {value}", ITS_CLOCK)
    with raw_server(settings, answer), pytest.raises(RetryableStepError) as error:
        confirm(uuid4())
    policy = backoff.merge_policies(error.value, Retry(jitter_factor=0.9))
    limits = {name: getattr(policy, name) for name in ("base_delay", "max_delay", "jitter_factor")}
    delays = [backoff.delay_seconds(1, **limits) for _ in range(1000)]
    assert least - 1e-6 <= min(delays) <= max(delays) <= most + 1e-6


CONFIRMATION = f'{{"patient_uuid": "{UUID(int=1)}"}}'.encode()


@pytest.mark.parametrize(
    "answer",
    [
        *(response("200 OK", body) for body in (b"", b"<html>", b"[]", b'{"patient_uuid": "nobody"}', b"{}", b"\xff")),
        *(b"", b"HTTP/1.1 2", b"SSH-2.0-OpenSSH\r\n\r\n", response("302 Found", b"", "Location: /")),
        *(response(status, CONFIRMATION) for status in ("500 Internal Server Error", "302 Found")),
    ],
)
def test_what_is_no_answer_that_anybody_can_read_or_no_success_is_unknown(settings: Any, answer: bytes) -> None:
    with raw_server(settings, answer), pytest.raises(UnknownOutcome):
        confirm(uuid4())


def test_a_kept_connection_that_breaks_before_the_first_byte_is_unknown(settings: Any) -> None:
    answer = response("200 OK", b'{"charges": []}')
    with raw_server(settings, answer, b"") as requests:
        payments.find_charge("any")
        with pytest.raises(UnknownOutcome):
            confirm(uuid4())
    assert len(requests) == 2, "both came over one connection"


@pytest.mark.parametrize(
    ("status", "code", "error", "delay"),
    [
        ("401 Unauthorized", "token_expired", RetryableStepError, None),
        ("409 Conflict", "idempotency_in_progress", UnknownOutcome, 9 / (1 - http.JITTER)),
    ],
)
def test_a_token_that_expired_is_retryable_and_a_key_that_the_service_has_in_hand_is_unknown(
    settings: Any, status: str, code: str, error: type[StepError], delay: float | None
) -> None:
    headers = ["Retry-After: 9"] if delay else []
    answer = response(status, f'{{"code": "{code}"}}'.encode(), *headers)
    with raw_server(settings, answer), pytest.raises(RetryableStepError) as raised:
        confirm(uuid4())
    assert (type(raised.value), raised.value.code, raised.value.base_delay) == (error, code, delay)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"code": 7}', b'{"code": "Ada Alvarez, 12 Main Street"}'])
def test_a_refusal_without_a_code_fit_for_people_gets_one_of_ours(settings: Any, body: bytes) -> None:
    with raw_server(settings, response("400 Bad Request", body)), pytest.raises(StepError) as error:
        confirm(uuid4())
    assert error.value.code == "refused"
    assert str(error.value) == "The messages service refused send_confirmation."


def test_no_proxy_of_the_environment_gets_between(
    sandbox: SandboxProcess, patient: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    http.close()
    confirm(patient)


def test_a_forked_process_uses_connections_of_its_own(sandbox: SandboxProcess) -> None:
    accounts.find_by_email("warm@example.com")
    mine = http._client()
    child = os.fork()
    if child == 0:
        fresh = http._client() is not mine and http._client() is http._client()
        os._exit(0 if fresh else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert http._client() is mine
