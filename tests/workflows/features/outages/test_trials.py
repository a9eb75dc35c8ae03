"""Who tries a service whose circuit is open, and what becomes of a trial whose outcome is not known at once."""

from __future__ import annotations

from datetime import timedelta
from threading import Timer
from typing import Any

import pytest
from django.utils import timezone

from tests import engine
from tests.engine import again, another_connection, define, do_maintenance, submit, work, worker
from tests.workflows.features.outages.services import (
    Downstream,
    circuit,
    due,
    ends_at_once,
    open_circuit,
    parked,
    story,
    submit_and_work,
    trial_is_due,
)
from workflows.definition import Step
from workflows.models import Service, Workflow

pytestmark = engine.ENGINE


def test_the_outcome_of_a_trial_is_written_though_the_row_is_locked_just_then(programs: Downstream) -> None:
    """By a worker that votes, or maintenance. Forgotten, it would be a trial without a call, and close the circuit."""
    parked(programs, 2)
    programs.state = "down"
    trial_is_due()
    do_maintenance()
    with another_connection() as other:
        other.execute("BEGIN")
        other.execute("SELECT FROM workflows_service FOR UPDATE")
        release = Timer(0.06, other.execute, ["COMMIT"])
        release.start()
        assert worker().process_next()
        release.join()
    assert len(programs.calls) == 1
    assert circuit().cool_off == 10, "the next trial comes later"
    do_maintenance()
    assert (story(), due()) == ([], 0)


def test_a_trial_that_no_worker_takes_up_says_nothing_and_another_one_is_made(programs: Downstream) -> None:
    """Its queue has no workers, or all of them have been at long steps for a minute."""
    elsewhere, here, last = parked(programs, 3)
    Workflow.objects.filter(pk=elsewhere.pk).update(queue="nobody's")
    trial_is_due()
    do_maintenance()
    assert due() == 1
    minute_ago = timezone.now() - timedelta(seconds=61)
    Workflow.objects.filter(pk=elsewhere.pk).update(invisible_until=minute_ago)
    retry_at = minute_ago - timedelta(seconds=5)
    Service.objects.update(released_at=minute_ago - timedelta(milliseconds=1), retry_at=retry_at)
    do_maintenance()
    assert story() == [], "nobody has called it"
    assert set(Workflow.objects.due().values_list("pk", flat=True)) == {elsewhere.pk, here.pk}
    define([ends_at_once])  # the one that is here calls it no more
    assert work(here).status == "COMPLETE"
    do_maintenance()
    assert story() == ["closed"]
    assert Workflow.objects.get(pk=last.pk).invisible_until <= timezone.now()


# --- Bad payloads ---------------------------------------------------------------------------------------


class Program:
    """Those who enrol pay before; the service answers some of them with 500 for ever."""

    def __init__(self) -> None:
        self.programs, self.payments = Downstream(), Downstream("payments")
        self.bad: set[int] = set()
        pay = Step(self.payments.step, once=True, key_ttl=timedelta(hours=1), name="pay", needs=("programs",))
        define([pay, self.enroll])

    def enroll(self, *, workflow: Workflow, context: Any) -> None:
        self.programs.state = "down" if workflow.pk in self.bad else "well"
        self.programs.call(workflow)

    def trial(self) -> None:
        Service.objects.update(released_at=None)
        trial_is_due()
        do_maintenance()
        while worker().process_next():
            pass


@pytest.fixture
def program() -> Program:
    """Three who have paid and failed opened the circuit; two more only need it."""
    program = Program()
    bad = [submit() for _ in range(3)]
    program.bad = {each.pk for each in bad}
    for _ in bad:
        assert worker().process_next()
    open_circuit()
    for each in bad:
        again(each)
    submit_and_work(2)
    assert Workflow.objects.filter(parked_on="programs").count() == 5
    return program


def open_for(minutes: int) -> None:
    Service.objects.update(opened_at=timezone.now() - timedelta(minutes=minutes))


def test_bad_payloads_do_not_keep_a_circuit_open_for_days(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.features.outages.circuits.IN_EARNEST_EVERY", 2)
    open_for(minutes=11)
    for _ in range(40):
        program.trial()
        if story() == ["closed"]:
            break
    assert story() == ["closed"]
    assert len(set(program.payments.calls) - program.bad) == 1, "one has paid, and is enrolled"
    assert Workflow.objects.get(status="COMPLETE").pk not in program.bad


def test_a_trial_in_earnest_is_made_by_one_alone(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.features.outages.circuits.IN_EARNEST_EVERY", 1)
    open_for(minutes=11)
    trial_is_due()
    do_maintenance()
    assert due() == 1
    assert not Workflow.objects.due().filter(pk__in=program.bad).exists()


def test_one_that_comes_by_when_a_trial_in_earnest_is_due_makes_none(program: Program) -> None:
    open_for(minutes=11)
    trial_is_due()
    assert work(submit()).parked_on == "programs"


def test_before_that_nobody_pays_to_try_it(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.features.outages.circuits.IN_EARNEST_EVERY", 1)
    open_for(minutes=9)
    for _ in range(3):
        program.trial()
    trial_is_due()
    Workflow.objects.update(invisible_until=timezone.now())  # a person has all of them run now
    while worker().process_next():
        trial_is_due()
    assert set(program.payments.calls) == program.bad


def test_nor_does_anybody_pay_where_more_than_three_have_met_the_outage(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.features.outages.circuits.IN_EARNEST_EVERY", 1)
    open_for(minutes=11)
    submit(parked_on="programs", invisible_until=timezone.now() + timedelta(hours=1))
    for _ in range(3):  # the fourth is the one that has met it, too
        program.trial()
    assert set(program.payments.calls) == program.bad
    assert story() == []


def test_one_at_a_time_pays_to_try_it(program: Program) -> None:
    open_for(minutes=11)
    trial_is_due()
    Service.objects.update(trial_until=timezone.now() + timedelta(seconds=10))  # another one has started to
    Workflow.objects.exclude(pk__in=program.bad).update(invisible_until=timezone.now())
    while worker().process_next():
        pass
    assert set(program.payments.calls) == program.bad
