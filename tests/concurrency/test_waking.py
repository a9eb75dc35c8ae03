"""A decision against a suspension, on two real connections, in every order: no wake-up is lost, and none loops."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from tests import engine
from tests.engine import define, do_maintenance, elsewhere, submit, work
from workflows.engine.loop import Worker
from workflows.models import Attempt, ManualTask, Signal, Workflow
from workflows.signals import store, waking
from workflows.stop_flag import Flag
from workflows.waits import require_approval

pytestmark = engine.ENGINE
T = TypeVar("T")

# What the worker does, by the statement that does it.
MAKES_THE_TASK = "INSERT INTO workflows_manualtask"
LOOKS_FOR_THE_DECISION = "WITH decision AS"
SUSPENDS = 'UPDATE "workflows_workflow" SET "waiting_for"'
WAKES_ITS_OWN_ROW = "UPDATE workflows_workflow SET invisible_until = least"


def ask(*, workflow: Workflow, context: Any) -> None:
    seconds = workflow.payload.get("timeout_s", 3600)
    require_approval(workflow, "review", question="May it go on?", timeout=timedelta(seconds=seconds))


def decide(task: ManualTask) -> bool:
    """The first half of what an operation does. False when somebody, or the deadline, came first."""
    ada = User.objects.get(username="ada")
    decision = {"state": "approved", "decided_by": ada, "decided_at": timezone.now()}
    with transaction.atomic():
        if not ManualTask.objects.filter(pk=task.pk, state="open").update(**decision):
            return False
        answer = {"approved": True, "by": "ada", "reason": ""}
        name = task.signal_name
        return store.store(source="console", dedupe_key=name, name=name, workflow_id=task.workflow_id, payload=answer)


def wake(task: ManualTask) -> bool:
    """The second half, after the commit of the first."""
    return waking.wake(task.workflow_id)


def decide_and_wake() -> bool:
    task = ManualTask.objects.get()
    assert decide(task)
    return wake(task)


def attempts(workflow: Workflow) -> list[str]:
    return list(Attempt.objects.filter(workflow=workflow).order_by("number").values_list("outcome", flat=True))


@pytest.fixture(autouse=True)
def ada(engine: None, transactional_db: None) -> None:
    User.objects.create(username="ada")
    define([ask])


@pytest.mark.parametrize(
    ("statement", "alias", "before", "woken", "runs"),
    [
        pytest.param(MAKES_THE_TASK, "attempt_log", False, False, ["complete"], id="before the worker has looked"),
        pytest.param(LOOKS_FOR_THE_DECISION, "attempt_log", False, False, ["waiting", "complete"], id="after that"),
        pytest.param(SUSPENDS, "default", False, False, ["waiting", "complete"], id="before it has committed"),
        pytest.param(WAKES_ITS_OWN_ROW, "default", True, True, ["waiting", "complete"], id="before its own look"),
    ],
)
def test_a_decision_at_any_moment_is_found(
    statement: str, alias: str, before: bool, woken: bool, runs: list[str]
) -> None:
    """While the row is held the sender wakes nobody; the worker's own look, after its commit, finds the signal."""
    with engine.at(statement, lambda: elsewhere(decide_and_wake), alias=alias, before=before) as found:
        workflow = work(submit())
    assert found == [woken]
    if len(runs) > 1:
        assert workflow.invisible_until <= timezone.now(), "due again"
        workflow = work(workflow)
    assert (workflow.status, attempts(workflow)) == ("COMPLETE", runs)


def test_the_sweep_finds_a_row_that_somebody_held_when_both_wanted_to_wake_it() -> None:
    with engine.another_connection() as third:
        third.execute("BEGIN")

        def hold() -> None:
            third.execute("SELECT 1 FROM workflows_workflow FOR NO KEY UPDATE")
            assert elsewhere(decide_and_wake) is False

        with engine.at(WAKES_ITS_OWN_ROW, hold):
            workflow = work(submit())
        third.execute("ROLLBACK")
    assert workflow.invisible_until > timezone.now()
    do_maintenance()
    assert work(workflow).status == "COMPLETE"
    assert attempts(workflow) == ["waiting", "complete"]


def test_the_sweep_runs_while_the_worker_is_busy() -> None:
    """A backlog that never ends must not keep it from looking; and what has waited goes before the backlog."""
    stopping = Flag()

    def stop(*, workflow: Workflow, context: Any) -> None:
        stopping.set()

    define([ask, stop])
    workflow = work(submit())
    assert elsewhere(lambda: decide(ManualTask.objects.get()))
    Workflow.objects.bulk_create(
        Workflow(workflow_type="test", idempotency_key=uuid.uuid4(), payload={}) for _ in range(100)
    )
    Worker(name="test-host:1", features=(), stopping=stopping).run(drain=True)
    assert Workflow.objects.get(pk=workflow.pk).status == "COMPLETE"
    assert Workflow.objects.filter(attempts=None).exists(), "there was more to do"


def is_over(workflow: Workflow) -> tuple[str, str]:
    workflow.refresh_from_db()
    return workflow.status, workflow.last_error_code


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "retracted"])
def test_a_decision_that_is_on_its_way_at_the_deadline_is_waited_for(committed: bool) -> None:
    """Forced: the person's update of the task came first, and the worker's expiry waits for how it ends."""
    workflow = work(submit())
    engine.expire(workflow)
    with suppress(LookupError), transaction.atomic():
        assert decide(ManualTask.objects.get())
        expiring = engine.draining()
        engine.until_blocked()
        if not committed:
            raise LookupError
    expiring.join(60)
    assert is_over(workflow) == (("COMPLETE", "") if committed else ("FAILED", "approval_expired"))
    assert ManualTask.objects.get().state == ("approved" if committed else "expired")


def test_a_decision_that_meets_the_expiry_on_its_way_is_refused() -> None:
    """Forced: the worker's expiry has taken the task, and waits for a third party that holds the wait's row."""
    workflow = work(submit())
    engine.expire(workflow)
    with ThreadPoolExecutor(1) as person:
        with engine.another_connection() as third, third.transaction():
            third.execute("SELECT 1 FROM workflows_wait FOR UPDATE")
            expiring = engine.draining()
            engine.until_blocked()
            decided = person.submit(engine.with_its_connections, lambda: decide(ManualTask.objects.get()))
            engine.until_blocked(2)
        assert decided.result(30) is False
    expiring.join(60)
    assert is_over(workflow) == ("FAILED", "approval_expired")
    assert not Signal.objects.exists()
