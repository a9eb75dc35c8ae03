from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.sandbox_process import SandboxProcess, SandboxThread


def attach_card(
    sandbox: SandboxProcess, patient: str, key: str, card: str = "tok_visa", *, timeout: float = 10
) -> httpx.Response:
    body = {"patient_uuid": patient, "card_token": card}
    return sandbox.http.post("/payments/cards", json=body, headers={"Idempotency-Key": key}, timeout=timeout)


def configure_billing(sandbox: SandboxProcess, patient: str) -> httpx.Response:
    body = {"program": "body", "plan": "monthly", "postal_code": "10001"}
    return sandbox.http.put(f"/payments/billing/{patient}", json=body, headers={"Idempotency-Key": str(uuid4())})


def new_patient(sandbox: SandboxProcess) -> str:
    return sandbox.account(email=f"{uuid4()}@example.com")["patient_uuid"]


def charge(sandbox: SandboxProcess, patient: str, key: str) -> httpx.Response:
    card = attach_card(sandbox, patient, str(uuid4())).json()["card_id"]
    body = {"patient_uuid": patient, "card_id": card, "amount_cents": 100, "currency": "usd"}
    return sandbox.http.post("/payments/charges", json=body, headers={"Idempotency-Key": key})


# --- idempotency and effects ---------------------------------------------------------------------


def test_the_same_key_and_body_get_the_same_answer_and_one_effect(sandbox: SandboxProcess) -> None:
    patient, key = new_patient(sandbox), str(uuid4())
    first, second = attach_card(sandbox, patient, key), attach_card(sandbox, patient, key)
    assert (first.status_code, first.json()) == (second.status_code, second.json()) == (201, first.json())
    assert (first.headers.get("Idempotent-Replayed"), second.headers["Idempotent-Replayed"]) == (None, "true")
    [effect] = sandbox.effects(idempotency_key=key)
    assert effect.pop("at")
    assert effect == {
        "service": "payments",
        "operation": "attach_card",
        "idempotency_key": key,
        "patient_uuid": patient,
    }


def test_a_refusal_is_not_kept_under_its_key_and_is_never_an_answer_from_memory(sandbox: SandboxProcess) -> None:
    patient, key = new_patient(sandbox), str(uuid4())
    for _ in range(2):
        refused = attach_card(sandbox, patient, key, card="tok_invalid")
        assert (refused.status_code, refused.headers.get("Idempotent-Replayed")) == (422, None)
    assert sandbox.effects(idempotency_key=key) == []
    assert attach_card(sandbox, patient, key).status_code == 201
    again = attach_card(sandbox, patient, key, card="tok_other")
    assert (again.status_code, again.json()["code"]) == (422, "idempotency_key_reused")
    assert again.headers.get("Idempotent-Replayed") is None


def test_the_same_key_at_the_same_moment_performs_once(sandbox: SandboxProcess) -> None:
    patient, key = new_patient(sandbox), str(uuid4())
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: attach_card(sandbox, patient, key), range(64)))
    assert len({answer.json()["card_id"] for answer in answers}) == 1
    assert len(sandbox.effects(idempotency_key=key)) == 1


def test_a_change_needs_a_key(sandbox: SandboxProcess) -> None:
    answer = attach_card(sandbox, new_patient(sandbox), "")
    assert (answer.status_code, answer.json()["code"]) == (400, "idempotency_key_missing")


def test_what_a_key_was_answered_can_be_read_without_asking_the_service(sandbox: SandboxProcess) -> None:
    patient, key = new_patient(sandbox), f"{uuid4()}:with a colon/and a slash"
    assert sandbox.answer_to("payments", key) is None
    attached = attach_card(sandbox, patient, key).json()
    sandbox.fault("payments", None, "status", status=503)
    assert sandbox.answer_to("payments", key) == attached
    assert sandbox.answer_to("visits", key) is None


def test_effects_can_be_filtered(sandbox: SandboxProcess) -> None:
    patient = new_patient(sandbox)
    attach_card(sandbox, patient, str(uuid4()))
    charge(sandbox, patient, "a key")
    [charged] = sandbox.effects(patient_uuid=patient, operation="charge")
    assert sandbox.effects(patient_uuid=patient, since=charged["at"]) == [charged]
    assert sandbox.effects(patient_uuid=patient, service="visits") == []
    assert len(sandbox.effects(patient_uuid=patient, since="2020-01-01T00:00:00+00:00")) == 3
    for query in ({"since": "yesterday"}, {"colour": "red"}):
        assert sandbox.http.get("/_effects", params=query).status_code == 400


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/nothing/here"),
        ("POST", "/payments/nothing"),
        ("DELETE", "/payments/charges"),
        ("GET", "/_x"),
    ],
)
def test_what_it_does_not_have_is_404(sandbox: SandboxProcess, method: str, path: str) -> None:
    assert sandbox.http.request(method, path).status_code == 404


@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"', b"\xff"])
def test_a_body_that_is_no_object_is_malformed(sandbox: SandboxProcess, body: bytes) -> None:
    for path in ("/payments/cards", "/_faults", "/_accounts"):
        answer = sandbox.http.post(path, content=body, headers={"Idempotency-Key": str(uuid4())})
        assert answer.status_code == 400
        assert answer.json()["code"] == "malformed"


# --- keys that are forgotten ---------------------------------------------------------------------


KEY_TTL = 0.3


@pytest.fixture
def forgetful_sandbox(tmp_path: Path) -> Iterator[SandboxThread]:
    sandbox = SandboxThread(tmp_path / "forgetful", key_ttl=KEY_TTL)
    yield sandbox
    sandbox.end()


def test_a_key_is_remembered_from_when_it_was_performed_and_not_from_when_it_last_came_back(
    forgetful_sandbox: SandboxThread,
) -> None:
    """Then the same request is performed again."""
    patient, key = new_patient(forgetful_sandbox), str(uuid4())
    began = time.monotonic()
    first = last = attach_card(forgetful_sandbox, patient, key)
    while last.json() == first.json():
        assert time.monotonic() < began + 10
        last = attach_card(forgetful_sandbox, patient, key)
    assert time.monotonic() >= began + KEY_TTL
    assert (last.status_code, last.headers.get("Idempotent-Replayed")) == (201, None)
    assert len(forgetful_sandbox.effects(idempotency_key=key)) == 2
    forgetful_sandbox.server.sandbox.key_ttl = None
    again = attach_card(forgetful_sandbox, patient, key)
    assert (again.json(), again.headers["Idempotent-Replayed"]) == (last.json(), "true"), "it is remembered again"


# --- durability ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_under_load_and_started_again_it_has_forgotten_nothing(own_sandbox: SandboxProcess) -> None:
    patient = new_patient(own_sandbox)
    token = own_sandbox.http.post("/tokens/issue", json={"patient_uuid": patient}).json()["access_token"]
    fault = own_sandbox.fault("payments", "charge", "status", status=502, count=3)
    own_sandbox.lift_fault(own_sandbox.fault("payments", "refund", "status", status=502)["id"])
    answered: dict[str, dict[str, str]] = {}

    def attach_until_killed(_: int) -> None:
        while True:
            key = str(uuid4())
            try:
                answered[key] = attach_card(own_sandbox, patient, key).raise_for_status().json()
            except (httpx.TransportError, RuntimeError):
                return

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(attach_until_killed, n) for n in range(4)]
        while len(answered) < 100:
            time.sleep(0.01)
        own_sandbox.process.send_signal(signal.SIGKILL)
        for future in futures:
            future.result()
    own_sandbox.kill()
    own_sandbox.start()
    known = [effect["idempotency_key"] for effect in own_sandbox.effects()]
    assert set(answered) <= set(known)
    assert len(known) == len(set(known))
    key = next(iter(answered))
    assert attach_card(own_sandbox, patient, key).json() == answered[key]
    assert own_sandbox.http.get("/_faults").json()["faults"] == [fault]
    headers = {"Idempotency-Key": str(uuid4()), "Authorization": f"Bearer {token}"}
    phone = own_sandbox.http.put(f"/profiles/patients/{patient}/phone", json={"phone": "+12025550123"}, headers=headers)
    assert phone.status_code == 201


# --- HTTP ----------------------------------------------------------------------------------------


def test_one_connection_carries_many_requests(sandbox: SandboxProcess) -> None:
    with socket.create_connection(("127.0.0.1", sandbox.port)) as connection, connection.makefile("rb") as answers:
        for _ in range(3):
            connection.sendall(b"GET /_healthz HTTP/1.1\r\nHost: sandbox\r\n\r\n")
            assert answers.readline() == b"HTTP/1.1 200 OK\r\n"
            length = 0
            while (line := answers.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            assert json.loads(answers.read(length)) == {"status": "ok"}


@pytest.mark.parametrize("header", [{"Content-Length": "9999999"}, {"Content-Length": "-1"}])
def test_a_body_of_no_sane_length_is_refused(sandbox: SandboxProcess, header: dict[str, str]) -> None:
    with socket.create_connection(("127.0.0.1", sandbox.port)) as connection:
        lines = "".join(f"{name}: {value}\r\n" for name, value in header.items())
        connection.sendall(f"POST /payments/cards HTTP/1.1\r\nHost: sandbox\r\n{lines}\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


def test_arranging_an_account_again_is_the_same_account(sandbox: SandboxProcess) -> None:
    email = f"{uuid4()}@example.com"
    first, again = sandbox.account(email=email), sandbox.account(email=email, linking_id=f"link_{email}")
    assert first["patient_uuid"] == again["patient_uuid"]
    assert sandbox.effects(patient_uuid=first["patient_uuid"]) == [], "what another flow did is no effect of ours"


@pytest.mark.parametrize("body", [{}, {"email": 7}, {"email": "a@b.example", "session_expires_in_s": "soon"}])
def test_an_account_that_makes_no_sense_is_refused(sandbox: SandboxProcess, body: dict[str, Any]) -> None:
    assert sandbox.http.post("/_accounts", json=body).status_code == 400
