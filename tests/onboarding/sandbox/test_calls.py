from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from onboarding.sandbox import calls
from onboarding.sandbox.calls import CallLog
from tests.onboarding.sandbox.test_server import attach_card, new_patient
from tests.sandbox_process import SandboxProcess, SandboxThread


@pytest.fixture
def own_sandbox(tmp_path: Path) -> Iterator[SandboxProcess]:
    """One that nobody else calls."""
    sandbox = SandboxThread(tmp_path)
    yield sandbox
    sandbox.end()


def count(told: list[dict[str, Any]]) -> tuple[int, int]:
    return sum(each["calls"] for each in told), sum(each["answered_5xx"] for each in told)


def now() -> str:
    return datetime.now(UTC).isoformat()


def test_the_calls_of_a_service_are_told_by_second(own_sandbox: SandboxProcess) -> None:
    patient = new_patient(own_sandbox)
    since = datetime.now(UTC).replace(microsecond=0)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: attach_card(own_sandbox, patient, str(uuid4())), range(20)))
    told = own_sandbox.calls("payments")
    assert count(told) == (20, 0)
    for each in told:
        assert each.keys() == {"second", "service", "calls", "answered_5xx"}
        assert each["service"] == "payments"
        assert each["second"].endswith("Z")
        assert since <= datetime.fromisoformat(each["second"]) <= datetime.now(UTC)
    assert len({each["second"] for each in told}) == len(told)


def test_each_service_has_its_own_and_what_the_sandbox_offers_itself_is_no_call(own_sandbox: SandboxProcess) -> None:
    patient = new_patient(own_sandbox)
    own_sandbox.effects()
    own_sandbox.http.post("/tokens/issue", json={"patient_uuid": patient})
    attach_card(own_sandbox, patient, str(uuid4()))
    told = own_sandbox.http.get("/_calls").json()["calls"]
    assert sorted((each["service"], each["calls"]) for each in told) == [("payments", 1), ("tokens", 1)]


def test_a_call_counts_whatever_becomes_of_it_and_5xx_are_told_apart(own_sandbox: SandboxProcess) -> None:
    patient = new_patient(own_sandbox)
    for kind, more in [
        ("status", {"status": 503}),
        ("status", {"status": 500}),
        ("status", {"status": 429}),
        ("timeout_after", {}),
        ("silent", {}),
        ("drop_after", {}),
        ("half", {}),
        ("replay_500", {}),
    ]:
        own_sandbox.fault("payments", None, kind, count=1, **more)
        key = {"Idempotency-Key": str(uuid4())}
        body = {"patient_uuid": patient, "card_token": "tok_visa"}
        with suppress(httpx.TransportError):
            own_sandbox.http.post("/payments/cards", json=body, headers=key, timeout=0.3)
    own_sandbox.fault("payments", None, "capacity", per_second=1)
    beyond = [attach_card(own_sandbox, patient, str(uuid4())).status_code for _ in range(4)].count(503)
    assert beyond
    # 503, 500, and the one that would be replayed.
    assert count(own_sandbox.calls("payments")) == (8 + 4, 3 + beyond)


def test_a_refusal_of_the_service_itself_is_no_5xx(own_sandbox: SandboxProcess) -> None:
    assert attach_card(own_sandbox, new_patient(own_sandbox), "", card="tok_invalid").status_code == 400
    assert count(own_sandbox.calls("payments")) == (1, 0)


def test_a_call_counts_when_it_comes_and_not_when_it_is_answered(own_sandbox: SandboxProcess) -> None:
    patient = new_patient(own_sandbox)
    own_sandbox.fault("payments", None, "slow", delay_s=0.5)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(attach_card, own_sandbox, patient, str(uuid4()))
        while not own_sandbox.calls("payments"):
            time.sleep(0.01)
        assert not answer.done()


def test_since_leaves_out_what_came_before_its_second(own_sandbox: SandboxProcess) -> None:
    patient = new_patient(own_sandbox)
    attach_card(own_sandbox, patient, str(uuid4()))
    [first] = own_sandbox.calls("payments")
    later = datetime.fromisoformat(first["second"]) + timedelta(seconds=1.2)
    while datetime.now(UTC) < later:
        time.sleep(0.05)
    since = now()
    attach_card(own_sandbox, patient, str(uuid4()))
    assert count(own_sandbox.calls("payments", since=since)) == (1, 0), "its own second is told whole"
    assert count(own_sandbox.calls("payments")) == (2, 0)


@pytest.mark.parametrize("query", [{"since": "yesterday"}, {"service": "pharmacy"}, {"operation": "charge"}])
def test_a_question_that_makes_no_sense_is_refused(sandbox: SandboxProcess, query: dict[str, str]) -> None:
    answer = sandbox.http.get("/_calls", params=query)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")


def test_only_so_many_seconds_are_kept_whatever_the_clock_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "SECONDS_KEPT", 3)
    start = datetime(2030, 1, 1, 9, tzinfo=UTC)

    class Clock(datetime):
        at = start

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.at

    monkeypatch.setattr(calls, "datetime", Clock)
    log = CallLog()
    for second in (0, 9000, 9001, 60, 61):  # it was set back
        Clock.at = start + timedelta(seconds=second)
        log.add("payments", answered_5xx=False)
    kept = [each["second"] for each in log.all()]
    assert kept == ["2030-01-01T09:01:00Z", "2030-01-01T09:01:01Z", "2030-01-01T11:30:01Z"]
