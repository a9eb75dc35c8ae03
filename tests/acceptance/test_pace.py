"""A pace and a hold are in force for the workers of all supervisors."""

from __future__ import annotations

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
