"""A pace and a hold are in force for the workers of all supervisors."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest

from tests.acceptance.conftest import Start
from tests.acceptance.outside import done
from tests.concurrency.backlogs import store
from tests.processes import until
from workflows.models import Attempt, Pace
from workflows.models.clock import ClockTimestamp

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


def opened_since(seconds: float) -> int:
    return Attempt.objects.filter(opened_at__gt=ClockTimestamp() - timedelta(seconds=seconds)).count()


@pytest.mark.alone
def test_four_workers_of_two_supervisors_keep_a_pace_and_a_hold(runworker: Start, effects: Path) -> None:
    store(1_000, payload=f"jsonb_build_object('log', '{effects}')", workflow_type="'counted'")
    Pace.objects.create(key="queue:default", per_second=5.0)
    for _ in range(2):
        runworker("COUNTED", arguments=("--processes", "2"))
    until(lambda: len(done(effects, "note")) > 10)
    time.sleep(60)
    in_a_minute = opened_since(60)
    Pace.objects.update(per_second=None, held_until=ClockTimestamp() + timedelta(hours=1))
    time.sleep(2)
    began_before = Attempt.objects.count()
    time.sleep(2)
    began_after = Attempt.objects.count()
    Pace.objects.update(held_until=ClockTimestamp())
    until(lambda: Attempt.objects.count() == 1_000)
    assert 270 <= in_a_minute <= 330
    assert began_after == began_before


def test_a_slow_service_takes_a_share_and_a_killed_worker_leaves_its_place(runworker: Start, effects: Path) -> None:
    """What came behind 60 calls of a second each is done meanwhile, by the two workers that may not call."""
    payload = f"jsonb_build_object('log', '{effects}')"
    Pace.objects.create(key="service:letters", at_once=2)
    store(60, payload=payload, workflow_type="'calling_slowly'")
    store(100, payload=payload, workflow_type="'counted'")
    supervisor = runworker("CALLING_SLOWLY", "COUNTED", arguments=("--processes", "4"))
    until(lambda: len(done(effects, "calls")) > 2)
    os.kill(supervisor.children()[0], signal.SIGKILL)
    until(lambda: len(done(effects, "note")) == 100, seconds=60)
    under_way = most = 0
    calls = [line.split()[1] for line in effects.read_text().splitlines() if "call" in line]
    for what in calls:
        under_way += 1 if what == "calls" else -1
        most = max(most, under_way)
    assert len(done(effects, "called")) < 60
    assert most <= 3, "two, and the one that was killed"
    before = len(done(effects, "calls"))
    until(lambda: len(done(effects, "calls")) > before + 2)
