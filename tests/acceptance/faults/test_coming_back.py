"""A service that is back takes as much as it can, and is not toppled by those who have waited for it."""

from __future__ import annotations

import os
import time
from datetime import datetime

import pytest

from tests.acceptance.faults.harness import System
from tests.acceptance.faults.test_outages import is_open
from workflows.models import CircuitEvent, Workflow

# Beside other tests the workers come by late, and the time that it takes says little.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.alone]

A_SECOND = 10
# They take half a minute; 600 (FAULTS_PARKED=600) a minute and a half.
PARKED = int(os.environ.get("FAULTS_PARKED", "250"))
# Seconds, from the first call that is answered.
SOFT_START = 10


def test_what_was_parked_comes_back_at_the_pace_of_the_service(system: System) -> None:
    """Within twice the ideal time, and most of its calls are answered.

    It takes 1.5 times on a quiet machine; a circuit that opens again takes 2.8.
    """
    system.sandbox.fault("messages", None, "status", status=503)
    given = system.notes(PARKED)
    system.work("NOTE", processes=4)
    rows = Workflow.objects.filter(pk__in=given)
    system.wait_until(lambda: is_open("messages"))
    system.wait_until(lambda: rows.filter(parked_on="messages").count() == PARKED)
    system.sandbox.clear_faults()
    system.sandbox.fault("messages", None, "capacity", per_second=A_SECOND)
    back = time.monotonic()
    system.wait_until(lambda: not rows.filter(status="PENDING").exists(), 60 + 3 * PARKED / A_SECOND)
    took = time.monotonic() - back
    system.stop()
    closed = CircuitEvent.objects.filter(kind="closed").earliest("id").at
    drained = (rows.latest("completed_at").completed_at - closed).total_seconds()
    calls = [
        (round((datetime.fromisoformat(each["second"]) - closed).total_seconds()), each["calls"], each["answered_5xx"])
        for each in system.sandbox.calls("messages", since=closed.strftime("%Y-%m-%dT%H:%M:%SZ"))
    ]
    print(f"{PARKED} drained {drained:.1f} s after the first answer, {took:.1f} s after it was back: {calls}")  # noqa: T201
    assert rows.filter(status="COMPLETE").count() == PARKED
    assert drained <= 2 * PARKED / A_SECOND
    # No more than twice what it can take. Not in each second: after a stall two release batches come in one.
    asked, in_vain = (sum(each) for each in zip(*[call[1:] for call in calls if call[0] >= SOFT_START], strict=True))
    assert asked <= 2 * (asked - in_vain)
