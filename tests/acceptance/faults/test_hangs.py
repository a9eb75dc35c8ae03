"""A service that takes requests and never answers: whoever can do without it goes on as if it were well.

`messages` is in test_outages.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from tests.acceptance.faults.harness import System, fired
from tests.acceptance.faults.test_outages import PLAIN, WORKERS, assert_all_is_well, is_open, wait_until_done
from workflows.models import CircuitEvent, Event, Workflow

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.faults]

# Seconds that a call waits for its answer, that are counted, and from which one of the hang on.
TIMEOUT, WINDOW, FROM_THEN_ON = 2.0, 6.0, 10.0
# Of the throughput, which is what a worker makes of its time: so much less is what the calls in vain take of it.
AT_LEAST = 0.7

# Submissions, never too few for the workers.
BACKLOG = 40
UNINSURED = {"payload__insurance": None}


class Intake:
    """Keeps the queue full, so that what is COMPLETE after a while is what the workers could do."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.given: list[Workflow] = []
        self.windows: list[datetime] = []

    def keep_full(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if Workflow.objects.due().count() < BACKLOG:
                self.given += self.system.submit(10, PLAIN)
            time.sleep(0.05)

    def calls_in_vain(self) -> tuple[int, int]:
        """How many of all services there were so far; and then, within a window."""
        calls = sum(fired(self.system.sandbox).values())
        self.windows.append(timezone.now())
        self.keep_full(WINDOW)
        return calls, sum(fired(self.system.sandbox).values()) - calls

    def completed(self, **which: object) -> list[int]:
        """In each window."""
        rows = Workflow.objects.filter(pk__in=[each.pk for each in self.given], status="COMPLETE", **which)
        ends = [(began, began + timedelta(seconds=WINDOW)) for began in self.windows]
        return [rows.filter(completed_at__range=each).count() for each in ends]


def assert_it_goes_on(until_open: int, then: int) -> None:
    """The votes that open a circuit are five; the calls that are under way then, and a trial, are a few more."""
    assert until_open <= 4 * WORKERS
    assert then * TIMEOUT <= (1 - AT_LEAST) * WORKERS * WINDOW


def test_insurance_may_hang(system: System) -> None:
    """The payers first, whom it asks to verify: no patient waits for that. Then all of it.

    While a policy cannot be saved its patient's workflow is parked, and costs the others nothing.
    """
    intake = Intake(system)
    system.work("OUTAGE", processes=WORKERS, SERVICES_TIMEOUT=str(TIMEOUT))
    intake.keep_full(3)
    assert intake.calls_in_vain() == (0, 0)

    system.sandbox.fault("insurance", "verify_insurance", "timeout_after")
    intake.keep_full(FROM_THEN_ON)
    system.wait_until(lambda: is_open("insurance verification"))
    assert_it_goes_on(*(while_verifying := intake.calls_in_vain()))
    assert not Event.objects.filter(kind="parked").exists(), "nobody waits for it"
    assert not CircuitEvent.objects.filter(service="insurance").exists(), "it saves policies"

    system.sandbox.clear_faults()
    system.sandbox.fault("insurance", None, "timeout_after")
    intake.keep_full(FROM_THEN_ON)
    system.wait_until(lambda: is_open("insurance"))
    assert_it_goes_on(*(while_saving := intake.calls_in_vain()))
    parked = Workflow.objects.filter(parked_on="insurance")
    assert parked.count() > BACKLOG / 2
    assert not parked.filter(**UNINSURED).exists()

    system.sandbox.clear_faults()
    wait_until_done(system, intake.given)
    system.stop()
    assert_all_is_well(system, intake.given)
    of_uninsured = intake.completed(**UNINSURED)
    print(  # noqa: T201
        f"COMPLETE within {WINDOW} s, without a hang and with each: {intake.completed()}, of them uninsured: "
        f"{of_uninsured}; calls in vain until then, and within: {while_verifying}, {while_saving}"
    )
    assert min(of_uninsured) > 0
