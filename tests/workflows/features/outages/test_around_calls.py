"""What a step does around its calls, in an outage: threads of its own, its time that is over, doubts, odd names."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from time import monotonic, sleep
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from tests import engine
from tests.engine import again, define
from tests.workflows.features.outages.services import Downstream, circuit, open_circuit, parked, submit_and_work
from workflows.definition import Step
from workflows.effects import key_for
from workflows.errors import UnknownOutcome
from workflows.models import Effect, Workflow
from workflows.outages import call_to
from workflows.state import attempt_log

pytestmark = engine.ENGINE

KEY_TTL = timedelta(hours=1)


@pytest.fixture
def payments() -> Downstream:
    return Downstream("payments")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=1) as pool:
        yield pool


# --- Threads of a step's own ----------------------------------------------------------------------------


def test_what_a_steps_own_thread_has_called_may_have_happened(
    programs: Downstream, payments: Downstream, pool: ThreadPoolExecutor
) -> None:
    def pay_and_enroll(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        pool.submit(payments.call, workflow).result()
        programs.call(workflow)
        return {}

    (workflow,) = parked(programs, steps=[Step(pay_and_enroll, once=True, key_ttl=KEY_TTL)])
    assert payments.calls == [workflow.pk]
    assert Effect.objects.get().state == Effect.State.UNKNOWN
    assert workflow.parked_on == "programs"


@pytest.fixture
def enroll(programs: Downstream, pool: ThreadPoolExecutor) -> None:
    """A step that calls in a thread of its own."""

    def enroll(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        pool.submit(programs.call, workflow).result()
        return {}

    define([enroll])


@pytest.mark.parametrize("trial_in", [60, -1])
def test_a_steps_own_thread_calls_no_dead_service_and_makes_no_trial(
    programs: Downstream, enroll: None, trial_in: float
) -> None:
    """The attempt log, which a trial needs, is the worker's."""
    open_circuit(trial_in=trial_in)
    (workflow,) = submit_and_work()
    assert (workflow.parked_on, programs.calls) == ("programs", [])
    assert circuit().trial_until is None


def test_what_a_steps_own_thread_has_met_is_voted(programs: Downstream, enroll: None) -> None:
    programs.state = "down"
    submit_and_work()
    assert circuit().failed == 1


# --- The step's time is over ----------------------------------------------------------------------------


def test_a_step_whose_time_is_over_as_it_asks_for_a_trial_loses_no_attempt_log(
    programs: Downstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two statements of that transaction: the connection would be left in it."""
    commits = []

    def slow_commit() -> None:
        commits.append(monotonic())
        sleep(0.3)
        commit()

    def enroll(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        programs.call(workflow)
        sleep(3)
        return {}

    define([Step(enroll, once=True, key_ttl=KEY_TTL, timeout=0.2)])
    open_circuit(trial_in=-1)
    attempt_log.connect()
    commit = connections[attempt_log.ALIAS].commit
    monkeypatch.setattr(connections[attempt_log.ALIAS], "commit", slow_commit)
    try:
        (workflow,) = submit_and_work()
    finally:
        connections[attempt_log.ALIAS].close()  # left in a transaction, it would keep the tables from being emptied
    assert commits, "a trial was asked for"
    assert (programs.calls, workflow.last_error_class) == ([workflow.pk], "workflows.timeouts.StepTimeout")
    assert Effect.objects.get().state == Effect.State.UNKNOWN


# --- Reconciler ---------------------------------------------------------------------------------------------


def test_a_best_effort_step_that_parks_is_not_let_go_before_its_call_is_settled(payments: Downstream) -> None:
    """One time-out at the card: its lookup finds nothing yet, and the patient would never be charged."""

    def attach(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        key_for(workflow, "attach")
        with call_to("payments") as call:
            payments.calls.append(workflow.pk)
            if len(payments.calls) == 1:
                call.unavailable()
                raise UnknownOutcome("No answer.", code="no_answer")
        return {}

    define([Step(attach, best_effort=True, parks=True, once=True, lookup=lambda **_: None, settle=60)])
    (workflow,) = submit_and_work()
    workflow = again(workflow)
    assert (workflow.status, workflow.last_error_code) == ("PENDING", "unsettled")
    Effect.objects.update(begun_at=timezone.now() - timedelta(seconds=61))
    assert again(workflow).status == "COMPLETE"
    assert len(payments.calls) == 2
    assert Effect.objects.get().state == Effect.State.DONE


def test_a_service_that_no_row_could_hold_is_an_error_of_the_steps() -> None:
    """Its vote would be refused, and the workflow lost, again and again."""
    for name in ("", "x" * 101, "a\0b"):
        nameless = Downstream(name)
        nameless.state = "down"
        define([nameless.step])
        (workflow,) = submit_and_work()
        assert (workflow.status, workflow.last_error_class, nameless.calls) == ("FAILED", "ValueError", [])
