from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

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
    own_sandbox.effects()  # what the sandbox offers itself is not a call
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
