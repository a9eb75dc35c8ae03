"""A call in doubt that somebody has looked up: they need not wait until the engine gives up."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from tests import engine
from tests.engine import again, elsewhere, expire, kinds, submit, work, worker
from tests.workflows.operations import two
from tests.workflows.operations.bank import YES, Bank, moved, pause, states
from tests.workflows.undoing import BY_HAND, World, to_rest
from workflows import operations
from workflows.definition import Step
from workflows.effects import KnownEffect
from workflows.errors import NotAllowed, RetryableStepError, StepError
from workflows.features.doubts import operations as doubts
from workflows.features.pauses import operations as pauses
from workflows.models import Effect, ManualTask, Service, Workflow
from workflows.timeouts import StepTimeout

pytestmark = engine.ENGINE
DOWN = RetryableStepError("No answer.", base_delay=0)


class Books(Bank):
    """A bank whose books cannot be read, unless a test lets them."""

    error: BaseException | None = DOWN
    found: dict[str, Any] | None = None
    looks = 0

    def look(self, *, workflow: Workflow, context: Any, effect: KnownEffect) -> dict[str, Any] | None:
        self.looks += 1
        if self.error:
            raise self.error
        return self.found

    def step(self, **policy: Any) -> Step:
        return super().step(**{"undo": self.refund, "lookup": self.look, **policy})


@pytest.fixture
def bank() -> Books:
    return Books()


@pytest.fixture
def carla(db: None) -> User:
    return two.lead("carla", *two.RIGHTS, "resolve_manualtask")


@pytest.fixture
def dan(db: None) -> User:
    return two.lead("dan", *two.RIGHTS, "resolve_manualtask")


def in_doubt(bank: Books, **policy: Any) -> Workflow:
    two.known(bank.step(**policy))
    row = work(submit())
    assert (row.status, states()) == ("PENDING", {"pay 1": "unknown"}) or row.compensating
    return again(row)


def reversing(bank: Books) -> Workflow:
    row = in_doubt(bank)
    operations.cancel(row.pk, user=two.lead("eve"), reason="She has called.")
    return again(row)


def seen(row: Workflow) -> list[int]:
    return [each.call_number or 0 for each in doubts.in_doubt(Workflow.objects.get(pk=row.pk))]


def ask(row: Workflow, user: User) -> None:
    doubts.ask(row.pk, user=user, seen=seen(row), reason="Seen on the bank's page.")


def asked(row: Workflow, user: User) -> ManualTask:
    """The question, as the next worker opens it: the workflow is due at once."""
    ask(row, user)
    assert worker().process_next(), "it is not due"
    row.refresh_from_db()
    task = ManualTask.objects.get(state="open")
    assert (task.task_type, row.waiting_for) == ("effect_in_doubt", "Unclear call: did “Pay” happen?")
    assert seen(row) == [], "it is asked about already"
    return task


def yes(task: ManualTask, user: User) -> None:
    operations.approve(task.pk, user=user, reason="Seen.", answer=YES)


@pytest.mark.parametrize("error", [DOWN, StepError("No."), KeyError("id"), StepTimeout(1.0)])
def test_a_lookup_that_fails_opens_the_question_and_its_answer_counts(
    bank: Books, carla: User, error: BaseException
) -> None:
    row = in_doubt(bank)
    bank.error = error
    task = asked(row, carla)
    for _ in range(50):  # no number of lookups in vain fails it now
        row = again(row)
    assert (row.compensating, row.retry_count, ManualTask.objects.count()) == (False, 0, 1)
    assert row.invisible_until - timezone.now() <= timedelta(hours=1)
    yes(task, carla)
    row = again(row)
    assert (row.status, row.context["number"], len(bank.charged)) == ("COMPLETE", 9, 1)
    assert [each for each in kinds(row) if each in ("doubt_asked", "approved")] == ["doubt_asked", "approved"]


def test_what_a_lookup_finds_comes_first(bank: Books, carla: User) -> None:
    task = asked(in_doubt(bank), carla)
    bank.error, bank.found = None, YES
    row = again(task.workflow)
    task.refresh_from_db()
    assert (row.status, task.state, Effect.objects.get().settled_by) == ("COMPLETE", "closed", "lookup")
    with pytest.raises(NotAllowed):
        yes(task, carla)


def test_a_no_takes_two_people_and_a_lookup_that_finds_the_call_overrides_it(
    bank: Books, carla: User, dan: User
) -> None:
    task = asked(row := in_doubt(bank), carla)
    two.no(task, carla)
    assert (again(row).status, len(bank.charged)) == ("PENDING", 1)
    two.confirm(task, dan)
    bank.error, bank.found = None, YES
    assert (again(row).status, len(bank.charged)) == ("COMPLETE", 1)


def test_a_no_of_two_people_makes_it_again_under_a_new_key(bank: Books, carla: User, dan: User) -> None:
    task = asked(row := in_doubt(bank), carla)
    two.no(task, carla)
    two.confirm(task, dan)
    row = again(row)
    assert (row.status, bank.charged) == ("COMPLETE", [f"{row.key}:pay", f"{row.key}:pay:2"])


def test_the_wish_is_about_one_call_and_not_about_the_next(bank: Books, carla: User) -> None:
    asked(row := in_doubt(bank), carla)
    bank.error = None
    assert (again(row).status, len(bank.charged)) == ("COMPLETE", 2)
    assert ManualTask.objects.get().state == "closed"
    Effect.objects.update(state="unknown", result=None)
    Workflow.objects.update(status="PENDING", completed_at=None)
    bank.error = DOWN
    assert again(row).waiting_for == ""


def test_nobody_is_asked_while_the_call_may_be_on_its_way(bank: Books, carla: User) -> None:
    row = in_doubt(bank, settle=300)
    ask(row, carla)
    assert again(row).waiting_for == ""
    moved(where="true")
    assert again(row).waiting_for == "Unclear call: did “Pay” happen?"


def test_a_retracted_answer_is_asked_again(bank: Books, carla: User) -> None:
    two.known(bank.step(), pause)
    row = again(work(submit()))
    task = asked(row, carla)
    yes(task, carla)
    assert again(row).waiting_for == "the signal go"
    assert "asks again at once" in operations.retract(task.pk, user=carla, reason="Another patient.")
    assert again(row).waiting_for == "Unclear call: did “Pay” happen?"


# --- While it is reversed -----------------------------------------------------------------------------


@pytest.mark.parametrize("happened", [True, False])
def test_in_a_reversal_what_happened_is_reversed(bank: Books, carla: User, dan: User, happened: bool) -> None:
    task = asked(row := reversing(bank), carla)
    if happened:
        yes(task, carla)
    else:
        two.no(task, carla)
        two.confirm(task, dan)
    assert (to_rest(row).status, len(bank.refunded), len(bank.charged)) == ("FAILED", int(happened), 1)


def test_a_cancellation_keeps_the_question_and_a_month_without_an_answer_asks_again(bank: Books, carla: User) -> None:
    task = asked(row := in_doubt(bank), carla)
    operations.cancel(row.pk, user=two.lead("eve"), reason="She has called.")
    assert again(row).compensating
    task.refresh_from_db()
    assert task.state == "open"
    expire(row)
    task = ManualTask.objects.get(pk__gt=task.pk, state="open") if work(row) else task
    yes(task, carla)
    assert (to_rest(row).status, len(bank.refunded)) == ("FAILED", 1)


def given_up(bank: Books) -> tuple[Workflow, ManualTask]:
    row = reversing(bank)
    for _ in range(4):
        row = again(row)
    return row, ManualTask.objects.get(state="open", task_type="undo_in_doubt")


def test_it_takes_the_place_of_the_question_of_its_failed_reversal(bank: Books, carla: User) -> None:
    row, before = given_up(bank)
    task = asked(row, carla)
    before.refresh_from_db()
    assert before.state == "closed"
    yes(task, carla)
    bank.refusals = 3
    for _ in range(4):
        row = again(row)
    assert (len(bank.refunded), states()["pay 1"]) == (0, "done"), "it has its three tries"
    last = ManualTask.objects.get(state="open")
    operations.reject(last.pk, user=carla, reason="Try again.")
    assert (to_rest(row).status, len(bank.refunded), states()["undo pay"]) == ("FAILED", 1, "done")


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda task, dan: operations.claim_task(task.pk, user=dan),
        lambda task, dan: operations.approve(task.pk, user=dan, reason="So.", answer=BY_HAND),
    ],
)
def test_a_colleague_who_has_it_or_has_answered_comes_first(
    bank: Books, carla: User, dan: User, meanwhile: Callable[[ManualTask, User], None]
) -> None:
    row, before = given_up(bank)
    meanwhile(before, dan)
    state = ManualTask.objects.get().state
    with pytest.raises(NotAllowed, match="claimed or answered"):
        ask(row, carla)
    assert (ManualTask.objects.get().state, "doubt_asked" in kinds(row)) == (state, False)


# --- When it is refused -------------------------------------------------------------------------------


def test_it_is_refused_once_it_is_known_and_while_a_worker_has_it(bank: Books, carla: User) -> None:
    row = in_doubt(bank)
    shown = seen(row)
    with pytest.raises(NotAllowed, match="not unclear any more"):
        doubts.ask(row.pk, user=carla, seen=[shown[0] - 1])
    bank.error, before = None, bank.look

    def busy(**about: Any) -> dict[str, Any] | None:
        with pytest.raises(NotAllowed, match="running right now"):
            elsewhere_raising(lambda: doubts.ask(row.pk, user=carla, seen=shown))
        return {**YES, **(before(**about) or {})}

    two.known(bank.step(lookup=busy), pause)
    again(row)
    with pytest.raises(NotAllowed, match="not unclear any more"):
        doubts.ask(row.pk, user=carla, seen=shown)
    assert "doubt_asked" not in kinds(row)


def elsewhere_raising(what: Callable[[], None]) -> None:
    def caught() -> BaseException | None:
        try:
            what()
        except NotAllowed as refusal:
            return refusal
        return None

    if error := elsewhere(caught):
        raise error


@pytest.mark.parametrize(
    "policy", [{"lookup": None, "key_ttl": timedelta(days=1)}, {"best_effort": True, "undo": None, "parks": True}]
)
def test_only_a_call_that_is_looked_up_for_a_person_can_be_said(bank: Books, policy: dict[str, Any]) -> None:
    two.known(bank.step(**policy))
    row = work(submit())
    assert (Effect.objects.get().state, seen(row)) == ("unknown", [])


def test_in_a_reversal_only_a_call_that_can_be_reversed_is_looked_up(bank: Books) -> None:
    two.known(World().step("reserve"), bank.step(undo=None))
    row = again(work(submit()))
    assert len(seen(row)) == 1
    operations.cancel(row.pk, user=two.lead("eve"), reason="She has called.")
    assert (Workflow.objects.get(pk=row.pk).compensating, seen(row)) == (True, [])


def test_what_kills_workers_is_left_alone(bank: Books, carla: User) -> None:
    row, _ = given_up(bank)
    Effect.objects.update(error_code="keeps_dying")
    assert seen(row) == []
    with pytest.raises(NotAllowed):
        ask(row, carla)


def test_it_is_refused_while_the_workflow_is_not_taken_up(bank: Books, carla: User) -> None:
    row = in_doubt(bank)
    Workflow.objects.update(waiting_for="", parked_on="test/pay: KeyError", parked_at=timezone.now())
    Service.objects.create(name="test/pay: KeyError", step="pay", workflow_type="test")
    with pytest.raises(NotAllowed, match="mend"):
        ask(row, carla)
    Workflow.objects.update(waiting_for=pauses.PAUSED, parked_on="", parked_at=None)
    with pytest.raises(NotAllowed, match="resume it first"):
        ask(row, carla)


def test_it_is_for_those_who_answer_such_questions(bank: Books) -> None:
    row = in_doubt(bank)
    with pytest.raises(PermissionDenied):
        ask(row, two.lead("fay"))
