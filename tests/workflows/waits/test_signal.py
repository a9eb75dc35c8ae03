"""Waiting for a signal, from inside a step: which one answers, once and for all, and what a wait may not be."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from tests import engine
from tests.engine import define, do_maintenance, kinds, make_due, submit, work, worker
from tests.workflows.waits.signals import HOUR, await_signals, fail_until, tell
from workflows.definition import Step
from workflows.models import Attempt, Signal, Wait, Workflow
from workflows.signals import store
from workflows.waits import wait_for_signal, wait_for_time

pytestmark = engine.ENGINE


def test_it_waits_until_the_signal_has_come() -> None:
    define([await_signals("paid")])
    workflow = work(submit())
    wait = Wait.objects.get()
    assert (workflow.status, workflow.wake_on) == ("PENDING", ["paid"])
    assert workflow.waiting_for == "the signal paid"
    assert workflow.invisible_until == wait.deadline
    assert wait.deadline - wait.created_at == pytest.approx(HOUR, abs=timedelta(seconds=1))
    assert worker().process_next() is False

    assert tell(workflow, "paid", 7)
    workflow = work(workflow)
    assert (workflow.status, workflow.context["text"], workflow.context["number"]) == ("COMPLETE", "paid", 7)
    wait, signal = Wait.objects.get(), Signal.objects.get()
    assert (wait.outcome, wait.signal) == ("received", signal)
    assert signal.closed_at is not None
    assert not signal.ignored
    assert kinds(workflow) == ["waiting", "completed"]


def test_one_that_came_before_the_workflow_is_found_by_its_linking_id() -> None:
    define([await_signals("account.created")])
    tell(None, "account.created", 5, linking_id="acc-1")
    tell(None, "account.created", 6, linking_id="acc-2")
    assert work(submit(linking_id="acc-1")).context["number"] == 5


def test_one_of_a_linking_id_answers_every_workflow_that_has_it_once_each() -> None:
    define([await_signals("account.created", "first"), await_signals("account.created", "second")])
    first, second = submit(linking_id="acc-1"), submit(linking_id="acc-1")
    work(first)
    tell(None, "account.created", 1, linking_id="acc-1")
    for workflow in (first, second):
        workflow = work(workflow)
        assert (workflow.status, workflow.current_step) == ("PENDING", "await_signal")
        assert list(Wait.objects.filter(workflow=workflow).order_by("id").values_list("outcome", flat=True)) == [
            "received",
            "",
        ]
    assert worker().process_next() is False, "what has answered one wait of a workflow wakes it no more"
    do_maintenance()
    assert worker().process_next() is False
    tell(None, "account.created", 2, linking_id="acc-1")
    assert {work(first).status, work(second).status} == {"COMPLETE"}


def test_each_of_two_waits_takes_a_signal_of_its_own() -> None:
    define([await_signals("paid", "deposit"), await_signals("paid", "balance")])
    workflow = submit()
    tell(workflow, "paid", 1)
    workflow = work(workflow)
    assert workflow.status == "PENDING"
    tell(workflow, "paid", 2)
    assert work(workflow).context["number"] == 2


def test_of_several_names_the_first_to_come_answers() -> None:
    define([await_signals(["paid", "declined"])])
    workflow = submit()
    tell(workflow, "declined", 1)
    tell(workflow, "paid", 2)
    assert work(workflow).context["text"] == "declined"


def test_an_answer_is_the_answer_of_every_later_attempt_also_when_a_better_one_came() -> None:
    mended: list[bool] = []
    define([await_signals(["paid", "declined"]), fail_until(mended)])
    workflow = submit()
    tell(workflow, "declined", 1)
    for n in range(2, 5):
        workflow = work(workflow)
        tell(workflow, "paid", n)
        make_due(workflow)
    mended.append(True)
    assert work(workflow).context["text"] == "declined"
    assert Wait.objects.count() == 1


def test_told_twice_it_is_one_signal_and_with_something_else_under_the_same_key_it_is_refused() -> None:
    workflow = submit()
    assert [tell(workflow, "paid", 1, key="k"), tell(workflow, "paid", 1, key="k")] == [True, False]
    for told_else in [("paid", 2), ("declined", 1)]:
        with pytest.raises(store.DedupeKeyReused):
            tell(workflow, *told_else, key="k")
    with pytest.raises(store.DedupeKeyReused):
        tell(submit(), "paid", 1, key="k")
    assert tell(submit(), "paid", 1, key="k", source="another") is True


@pytest.mark.parametrize("drained", [True, False], ids=["each at once", "all together"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_among_twenty_others_in_any_order_each_is_found_once(seed: int, drained: bool) -> None:
    steps = [await_signals(f"wanted.{n}", f"wait {n}") for n in range(5)]
    define([Step(step, name=f"step_{n}") for n, step in enumerate(steps)])
    workflow = submit(linking_id="acc-1")
    told = [(workflow, f"wanted.{n}") for n in range(0, 5, 2)] + [(None, f"wanted.{n}") for n in range(1, 5, 2)]
    told += [(workflow, f"other.{n}") for n in range(10)] + [(None, f"linked.{n}") for n in range(10)]
    random.Random(seed).shuffle(told)
    for address, name in told:
        tell(address, name, linking_id="acc-1")
        while drained and worker().process_next():
            pass
    while worker().process_next():
        pass
    workflow.refresh_from_db()
    assert workflow.status == "COMPLETE"
    answers = Wait.objects.order_by("name").values_list("name", "signal__name")
    assert list(answers) == [(f"wait {n}", f"wanted.{n}") for n in range(5)]
    assert Attempt.objects.count() <= 6, "a signal for something else wakes nobody"


@pytest.mark.parametrize("linked", [False, True])
def test_only_a_signal_that_matches_counts_and_the_others_neither_wake_it_nor_are_used(linked: bool) -> None:
    def await_seven(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        told = wait_for_signal(workflow, "payment", "paid", timeout=HOUR, matching={"n": 7})
        return {"number": told.payload["n"]}

    define([await_seven])
    workflow = submit(linking_id="acc-1")
    address = None if linked else workflow
    tell(address, "paid", 1, linking_id="acc-1")
    work(workflow)
    this = worker()
    do_maintenance()
    assert this.process_next() is False, "what does not match does not keep it busy"
    tell(address, "paid", 2, linking_id="acc-1")
    do_maintenance()
    assert this.process_next() is False
    assert Attempt.objects.count() == 1, "nobody has run it for what does not match"
    tell(address, "paid", 7, linking_id="acc-1")
    workflow = work(workflow)
    assert (workflow.status, workflow.context["number"]) == ("COMPLETE", 7)
    assert [signal.ignored for signal in Signal.objects.order_by("id")] == [not linked, not linked, False]


# --- What is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["decision:1", "child:x", "cancel", "", "two words", "x" * 200])
def test_the_engines_own_names_cannot_be_waited_for_nor_told(name: str) -> None:
    assert not store.is_name(name)
    define([await_signals(name)])
    workflow = work(submit())
    assert workflow.status == "FAILED"
    assert not Wait.objects.exists()


def test_two_kinds_of_waits_of_one_name_are_refused() -> None:
    def wait_for_both(*, workflow: Workflow, context: Any) -> None:
        wait_for_time(workflow, "payment", timedelta(0))
        wait_for_signal(workflow, "payment", "paid", timeout=HOUR)

    define([wait_for_both])
    workflow = work(submit())
    assert workflow.status == "FAILED"
    assert "rename one of them" in workflow.last_error_message


def test_a_wait_in_a_best_effort_call_is_that_steps_failure_and_nothing_is_waited_for() -> None:
    def say_one(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        return {"number": 1}

    define([Step(await_signals("paid"), name="call", once=True, best_effort=True), say_one])
    workflow = work(submit())
    assert (workflow.status, workflow.context["number"]) == ("COMPLETE", 1)
    assert "best_effort_failed" in kinds(workflow)


def test_words_that_no_row_could_hold_fail_the_step() -> None:
    words = ["a parcel"]

    def await_parcel(*, workflow: Workflow, context: Any) -> None:
        wait_for_signal(workflow, "parcel", "sent", timeout=HOUR, waiting_for=words[-1])

    define([await_parcel])
    workflow = work(submit())
    words.append("a\x00parcel")
    make_due(workflow)
    assert work(workflow).status == "FAILED"


# --- Sent from somebody's own code ----------------------------------------------------------------------------------


def test_in_the_senders_transaction_it_is_stored_and_wakes_with_the_commit_or_not_at_all() -> None:
    define([await_signals("paid")])
    workflow = work(submit(linking_id="7"))
    for is_kept in (False, True):
        with transaction.atomic():
            assert store.send(source="shop", dedupe_key="1", name="paid", linking_id=7, payload={"n": 3})
            workflow.refresh_from_db()
            assert workflow.invisible_until > timezone.now(), "only a committed signal can wake"
            transaction.set_rollback(not is_kept)
        assert Signal.objects.exists() == is_kept
    assert work(workflow).context["number"] == 3, "it was woken"


def test_a_step_tells_another_workflow_when_its_own_attempt_is_committed() -> None:
    def tells(*, workflow: Workflow, context: Any) -> None:
        other = workflow.payload.get("tells")
        if other:
            store.send(source="step", dedupe_key=str(workflow.pk), name="paid", workflow_id=other, payload={"n": 3})

    mended = [True]
    define([tells, Step(fail_until(mended), name="mended"), Step(await_signals("paid"), name="waits")])
    waiting = work(submit())
    mended.clear()
    sender = work(submit({"tells": waiting.pk}))
    assert not Signal.objects.exists(), "its attempt failed"
    mended.append(True)
    tell(sender, "paid")
    make_due(sender)
    assert work(sender).status == "COMPLETE"
    assert work(waiting).context["number"] == 3


@pytest.mark.parametrize(
    ("address", "refusal"),
    [
        ({}, "workflow_id=... or linking_id="),
        ({"workflow_id": 1, "linking_id": "a"}, "workflow_id=... or linking_id="),
        ({"linking_id": ""}, "A linking id is"),
        ({"linking_id": "a" * 201}, "A linking id is"),
        ({"linking_id": []}, "A linking id is"),
        ({"workflow_id": 0}, "There is no workflow 0."),
        *(
            ({"linking_id": "a", "name": name}, "No step can wait for this name")
            for name in ("cancel", "decision:1", "")
        ),
        *(({"linking_id": "a", "source": source}, "A source has") for source in ("console", "engine", "", "s" * 151)),
        *(({"linking_id": "a", "dedupe_key": key}, "A dedupe_key has") for key in ("", "k" * 201)),
        *(({"linking_id": "a", name: "\0"}, "null character") for name in ("source", "dedupe_key", "linking_id")),
        ({"linking_id": "a", "payload": {"at": datetime.now(UTC)}}, "no form in JSON"),
        ({"linking_id": "a", "payload": {"sum": float("nan")}}, "number"),
    ],
)
def test_what_reaches_nobody_or_cannot_be_stored_is_refused_and_aborts_no_transaction(
    address: Any, refusal: str
) -> None:
    with transaction.atomic():
        with pytest.raises(ValueError, match=refusal):
            store.send(**{"source": "shop", "dedupe_key": "1", "name": "paid", "payload": {}, **address})
        assert not Signal.objects.exists()
