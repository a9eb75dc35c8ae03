"""A question to a person stays where a lookup must not answer it: nobody else would be told."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any

import pytest

from tests import engine
from tests.engine import (
    again,
    define,
    elsewhere,
    last_attempt,
    submit,
    until_blocked,
    with_its_connections,
    work,
)
from tests.workflows.effects.test_questions_that_answer_themselves import (
    AT_ONCE,
    Ledgers,
    asked_about_a_lookup,
    asked_about_a_refusal,
    asked_about_an_outage,
    books,
    open_questions,
)
from tests.workflows.undoing import BY_HAND, World, ada, fail, in_doubt, states, to_rest
from workflows import operations
from workflows.definition import Step
from workflows.effects import KnownEffect
from workflows.effects.rows import EffectRows
from workflows.errors import ClaimLost, NotAllowed, RetryableStepError
from workflows.models import Effect, ManualTask, Workflow
from workflows.outages import call_to
from workflows.signals import store as inbox

pytestmark = engine.ENGINE

__all__ = ["books"]


class NeverAgain(World):
    """The service answers each refund with 500, and its books say that the charge stands."""

    def step(self, name: str, **policy: Any) -> Step:
        def undo(*, workflow: Workflow, context: Any, effect: KnownEffect) -> dict[str, Any]:
            self.log.append(f"undo {name}")
            with call_to("payments") as call:
                call.unavailable()
                raise RetryableStepError("It is broken.", base_delay=0)

        return super().step(name, undo=undo, **policy)


def test_what_is_always_answered_with_an_outage_is_a_persons_question_at_last(
    books: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = 5
    for module in ("undo_doubts", "retry_budget"):
        monkeypatch.setattr(f"workflows.engine.{module}.OUTAGE_ATTEMPTS", patience)
    world = NeverAgain()
    define([world.step("charge", undo_lookup=books.lookup), fail], retry=AT_ONCE)
    workflow = work(submit())
    for _ in range(3 * patience + 10):
        workflow = again(workflow)
        if world.log.count("undo charge") >= 3 * patience:
            break
    assert open_questions() == 1, f"{world.log.count('undo charge')} undos, and nobody is asked"
    assert world.log.count("undo charge") == 2 * patience


def test_what_did_not_happen_is_undone_when_it_has_happened_after_a_retry(world: World) -> None:
    workflow = to_rest(asked_about_a_lookup(world))
    assert (workflow.status, states()["charge"], open_questions()) == ("FAILED", "not_done", 0)
    assert "undo charge" not in world.log
    define([world.step("reserve"), world.step("charge", lookup=world.lookup, settle=0), fail], retry=AT_ONCE)
    operations.retry(workflow.pk, user=ada(), reason="Again.")
    workflow = to_rest(workflow)
    assert (states()["charge"], world.log.count("undo charge"), open_questions()) == ("undone", 1, 0)


def test_what_is_no_mapping_closes_no_question(world: World, books: Ledgers) -> None:
    workflow = asked_about_a_refusal(world, books)
    nothing: list[Any] = [[], "", False, [("reference", "re-7")]]
    for found in nothing:
        books.found = found
        entry = last_attempt(again(workflow)).steps[-1]
        assert (states()["charge"], open_questions()) == ("done", 1)
        assert (entry["step"], entry["outcome"]) == ("charge", "waiting")
        assert f"returned {type(found).__name__}, and no mapping" in entry["error_message"]


def test_what_a_person_answers_while_a_call_is_looked_up_counts(world: World) -> None:
    workflow = asked_about_a_lookup(world)
    question = ManualTask.objects.get(state="open")

    def look(*, workflow: Workflow, context: Any, effect: KnownEffect) -> None:
        elsewhere(lambda: operations.approve(question.pk, user=ada(), reason="By phone.", answer=BY_HAND))

    define([world.step("reserve"), world.step("charge", lookup=look, settle=0)], retry=AT_ONCE)
    assert again(workflow).status == "PENDING"
    to_rest(workflow)
    assert states()["charge"] == "undone"
    assert Effect.objects.get(step="charge", undo=True).result == {"reference": "re-9"}


def test_what_a_person_has_claimed_is_not_undone_meanwhile_and_needs_nobody_once_it_is(
    world: World, books: Ledgers
) -> None:
    workflow = asked_about_an_outage(world, books)
    operations.claim_task(ManualTask.objects.get(state="open").pk, user=ada())
    workflow = again(workflow)
    assert (open_questions(), world.log.count("undo charge"), states()["charge"]) == (1, 3, "done")
    books.found = {"reference": "re-7"}
    assert to_rest(workflow).status == "FAILED"
    assert (open_questions(), states()["charge"]) == (0, "undone")


# --- A worker that is lost, and a person who decides, at each point -------------------------------------


def lose(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the worker be lost just before this statement about an effect; once."""
    write = getattr(EffectRows, name)

    def lost(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(EffectRows, name, write)
        raise ClaimLost("the worker is lost")

    monkeypatch.setattr(EffectRows, name, lost)


def test_a_worker_that_is_lost_after_it_has_withdrawn_the_question(
    world: World, books: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = asked_about_a_refusal(world, books)
    books.found = {"reference": "re-7"}
    lose(monkeypatch, "decide_undo")
    with pytest.raises(ClaimLost):
        again(workflow)
    assert (states()["charge"], open_questions()) == ("done", 0)
    books.found = None
    again(workflow)
    assert (states()["charge"], open_questions(), world.log.count("undo charge")) == ("done", 1, 3)
    books.found = {"reference": "re-7"}
    assert to_rest(workflow).status == "FAILED"
    assert (states()["charge"], open_questions(), world.log.count("undo charge")) == ("undone", 0, 3)


def test_a_worker_that_is_lost_before_it_lets_the_undo_be_called_again(
    world: World, books: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = asked_about_an_outage(world, books)
    lose(monkeypatch, "set_undo_failures")
    with pytest.raises(ClaimLost):
        again(workflow)
    again(workflow)
    assert (states()["charge"], open_questions(), world.log.count("undo charge")) == ("done", 1, 3)


@pytest.mark.parametrize("statement", ["set_undo_failures", "decide"])
def test_a_worker_that_is_lost_before_it_writes_what_became_of_a_call(
    world: World, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    workflow = asked_about_a_lookup(world)
    world.found["charge"] = {"tags": ["charge"]}
    lose(monkeypatch, statement)
    with pytest.raises(ClaimLost):
        again(workflow)
    workflow = to_rest(workflow)
    assert (states()["charge"], open_questions(), world.log.count("undo charge")) == ("undone", 0, 1)


def test_a_decision_that_is_on_its_way_as_the_question_is_withdrawn(world: World, books: Ledgers) -> None:
    """The person's statement has locked the task's row, and commits while the worker waits for it."""
    workflow = asked_about_an_outage(world, books)
    question = ManualTask.objects.get(state="open")
    has_locked = Event()
    decided = Thread(target=with_its_connections, args=[lambda: approve_slowly(question, has_locked)])

    def decide_meanwhile() -> None:
        decided.start()
        assert has_locked.wait(10)

    books.before = decide_meanwhile
    assert again(workflow).status == "PENDING"
    decided.join()
    to_rest(workflow)
    assert (world.log.count("undo charge"), states()["charge"]) == (3, "undone")
    assert Effect.objects.get(step="charge", undo=True).settled_by == "ada"


def approve_slowly(question: ManualTask, has_locked: Event) -> None:
    def stored(**fields: Any) -> Any:
        has_locked.set()
        until_blocked()  # the worker waits for the task's row
        return store(**fields)

    store = inbox.store
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inbox, "store", stored)
        operations.approve(question.pk, user=ada(), reason="By phone.", answer=BY_HAND)


def test_a_decision_that_comes_after_the_question_was_withdrawn_is_refused(world: World, books: Ledgers) -> None:
    workflow = asked_about_a_refusal(world, books)
    question = ManualTask.objects.get(state="open")
    books.found = {"reference": "re-7"}
    to_rest(workflow)
    with pytest.raises(NotAllowed, match="Its workflow has finished"):
        operations.approve(question.pk, user=ada(), reason="By phone.", answer=BY_HAND)
    question.refresh_from_db()
    assert (question.state, question.decided_by) == ("closed", None)


# --- Whether a call has happened ----------------------------------------------------------------------


def asked_whether_it_happened(world: World) -> tuple[Workflow, ManualTask]:
    """A workflow in compensation: a release without a lookup has asked a person whether the charge happened."""
    workflow = again(in_doubt(world))
    return workflow, ManualTask.objects.get(state="open", task_type="effect_in_doubt")


def say_that_it_happened(question: ManualTask) -> None:
    operations.approve(question.pk, user=ada(), reason="I see it.", answer={"tags": ["charge"]})


@pytest.mark.parametrize("who_says_yes", ["the person, before", "the person, just then", "the lookup"])
def test_a_yes_counts_though_the_other_says_no(world: World, who_says_yes: str) -> None:
    workflow, question = asked_whether_it_happened(world)
    if who_says_yes == "the person, before":
        say_that_it_happened(question)

    def look(*, workflow: Workflow, context: Any, effect: KnownEffect) -> dict[str, Any] | None:
        if who_says_yes == "the person, just then":
            elsewhere(lambda: say_that_it_happened(question))
        if who_says_yes != "the lookup":
            return None
        elsewhere(lambda: operations.reject(question.pk, user=ada(), reason="I see nothing."))
        return {"tags": ["charge"]}

    define([world.step("reserve"), world.step("charge", lookup=look, settle=0)], retry=AT_ONCE)
    to_rest(workflow)
    assert (states()["charge"], world.log.count("undo charge")) == ("undone", 1)
