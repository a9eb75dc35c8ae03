"""A person pauses one workflow: it stands still, whatever comes, until somebody resumes it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from tests import engine
from tests.engine import define, do_chore, do_maintenance, draining, elsewhere, kinds, submit, work, worker
from tests.workflows import rows
from tests.workflows.cancelling import CHARGE
from tests.workflows.engine.test_cancellation_requests import gate, run
from tests.workflows.operations.people import held
from tests.workflows.waits.approvals import ask, boss
from tests.workflows.waits.signals import await_signals, fail_until, tell
from workflows import operations
from workflows.definition import Step
from workflows.effects import reconcile
from workflows.errors import NotAllowed
from workflows.features.cases import operations as cases
from workflows.features.pauses import operations as pauses
from workflows.features.pauses.operations import seen_of
from workflows.models import Attempt, Event, ManualTask, Pause, Workflow
from workflows.state import transitions
from workflows.waits import Child, wait_for_children

__all__ = ["gate", "run"]

pytestmark = engine.ENGINE

WHY = "Her insurer calls back."
HOUR = timedelta(hours=1)


def in_(time: timedelta) -> Any:
    return timezone.now() + time


def pause(workflow: Workflow, time: timedelta = HOUR) -> str:
    seen = seen_of(Pause.objects.filter(workflow=workflow).first())
    return pauses.pause(workflow.pk, user=boss(), reason=WHY, until=in_(time), seen=seen)


def resume(workflow: Workflow) -> None:
    pauses.resume(workflow.pk, user=boss(), seen=seen_of(Pause.objects.filter(workflow=workflow).first()))


def is_taken() -> bool:
    """Whether a worker takes something up, after all maintenance."""
    do_maintenance()
    return worker().process_next()


def fan_out(*, workflow: Workflow, context: Any) -> None:
    if workflow.parent_id is None:
        wait_for_children(workflow, "checks", [Child("test", {}, key="one")], timeout=HOUR)


def decide(workflow: Workflow) -> None:
    operations.approve(ManualTask.objects.get(workflow=workflow).pk, user=boss(), reason="", answer={})


def end_of_the_child(workflow: Workflow) -> None:
    assert worker().process_next()
    assert workflow.children.get().status == "COMPLETE"


# What it does until it is paused, and what would wake it.
CASES: dict[str, tuple[Any, Callable[[Workflow], object]]] = {
    "it has not started": (None, lambda row: None),
    "a signal": (await_signals("paid"), lambda row: tell(row, "paid")),
    "a person's answer": (ask, decide),
    "a child that ends": (fan_out, end_of_the_child),
}


@pytest.mark.parametrize("case", CASES)
def test_nothing_wakes_it_and_when_it_is_resumed_nothing_is_lost(case: str) -> None:
    step, wake = CASES[case]
    define([step or CHARGE])
    workflow = submit()
    if step:
        work(workflow)
    before = Workflow.objects.values("begun", "current_step", "retry_count").get(pk=workflow.pk)
    assert pause(workflow).startswith("It is paused until")
    wake(workflow)
    with pytest.raises(NotAllowed, match="It is paused"):
        operations.run_now(workflow.pk, user=boss())
    assert (transitions.make_due(workflow.pk), is_taken()) == (False, False)
    resume(workflow)
    assert Workflow.objects.values("begun", "current_step", "retry_count").get(pk=workflow.pk) == before
    assert (work(workflow).status, Pause.objects.exists()) == ("COMPLETE", False)
    assert [kind for kind in kinds(workflow) if kind in ("paused", "resumed")] == ["paused", "resumed"]


def test_a_retry_keeps_its_count_and_a_cancellation_ends_the_pause() -> None:
    define([fail_until([])])
    workflow = work(submit())
    pause(workflow)
    assert Workflow.objects.get(pk=workflow.pk).retry_count == 1
    operations.cancel(workflow.pk, user=boss(), reason="By phone.")
    do_maintenance()
    assert (Workflow.objects.get(pk=workflow.pk).status, Pause.objects.exists()) == ("FAILED", False)


@pytest.mark.parametrize("is_known", [True, False], ids=["", "a release that does not know it"])
def test_a_paused_child_stays_paused_when_its_parents_cancellation_is_withdrawn(is_known: bool) -> None:
    define([fan_out, CHARGE])
    parent = work(submit())
    child = parent.children.get()
    pause(child)
    operations.cancel(parent.pk, user=boss(), reason="By phone.")
    assert engine.sweep() == 1
    operations.retry(parent.pk, user=boss())
    if not is_known:
        Workflow.objects.filter(pk=child.pk).update(workflow_type="of_the_next_release")
    while is_taken():
        pass
    child.refresh_from_db()
    assert (child.status, child.effects.count(), child.invisible_until) == ("PENDING", 0, transitions.UNTIL_RESUMED)
    Workflow.objects.filter(pk=child.pk).update(workflow_type="test")
    resume(child)
    assert work(child).status == "COMPLETE"


def test_what_has_begun_finishes_and_it_is_paused_before_the_next_run(gate: Any, run: Any) -> None:
    define([gate.step, fail_until([])])
    workflow = submit()
    run(workflow)
    assert pause(workflow).startswith("It is running")
    assert (elsewhere(lambda: do_chore("keep up with pauses").changed), kinds(workflow)) == (0, ["pause_asked"])
    run.finish()
    assert elsewhere(lambda: do_chore("keep up with pauses").changed) == 1
    assert kinds(workflow) == ["pause_asked", "retry_scheduled", "paused"]
    assert Event.objects.get(kind="paused").actor == "boss"
    Workflow.objects.filter(pk=workflow.pk).update(retry_count=0)
    assert not is_taken()


@pytest.mark.parametrize("is_over", [False, True])
def test_who_asks_while_a_colleague_pauses_it_leaves_no_workflow_paused_that_nobody_can_resume(is_over: bool) -> None:
    define([CHARGE])
    workflow = submit()
    pause(workflow)
    with held(workflow):  # for a moment, by the colleague's own request
        assert pause(workflow).startswith("It is running")
    if is_over:  # no worker did maintenance meanwhile
        Pause.objects.update(until=in_(-HOUR))
        elsewhere(lambda: do_chore("keep up with pauses"))
        assert [each.workflow for each in pauses.overdue()] == [workflow]
    resume(workflow)
    assert work(workflow).status == "COMPLETE"


def test_the_wish_for_a_pause_is_over_with_its_workflow_and_its_time(gate: Any, run: Any) -> None:
    define([gate.step])
    completed, late, withdrawn = submit(), rows.waiting(task=False), rows.waiting(task=False)
    run(completed)
    pause(completed)
    for row, until in ((late, -HOUR), (withdrawn, HOUR)):
        Pause.objects.create(workflow=row, until=in_(until), actor="ada", reason=WHY)
    resume(withdrawn)
    run.finish()
    elsewhere(lambda: do_chore("keep up with pauses"))
    assert (Pause.objects.exists(), Workflow.objects.get(pk=completed.pk).status) == (False, "COMPLETE")
    assert (kinds(late), kinds(withdrawn)) == (["pause_lapsed"], ["resumed"])


def test_while_a_call_is_unclear_it_is_not_paused() -> None:
    define([CHARGE, fail_until([])])
    workflow = work(submit())
    workflow.effects.update(state="unknown")
    with pytest.raises(NotAllowed, match="A call of it is unclear"):
        pause(workflow)
    Pause.objects.create(workflow=workflow, until=in_(HOUR), actor="ada", reason=WHY)
    for state, changed in (("unknown", 0), ("done", 1)):
        workflow.effects.update(state=state)
        assert elsewhere(lambda: do_chore("keep up with pauses").changed) == changed


def test_what_its_worker_left_behind_is_closed_and_it_does_not_go_on_for_that() -> None:
    row = rows.running(begun=False)
    rows.held_queue()
    pause(row)
    assert Attempt.objects.get(workflow=row).outcome == "vanished"
    assert elsewhere(lambda: do_chore("go on").changed) == 0
    assert Workflow.objects.with_state().get(pk=row.pk).state == "waiting"
    Workflow.objects.filter(pk=row.pk).update(waiting_for="")
    assert elsewhere(lambda: do_chore("go on").changed) == 1


def test_a_release_with_a_lookup_leaves_it_paused() -> None:
    define([Step(CHARGE.function, once=True, name="charge", lookup=lambda **_: None)])
    row = rows.waiting(task=False, workflow_type="test")
    rows.open_task(row, task_type="effect_in_doubt")
    row.effects.update(state="done", result={})
    pause(row)
    assert reconcile.make_answerable_due("default") == 0
    Workflow.objects.filter(pk=row.pk).update(waiting_for="")
    assert reconcile.make_answerable_due("default") == 1


@pytest.mark.parametrize(
    ("make", "time", "refusal"),
    [
        (rows.failed, HOUR, "Only a workflow that is still under way can be paused; this one is failed"),
        (rows.compensating, HOUR, "It is being reversed"),
        (rows.retrying, timedelta(days=7, minutes=1), "A workflow is paused for 7 days at the most"),
        (rows.retrying, -HOUR, "That time is over"),
        (lambda: rows.retrying(expires_at=in_(HOUR)), HOUR, "It fails if it is not complete by"),
    ],
)
def test_it_is_refused(make: Callable[[], Workflow], time: timedelta, refusal: str) -> None:
    row = make()
    with pytest.raises(NotAllowed, match=refusal):
        pause(row, time)
    assert not Pause.objects.exists()


def test_what_is_not_paused_any_more_is_not_resumed() -> None:
    row = rows.retrying()
    pause(row)
    Workflow.objects.filter(pk=row.pk).update(waiting_for="")
    with pytest.raises(NotAllowed, match="It is not paused any more"):
        resume(row)


def test_its_expiry_ends_the_pause() -> None:
    define([await_signals("paid")], expires_after=timedelta(days=1))
    workflow = work(submit(expires_at=in_(2 * HOUR)))
    pause(workflow)
    Workflow.objects.filter(pk=workflow.pk).update(expires_at=in_(-HOUR))
    assert is_taken()
    do_maintenance()
    workflow.refresh_from_db()
    assert (workflow.status, workflow.last_error_code, Pause.objects.exists()) == ("FAILED", "expired", False)


def test_whoever_acts_has_seen_who_else_has() -> None:
    row, ada = rows.retrying(), User.objects.create_superuser("ada")
    pause(row)
    (first,) = Pause.objects.all()
    with pytest.raises(NotAllowed, match="Somebody has paused or resumed it"):
        pauses.pause(row.pk, user=ada, reason=WHY, until=in_(HOUR))
    pauses.pause(row.pk, user=ada, reason="Longer.", until=in_(2 * HOUR), seen=seen_of(first))
    assert Pause.objects.get().actor == "ada"
    with pytest.raises(NotAllowed, match="Somebody has paused or resumed it"):
        pauses.resume(row.pk, user=boss(), seen=seen_of(first))
    nobody = User.objects.create_user("nobody", is_staff=True)
    for operation in (
        lambda: pauses.pause(row.pk, user=nobody, reason=WHY, until=in_(HOUR)),
        lambda: pauses.resume(row.pk, user=nobody, seen=[]),
    ):
        with pytest.raises(PermissionDenied):
            operation()


def test_a_lead_who_is_asked_stays_asked() -> None:
    row = rows.retrying()
    cases.ask_lead(row.pk, user=boss(), reason="Please look.")
    pause(row)
    resume(row)
    assert elsewhere(lambda: do_chore("close what leads were asked").changed) == 0


def test_when_its_end_passes_it_stays_paused_and_is_overdue() -> None:
    row = rows.waiting(task=False)
    pause(row)
    Pause.objects.update(until=in_(-HOUR))
    draining().join(30)
    assert Workflow.objects.get(pk=row.pk).invisible_until == transitions.UNTIL_RESUMED
    assert pauses.overdue().get().workflow == row
