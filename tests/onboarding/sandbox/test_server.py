from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from tests.sandbox_process import SandboxProcess, SandboxThread


def attach_card(
    sandbox: SandboxProcess, patient: str, key: str, card: str = "tok_visa", *, timeout: float = 10
) -> httpx.Response:
    body = {"patient_uuid": patient, "card_token": card}
    return sandbox.http.post("/payments/cards", json=body, headers={"Idempotency-Key": key}, timeout=timeout)


def new_patient(sandbox: SandboxProcess) -> str:
    return sandbox.account(email=f"{uuid4()}@example.com")["patient_uuid"]


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
