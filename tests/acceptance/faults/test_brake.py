"""What many fail for is not a verdict on each of them: a refusal of everybody, or a release with a mistake."""

from __future__ import annotations

from collections import Counter

import pytest
from django.utils import timezone

from tests.acceptance.faults.audit import of
from tests.acceptance.faults.harness import System, assert_each_key_once
from tests.acceptance.faults.test_outages import PLAIN, keep_submitting, wait_until_done
from workflows.models import Attempt, Effect, ManualTask, Service, Workflow

pytestmark = pytest.mark.django_db(transaction=True)

WORKERS = 3
# Of a refusal; with 45 it is the same.
SECONDS = 24


def statuses(given: list[Workflow]) -> Counter[str]:
    rows = Workflow.objects.filter(pk__in=[each.pk for each in given])
    return Counter(rows.values_list("status", flat=True))


def charged_and_not_enrolled() -> int:
    """Of those that wait."""
    charged = Effect.objects.filter(step="execute_checkout", undo=False, state=Effect.State.DONE)
    enrolled = Effect.objects.filter(step="enroll_in_program", undo=False, state=Effect.State.DONE)
    parked = Workflow.objects.filter(status="PENDING", compensating=False).exclude(parked_on="")
    return charged.filter(workflow__in=parked).exclude(workflow__in=enrolled.values("workflow")).count()


def is_on() -> bool:
    return Service.objects.exclude(step="").filter(opened_at__isnull=False).exists()


def parked(given: list[Workflow]) -> int:
    return Workflow.objects.filter(pk__in=[each.pk for each in given]).exclude(parked_on="").count()


def assert_each_is_charged_once_or_has_it_back(system: System, given: list[Workflow]) -> None:
    log = system.sandbox.effects()
    assert_each_key_once(log)
    for row in Workflow.objects.filter(pk__in=[each.pk for each in given]):
        did = Counter(effect["operation"] for effect in of(row, log))
        if row.status == "COMPLETE":
            assert (did["charge"], did["refund"], did["enroll"]) == (1, 0, 1), (row.pk, did)
        else:
            assert (row.status, did["charge"], did["enroll"]) == ("FAILED", did["refund"], did["withdraw"]), row.pk
    assert not ManualTask.objects.exists()
    assert not Workflow.objects.exclude(parked_on="").exists()


# Its token is rotated, it has moved, and it asks for something new.
ANSWERS = [(401, "token_invalid"), (404, ""), (422, "consent_missing")]


def test_a_service_that_refuses_everybody_costs_time_and_few_verdicts(system: System) -> None:
    system.work("ONBOARDING", processes=WORKERS)
    given: list[Workflow] = []
    before = 0
    for status, code in ANSWERS:
        fault = system.sandbox.fault("programs", None, "status", status=status, code=code)["id"]
        if before:
            system.sandbox.lift_fault(before)
        before = fault
        given += keep_submitting(system, SECONDS // len(ANSWERS), SECONDS / len(ANSWERS))
    waiting, unfinished = statuses(given)["PENDING"], charged_and_not_enrolled()
    system.sandbox.clear_faults()
    mended_at = timezone.now()
    wait_until_done(system, given)
    took = timezone.now() - mended_at
    system.stop()
    found = statuses(given)
    print(f"{found}, {waiting} waited, {unfinished} of them charged; at rest {took} after the mend")  # noqa: T201
    assert found["FAILED"] <= 12
    assert unfinished <= WORKERS
    assert_each_is_charged_once_or_has_it_back(system, given)


@pytest.mark.parametrize("mistake", ["RAISES", "EXITS"])
def test_a_release_with_a_mistake_beside_the_old_one_judges_few_and_holds_up_nobody(
    system: System, mistake: str
) -> None:
    system.work("ONBOARDING", processes=2, RELEASE="old")
    bad = system.work(mistake, processes=2, RELEASE="new")
    given: list[Workflow] = []
    while not is_on():  # the old one takes most of them: a process that has exited takes a while to come back
        given += keep_submitting(system, 2, 0.5)
        assert len(given) < 300
    given += keep_submitting(system, 20, 10)
    system.wait_until(lambda: statuses(given)["PENDING"] == 0)
    bad.signal(15)
    late = system.submit(5, PLAIN)
    wait_until_done(system, given + late)
    system.wait_until(lambda: not is_on())
    assert statuses(given)["FAILED"] <= 5
    assert statuses(late)["COMPLETE"] == 5
    taken = Attempt.objects.filter(workflow__in=given, release="new").exclude(outcome__in=("crashed", "vanished"))
    times = Counter(taken.values_list("workflow", flat=True)).values()
    assert all(each <= 3 for each in times), "taken up and put back in turns"
    assert_each_is_charged_once_or_has_it_back(system, given + late)


@pytest.mark.parametrize("mistake", ["RAISES_AFTER", "EXITS"])
def test_the_only_release_with_a_mistake_judges_few_and_the_next_one_mends_it(system: System, mistake: str) -> None:
    bad = system.work(mistake, processes=WORKERS, RELEASE="bad")
    given = system.submit(30, PLAIN)
    system.wait_until(is_on)
    given += keep_submitting(system, 10, 10)
    tasks = ManualTask.objects.count()
    bad.kill()
    system.workers.remove(bad)
    system.work("ONBOARDING", processes=WORKERS, RELEASE="mended")
    wait_until_done(system, given)
    system.wait_until(lambda: not is_on())
    found = statuses(given)
    print(f"{mistake}: {found}")  # noqa: T201
    assert tasks == 0
    assert found["FAILED"] <= 5
    assert_each_is_charged_once_or_has_it_back(system, given)


def test_a_reversal_that_fails_for_all_asks_once(system: System) -> None:
    bad = system.work("NO_REFUNDS", processes=WORKERS, RELEASE="bad")
    given = system.submit(20, PLAIN)
    system.wait_until(lambda: is_on() and parked(given) == 20)
    assert Service.objects.exclude(step="").filter(opened_at__isnull=False).count() == 1
    assert not ManualTask.objects.exists()
    bad.kill()
    system.workers.remove(bad)
    system.work("CLOSED", processes=WORKERS, RELEASE="mended")
    wait_until_done(system, given)
    assert statuses(given)["FAILED"] == 20
    assert_each_is_charged_once_or_has_it_back(system, given)
