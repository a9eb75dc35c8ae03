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


def test_the_calls_of_each_service_are_told_by_second(own_sandbox: SandboxProcess) -> None:
    patient = new_patient(own_sandbox)
    own_sandbox.effects()  # what the sandbox offers itself is no call
    since = datetime.now(UTC).replace(microsecond=0)
    own_sandbox.http.post("/tokens/issue", json={"patient_uuid": patient})
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: attach_card(own_sandbox, patient, str(uuid4())), range(20)))
    told = own_sandbox.calls("payments")
    assert count(told) == (20, 0)
    for each in told:
        assert each.keys() == {"second", "service", "calls", "answered_5xx"}
        assert each["second"].endswith("Z")
        assert since <= datetime.fromisoformat(each["second"]) <= datetime.now(UTC)
    assert len({each["second"] for each in told}) == len(told)
    of_all = own_sandbox.http.get("/_calls").json()["calls"]
    assert [each for each in of_all if each["service"] == "payments"] == told
    assert [(each["service"], each["calls"]) for each in of_all if each not in told] == [("tokens", 1)]


def test_a_call_counts_whatever_becomes_of_it_and_5xx_are_told_apart(own_sandbox: SandboxProcess) -> None:
    patient = new_patient(own_sandbox)
    assert attach_card(own_sandbox, patient, "", card="tok_invalid").status_code == 400
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
        with suppress(httpx.TransportError):
            attach_card(own_sandbox, patient, str(uuid4()), timeout=0.3)
    own_sandbox.fault("payments", None, "capacity", per_second=1)
    beyond = [attach_card(own_sandbox, patient, str(uuid4())).status_code for _ in range(4)].count(503)
    assert beyond
    # 503, 500, and the one that would be replayed.
    assert count(own_sandbox.calls("payments")) == (1 + 8 + 4, 3 + beyond)


def test_a_call_counts_when_it_comes_and_not_when_it_is_answered(own_sandbox: SandboxProcess) -> None:
    patient = new_patient(own_sandbox)
    own_sandbox.fault("payments", None, "slow", delay_s=0.5)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(attach_card, own_sandbox, patient, str(uuid4()))
        while not own_sandbox.calls("payments"):
            time.sleep(0.01)
        assert not answer.done()


@pytest.mark.parametrize("query", [{"since": "yesterday"}, {"service": "pharmacy"}, {"operation": "charge"}])
def test_a_question_that_makes_no_sense_is_refused(sandbox: SandboxProcess, query: dict[str, str]) -> None:
    answer = sandbox.http.get("/_calls", params=query)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")


START = datetime(2030, 1, 1, 9, tzinfo=UTC)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> CallLog:
    """With calls at these seconds of a clock that was set back, and room for the last three seconds."""
    monkeypatch.setattr(calls, "SECONDS_KEPT", 3)

    class Clock(datetime):
        at = START

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.at

    monkeypatch.setattr(calls, "datetime", Clock)
    log = CallLog()
    for second in (0, 9000, 9001, 60, 61):
        Clock.at = START + timedelta(seconds=second)
        log.add("payments", answered_5xx=False)
    return log


def test_only_so_many_seconds_are_kept_whatever_the_clock_does(log: CallLog) -> None:
    kept = [each["second"] for each in log.all()]
    assert kept == ["2030-01-01T09:01:00Z", "2030-01-01T09:01:01Z", "2030-01-01T11:30:01Z"]


def test_since_leaves_out_what_came_before_its_second(log: CallLog) -> None:
    told = [each["second"] for each in log.all(since=START + timedelta(seconds=61.9))]
    assert told == ["2030-01-01T09:01:01Z", "2030-01-01T11:30:01Z"], "its own second is told whole"
