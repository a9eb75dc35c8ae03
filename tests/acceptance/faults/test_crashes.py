"""PostgreSQL crashes, again and again, in the midst of onboarding. Nobody is condemned; nothing is done twice."""

import random
import time

import pytest
from django.db import connections

from tests.acceptance.faults.harness import System, assert_nothing_twice, outcomes
from tests.postgres import Restart
from workflows.models import Attempt, Workflow

pytestmark = pytest.mark.django_db(transaction=True)

CRASHES = 6
LOAD = 12


def in_the_midst() -> bool:
    """Whether any worker is at work."""
    return Attempt.objects.filter(closed_at=None).exists()


@pytest.mark.alone
def test_postgresql_crashes_at_random_moments_under_load(system: System, restart_postgres: Restart) -> None:
    randomly = random.Random(system.seed)
    for _ in range(2):
        system.work(processes=2)
    met = 0
    for _ in range(3 * CRASHES):
        system.submit(LOAD)
        time.sleep(randomly.uniform(0, 0.6))
        system.wait_until(lambda: in_the_midst() or not system.submit(4))
        at_work = list(Attempt.objects.filter(closed_at=None).values_list("pk", flat=True))
        connections.close_all()
        restart_postgres()
        system.wait_until(lambda ids=at_work: not Attempt.objects.filter(pk__in=ids, closed_at=None).exists())
        # Else they had all come to their end before the server did.
        met += Attempt.objects.filter(pk__in=at_work, outcome="lost").exists()
        if met == CRASHES:
            break
    assert met == CRASHES

    def at_rest() -> bool:
        system.hurry()
        return system.at_rest()

    system.wait_until(at_rest)
    system.stop()
    told = outcomes(system)
    assert told["lost"] >= CRASHES
    assert not {"crashed", "killed", "interrupted", "held"} & set(told), "nobody is condemned"
    assert not Workflow.objects.filter(last_error_code="poison").exists()
    assert "ended by" not in system.output, "the same processes"
    assert_nothing_twice(system)
