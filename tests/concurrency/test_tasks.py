"""Two at once at a manual task, on two real connections: exactly one wins, and the other is told why."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection, connections
from django.utils import timezone

from tests import engine
from tests.engine import another_connection, define, make_due, submit, until_blocked, with_its_connections, work, worker
from workflows import operations
from workflows.definition import Step
from workflows.effects import key_for
from workflows.errors import NotAllowed, UnknownOutcome
from workflows.models import Effect, Event, ManualTask, Signal, State, Wait, Workflow
from workflows.waits import require_approval

pytestmark = [*engine.ENGINE, pytest.mark.long]

ROUNDS = 200

# Seconds by which one of the two starts later, at the most. Either may be first, and often enough both are under way.
STAGGER = 0.002


def ask(*, workflow: Workflow, context: Any) -> None:
    require_approval(workflow, "review", question="May it go on?", timeout=timedelta(hours=1))


def pay(**_: Any) -> dict[str, Any]:
    return {}


def refund(**_: Any) -> None: ...


class Rivals:
    """The test's thread and one more, each with a connection of its own that it keeps from round to round.

    `took`: how long the call of each took in the round before, in seconds. On a busy machine that is many times more.
    """

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(max_workers=1)
        self.barrier = Barrier(2, timeout=10)
        self.took = [STAGGER, STAGGER]

    def race(self, first: Callable[[], Any], second: Callable[[], Any], *, stagger: float = STAGGER) -> tuple[Any, Any]:
        """Both from the same moment, give or take `stagger` for the second: what each returned, or its refusal."""
        other = self.pool.submit(self._run, 1, second, stagger)
        return self._run(0, first, STAGGER), other.result(timeout=30)

    def _run(self, number: int, call: Callable[[], Any], stagger: float) -> Any:
        connection.ensure_connection()
        later = random.uniform(0, stagger)
        self.barrier.wait()
        time.sleep(later)
        began = time.monotonic()
        try:
            return call()
        except NotAllowed as refusal:
            return refusal
        finally:
            self.took[number] = time.monotonic() - began

    def close(self) -> None:
        self.pool.submit(connections.close_all).result(timeout=10)
        self.pool.shutdown()


@pytest.fixture
def rivals() -> Iterator[Rivals]:
    rivals = Rivals()
    yield rivals
    rivals.close()


@pytest.fixture(autouse=True)
def asks(engine: None, transactional_db: None) -> None:
    define([ask])


@pytest.fixture
def anna(transactional_db: None) -> User:
    return User.objects.create_superuser("anna")


@pytest.fixture
def ben(transactional_db: None) -> User:
    return User.objects.create_superuser("ben")


def asked(rounds: int) -> list[ManualTask]:
    """Tasks as `ask` leaves them when it has suspended its workflow."""
    later = timezone.now() + timedelta(hours=1)
    made = Workflow.objects.bulk_create(
        Workflow(idempotency_key=uuid4(), workflow_type="test", payload={}, invisible_until=later, current_step="ask")
        for _ in range(rounds)
    )
    waits = Wait.objects.bulk_create(
        Wait(workflow_id=row.pk, name="review", waiting_for="May it go on?", deadline=later) for row in made
    )
    tasks = ManualTask.objects.bulk_create(
        ManualTask(workflow_id=wait.workflow_id, wait=wait, task_type="approval", question="?", expires_at=later)
        for wait in waits
    )
    with connection.cursor() as cursor:
        cursor.execute(
            """UPDATE workflows_workflow w SET wake_on = ARRAY['decision:' || t.id]
                 FROM workflows_manualtask t WHERE t.workflow_id = w.id"""
        )
    return tasks


def kinds(task: ManualTask) -> list[str]:
    return engine.kinds(Workflow(pk=task.workflow_id))


def test_of_two_who_claim_one_has_it_and_the_other_is_told_who(rivals: Rivals, anna: User, ben: User) -> None:
    won: Counter[str] = Counter()
    for task in asked(ROUNDS):
        results = rivals.race(
            lambda task=task: operations.claim_task(task.pk, user=anna),
            lambda task=task: operations.claim_task(task.pk, user=ben),
        )
        winner, loser = (0, 1) if results[0] is None else (1, 0)
        name = ("anna", "ben")[winner]
        assert results[winner] is None
        assert str(results[loser]).startswith(f"{name} has claimed it, at ")
        task.refresh_from_db()
        assert task.assignee == (anna, ben)[winner]
        assert list(Event.objects.filter(workflow=task.workflow_id).values_list("kind", "actor")) == [
            ("task_claimed", name)
        ]
        won[name] += 1
    assert set(won) == {"anna", "ben"}, won


def test_of_two_who_take_over_a_claim_that_counts_for_nothing_one_has_it(rivals: Rivals, anna: User, ben: User) -> None:
    """Whoever waits for the other's update sees that the claim now counts, also who would only give it back."""
    gone, won = User.objects.create_user("gone"), Counter[str]()
    carla = User.objects.create_user("carla", is_staff=True)
    carla.user_permissions.set(Permission.objects.filter(codename="decide_manualtask"))
    tasks = asked(ROUNDS)
    ManualTask.objects.update(assignee=gone, claimed_at=timezone.now())
    for number, task in enumerate(tasks):
        second = (operations.claim_task, operations.approve, operations.release_task)[number % 3]
        results = rivals.race(
            lambda task=task: operations.claim_task(task.pk, user=anna),
            lambda task=task, second=second: second(task.pk, user=carla),
        )
        task.refresh_from_db()
        if results[0] is None and second is not operations.release_task:
            assert str(results[1]).startswith("anna has claimed it, at ")
        if results[0] is None:
            assert (task.assignee, task.state) == (anna, "open")
        else:
            assert str(results[0]).startswith(("carla has claimed it, at ", "carla approved it already, at "))
            assert results[1] is None
        won["carla" if results[0] else "anna"] += 1
    assert set(won) == {"anna", "carla"}, won


def test_of_a_yes_and_a_no_one_is_the_decision_and_the_other_is_told_whose(
    rivals: Rivals, anna: User, ben: User
) -> None:
    won: Counter[str] = Counter()
    for task in asked(ROUNDS):
        results = rivals.race(
            lambda task=task: operations.approve(task.pk, user=anna),
            lambda task=task: operations.reject(task.pk, user=ben, reason="No."),
        )
        task.refresh_from_db()
        winner, loser = (0, 1) if task.state == "approved" else (1, 0)
        assert results[winner] is None
        assert str(results[loser]).startswith(("anna approved it already, at ", "ben rejected it already, at ")[winner])
        assert Signal.objects.get(workflow=task.workflow_id).payload["approved"] is (task.state == "approved")
        assert kinds(task) == [task.state]
        won[task.state] += 1
    assert set(won) == {"approved", "rejected"}, won


def test_of_a_claim_and_somebody_elses_decision_one_comes_first(rivals: Rivals, anna: User, ben: User) -> None:
    """The decision first: the claim is told of it. The claim first: the decision is told whose the task is."""
    won: Counter[str] = Counter()
    for task in asked(ROUNDS // 4):
        claimed, decided = rivals.race(
            lambda task=task: operations.claim_task(task.pk, user=anna),
            lambda task=task: operations.approve(task.pk, user=ben),
        )
        if decided is None:
            assert str(claimed).startswith("ben approved it already, at ")
        else:
            assert claimed is None
            assert str(decided).startswith("anna has claimed it, at ")
        won["decided" if decided is None else "claimed"] += 1
        assert kinds(task) == ["approved" if decided is None else "task_claimed"]
    assert set(won) == {"decided", "claimed"}, won


def expires_in(task: ManualTask, seconds: float) -> None:
    """The deadline is near, and the workflow due: the worker looks at the task before, at or after the deadline."""
    with connection.cursor() as cursor:
        for table, column in (("wait", "deadline"), ("manualtask", "expires_at")):
            cursor.execute(
                f"UPDATE workflows_{table} SET {column} = clock_timestamp() + %s WHERE workflow_id = %s",
                [timedelta(seconds=seconds), task.workflow_id],
            )
        cursor.execute(
            "UPDATE workflows_workflow SET invisible_until = created_at WHERE id = %s",
            [task.workflow_id],
        )


def test_of_a_yes_and_the_deadline_one_is_the_outcome(rivals: Rivals, anna: User) -> None:
    """The worker's expiry, by a real worker; it waits again while the deadline has not come."""
    won: Counter[str] = Counter()
    this = worker()

    def work(task: ManualTask) -> None:
        rows = Workflow.objects.filter(pk=task.workflow_id, status="PENDING")
        until = time.monotonic() + 10
        while rows.exists() and time.monotonic() < until:
            this.process_next()

    for task in asked(ROUNDS):
        expires_in(task, random.uniform(0, 1.5 * (STAGGER + rivals.took[1])))
        _, decided = rivals.race(
            lambda task=task: work(task),
            lambda task=task: operations.approve(task.pk, user=anna),
        )
        task.refresh_from_db()
        row, wait = Workflow.objects.get(pk=task.workflow_id), Wait.objects.get(workflow=task.workflow_id)
        if isinstance(decided, NotAllowed):
            assert str(decided).startswith("It expired at ")
            assert (task.state, wait.outcome) == ("expired", "expired")
            assert (row.status, row.last_error_code) == ("FAILED", "approval_expired")
            assert not Signal.objects.filter(workflow=task.workflow_id).exists()
        else:
            assert (task.state, wait.outcome, row.status) == ("approved", "approved", "COMPLETE")
        won[task.state] += 1
    assert set(won) == {"approved", "expired"}, won


@pytest.mark.parametrize("undone", [True, False], ids=["with something to undo", "with nothing to undo"])
def test_of_an_approval_and_a_cancellation_one_wins_and_the_other_is_told_who(
    rivals: Rivals, anna: User, ben: User, undone: bool
) -> None:
    """Both have seen the question open. Who has seen the approval can still cancel."""
    define([Step(pay, once=True, undo=refund, lookup=refund), ask] if undone else [ask])
    won: Counter[str] = Counter()
    for task in asked(ROUNDS):
        if undone:
            done = {"state": "done", "result": {}, "has_undo": True, "attempt": 1, "idempotency_key": f"{task.pk}"}
            Effect.objects.create(workflow_id=task.workflow_id, step="pay", **done)

        def cancel(*open_tasks: int, task: ManualTask = task) -> Any:
            return operations.cancel(task.workflow_id, user=anna, reason="By phone.", open_tasks=open_tasks)

        cancelled, decided = rivals.race(
            lambda task=task, cancel=cancel: cancel(task.pk),
            lambda task=task: operations.approve(task.pk, user=ben),
            stagger=1.5 * rivals.took[0],
        )
        task.refresh_from_db()
        row = Workflow.objects.with_state().get(pk=task.workflow_id)
        told = Signal.objects.filter(workflow=task.workflow_id)
        if decided is None:
            assert str(cancelled).startswith("ben has approved “?” since you looked")
            assert (task.state, row.status, row.compensating) == ("approved", "PENDING", False), "it goes on"
            assert kinds(task) == ["approved"]
            assert told.get().name == task.signal_name
            assert str(cancel()).startswith("It is cancelled")
        else:
            assert str(cancelled).startswith("It is cancelled")
            sentence = "Nobody asks for that any more" if undone else "Its workflow has ended; it is failed."
            assert str(decided).startswith(sentence)
            assert (task.state, row.state) == ("closed", State.COMPENSATING if undone else State.CANCELLED)
            assert not told.exists()
        won["approved" if decided is None else "cancelled"] += 1
    assert set(won) == {"approved", "cancelled"}, won


# --- An answer that is taken back -----------------------------------------------------------------------


class Bank:
    """A charge whose first answer is lost; what was charged, under which key."""

    def __init__(self) -> None:
        self.charged: list[str] = []

    def charge(self, *, workflow: Workflow, context: Any) -> dict[str, Any]:
        key = key_for(workflow, "charge")
        self.charged.append(key)
        if not key.endswith(":2"):
            raise UnknownOutcome("no answer")
        return {"number": 2}


@pytest.fixture
def bank() -> Bank:
    bank = Bank()
    define([Step(bank.charge, name="charge", once=True, settle=0, returns=("number",))])
    return bank


def in_doubt() -> ManualTask:
    """The question whether its charge happened, of a new workflow."""
    workflow = work(submit())
    make_due(workflow)
    work(workflow)
    return ManualTask.objects.get(workflow=workflow)


def test_of_a_worker_that_reads_a_no_and_somebody_who_takes_it_back_one_comes_first(
    rivals: Rivals, bank: Bank, anna: User, ben: User
) -> None:
    """The worker first: it has called again, and the no stands. Else nothing was called, and it is asked again."""
    won: Counter[str] = Counter()
    for _ in range(ROUNDS // 2):
        task = in_doubt()
        operations.reject(task.pk, user=anna, reason="Not there.")
        told, _ = rivals.race(
            lambda task=task: operations.take_back(task.pk, user=ben, reason="It is there."),
            lambda: worker().process_next(),
            stagger=1.5 * rivals.took[0],
        )
        task.refresh_from_db()
        row = Workflow.objects.get(pk=task.workflow_id)
        called = bank.charged.count(f"{row.key}:charge:2")
        if isinstance(told, NotAllowed):
            assert str(told).startswith(("It is running right now", "Its workflow is complete", "A worker was at it"))
            worker().process_next()  # should it have met the row while it was held
            assert Workflow.objects.get(pk=row.pk).status == "COMPLETE"
            assert (task.state, bank.charged.count(f"{row.key}:charge:2")) == ("rejected", 1)
        else:
            assert (task.state, called, row.status) == ("taken_back", 0, "PENDING")
            worker().process_next()  # unless the other one has come back to it
            effect = Effect.objects.get(workflow=row)
            assert (effect.state, effect.generation, bank.charged.count(f"{row.key}:charge")) == ("unknown", 1, 1)
            second = ManualTask.objects.get(workflow=row, state="open")
            operations.approve(second.pk, user=ben, answer={"number": 9})
            worker().process_next()
            assert Workflow.objects.get(pk=row.pk).context["number"] == 9
            assert bank.charged.count(f"{row.key}:charge:2") == 0
        won[task.state] += 1
    assert set(won) == {"rejected", "taken_back"}, won


def test_of_two_who_take_an_answer_back_one_does(rivals: Rivals, bank: Bank, anna: User, ben: User) -> None:
    for _ in range(ROUNDS // 4):
        task = in_doubt()
        operations.reject(task.pk, user=anna, reason="Not there.")
        results = rivals.race(
            lambda task=task: operations.take_back(task.pk, user=anna, reason="It is there."),
            lambda task=task: operations.take_back(task.pk, user=ben, reason="It is there."),
        )
        refusals = [str(result) for result in results if isinstance(result, NotAllowed)]
        assert len(refusals) == 1
        assert refusals[0].startswith(("It is taken back already", "It is running right now"))
        assert kinds(task)[-2:] == ["rejected", "taken_back"]
        worker().process_next()  # asks again


def test_a_call_that_a_worker_begins_with_its_last_statement_is_seen(rivals: Rivals, bank: Bank, anna: User) -> None:
    """It has lost the row, and its INTENT is on its way: who takes back waits for it, and then reads it."""
    task = in_doubt()
    operations.reject(task.pk, user=anna, reason="Not there.")
    task.wait.outcome, task.wait.result, task.wait.resolved_at = "rejected", {"by": "anna"}, timezone.now()
    task.wait.save()
    first = Effect.objects.get()
    Effect.objects.update(state="not_done", settled_by="anna", settled_at=timezone.now())
    following = {"step": "charge", "generation": 2, "state": "not_done", "attempt": 1, "idempotency_key": "2"}
    Effect.objects.create(workflow_id=task.workflow_id, **following)
    with another_connection() as other, other.transaction():
        other.execute("UPDATE workflows_effect SET state = 'intent' WHERE generation = 2")
        taking_back = rivals.pool.submit(
            with_its_connections, lambda: operations.take_back(task.pk, user=anna, reason="It is there.")
        )
        until_blocked()
    with pytest.raises(NotAllowed, match="charge was begun since"):
        taking_back.result(timeout=10)
    first.refresh_from_db()
    assert (first.state, Effect.objects.get(generation=2).state) == ("not_done", "intent")


def test_a_decision_that_a_worker_writes_with_its_last_statement_is_seen(
    rivals: Rivals, bank: Bank, anna: User
) -> None:
    """As above: with the no it makes the next generation, which must not outlive it."""
    task = in_doubt()
    operations.reject(task.pk, user=anna, reason="Not there.")
    task.wait.outcome, task.wait.result, task.wait.resolved_at = "rejected", {"by": "anna"}, timezone.now()
    task.wait.save()
    with another_connection() as other, other.transaction():
        other.execute(
            "UPDATE workflows_effect SET state = 'not_done', settled_by = 'anna', settled_at = clock_timestamp()"
        )
        other.execute(
            """INSERT INTO workflows_effect (workflow_id, step, generation, state, idempotency_key, attempt)
               SELECT workflow_id, step, 2, 'not_done', '2', attempt FROM workflows_effect"""
        )
        taking_back = rivals.pool.submit(
            with_its_connections, lambda: operations.take_back(task.pk, user=anna, reason="It is there.")
        )
        until_blocked()
    taking_back.result(timeout=10)
    effect = Effect.objects.get()
    assert (effect.state, effect.generation, effect.settled_by) == ("unknown", 1, "")
