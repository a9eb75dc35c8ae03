"""RETRACT: what was started after an answer is told by the order of the calls, and not by a clock that was set back."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import connection

from tests import engine
from tests.engine import define, submit, work
from tests.workflows.operations.bank import (
    BY_HAND,
    YES,
    Bank,
    answer,
    asked_again,
    fail,
    in_doubt,
    pause,
    refused,
    retract,
    ship,
    states,
    to_rest,
)
from tests.workflows.operations.test_retracting import crash, told
from tests.workflows.operations.test_retracting_undone import undo_in_doubt
from workflows.definition import Step
from workflows.models import ManualTask

pytestmark = engine.ENGINE


def moved(table: str, *columns: str, minutes: int = -10, where: str = "true") -> None:
    """What the database's clock said then, had it been set back, or not yet."""
    times = ", ".join(f"{column} = {column} + interval '{minutes} minutes'" for column in columns)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE workflows_{table} SET {times} WHERE {where}")


def test_an_answer_stands_once_another_call_was_started_though_the_clock_was_set_back(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(bank.step(), Step(ship, once=True), pause)
    answer(task, ada, YES)
    work(workflow)
    moved("effect", "begun_at", "first_begun_at", where="step = 'ship'")
    refused(task, ada, "“Ship” was started since")


def test_a_no_whose_new_call_was_started_stands_though_the_clock_was_set_back(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(bank.step(), pause)
    answer(task, ada, None)
    work(workflow)
    moved("effect", "begun_at", "first_begun_at", where="generation = 2")
    refused(task, ada, "“Pay” was started since")


def test_a_no_whose_new_call_was_not_started_leaves_no_generation_behind(bank: Bank, ada: User) -> None:
    """Left in doubt, that generation would be asked about, and not the call that was made."""
    workflow, task = in_doubt(bank.step())
    answer(task, ada, None)
    crash("before_intent:pay")
    told()
    moved("effect", "begun_at", "first_begun_at", where="generation = 2")
    retract(task, ada)
    assert states() == {"pay 1": "unknown"}
    asked_again(workflow)


def test_what_was_called_before_the_answer_does_not_matter_whatever_the_clock_said(bank: Bank, ada: User) -> None:
    workflow, task = in_doubt(Step(ship, once=True), bank.step(), pause)
    answer(task, ada, YES)
    work(workflow)
    moved("effect", "begun_at", "first_begun_at", minutes=10, where="step = 'ship'")
    retract(task, ada)
    asked_again(workflow)


def test_an_undo_that_was_called_before_the_answer_stays_in_doubt_whatever_the_clock_said(
    bank: Bank, ada: User
) -> None:
    """With its row the ledger would forget a refund that may have been paid."""
    workflow, task = undo_in_doubt(bank)
    answer(task, ada, BY_HAND)
    to_rest(workflow)
    moved("effect", "begun_at", "first_begun_at", minutes=10, where="undo")
    retract(task, ada)
    assert states() == {"pay 1": "done", "undo pay": "unknown"}


def test_an_undo_by_hand_leaves_no_trace_of_a_call_whatever_the_clock_said(bank: Bank, ada: User) -> None:
    define([bank.step(undo=bank.refund), fail])
    bank.charged = ["before"]
    workflow = work(submit())
    define([bank.step(), fail])  # a release that lacks the undo
    work(workflow)
    answer(task := ManualTask.objects.get(), ada, BY_HAND)
    to_rest(workflow)
    moved("effect", "begun_at", "first_begun_at", where="undo")
    retract(task, ada)
    assert states() == {"pay 1": "done"}
