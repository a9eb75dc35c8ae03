"""A question to a person about an undo, or a call in doubt, closes as soon as a lookup answers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from django.db import DatabaseError
from django.utils import timezone

from tests import engine
from tests.engine import again, define, do_maintenance, elsewhere, last_attempt, outcomes, submit, work, worker
from tests.workflows.features.outages.services import SECOND, Downstream, circuit, open_circuit, trial_is_due
from tests.workflows.undoing import BY_HAND, World, ada, fail, in_doubt, states, to_rest
from workflows import operations, waits
from workflows.definition import Retry, WorkflowDefinition, definitions
from workflows.effects import KnownEffect
from workflows.engine.retry_budget import OUTAGE_ATTEMPTS
from workflows.errors import RetryableStepError, StepError
from workflows.features.outages.circuits import VOTES
from workflows.models import Attempt, Effect, ManualTask, Service, Workflow
from workflows.outages import call_to
from workflows.postgres.statements import execute

pytestmark = engine.ENGINE

AT_ONCE = Retry(base_delay=0)


class Ledgers:
    """What the service's own books say of each undo: nothing, unless a test writes something; and who asked."""

    def __init__(self) -> None:
        self.found: Mapping[str, Any] | None = None
        self.asked = 0
        self.before: Callable[[], None] = lambda: None

    def lookup(self, *, workflow: Workflow, context: Any, effect: KnownEffect) -> Mapping[str, Any] | None:
        assert (effect.step, effect.state) == ("charge", "done")
        self.asked += 1
        self.before()
        return self.found


@pytest.fixture
def books() -> Ledgers:
    return Ledgers()


def asked_about_a_refusal(world: World, books: Ledgers) -> Workflow:
    """A workflow whose undo was refused three times, so that a person is asked; the books have been asked once."""
    world.errors["undo charge"] = [StepError("No.", code="no_refunds")] * 3
    define([world.step("reserve"), world.step("charge", undo_lookup=books.lookup), fail], retry=AT_ONCE)
    workflow = work(submit())
    for _ in range(4):
        workflow = again(workflow)
    assert (open_questions(), books.asked) == (1, 1)
    return workflow


def asked_about_an_outage(world: World, books: Ledgers) -> Workflow:
    """A workflow whose undo met its service unavailable for as long as patience lasts."""
    workflow = asked_about_a_refusal(world, books)
    Effect.objects.filter(step="charge", undo=False).update(undo_failures=0, undo_unavailable=OUTAGE_ATTEMPTS)
    return workflow


def open_questions() -> int:
    return ManualTask.objects.filter(state="open").count()


# --- What an undo has come to -------------------------------------------------------------------------


def test_what_was_refused_and_still_stands_stays_a_question_and_is_looked_at_every_hour(
    world: World, books: Ledgers
) -> None:
    workflow = asked_about_a_refusal(world, books)
    for _ in range(3):  # a worker that starts leaves it alone until then
        worker().run(drain=True)
    assert (open_questions(), books.asked) == (1, 1)
    workflow.waits.filter(superseded=False).update(created_at=timezone.now() - timedelta(days=2))
    workflow = again(workflow)
    assert (books.asked, open_questions(), states()["charge"], world.log.count("undo charge")) == (2, 1, "done", 3)
    assert Effect.objects.get(step="charge", undo=False).undo_failures == 3
    assert outcomes(workflow) == {"charge": "waiting"}
    assert timedelta(minutes=59) < workflow.invisible_until - timezone.now() <= timedelta(hours=1)
    books.found = {"reference": "re-7"}  # somebody has undone it meanwhile
    assert to_rest(workflow).status == "FAILED"
    assert (states()["charge"], open_questions(), world.log.count("undo charge")) == ("undone", 0, 3)
    undo = Effect.objects.get(step="charge", undo=True)
    assert (undo.state, undo.settled_by, undo.result) == ("done", "lookup", {"reference": "re-7"})
    assert world.log[-1] == "undo reserve"


def test_what_failed_for_an_outage_alone_and_still_stands_is_undone_now(world: World, books: Ledgers) -> None:
    workflow = asked_about_an_outage(world, books)
    assert to_rest(workflow).status == "FAILED"
    assert (states()["charge"], open_questions(), world.log.count("undo charge")) == ("undone", 0, 4)


def test_what_a_person_answers_while_it_is_looked_up_counts(world: World, books: Ledgers) -> None:
    workflow = asked_about_an_outage(world, books)
    question = ManualTask.objects.get(state="open")
    books.before = lambda: elsewhere(
        lambda: operations.approve(question.pk, user=ada(), reason="By phone.", answer=BY_HAND)
    )
    assert again(workflow).status == "PENDING"
    books.before = lambda: pytest.fail("it was answered")
    assert to_rest(workflow).status == "FAILED"
    assert world.log.count("undo charge") == 3, "what was undone by hand is undone again"
    refund = Effect.objects.get(step="charge", undo=True)
    assert (refund.settled_by, refund.result) == ("ada", {"reference": "re-9"})


def swallow_a_database_error() -> None:
    with suppress(DatabaseError):
        execute("SELECT 1 / 0")


def raising(error: BaseException) -> Callable[[], None]:
    def do() -> None:
        raise error

    return do


def test_a_lookup_that_fails_or_would_wait_changes_nothing(world: World, books: Ledgers) -> None:
    workflow = asked_about_a_refusal(world, books)
    before = Effect.objects.filter(undo=False).values_list("state", "undo_failures", "undo_unavailable", "error_code")
    expected = list(before)
    books.found = {"reference": "re-7"}
    wait = partial(waits.wait_for_time, workflow, "a while", timedelta(days=2))
    for trouble in (raising(StepError("No.")), raising(SystemExit(3)), swallow_a_database_error, wait):
        books.before = trouble
        workflow = again(workflow)
        assert workflow.waiting_for == "The reversal of “Charge” failed 3 times. Has someone reversed it?"
        assert (list(before.all()), open_questions()) == (expected, 1)
        assert (last_attempt(workflow).outcome, workflow.invisible_until > timezone.now()) == ("waiting", True)


def test_what_killed_its_workers_is_not_looked_up(world: World, books: Ledgers) -> None:
    define([world.step("charge", undo_lookup=books.lookup), fail])
    workflow = work(submit())
    for number in range(2, 5):
        Attempt.objects.create(
            workflow=workflow, number=number, closed_at=workflow.created_at, died_in="undo charge", outcome="crashed"
        )
    workflow = again(work(workflow))
    assert (books.asked, open_questions()) == (0, 1), "its lookup may do the same"
    assert (open_questions(), workflow.invisible_until - timezone.now() > timedelta(days=29)) == (1, True)


# --- Whether a call has happened ----------------------------------------------------------------------


def asked_about_a_lookup(world: World) -> Workflow:
    """A workflow in compensation, whose lookup was refused three times: nobody knows whether the charge was made."""
    workflow = in_doubt(world, undo=world.step("charge").undo)
    define([world.step("reserve"), world.step("charge", lookup=refuse, settle=0)], retry=AT_ONCE)
    for _ in range(4):
        workflow = again(workflow)
    assert workflow.compensating
    assert workflow.waiting_for == "The lookup of “Charge” failed 3 times. Has someone reversed it?"
    define([world.step("reserve"), world.step("charge", lookup=world.lookup, settle=0)], retry=AT_ONCE)
    return workflow


def refuse(*, workflow: Workflow, context: Any, effect: KnownEffect) -> None:
    raise StepError("No.", code="forbidden")


def test_what_turns_out_to_have_happened_is_undone(world: World) -> None:
    world.found["charge"] = {"tags": ["charge"]}
    workflow = to_rest(asked_about_a_lookup(world))
    assert (workflow.status, states()["charge"], open_questions()) == ("FAILED", "undone", 0)
    assert world.log.count("undo charge") == 1


def test_a_release_that_can_look_a_call_up_asks_nobody_any_more(world: World) -> None:
    workflow = again(in_doubt(world))
    assert (workflow.waiting_for, open_questions()) == ("Unclear call: did “Charge” happen?", 1)
    worker().run(drain=True)
    assert open_questions() == 1
    world.found["charge"] = {"tags": ["charge"]}
    define([world.step("reserve"), world.step("charge", lookup=world.lookup, settle=0)])
    worker().run(drain=True)
    workflow.refresh_from_db()
    assert (workflow.status, states()["charge"], open_questions()) == ("FAILED", "undone", 0)
    assert (world.log.count("charge"), world.log.count("undo charge")) == (1, 1)


def test_a_release_that_can_look_an_undo_up_makes_it_due(world: World, books: Ledgers) -> None:
    workflow = asked_about_a_refusal(world, books)
    define([world.step("reserve"), world.step("charge"), fail], retry=AT_ONCE)
    again(workflow)
    worker().run(drain=True)
    assert open_questions() == 1
    books.found = {"reference": "re-7"}
    define([world.step("reserve"), world.step("charge", undo_lookup=books.lookup), fail], retry=AT_ONCE)
    worker().run(drain=True)
    workflow.refresh_from_db()
    assert (workflow.status, open_questions()) == ("FAILED", 0)


def asleep_for_days(workflow: Workflow) -> bool:
    workflow.refresh_from_db()
    return workflow.invisible_until > timezone.now() + timedelta(days=1)


@pytest.mark.parametrize("different", ["queue", "type", "closed"])
def test_a_question_that_it_has_no_lookup_for_is_left_alone(world: World, different: str) -> None:
    workflow = again(in_doubt(world))
    assert asleep_for_days(workflow)
    steps = [world.step("reserve"), world.step("charge", lookup=world.lookup, settle=0)]
    if different == "closed":  # it waits for something else by now
        ManualTask.objects.update(state="closed")
    define([*steps[:1], world.step("charge")] if different == "type" else steps)
    if different == "type":
        also = WorkflowDefinition(name="another", steps=steps, context_class=engine.Context)
        with_both = {**definitions(), also.name: also}
        with patch("workflows.effects.reconcile.definitions", lambda: with_both):
            worker().run(drain=True)
    else:
        worker(queue="elsewhere" if different == "queue" else "default").run(drain=True)
    assert asleep_for_days(workflow)
    assert "look for charge" not in world.log


# --- When the service is back -------------------------------------------------------------------------


def asked_in_an_outage(world: World, books: Ledgers, *, is_open: bool = True) -> tuple[Workflow, Downstream]:
    """A workflow with a question, whose lookup has met an open circuit, or one that lacks a single vote."""
    payments = Downstream("payments")

    def look() -> None:
        with call_to("payments") as call:
            if payments.state == "down":
                call.unavailable()
                raise RetryableStepError("It is down.")

    workflow = asked_about_an_outage(world, books)
    books.before = look
    payments.state = "down"
    if is_open:
        open_circuit("payments")
    else:
        since = timezone.now() - 3 * SECOND
        Service.objects.create(name="payments", since=since, failed=VOTES - 1, suspects=[1, 2, 3])
    return again(workflow), payments


def test_while_the_service_is_down_it_is_parked_and_the_question_stays_open(world: World, books: Ledgers) -> None:
    workflow, _ = asked_in_an_outage(world, books)
    assert (workflow.parked_on, open_questions(), books.asked) == ("payments", 1, 2)
    assert workflow.waiting_for == "The reversal of “Charge” failed 45 times. Has someone reversed it?"
    assert timedelta(minutes=59) < workflow.invisible_until - timezone.now() <= timedelta(hours=1)
    workflow = again(workflow)
    assert (workflow.parked_on, Effect.objects.get(step="charge", undo=False).undo_unavailable) == ("payments", 45)
    trial_is_due("payments")
    do_maintenance()
    retry_at = circuit("payments").retry_at
    assert worker().process_next(), "the lookup is a trial, which may fail"
    assert circuit("payments").retry_at > retry_at + SECOND
    workflow.refresh_from_db()
    assert (workflow.parked_on, open_questions()) == ("payments", 1)


def test_a_lookup_whose_vote_opens_the_circuit_is_parked(world: World, books: Ledgers) -> None:
    workflow, _ = asked_in_an_outage(world, books, is_open=False)
    assert (circuit("payments").opened_at is not None, workflow.parked_on) == (True, "payments")


def test_when_the_service_is_back_it_is_looked_up_and_undone(world: World, books: Ledgers) -> None:
    workflow, payments = asked_in_an_outage(world, books)
    payments.state = "well"
    trial_is_due("payments")
    do_maintenance()
    workflow.refresh_from_db()
    assert workflow.invisible_until <= timezone.now(), "nothing made it due"
    assert worker().process_next()
    assert (circuit("payments").opened_at, states()["charge"], open_questions()) == (None, "undone", 0)
    assert to_rest(workflow).status == "FAILED"


def test_a_persons_answer_does_not_wait_for_the_service(world: World, books: Ledgers) -> None:
    workflow, _ = asked_in_an_outage(world, books)
    operations.approve(ManualTask.objects.get(state="open").pk, user=ada(), reason="By phone.", answer=BY_HAND)
    workflow.refresh_from_db()
    assert workflow.invisible_until <= timezone.now()
    assert to_rest(workflow).status == "FAILED"
    assert (workflow.parked_on, states()["charge"]) == ("payments", "undone")
