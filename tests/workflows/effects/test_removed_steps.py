"""Calls of steps that have left the list."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from tests import engine
from tests.engine import again, define, due_in, expire, last_attempt, submit, work
from tests.workflows.downstream import Downstream, call_step, fail, fail_at_first, state, unknown
from workflows import operations
from workflows.definition import Step
from workflows.errors import RetryableStepError
from workflows.models import Effect, ManualTask, Workflow

pytestmark = engine.ENGINE


def without(service: Downstream, *, retired: Sequence[str] = (), formerly: tuple[str, ...] = ()) -> None:
    """The next release: the step is called something else, and may say so."""
    define([Step(service.call, once=True, name="charge", formerly=formerly), fail_at_first], retired=retired)


def renamed(state: str = "done") -> tuple[Downstream, Workflow]:
    """A workflow whose call is on the ledger, under a name that the next release does not know."""
    service = Downstream()
    define([call_step(service), fail_at_first])
    workflow = work(submit())
    if state != "done":
        Effect.objects.update(state=state, result=None)
    without(service)
    return service, again(workflow)


@pytest.mark.parametrize("state", ["done", "intent"])
def test_beside_the_call_of_a_step_that_is_not_declared_no_new_call_is_started(state: str) -> None:
    service, workflow = renamed(state)
    assert (workflow.status, len(service.calls), workflow.retry_count) == ("PENDING", 1, 0)
    assert workflow.waiting_for == "a release that declares the step call, whose call is on the ledger"
    soon = workflow.invisible_until - last_attempt(workflow).closed_at  # type: ignore[operator]
    assert soon < timedelta(minutes=1)
    assert not ManualTask.objects.exists()


@pytest.mark.parametrize("state", ["not_done", "skipped"])
def test_what_has_not_happened_holds_nothing_up(state: str) -> None:
    service, workflow = renamed(state)
    assert (workflow.status, len(service.calls)) == ("COMPLETE", 2)


@pytest.mark.parametrize("said", [{"formerly": ("call",)}, {"retired": ("call",)}])
def test_a_release_that_declares_the_step_goes_on(said: dict[str, Any]) -> None:
    service, workflow = renamed()
    without(service, **said)
    assert again(workflow).status == "COMPLETE"
    assert len(service.calls) == (1 if "formerly" in said else 2)


def test_a_step_that_did_not_apply_starts_no_call_beside_it(service: Downstream) -> None:
    """The release before had both: the one that it left, and the one that has its place now."""
    service.answers = [None]
    define([call_step(service), fail_at_first])
    workflow = work(submit())
    also_gone(workflow)
    assert again(workflow).waiting_for.startswith("a release that declares the step gone")
    assert len(service.calls) == 1


def left_in_doubt(**definition: Any) -> Workflow:
    """A call that was broken off; the next release has no step `call`, and none that calls anything."""
    workflow = unknown(Downstream())
    settle(workflow)
    define([fail_at_first], **definition)
    return again(workflow)


def settle(workflow: Workflow) -> None:
    """Its calls can no longer be on their way."""
    Effect.objects.update(begun_at=workflow.created_at - timedelta(minutes=1))


def also_gone(workflow: Workflow) -> None:
    """The ledger holds a call of a step that no release declares."""
    key = f"{workflow.key}:gone"
    Effect.objects.create(workflow=workflow, step="gone", state="done", result={}, attempt=1, idempotency_key=key)


@pytest.mark.parametrize("retired", [(), ("call",)])
@pytest.mark.parametrize("happened", [True, False])
def test_nothing_is_complete_while_a_call_of_a_step_that_left_the_list_is_in_doubt(
    retired: tuple[str, ...], happened: bool
) -> None:
    workflow = left_in_doubt(retired=retired)
    assert (workflow.status, workflow.waiting_for) == ("PENDING", "Unclear call: did “Call” happen?")
    task, ada = ManualTask.objects.get(), User.objects.create_superuser("ada")
    if happened:
        operations.approve(task.pk, user=ada, answer={})
    else:
        operations.reject(task.pk, user=ada, reason="The service knows nothing of it.")
    assert work(workflow).status == "COMPLETE"
    assert state() == ("done" if happened else "not_done")


def test_it_is_asked_about_beside_a_call_that_a_person_let_be_made() -> None:
    service, workflow = renamed("unknown")
    settle(workflow)
    engine.expire(workflow)
    work(workflow)
    operations.approve(ManualTask.objects.get().pk, user=User.objects.create_superuser("ada"))
    assert work(workflow).waiting_for == "Unclear call: did “Call” happen?"
    assert service.calls == [f"{workflow.key}:call", f"{workflow.key}:charge"]


def test_a_question_about_it_is_closed_by_a_release_that_finds_out(service: Downstream) -> None:
    workflow = left_in_doubt()
    look = workflow.invisible_until - last_attempt(workflow).closed_at  # type: ignore[operator]
    assert look < timedelta(hours=1)
    service.found = [{"number": 7}]
    define([call_step(service, lookup=service.lookup)])
    assert again(workflow).status == "COMPLETE"
    assert (ManualTask.objects.get().state, service.calls) == ("closed", [])


def test_it_is_asked_about_though_the_step_that_has_its_name_now_may_fail(service: Downstream) -> None:
    """The call was that of a step which might not fail."""
    workflow = unknown(service)
    settle(workflow)
    define([Step(lambda *, workflow, context: None, name="call", best_effort=True)])
    assert again(workflow).waiting_for == "Unclear call: did “Call” happen?"


def test_a_call_under_another_name_of_a_step_is_looked_up() -> None:
    service, workflow = unreachable_and_then_renamed()
    Effect.objects.filter(step="call").update(state="unknown", begun_at=workflow.created_at - timedelta(minutes=1))
    service.found = [None]
    define([Step(service.call, once=True, name="charge", formerly=("call",), lookup=service.lookup)])
    assert again(workflow).status == "COMPLETE"
    assert [effect.idempotency_key for effect in service.looked_up] == [f"{workflow.key}:call"]
    assert len(service.calls) == 2


def test_of_a_best_effort_call_nobody_needs_to_know(service: Downstream) -> None:
    assert unknown(service, best_effort=True).status == "COMPLETE"
    assert state() == "unknown"


def test_a_step_that_is_no_longer_once_is_not_declared(service: Downstream) -> None:
    define([call_step(service), fail_at_first])
    workflow = work(submit())
    define([Step(service.call, once=True, name="charge"), Step(service.call, name="call")])
    assert again(workflow).waiting_for.startswith("a release that declares the step call")
    assert len(service.calls) == 1


def asked_whether_it_is_right() -> tuple[Downstream, Workflow, ManualTask, User]:
    service, workflow = renamed()
    engine.expire(workflow)
    workflow = work(workflow)
    task = ManualTask.objects.open().get()
    assert workflow.waiting_for == task.question == "Is it right that this release has no step call?"
    return service, workflow, task, User.objects.create_superuser("ada")


def test_after_an_hour_a_person_is_asked_and_the_workflow_goes_on_looking() -> None:
    service, workflow, task, _ = asked_whether_it_is_right()
    assert (task.task_type, due_in(task), len(service.calls)) == ("step_undeclared", "1 h", 1)
    look = workflow.invisible_until - last_attempt(workflow).closed_at  # type: ignore[operator]
    assert look < timedelta(hours=1)
    without(service, formerly=("call",))
    assert again(workflow).status == "COMPLETE"
    task.refresh_from_db()
    assert (task.state, len(service.calls)) == ("closed", 1)


def test_what_a_person_said_is_forgotten_once_the_step_is_declared_again() -> None:
    """The release was retracted; the next one that lacks the step is another question."""
    service, workflow, task, ada = asked_whether_it_is_right()
    operations.approve(task.pk, user=ada)
    define([fail, call_step(service)])  # it does not come as far as the step
    workflow = work(workflow)
    assert workflow.status == "FAILED"
    operations.retry(workflow.pk, user=ada)
    without(service)
    assert work(workflow).waiting_for.startswith("a release that declares the step call")
    engine.expire(workflow)
    assert work(workflow).waiting_for == task.question
    assert len(service.calls) == 1


def test_a_person_says_that_it_is_wrong_and_a_retry_asks_again() -> None:
    service, workflow, task, ada = asked_whether_it_is_right()
    operations.reject(task.pk, user=ada, reason="It was renamed.")
    workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code, len(service.calls)) == ("FAILED", "step_undeclared", 1)
    operations.retry(workflow.pk, user=ada)
    assert work(workflow).waiting_for == task.question
    assert len(service.calls) == 1


def test_a_question_that_nobody_answers_in_a_month_is_asked_again() -> None:
    service, workflow, task, _ = asked_whether_it_is_right()
    expire(workflow)
    assert work(workflow).waiting_for == task.question
    assert ManualTask.objects.open().get().pk != task.pk
    assert len(service.calls) == 1


def test_a_call_that_was_started_before_is_repeated_beside_it(service: Downstream) -> None:
    """It is in doubt, and found out by being repeated under its key. The new one would be under a name of its own."""
    workflow = unknown(service, key_ttl=timedelta(days=1))
    also_gone(workflow)
    assert again(workflow).status == "COMPLETE"


def unreachable_and_then_renamed() -> tuple[Downstream, Workflow]:
    """The call was never sent under its old name; the next release has made it under the new one."""
    service = Downstream()
    service.errors = [RetryableStepError("unreachable")]
    define([call_step(service), fail_at_first])
    workflow = work(submit())
    define([Step(service.call, once=True, name="charge"), fail])
    assert again(workflow).status == "FAILED"
    operations.retry(workflow.pk, user=User.objects.create_superuser("ada"))
    return service, workflow


def test_the_release_before_does_not_make_the_call_that_its_successor_has_made() -> None:
    service, workflow = unreachable_and_then_renamed()
    define([call_step(service)])
    assert again(workflow).waiting_for.startswith("a release that declares the step charge")
    assert len(service.calls) == 2


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("not_done", "done", ""),
        ("intent", "done", "unsettled"),  # both calls may have happened
        ("not_done", "unknown", "unsettled"),
    ],
)
def test_of_a_step_that_says_its_names_too_late_what_has_happened_counts_and_then_a_doubt(
    old: str, new: str, told: str
) -> None:
    service, workflow = unreachable_and_then_renamed()
    Effect.objects.filter(step="call").update(state=old)
    Effect.objects.filter(step="charge").update(state=new)
    define([Step(service.call, once=True, name="charge", formerly=("call",))])
    workflow = again(workflow)
    assert (len(service.calls), workflow.last_error_code) == (2, told)
    assert workflow.status == ("PENDING" if told else "COMPLETE")


def test_what_was_undone_is_not_done_again_beside_it(service: Downstream) -> None:
    define([call_step(service, undo=service.undo), fail])
    workflow = work(submit())
    again(workflow)
    also_gone(workflow)
    operations.retry(workflow.pk, user=User.objects.create_superuser("ada"))
    assert again(workflow).waiting_for.startswith("a release that declares the step gone")
    assert len(service.calls) == 1
