from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from onboarding.sandbox import faults
from onboarding.sandbox.store import Store
from tests.onboarding.sandbox.test_server import attach_card, new_patient
from tests.sandbox_process import SandboxProcess


def listed(sandbox: SandboxProcess) -> list[dict[str, Any]]:
    return list(sandbox.http.get("/_faults").json()["faults"])


@pytest.fixture
def patient(sandbox: SandboxProcess) -> str:
    return new_patient(sandbox)


def test_faults_are_listed_with_how_often_they_struck_and_lifted_one_or_all(
    sandbox: SandboxProcess, patient: str
) -> None:
    first, second = (sandbox.fault("payments", None, "status", status=status) for status in (500, 503))
    assert first["fired"] == 0
    assert attach_card(sandbox, patient, str(uuid4())).status_code == 500
    assert listed(sandbox) == [first | {"fired": 1}, second]
    assert sandbox.lift_fault(first["id"]) == first | {"fired": 1}
    answer = attach_card(sandbox, patient, key := str(uuid4()))
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert sandbox.effects(idempotency_key=key) == [], "it is answered without performing"
    assert listed(sandbox) == [second | {"fired": 1}]
    third = sandbox.fault("payments", None, "status", status=429)
    assert third["id"] not in (first["id"], second["id"])
    for nobodys in (first["id"], "a"):
        answer = sandbox.http.delete(f"/_faults/{nobodys}")
        assert (answer.status_code, answer.json()["code"]) == (404, "no_such_fault")
    sandbox.clear_faults()
    assert listed(sandbox) == []
    assert attach_card(sandbox, patient, str(uuid4())).status_code == 201


def test_a_fault_of_one_key_strikes_no_other(sandbox: SandboxProcess, patient: str) -> None:
    sandbox.fault("payments", "attach_card", "status", idempotency_key="a:card", status=503)
    statuses = {key: attach_card(sandbox, patient, key).status_code for key in ("b:card", "a:card", "a:card:2", "a:")}
    assert statuses == {"b:card": 201, "a:card": 503, "a:card:2": 503, "a:": 201}


def test_a_fault_of_one_key_strikes_the_lookup_of_that_key_only_if_it_names_it(sandbox: SandboxProcess) -> None:
    def look_up(key: str) -> int:
        return int(sandbox.http.get("/payments/charges", params={"idempotency_key": key}).status_code)

    sandbox.fault("payments", None, "status", idempotency_key="a:charge", status=422)
    assert look_up("a:charge") == 200
    sandbox.fault("payments", "find_charge", "status", idempotency_key="a:charge", status=422)
    assert (look_up("a:charge"), look_up("b:charge")) == (422, 200)


# --- capacity ------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(faults, "monotonic", clock)
    return clock


def test_a_capacity_holds_for_any_second_and_not_only_for_whole_ones(clock: Clock, tmp_path: Path) -> None:
    book = faults.FaultBook(Store(tmp_path))
    book.add({"service": "payments", "kind": "capacity", "per_second": 2})
    let_through = []
    for clock.now in (0.75, 0.875, 0.9375, 1.125, 1.625, 1.75, 1.8125, 1.875, 1.9375, 2.875):
        if book.strike("payments", "charge", "") is None:
            let_through.append(clock.now)
    assert let_through == [0.75, 0.875, 1.75, 1.875, 2.875], "and one that is refused takes nobody's place"


def test_within_a_capacity_the_next_fault_may_strike(clock: Clock, tmp_path: Path) -> None:
    """A service that is slow, and limited."""
    book = faults.FaultBook(Store(tmp_path))
    book.add({"service": "payments", "kind": "capacity", "per_second": 1})
    book.add({"service": "payments", "kind": "slow", "delay_s": 1})
    struck = [book.strike("payments", "charge", "") for _ in range(2)]
    assert [fault and fault.kind for fault in struck] == ["slow", "capacity"]


# --- after performing, and others ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "error", "performed"),
    [
        ("silent", httpx.ReadTimeout, 0),
        ("timeout_after", httpx.ReadTimeout, 1),
        ("drop_after", httpx.RemoteProtocolError, 1),
        ("half", httpx.RemoteProtocolError, 1),
    ],
)
def test_the_answer_is_lost_before_performing_or_after(
    sandbox: SandboxProcess, patient: str, kind: str, error: type[Exception], performed: int
) -> None:
    sandbox.fault("payments", None, kind, count=1)
    key = str(uuid4())
    with pytest.raises(error):
        attach_card(sandbox, patient, key, timeout=0.5)
    assert len(sandbox.effects(idempotency_key=key)) == performed
    assert attach_card(sandbox, patient, key).status_code == 201


def test_replay_500_answers_its_key_so_every_time_until_faults_are_cleared(
    sandbox: SandboxProcess, patient: str
) -> None:
    sandbox.fault("payments", None, "replay_500", count=1)
    key = str(uuid4())
    assert [attach_card(sandbox, patient, key).status_code for _ in range(3)] == [500, 500, 500]
    assert attach_card(sandbox, patient, str(uuid4())).status_code == 201, "other keys are well"
    assert sandbox.effects(idempotency_key=key) == []
    sandbox.clear_faults()
    sandbox.fault("payments", "charge", "status", status=500)
    assert attach_card(sandbox, patient, key).status_code == 201, "also when there are faults again"


GOOD = {"service": "payments", "operation": None, "kind": "status", "status": 500}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"service": "pharmacy"}, "service: one of accounts, tokens"),
        ({"operation": "chrage"}, "operation: null for all, or one of attach_card, charge"),
        ({"status": None}, "kind status needs a status"),
        ({"kind": "capacity", "per_second": 0}, "per_second: "),
        ({"rate": 1.5}, "rate: "),
        ({"colour": "red"}, "colour: "),
    ],
)
def test_a_bad_fault_is_refused_with_the_reason(sandbox: SandboxProcess, changes: dict[str, Any], reason: str) -> None:
    answer = sandbox.http.post("/_faults", json=GOOD | changes)
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith(reason), answer.json()
    assert listed(sandbox) == []
