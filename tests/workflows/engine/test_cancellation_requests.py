"""CANCEL, while a worker runs it: the request is heeded before the next call, and no later than the end of the run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, NoReturn

import pytest
from django.contrib.auth.models import User

from tests import engine
from tests.engine import (
    another_connection,
    define,
    do_maintenance,
    elsewhere,
    kinds,
    last_attempt,
    make_due,
    submit,
    until_blocked,
    with_its_connections,
    work,
    worker,
)
from tests.workflows.cancelling import BY_PHONE, CHARGE, ask, charge, flaky, nothing, request_cancellation, reread
from workflows import operations
from workflows.definition import Step
from workflows.engine import compensation, worker_boundary
from workflows.engine.extension import Feature, Part
from workflows.errors import NotAllowed, StepError
from workflows.models import Effect, Event, ManualTask, Signal, State, Wait, Workflow
from workflows.operations import guards
from workflows.state.transitions import Parking
from workflows.stop_flag import Flag

pytestmark = engine.ENGINE


class Gate:
    """A step that says when it has started, and goes on when it may."""

    def __init__(self) -> None:
        self.begun, self.may_end = Flag(), Flag()

    def step(self, *, workflow: Workflow, context: Any) -> None:
        self.begun.set()
        assert self.may_end.wait(30)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def run(gate: Gate) -> Iterator[Any]:
    """Runs a workflow in a thread of its own, up to the gate; `finish` ends it."""
    threads: list[threading.Thread] = []

    def start(workflow: Workflow) -> None:
        threads.append(threading.Thread(target=with_its_connections, args=[worker().process_next]))
        threads[0].start()
        assert gate.begun.wait(30)

    def finish() -> None:
        gate.may_end.set()
        threads[0].join(30)

    start.finish = finish  # type: ignore[attr-defined]
    yield start
    finish()


class ParksEverything(Part, Feature):
    def at_worker(self) -> Part:
        return self

    def park_instead(self, *_: object, **__: object) -> Parking:
        return Parking("billing", timedelta(hours=1))


def test_no_feature_parks_what_a_person_cancels() -> None:
    define([nothing])
    workflow = submit()
    request_cancellation(workflow)
    assert work(workflow, features=[ParksEverything()]).status == "FAILED"


def test_one_that_is_running_ends_before_its_next_call(ada: User, gate: Gate, run: Any) -> None:
    define([CHARGE, gate.step, Step(charge, once=True, name="again")])
    workflow = submit()
    run(workflow)
    assert operations.cancel(workflow.pk, user=ada, reason=BY_PHONE).startswith("It is running")
    assert (reread(workflow).cancelled_at, kinds(workflow)) == (None, ["cancel_requested"])
    with pytest.raises(NotAllowed, match="ada has asked for that already"):
        operations.cancel(workflow.pk, user=ada, reason=BY_PHONE)
    run.finish()
    workflow = reread(workflow)
    assert (workflow.compensating, workflow.current_step) == (True, "again")
    assert not Effect.objects.filter(step="again").exists()
    assert [entry["step"] for entry in last_attempt(workflow).steps] == ["charge", "step"]
    assert Event.objects.get(kind="cancelled").actor == "ada"
    assert not Signal.objects.filter(closed_at=None).exists()
    work(workflow)
    assert reread(workflow).state == State.CANCELLED


def test_a_best_effort_call_does_not_swallow_the_request(ada: User, gate: Gate, run: Any) -> None:
    define([gate.step, Step(charge, once=True, best_effort=True)])
    workflow = submit()
    run(workflow)
    operations.cancel(workflow.pk, user=ada, reason=BY_PHONE)
    run.finish()
    assert reread(workflow).state == State.CANCELLED


def test_between_steps_that_make_no_call_it_is_seen_too(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a second, when the worker speaks on its claim."""
    monkeypatch.setattr(worker_boundary, "CHECK_EVERY", 0.0)

    def cancel_from_elsewhere(*, workflow: Workflow, context: Any) -> None:
        elsewhere(lambda: operations.cancel(workflow.pk, user=ada, reason=BY_PHONE))

    define([cancel_from_elsewhere, nothing])
    workflow = work(submit())
    assert workflow.cancelled_at is not None
    assert [entry["step"] for entry in last_attempt(workflow).steps] == ["cancel_from_elsewhere"]


def test_one_that_completes_first_is_complete_and_the_person_is_told(ada: User, gate: Gate, run: Any) -> None:
    define([gate.step])
    workflow = submit()
    run(workflow)
    operations.cancel(workflow.pk, user=ada, reason=BY_PHONE)
    run.finish()
    do_maintenance()
    workflow = reread(workflow)
    assert (workflow.status, workflow.cancelled_at) == ("COMPLETE", None)
    assert kinds(workflow) == ["cancel_requested", "completed", "cancel_too_late"]
    assert Event.objects.latest("id").actor == "ada"


@pytest.mark.parametrize("last", [ask, flaky], ids=["suspends", "is retried"])
def test_one_that_does_not_end_is_cancelled_after_its_run(
    ada: User, gate: Gate, run: Any, last: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_boundary, "CHECK_EVERY", 3600.0)  # else it may be seen before the step
    define([gate.step, last])
    workflow = submit()
    run(workflow)
    operations.cancel(workflow.pk, user=ada, reason=BY_PHONE)
    run.finish()
    assert reread(workflow).status == "PENDING"
    assert worker().process_next()  # it is due: woken by the worker itself, after its commit
    assert reread(workflow).state == State.CANCELLED


def test_the_sweep_finds_a_request_that_both_missed(ada: User) -> None:
    define([ask])
    workflow = work(submit())
    request_cancellation(workflow)
    do_maintenance()
    work(workflow)
    assert reread(workflow).state == State.CANCELLED


# --- Its questions ------------------------------------------------------------------------------------


def question_of_one_that_is_running(run: Any, gate: Gate) -> ManualTask:
    """It has asked, and is run once more: by a look of its own, say."""
    define([ask])
    workflow = work(submit())
    define([gate.step, ask])
    make_due(workflow)
    run(workflow)
    return ManualTask.objects.get()


def test_a_question_of_one_that_is_running_is_closed_with_the_request(ada: User, gate: Gate, run: Any) -> None:
    task = question_of_one_that_is_running(run, gate)
    told = operations.cancel(task.workflow_id, user=ada, reason=BY_PHONE, open_tasks=[task.pk])
    assert told.startswith("It is running")
    with pytest.raises(NotAllowed, match="Its workflow went on without an answer"):
        operations.approve(task.pk, user=ada)
    run.finish()
    while reread(task.workflow).status == "PENDING":  # it has waited again, and was woken by the request
        work(task.workflow)
    assert reread(task.workflow).state == State.CANCELLED


def test_a_decision_on_one_that_is_running_stands_before_a_request_that_has_not_seen_it(
    ada: User, gate: Gate, run: Any
) -> None:
    task = question_of_one_that_is_running(run, gate)
    operations.approve(task.pk, user=ada)
    with pytest.raises(NotAllowed, match="ada has approved “May it\\?” since you looked"):
        operations.cancel(task.workflow_id, user=ada, reason=BY_PHONE, open_tasks=[task.pk])
    run.finish()
    assert reread(task.workflow).state == State.COMPLETE


def test_a_question_that_is_asked_after_the_request_takes_no_answer(ada: User, gate: Gate, run: Any) -> None:
    define([gate.step, ask])
    workflow = submit()
    run(workflow)
    operations.cancel(workflow.pk, user=ada, reason=BY_PHONE)
    run.finish()
    with pytest.raises(NotAllowed, match="ada has asked to cancel the workflow: it takes no more answers"):
        operations.approve(ManualTask.objects.open().get().pk, user=ada)
    work(workflow)
    assert reread(workflow).state == State.CANCELLED


# --- Two at once --------------------------------------------------------------------------------------


def test_who_requests_it_while_somebody_else_is_cancelling_it_is_told(
    ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait for the questions, which the other has locked, and see the row as it is then."""

    def request_meanwhile(workflow: Workflow, **columns: Any) -> bool:
        other.start()
        until_blocked()
        return fail(workflow, **columns)

    def request() -> None:
        with pytest.raises(NotAllowed, match="this one is cancelled"):
            operations.cancel(task.workflow_id, user=ada, reason=BY_PHONE, open_tasks=[task.pk])
        told.set()

    define([ask])
    work(submit())
    task, told, fail = ManualTask.objects.get(), Flag(), compensation.fail_or_compensate
    other = threading.Thread(target=with_its_connections, args=[request])
    monkeypatch.setattr(compensation, "fail_or_compensate", request_meanwhile)
    operations.cancel(task.workflow_id, user=ada, reason=BY_PHONE, open_tasks=[task.pk])
    other.join(30)
    assert told.is_set()
    assert kinds(task.workflow) == ["waiting", "cancelled"]


@pytest.mark.parametrize("lie", ["by their age", "the other way round"])
def test_who_requests_it_and_the_worker_that_completes_it_close_many_questions_without_a_deadlock(
    ada: User, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim has moved the first one to the end of the table; or the ids are not in the order of the table at all.

    Whichever of the two the server ends for a deadlock: who requests it would be told that somebody is changing it.
    """

    def cancel() -> str:
        return operations.cancel(workflow.pk, user=ada, reason=BY_PHONE, open_tasks=tasks)

    define([ask])
    workflow = work(submit())
    first = ManualTask.objects.get()
    for number in (1, 2):
        pk = first.pk + (number if lie == "by their age" else -number)
        wait = Wait.objects.create(workflow=workflow, name=f"wait {number}", deadline=first.expires_at)
        ManualTask.objects.create(pk=pk, workflow=workflow, wait=wait, question="?", expires_at=first.expires_at)
    operations.claim_task(first.pk, user=ada)
    tasks = list(ManualTask.objects.order_by("pk").values_list("pk", flat=True))
    define([nothing])
    make_due(workflow)
    monkeypatch.setattr(guards, "LOCK_TIMEOUT", "30s")
    with ThreadPoolExecutor() as pool:
        with another_connection() as other, other.transaction():
            other.execute("SELECT 1 FROM workflows_manualtask WHERE id = %s FOR UPDATE", [tasks[1]])
            completed = pool.submit(with_its_connections, worker().process_next)
            until_blocked()
            asked = pool.submit(with_its_connections, cancel)
            until_blocked(2)
        assert completed.result(30)
        with pytest.raises(NotAllowed) as refused:
            asked.result(30)
    assert str(refused.value) != guards.BUSY
    assert reread(workflow).state == State.COMPLETE


def test_a_request_that_comes_too_late_leaves_what_a_compensation_asks(
    ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the row before that failed: closed, the question could not be answered, and nothing would end."""

    def no_refund(*, workflow: Workflow, context: Any, effect: Any) -> None:
        raise StepError("Refused.")

    def fail(*, workflow: Workflow, context: Any) -> None:
        raise StepError("Broken.")

    def fail_meanwhile(*_: Any) -> None:
        elsewhere(compensate)

    def compensate() -> None:
        while not ManualTask.objects.exists():
            make_due(workflow)
            worker().process_next()

    define([Step(charge, once=True, undo=no_refund), fail])
    workflow = submit()
    monkeypatch.setattr(operations.workflows, "lock_workflow", running)
    monkeypatch.setattr(operations.workflows, "_require_undecided", fail_meanwhile)
    operations.cancel(workflow.pk, user=ada, reason=BY_PHONE)
    operations.approve(ManualTask.objects.get().pk, user=ada, reason="It stays.", answer={"kept": True})
    worker().process_next()
    assert reread(workflow).state == State.FAILED


def running(workflow_id: int) -> NoReturn:
    raise operations.WorkflowBusy
