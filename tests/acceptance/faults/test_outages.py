"""Outages of the services: they cost time, and no workflow fails for one."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime

import pytest
from django.utils import timezone

from onboarding.samples import Kind
from tests.acceptance.faults.audit import of
from tests.acceptance.faults.harness import System, assert_each_key_once, each_step_once
from workflows.errors import NotAllowed
from workflows.features.outages import operations as services
from workflows.features.outages.circuits import JITTER, LONGEST_COOL_OFF
from workflows.models import CircuitEvent, Effect, Event, ManualTask, Service, Workflow
from workflows.models.service import FIRST_COOL_OFF

pytestmark = pytest.mark.django_db(transaction=True)

PLAIN = {Kind.NET_NEW, Kind.EXISTING}
WORKERS = 4


def opened_at(service: str) -> datetime:
    return CircuitEvent.objects.filter(service=service, kind="opened").earliest("id").at


def trials_due(service: str) -> int:
    """How many trials can have been due by now of a circuit that has been open all the while."""
    open_for = (timezone.now() - opened_at(service)).total_seconds()
    trials, cool_off, due = 0, FIRST_COOL_OFF, 0.0
    while (due := due + (1 - JITTER) * cool_off) <= open_for:
        trials, cool_off = trials + 1, min(2 * cool_off, LONGEST_COOL_OFF)
    return trials


def most_calls(service: str) -> int:
    """Of a circuit that is open: each worker's last, of an attempt from before, and two for each trial."""
    return WORKERS + 2 * trials_due(service)


def calls_since_it_opened(system: System, service: str) -> int:
    """Without those of the same second."""
    opened = opened_at(service).replace(microsecond=0)
    counts = system.sandbox.calls(service)
    return sum(each["calls"] for each in counts if datetime.fromisoformat(each["second"]) > opened)


def is_open(service: str) -> bool:
    return Service.objects.filter(name=service, opened_at__isnull=False).exists()


def wait_until_late_ones_are_parked(system: System, given: list[Workflow]) -> None:
    """Until the circuit is open, and some are parked that have come since: however late it opens, there are some."""
    system.wait_until(lambda: is_open("programs"))
    given += system.submit(20, PLAIN)
    late = Workflow.objects.filter(pk__in=[each.pk for each in given], created_at__gt=opened_at("programs"))
    system.wait_until(lambda: late.filter(parked_on="programs").count() >= 10)


def wait_until_done(system: System, given: list[Workflow]) -> None:
    rows = Workflow.objects.filter(pk__in=[each.pk for each in given])
    system.wait_until(lambda: not rows.filter(status="PENDING").exists())


def keep_submitting(system: System, count: int, seconds: float) -> list[Workflow]:
    """So many submissions, evenly over so many seconds."""
    given = []
    began = time.monotonic()
    for number in range(count):
        given += system.submit(1, PLAIN)
        time.sleep(max(0.0, began + seconds * (number + 1) / count - time.monotonic()))
    return given


def assert_all_is_well(system: System, given: list[Workflow]) -> None:
    """All COMPLETE; nothing was undone, done twice, or asked."""
    log = system.sandbox.effects()
    assert_each_key_once(log)
    for each in Workflow.objects.filter(pk__in=[each.pk for each in given]):
        assert each.status == "COMPLETE", (each.pk, each.current_step, each.last_error_message)
        own = of(each, log)
        each_step_once(each, own)
        did = [effect["operation"] for effect in own]
        for operation in ("charge", "enroll", "attach_card"):
            assert did.count(operation) == 1, (each.pk, did)
        assert "refund" not in did
    assert not ManualTask.objects.exists()
    assert not Event.objects.filter(kind__in=("failed", "compensating")).exists()


def assert_nobody_paid_while_it_was_down(system: System, given: list[Workflow], back_at: datetime) -> None:
    """Of those who came after the circuit had opened."""
    opened = opened_at("programs")
    late = {str(each.idempotency_key) for each in given if each.created_at > opened}
    assert late, "nobody came"
    for effect in system.sandbox.effects(operation="charge"):
        if effect["idempotency_key"].split(":")[0] in late:
            assert datetime.fromisoformat(effect["at"]) > back_at


OUTAGES: dict[str, dict[str, object]] = {
    "503": {"kind": "status", "status": 503},
    "silent": {"kind": "silent"},
    "broken connections": {"kind": "drop_after"},
}
SUBMISSIONS = {"503": 300}


@pytest.mark.parametrize("outage", OUTAGES)
def test_a_long_outage_fails_nobody(system: System, outage: str) -> None:
    kind = dict(OUTAGES[outage])
    system.sandbox.fault("programs", None, str(kind.pop("kind")), **kind)
    # Of a service that is silent each call takes that long: with 2 s the circuit opens late.
    system.work("OUTAGE", processes=WORKERS, SERVICES_TIMEOUT="0.5" if outage == "silent" else "2")
    given = keep_submitting(system, SUBMISSIONS.get(outage, 160), 20)
    wait_until_late_ones_are_parked(system, given)
    calls, at_most = calls_since_it_opened(system, "programs"), most_calls("programs")
    back_at = timezone.now()
    system.sandbox.clear_faults()
    wait_until_done(system, given)
    system.stop()
    assert_all_is_well(system, given)
    assert calls <= at_most
    if outage != "broken connections":  # these are performed all the same
        assert_nobody_paid_while_it_was_down(system, given, back_at)
    print(f"{calls} calls on the dead service since it was open; at rest {timezone.now() - back_at} after it was back")  # noqa: T201


def test_refunds_that_are_due_in_an_outage_are_made_once_and_by_nobody(system: System) -> None:
    """`payments` is down when those who were charged fail: by a step behind the enrolment that says no."""
    system.sandbox.fault("payments", "refund", "status", status=503)  # or one is made before the rest is down
    system.work("CLOSED_IN_AN_OUTAGE", processes=WORKERS)
    given = system.submit(40, PLAIN)
    system.wait_until(lambda: len(system.sandbox.effects(operation="charge")) >= 3)
    system.sandbox.fault("payments", None, "status", status=503)
    # Until a trial was in vain.
    system.wait_until(lambda: Service.objects.filter(name="payments", cool_off__gte=2 * FIRST_COOL_OFF).exists())
    calls, at_most = calls_since_it_opened(system, "payments"), most_calls("payments")
    assert not system.sandbox.effects(operation="refund")
    system.sandbox.clear_faults()
    with suppress(NotAllowed):  # it has just been tried
        services.try_now("payments", user=system.person, reason="Its owners say that it is up again.")
    wait_until_done(system, given)
    system.stop()
    log = system.sandbox.effects()
    assert_each_key_once(log)
    for each in Workflow.objects.filter(pk__in=[each.pk for each in given]):
        assert (each.status, each.last_error_code) == ("FAILED", "program_closed")
        did = [effect["operation"] for effect in of(each, log)]
        assert did.count("charge") == did.count("refund") == 1, did
    assert not ManualTask.objects.exists()
    assert not Effect.objects.filter(undo_failures__gt=0).exists()
    assert 1 <= calls <= at_most
