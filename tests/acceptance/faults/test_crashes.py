"""PostgreSQL crashes, again and again, in the midst of onboarding. Nobody is condemned; nothing is done twice."""

import random
import time

import pytest
from django.db import connections

from tests.acceptance.faults.harness import System, assert_nothing_twice, outcomes
from tests.postgres import Restart
from workflows.models import Attempt, Workflow

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.faults, pytest.mark.slow]

CRASHES = 10
LOAD = 12


def in_the_midst() -> bool:
    """Whether any worker is at work."""
    return Attempt.objects.filter(closed_at=None).exists()


def test_postgresql_crashes_at_random_moments_under_load(system: System, restart_postgres: Restart) -> None:
    randomly = random.Random(system.seed)
    for _ in range(2):
        system.work(processes=2)
    for _ in range(CRASHES):
        system.submit(LOAD)
        time.sleep(randomly.uniform(0, 0.6))
        system.wait_until(lambda: in_the_midst() or not system.submit(4))
        lost = outcomes(system)["lost"]
        connections.close_all()
        restart_postgres()
        system.wait_until(lambda lost=lost: outcomes(system)["lost"] > lost)

    def at_rest() -> bool:
        system.hurry()
        return system.at_rest()

    system.wait_until(at_rest)
    system.stop()
    told = outcomes(system)
    assert told["lost"] >= CRASHES
    assert set(told) <= {"complete", "failed", "waiting", "retry", "lost", "vanished", "put_back"}, (
        "nobody is condemned"
    )
    assert not Workflow.objects.filter(last_error_code="poison").exists()
    assert "ended by" not in system.output, "the same processes"
    assert_nothing_twice(system)
