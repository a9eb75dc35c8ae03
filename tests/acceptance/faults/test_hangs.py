"""A service that takes requests and never answers: whoever can do without it goes on as if it were well.

`messages` is in test_outages.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from tests.acceptance.faults.harness import System, fired
from tests.acceptance.faults.test_outages import (
    PLAIN,
    WORKERS,
    assert_all_is_well,
    is_open,
    opened_at,
    wait_until_done,
)
from workflows.models import Attempt, CircuitEvent, Event, Workflow

pytestmark = pytest.mark.django_db(transaction=True)

# Seconds that a call waits for its answer, and that are counted from the opening of the circuit on.
TIMEOUT, WINDOW = 2.0, 6.0
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

    def keep_full_until(self, look: Callable[[], object]) -> None:
        def refill_and_look() -> object:
            if Workflow.objects.due().count() < BACKLOG:
                self.given += self.system.submit(10, PLAIN)
            return look()

        self.system.wait_until(refill_and_look)

    def keep_full(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self.keep_full_until(lambda: time.monotonic() >= until)

    def calls_in_vain(self, service: str, fault: int) -> tuple[int, int]:
        """How many there were until the service's circuit was open, and each worker knew; and then, within a window.

        It ends when somebody has completed in it who has no insurance.
        """
        self.keep_full_until(lambda: is_open(service))
        from_before = Attempt.objects.filter(closed_at=None, opened_at__lte=opened_at(service))
        self.keep_full_until(lambda: not from_before.exists())
        calls = fired(self.system.sandbox)[fault]
        assert calls <= 4 * WORKERS, "five votes open it, and a few calls are under way then"
        self.windows.append(timezone.now())
        self.keep_full(WINDOW)
        then = fired(self.system.sandbox)[fault] - calls
        assert then * TIMEOUT <= (1 - AT_LEAST) * WORKERS * WINDOW, "a trial"
        uninsured = Workflow.objects.filter(status="COMPLETE", completed_at__gt=self.windows[-1], **UNINSURED)
        self.keep_full_until(uninsured.exists)
        return calls, then

    def completed(self, **which: object) -> list[int]:
        """In each window."""
        rows = Workflow.objects.filter(pk__in=[each.pk for each in self.given], status="COMPLETE", **which)
        ends = [(began, began + timedelta(seconds=WINDOW)) for began in self.windows]
        return [rows.filter(completed_at__range=each).count() for each in ends]


def test_insurance_may_hang(system: System) -> None:
    """The payers first, whom it asks to verify: no patient waits for that. Then all of it.

    While a policy cannot be saved its patient's workflow is parked, and costs the others nothing.
    """
    intake = Intake(system)
    system.work("OUTAGE", processes=WORKERS, SERVICES_TIMEOUT=str(TIMEOUT))
    intake.keep_full_until(Workflow.objects.filter(status="COMPLETE").exists)

    verifying = system.sandbox.fault("insurance", "verify_insurance", "timeout_after")["id"]
    while_verifying = intake.calls_in_vain("insurance verification", verifying)
    assert not Event.objects.filter(kind="parked").exists(), "nobody waits for it"
    assert not CircuitEvent.objects.filter(service="insurance").exists(), "it saves policies"

    saving = system.sandbox.fault("insurance", "save_insurance", "timeout_after")["id"]
    while_saving = intake.calls_in_vain("insurance", saving)
    parked = Workflow.objects.filter(parked_on="insurance")
    intake.keep_full_until(lambda: parked.count() > BACKLOG / 2)
    assert not parked.filter(**UNINSURED).exists()

    system.sandbox.clear_faults()
    wait_until_done(system, intake.given)
    system.stop()
    assert_all_is_well(system, intake.given)
    print(  # noqa: T201
        f"COMPLETE within {WINDOW} s of each hang: {intake.completed()}, of them uninsured: "
        f"{intake.completed(**UNINSURED)}; calls in vain until then, and within: {while_verifying}, {while_saving}"
    )
