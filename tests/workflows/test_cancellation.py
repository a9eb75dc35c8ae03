"""CANCEL: a person ends a workflow, wherever it stands; and one that takes too long ends by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, NoReturn

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import connection, transaction

from tests import engine
from tests.engine import (
    another_connection,
    define,
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
from workflows import compensation, inbox, journal, operations
from workflows.definition import Step
from workflows.errors import NotAllowed, RetryableStepError, StepError
from workflows.models import Attempt, Effect, Event, ManualTask, Signal, State, Wait, Workflow
from workflows.stop_flag import Flag
from workflows.waits import require_approval

pytestmark = engine.ENGINE

BY_PHONE = "Asked for by phone."


@pytest.fixture
def ada() -> User:
    return User.objects.create_superuser("ada")


def nothing(*, workflow: Workflow, context: Any) -> None: ...


def ask(*, workflow: Workflow, context: Any) -> None:
    require_approval(workflow, "review", question="May it?", timeout=timedelta(hours=1))


def flaky(*, workflow: Workflow, context: Any) -> None:
    raise RetryableStepError(code="busy")


def charge(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {"number": 1}


def refund(*, workflow: Workflow, context: Any, effect: Any) -> None: ...


CHARGE = Step(charge, once=True, undo=refund)


def reread(workflow: Workflow) -> Workflow:
    return Workflow.objects.with_state().get(pk=workflow.pk)


# --- At rest or waiting -------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [[nothing], [ask], [flaky]], ids=["queued", "waiting", "retrying"])
def test_what_nobody_runs_is_cancelled_here_and_now(ada: User, steps: list[Any]) -> None:
    define(steps)
    workflow = submit()
    if steps != [nothing]:
        work(workflow)
    assert operations.cancel(workflow.pk, user=ada, reason=f" {BY_PHONE} ") == "It is cancelled."
    workflow = reread(workflow)
    assert (workflow.status, workflow.state, workflow.waiting_for) == ("FAILED", State.CANCELLED, "")
    assert workflow.cancelled_at is not None
    assert workflow.last_error_message == f"Cancelled by ada: {BY_PHONE}"
    event = Event.objects.latest("id")
    assert (event.kind, event.actor, event.detail) == ("cancelled", "ada", {"reason": BY_PHONE})
    assert "vanished" not in kinds(workflow)
    make_due(workflow)
    assert not worker().process_next()


def test_what_it_has_done_is_undone(ada: User) -> None:
    define([CHARGE, ask])
    workflow = work(submit())
    assert operations.cancel(workflow.pk, user=ada, reason=BY_PHONE).endswith("undoes what it has done.")
    assert reread(workflow).state == State.COMPENSATING
    work(workflow)
    workflow = reread(workflow)
    assert (workflow.state, Effect.objects.get(undo=False).state) == (State.CANCELLED, "undone")
    assert kinds(workflow) == ["waiting", "cancelled", "compensating", "compensated"]


@pytest.mark.parametrize("has_effects", [False, True])
def test_the_attempt_of_a_worker_that_was_lost_with_its_host_is_closed_with_it(ada: User, has_effects: bool) -> None:
    """No other worker has claimed it since; and of one that has nothing to undo, none ever would."""
    define([CHARGE])
    workflow = submit()
    if has_effects:
        Effect.objects.create(workflow=workflow, step="charge", state="done", result={}, idempotency_key="k", attempt=1)
    attempt = Attempt.objects.create(workflow=workflow, number=1, worker="lost-host:1")
    operations.cancel(workflow.pk, user=ada, reason=BY_PHONE)
    told = last_attempt(workflow)
    assert (told.outcome, told.closed_at is not None) == ("vanished", True)
    assert kinds(workflow) == ["vanished", "cancelled", *["compensating"] * has_effects]
    assert Event.objects.get(kind="vanished").attempt == 1
    with transaction.atomic("journal"):  # its supervisor lives, and knows better
        for statement in journal.closing_statements(attempt.pk, Attempt.Outcome.KILLED, step="charge", how="SIGKILL"):
            journal.execute(*statement)
    assert kinds(workflow)[:2] == ["killed", "cancelled"]


def test_it_can_be_retried_afterwards(ada: User) -> None:
    define([nothing])
    workflow = submit()
    operations.cancel(workflow.pk, user=ada, reason=BY_PHONE)
    operations.retry(workflow.pk, user=ada)
    assert work(workflow).status == "COMPLETE"
    assert reread(workflow).cancelled_at is None


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"status": "COMPLETE"}, "this one is complete"),
        ({"status": "FAILED"}, "this one is failed"),
        ({"compensating": True}, "being undone already"),
    ],
)
def test_what_is_at_rest_or_being_undone_is_not_cancelled(ada: User, fields: dict[str, Any], why: str) -> None:
    workflow = submit(**fields)
    with pytest.raises(NotAllowed, match=why):
        operations.cancel(workflow.pk, user=ada, reason=BY_PHONE)
    assert not Event.objects.exists()


def test_it_needs_a_reason_and_the_permission(ada: User) -> None:
    workflow = submit()
    with pytest.raises(NotAllowed, match="Say why"):
        operations.cancel(workflow.pk, user=ada, reason="  ")
    with pytest.raises(PermissionDenied):
        operations.cancel(workflow.pk, user=User.objects.create_user("eve"), reason=BY_PHONE)
    with pytest.raises(NotAllowed, match="There is no workflow"):
        operations.cancel(0, user=ada, reason=BY_PHONE)


# --- Running ------------------------------------------------------------------------------------------


class Gate:
    """A step that says when it has begun, and goes on when it may."""

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
    with pytest.raises(NotAllowed, match="Nobody asks for that any more"):
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
    with pytest.raises(
        NotAllowed, match="ada has asked for its workflow to be cancelled: no answer is heeded any more"
    ):
        operations.approve(ManualTask.objects.open().get().pk, user=ada)
    work(workflow)
    assert reread(workflow).state == State.CANCELLED


def test_a_question_of_a_child_that_is_cancelled_with_its_parent_takes_no_answer(ada: User) -> None:
    define([ask])
    parent = work(submit())
    child = work(submit(parent=parent, parent_wait="parcels", child_key="1"))
    operations.cancel(parent.pk, user=ada, reason=BY_PHONE)
    with pytest.raises(NotAllowed, match="ada has asked for its workflow to be cancelled"):
        operations.approve(ManualTask.objects.get(workflow=child).pk, user=ada)


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


def test_who_requests_it_and_the_worker_that_completes_it_close_many_questions_without_a_deadlock(ada: User) -> None:
    """A claim has moved the first one to the end of the table."""

    def cancel() -> str:
        return operations.cancel(workflow.pk, user=ada, reason=BY_PHONE, open_tasks=tasks)

    define([ask])
    workflow = work(submit())
    first = ManualTask.objects.get()
    for name in ("second", "third"):
        wait = Wait.objects.create(workflow=workflow, name=name, deadline=first.expires_at)
        ManualTask.objects.create(workflow=workflow, wait=wait, question="?", expires_at=first.expires_at)
    operations.claim_task(first.pk, user=ada)
    tasks = list(ManualTask.objects.order_by("pk").values_list("pk", flat=True))
    define([nothing])
    make_due(workflow)
    with ThreadPoolExecutor() as pool:
        with another_connection() as other, other.transaction():
            other.execute("SELECT 1 FROM workflows_manualtask WHERE id = %s FOR UPDATE", [tasks[1]])
            completed = pool.submit(with_its_connections, worker().process_next)
            until_blocked()
            asked = pool.submit(with_its_connections, cancel)
            until_blocked(2)
        assert completed.result(30)
        assert isinstance(asked.exception(30), NotAllowed)
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


def test_a_best_effort_call_does_not_swallow_the_request(ada: User, gate: Gate, run: Any) -> None:
    define([gate.step, Step(charge, once=True, best_effort=True)])
    workflow = submit()
    run(workflow)
    operations.cancel(workflow.pk, user=ada, reason=BY_PHONE)
    run.finish()
    assert reread(workflow).state == State.CANCELLED


def test_between_steps_that_make_no_call_it_is_seen_too(ada: User) -> None:
    """Once a second, when the worker speaks on its claim."""
    other = Flag()

    def cancel_from_elsewhere(*, workflow: Workflow, context: Any) -> None:
        thread = threading.Thread(target=cancel, args=(workflow.pk, ada))
        thread.start()
        thread.join(30)
        this._checked_at = float("-inf")

    def tell(*, workflow: Workflow, context: Any) -> None:
        other.set()

    define([cancel_from_elsewhere, tell])
    submit()
    this = worker()
    this.process_next()
    assert not other.is_set()
    assert Workflow.objects.get().cancelled_at is not None


def cancel(workflow_id: int, user: User) -> None:
    try:
        operations.cancel(workflow_id, user=user, reason=BY_PHONE)
    finally:
        connection.close()


def test_one_that_completes_first_is_complete_and_the_person_is_told(ada: User, gate: Gate, run: Any) -> None:
    define([gate.step])
    workflow = submit()
    run(workflow)
    operations.cancel(workflow.pk, user=ada, reason=BY_PHONE)
    run.finish()
    worker().run_chores()
    workflow = reread(workflow)
    assert (workflow.status, workflow.cancelled_at) == ("COMPLETE", None)
    assert kinds(workflow) == ["cancel_requested", "completed", "cancel_too_late"]
    assert Event.objects.latest("id").actor == "ada"


@pytest.mark.parametrize("last", [ask, flaky], ids=["suspends", "is retried"])
def test_one_that_does_not_end_is_cancelled_after_its_run(ada: User, gate: Gate, run: Any, last: Any) -> None:
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
    payload = {"by": "ada", "reason": BY_PHONE}
    inbox.store(source="console", dedupe_key="cancel:1", name="cancel", workflow_id=workflow.pk, payload=payload)
    worker().run_chores()
    work(workflow)
    assert reread(workflow).state == State.CANCELLED


def test_a_request_of_the_last_run_does_not_cancel_the_next(ada: User) -> None:
    workflow = submit(status="FAILED")
    define([nothing])
    inbox.store(source="console", dedupe_key="cancel:1", name="cancel", workflow_id=workflow.pk, payload={"by": "ada"})
    operations.retry(workflow.pk, user=ada)
    assert work(workflow).status == "COMPLETE"


def test_what_keeps_dying_can_be_cancelled(ada: User) -> None:
    """Before it is judged: nobody has to wait for its back-off, or answer its question."""
    define([nothing])
    workflow = submit()
    for number in range(1, 4):
        workflow.attempts.create(number=number, outcome="killed", closed_at=workflow.created_at)  # type: ignore[attr-defined]
    payload = {"by": "ada", "reason": BY_PHONE}
    inbox.store(source="console", dedupe_key="cancel:1", name="cancel", workflow_id=workflow.pk, payload=payload)
    work(workflow)
    assert reread(workflow).state == State.CANCELLED


def test_one_of_a_type_that_this_release_does_not_know_is_cancelled_too(ada: User) -> None:
    """Put back for a minute, it would be woken by the request, and put back, in a loop."""
    workflow = submit(workflow_type="of the next release")
    payload = {"by": "ada", "reason": BY_PHONE}
    inbox.store(source="console", dedupe_key="cancel:1", name="cancel", workflow_id=workflow.pk, payload=payload)
    work(workflow)
    assert reread(workflow).state == State.CANCELLED


# --- Expiring -----------------------------------------------------------------------------------------


def overdue(**fields: Any) -> Workflow:
    workflow = submit(**fields)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE workflows_workflow SET expires_at = clock_timestamp() - interval '1 second'")
    return workflow


def test_one_that_takes_too_long_fails_before_its_next_run() -> None:
    define([nothing])
    workflow = work(overdue())
    assert (workflow.status, workflow.last_error_code, workflow.cancelled_at) == ("FAILED", "expired", None)


def test_one_that_waits_is_woken_when_its_time_is_over_and_undone() -> None:
    define([CHARGE, ask])
    workflow = work(submit())
    with connection.cursor() as cursor:
        cursor.execute("UPDATE workflows_workflow SET expires_at = clock_timestamp() - interval '1 second'")
    this = worker()
    this.run_chores()
    assert this.process_next()
    workflow = reread(workflow)
    assert (workflow.state, workflow.current_step) == (State.COMPENSATING, "ask")
    assert this.process_next()
    assert (reread(workflow).state, Effect.objects.get(undo=False).state) == (State.FAILED, "undone")
    this._chores_at = float("-inf")
    this.run_chores()
    assert not this.process_next()


def test_one_of_a_type_that_this_release_does_not_know_is_left_for_the_next(ada: User) -> None:
    workflow = work(overdue(workflow_type="of the next release"))
    this = worker()
    this.run_chores()
    assert not this.process_next()
    assert reread(workflow).status == "PENDING"


def test_what_has_expired_is_found_by_its_index_whatever_waits() -> None:
    define([nothing])
    plans: list[str] = []

    def explain(execute: Any, sql: str, parameters: Any, *rest: Any) -> Any:
        with connection.cursor() as cursor:
            cursor.cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS) {sql}", parameters)
            plans.append("\n".join(line for (line,) in cursor.cursor.fetchall()))
        return execute(sql, parameters, *rest)

    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO workflows_workflow (idempotency_key, workflow_type, payload, invisible_until, expires_at)
               SELECT gen_random_uuid(), 'test', '{}', now() + n * interval '1 hour', now() + n * interval '1 hour'
                 FROM generate_series(1, 5000) n"""
        )
        cursor.execute("ANALYZE workflows_workflow")
    with connection.execute_wrapper(explain):
        assert inbox.wake_expired() == 0
    (plan,) = plans
    assert "Index Scan using workflow_expiring" in plan
    assert int(plan.split("Buffers: shared hit=")[1].split()[0]) <= 10, plan


def test_one_that_runs_ends_between_two_steps() -> None:
    def outlast(*, workflow: Workflow, context: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT greatest(0, extract(epoch FROM expires_at - clock_timestamp())) FROM workflows_workflow"
            )
            cursor.execute("SELECT pg_sleep(%s)", [float(cursor.fetchone()[0]) + 0.1])

    define([outlast, nothing])
    workflow = submit()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE workflows_workflow SET expires_at = clock_timestamp() + interval '2 seconds'")
    workflow = work(workflow)
    assert (workflow.last_error_code, workflow.current_step) == ("expired", "nothing")


def test_a_retry_has_all_of_its_time_again(ada: User) -> None:
    define([nothing], expires_after=timedelta(hours=1))
    workflow = work(overdue())
    operations.retry(workflow.pk, user=ada)
    workflow = reread(workflow)
    assert workflow.expires_at is not None
    assert timedelta(minutes=59) < workflow.expires_at - Event.objects.latest("id").at < timedelta(minutes=61)
    assert work(workflow).status == "COMPLETE"
