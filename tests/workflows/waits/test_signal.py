"""Waiting for a signal, from inside a step."""

import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.utils import timezone

from tests import engine
from tests.engine import define, elsewhere, kinds, make_due, submit, work, worker
from workflows import inbox, operations
from workflows.definition import Step, WorkflowStep
from workflows.errors import ClaimLost, RetryableStepError
from workflows.models import Attempt, Signal, Wait, Workflow
from workflows.waits import WaitExpired, wait_for_signal, wait_for_time

pytestmark = engine.ENGINE

HOUR = timedelta(hours=1)
Look = Callable[[], dict[str, Any] | None]


def await_signals(
    names: str | Sequence[str],
    wait: str = "payment",
    *,
    timeout: timedelta = HOUR,
    look: Look | None = None,
    look_every: timedelta = timedelta(minutes=1),
) -> WorkflowStep:
    """A step that waits, and keeps the name and the number of the signal that came."""

    def await_signal(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        told = wait_for_signal(workflow, wait, names, timeout=timeout, look=look, look_every=look_every)
        return {"text": told.name, "number": told.payload.get("n"), "tags": [*context.tags, told.source]}

    return await_signal


def tell(
    workflow: Workflow | None,
    name: str,
    n: int = 1,
    *,
    key: str = "",
    linking_id: str | None = None,
    source: str = "shop",
) -> bool:
    address = {"linking_id": linking_id} if workflow is None else {"workflow_id": workflow.pk}
    return inbox.send(source=source, dedupe_key=key or f"{name}:{n}", name=name, payload={"n": n}, **address)  # type: ignore[arg-type]


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


def test_one_that_came_before_the_wait_is_found() -> None:
    define([await_signals("paid")])
    workflow = submit()
    tell(workflow, "paid", 3)
    assert work(workflow).context["number"] == 3


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
    worker().run_chores()
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
    failing = [True]

    def fail_at_first(*, workflow: Workflow, context: Any) -> None:
        if failing[0]:
            raise RetryableStepError

    define([await_signals(["paid", "declined"]), fail_at_first])
    workflow = submit()
    tell(workflow, "declined", 1)
    for n in range(2, 5):
        workflow = work(workflow)
        tell(workflow, "paid", n)
        make_due(workflow)
    failing[0] = False
    assert work(workflow).context["text"] == "declined"
    assert Wait.objects.count() == 1


def test_told_twice_it_is_one_signal() -> None:
    define([await_signals("paid", "deposit"), await_signals("paid", "balance")])
    workflow = submit()
    assert [tell(workflow, "paid", 1), tell(workflow, "paid", 1)] == [True, False]
    assert work(workflow).status == "PENDING"
    assert Signal.objects.count() == 1


def test_told_anew_with_the_same_key_and_something_else_it_is_refused() -> None:
    workflow = submit()
    tell(workflow, "paid", 1, key="k")
    for told_else in [("paid", 2), ("declined", 1)]:
        with pytest.raises(inbox.DedupeKeyReused):
            tell(workflow, *told_else, key="k")
    with pytest.raises(inbox.DedupeKeyReused):
        tell(submit(), "paid", 1, key="k")
    assert tell(submit(), "paid", 1, key="k", source="another") is True


@pytest.mark.parametrize("drained", [True, False], ids=["each at once", "all together"])
@pytest.mark.parametrize("seed", range(4))
def test_among_fifty_others_in_any_order_each_is_found_once(seed: int, drained: bool) -> None:
    steps = [await_signals(f"wanted.{n}", f"wait {n}") for n in range(5)]
    define([Step(step, name=f"step_{n}") for n, step in enumerate(steps)])
    workflow = submit(linking_id="acc-1")
    told = [(workflow, f"wanted.{n}") for n in range(0, 5, 2)] + [(None, f"wanted.{n}") for n in range(1, 5, 2)]
    told += [(workflow, f"other.{n}") for n in range(25)] + [(None, f"linked.{n}") for n in range(25)]
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


def test_nothing_in_time_fails_it() -> None:
    define([await_signals("paid")])
    workflow = work(submit())
    engine.expire(workflow)
    workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code) == ("FAILED", "wait_expired")
    assert Wait.objects.get().outcome == "expired"


def test_a_step_may_take_nothing_in_time_for_an_answer() -> None:
    def give_up(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        try:
            wait_for_signal(workflow, "payment", "paid", timeout=HOUR)
        except WaitExpired:
            return {"text": "then not"}
        return {}

    define([give_up])
    workflow = work(submit())
    engine.expire(workflow)
    assert work(workflow).context["text"] == "then not"


def test_the_deadline_does_not_move_over_ten_attempts() -> None:
    define([await_signals("paid", look=lambda: None)])
    workflow = submit()
    deadlines = set()
    for _ in range(10):
        make_due(workflow)
        workflow = work(workflow)
        deadlines.add(Wait.objects.get().deadline)
    assert len(deadlines) == 1


def test_with_looks_it_runs_again_sooner_and_sooner_never_past_its_deadline() -> None:
    define([await_signals("paid", look=lambda: None, timeout=timedelta(hours=1))])
    workflow = work(submit())
    until_first_look = workflow.invisible_until - timezone.now()
    assert timedelta(seconds=3) < until_first_look <= timedelta(seconds=5)
    Wait.objects.update(created_at=timezone.now() - timedelta(seconds=20))
    make_due(workflow)
    workflow = work(workflow)
    assert timedelta(seconds=18) < workflow.invisible_until - timezone.now() <= timedelta(seconds=21)
    Wait.objects.update(created_at=timezone.now() - timedelta(minutes=30))
    make_due(workflow)
    workflow = work(workflow)
    assert timedelta(seconds=58) < workflow.invisible_until - timezone.now() <= timedelta(minutes=1)
    soon = timezone.now() + timedelta(seconds=30)
    Wait.objects.update(deadline=soon)
    make_due(workflow)
    assert work(workflow).invisible_until == soon
    assert kinds(workflow) == ["waiting"], "it waits on as before: no news"


def test_what_a_look_finds_is_the_answer_and_stays_it() -> None:
    failing, looks = [True], [None, {"n": 9}, {"n": 10}]

    def fail_at_first(*, workflow: Workflow, context: Any) -> None:
        if failing[0]:
            raise RetryableStepError

    define([await_signals("paid", look=lambda: looks.pop(0)), fail_at_first])
    workflow = work(submit())
    assert workflow.wake_on == ["paid"]
    make_due(workflow)
    workflow = work(workflow)
    assert workflow.current_step == "fail_at_first"
    tell(workflow, "paid", 3)
    failing[0] = False
    make_due(workflow)
    workflow = work(workflow)
    assert (workflow.context["number"], workflow.context["text"], workflow.context["tags"]) == (9, "", ["look"])
    assert looks == [{"n": 10}], "it has looked twice"
    assert Wait.objects.get().outcome == "found"


def test_a_look_that_fails_for_now_has_found_nothing_and_one_that_fails_for_good_fails_the_step() -> None:
    errors = [RetryableStepError("Busy."), ValueError()]

    def look() -> None:
        raise errors.pop(0)

    define([await_signals("paid", look=look)])
    workflow = work(submit())
    assert (workflow.status, workflow.wake_on, workflow.retry_count) == ("PENDING", ["paid"], 0)
    make_due(workflow)
    assert work(workflow).status == "FAILED"


def test_a_signal_for_a_later_step_does_not_burn_the_retries_of_this_one() -> None:
    def fail(*, workflow: Workflow, context: Any) -> None:
        raise RetryableStepError

    define([fail, await_signals("paid")])
    workflow = work(submit())
    for n in range(20):
        tell(workflow, "paid", n)
        worker().run_chores()
        assert worker().process_next() is False
    workflow.refresh_from_db()
    assert (workflow.retry_count, Attempt.objects.count()) == (1, 1)


def fail_until_told(*, workflow: Workflow, context: Any) -> None:
    raise RetryableStepError("Not yet.", wake_on="account.created", base_delay=300)


@pytest.mark.parametrize("linked", [False, True])
def test_a_retry_is_cut_short_by_a_signal_that_its_error_names_and_its_attempt_has_not_seen(linked: bool) -> None:
    define([fail_until_told])
    workflow = submit(linking_id="acc-1")
    address = None if linked else workflow
    tell(address, "account.created", 1, linking_id="acc-1")
    workflow = work(workflow)
    worker().run_chores()
    assert worker().process_next() is False, "an old signal would wake it in a hot loop"
    tell(address, "account.updated", 2, linking_id="acc-1")
    worker().run_chores()
    assert worker().process_next() is False, "it is not what it waits for"
    tell(address, "account.created", 2, linking_id="acc-1")
    workflow = work(workflow)
    assert workflow.retry_count == 2
    worker().run_chores()
    assert worker().process_next() is False


def test_a_signal_that_comes_during_the_attempt_cuts_its_back_off_short() -> None:
    def fail_as_it_comes(*, workflow: Workflow, context: Any) -> None:
        if workflow.retry_count == 0:
            elsewhere(lambda: tell(workflow, "account.created"))
        fail_until_told(workflow=workflow, context=context)

    define([fail_as_it_comes])
    workflow = work(submit())
    assert workflow.invisible_until <= timezone.now()
    assert work(workflow).retry_count == 2
    assert worker().process_next() is False


def test_a_signal_for_a_workflow_that_has_ended_is_stored_and_ignored() -> None:
    define([await_signals("paid")])
    workflow = submit()
    tell(workflow, "paid")
    workflow = work(workflow)
    tell(workflow, "paid", 2)
    late = Signal.objects.get(dedupe_key="paid:2")
    assert late.ignored
    assert late.closed_at is not None
    assert worker().process_next() is False


def test_what_nobody_has_used_is_put_aside_as_the_workflow_ends_and_heeded_again_when_it_is_retried() -> None:
    mended: list[bool] = []

    def fail_at_first(*, workflow: Workflow, context: Any) -> None:
        if not mended:
            raise ValueError

    define([fail_at_first, await_signals("paid")])
    workflow = submit()
    tell(workflow, "paid", 1)
    assert work(workflow).status == "FAILED"
    assert Signal.objects.get().ignored
    mended.append(True)
    operations.retry(workflow.pk, user=User.objects.create(username="boss", is_superuser=True))
    assert work(workflow).context["number"] == 1
    assert not Signal.objects.get().ignored


def test_one_that_comes_in_the_moment_of_the_end_is_put_aside_by_the_chores() -> None:
    def be_told(*, workflow: Workflow, context: Any) -> None:
        elsewhere(lambda: tell(workflow, "paid"))

    define([be_told])
    assert work(submit()).status == "COMPLETE"
    assert not Signal.objects.get().ignored
    worker().run_chores()
    assert Signal.objects.get().ignored


def test_after_an_expiry_a_retry_waits_anew() -> None:
    define([await_signals("paid")])
    workflow = work(submit())
    engine.expire(workflow)
    assert work(workflow).status == "FAILED"
    operations.retry(workflow.pk, user=User.objects.create(username="boss", is_superuser=True))
    workflow = work(workflow)
    assert (workflow.status, workflow.wake_on) == ("PENDING", ["paid"])
    tell(workflow, "paid")
    assert work(workflow).status == "COMPLETE"


@pytest.mark.parametrize("name", ["decision:1", "child:x", "cancel", "", "two words", "x" * 200])
def test_the_engines_own_names_cannot_be_waited_for_nor_told(name: str) -> None:
    assert not inbox.is_name(name)
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


def age(signal: Signal, days: int) -> None:
    Signal.objects.filter(pk=signal.pk).update(created_at=timezone.now() - timedelta(days=days))


def test_one_of_a_linking_id_is_kept_as_long_as_a_workflow_that_has_it_is_under_way() -> None:
    define([await_signals("account.created")])
    submit(linking_id="acc-1", invisible_until=timezone.now() + timedelta(days=1))
    tell(None, "account.created", 1, linking_id="acc-1")
    tell(None, "account.created", 2, linking_id="acc-2")
    for signal in Signal.objects.all():
        age(signal, 31)
    worker().run_chores()
    assert list(Signal.objects.order_by("id").values_list("ignored", flat=True)) == [False, True]


def test_one_of_a_linking_id_that_nobody_has_yet_is_kept_for_a_month() -> None:
    tell(None, "account.created", 1, linking_id="acc-1")
    age(Signal.objects.get(), 29)
    worker().run_chores()
    assert Signal.objects.get().closed_at is None


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
    this.run_chores()
    assert this.process_next() is False, "what does not match does not keep it busy"
    tell(address, "paid", 2, linking_id="acc-1")
    this.run_chores()
    assert this.process_next() is False
    assert Attempt.objects.count() == 1, "nobody has run it for what does not match"
    tell(address, "paid", 7, linking_id="acc-1")
    workflow = work(workflow)
    assert (workflow.status, workflow.context["number"]) == ("COMPLETE", 7)
    assert [signal.ignored for signal in Signal.objects.order_by("id")] == [not linked, not linked, False]


def test_of_many_that_wait_by_one_linking_id_each_is_run_for_its_own_signal_alone() -> None:
    def await_own(*, workflow: Workflow, context: Any) -> None:
        wait_for_signal(workflow, "payment", "paid", timeout=HOUR, matching={"n": workflow.payload["n"]})

    define([await_own])
    for number in range(5):
        work(submit(linking_id="acc-1", payload={"n": number}))
    for number in range(5):
        tell(None, "paid", number, linking_id="acc-1")
    while worker().process_next():
        pass
    assert set(Workflow.objects.values_list("status")) == {("COMPLETE",)}
    assert Attempt.objects.count() == 10


@pytest.mark.parametrize("linked", [False, True])
def test_a_signal_that_came_with_a_copy_of_the_database_wakes_no_retry_in_a_hot_loop(linked: bool) -> None:
    """Restored into another cluster, the numbers of its transactions are of no meaning, and may be far ahead."""
    define([fail_until_told])
    workflow = submit(linking_id="acc-1")
    tell(None if linked else workflow, "account.created", 1, linking_id="acc-1")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE workflows_signal SET stored_in = (stored_in::text::bigint + 1000000)::text::xid8")
    work(workflow)
    worker().run_chores()
    assert worker().process_next() is False


def test_a_signal_does_not_wake_what_is_put_off_because_its_claim_is_lost_again_and_again() -> None:
    def lose_the_claim(*, workflow: Workflow, context: Any) -> None:
        if Attempt.objects.filter(workflow=workflow.pk).count() > 1:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    define([lose_the_claim, await_signals("paid")])
    workflow = work(submit())
    tell(workflow, "paid")
    this = worker()
    for _ in range(2):
        with pytest.raises((ClaimLost, OperationalError)):
            this.process_next()
        this._close_lost_attempt()
    this.run_chores()
    assert this.process_next() is False
    workflow.refresh_from_db()
    assert workflow.invisible_until > timezone.now()


@pytest.mark.parametrize("every", [timedelta(0), timedelta(seconds=-5), timedelta(milliseconds=1)])
def test_looks_that_would_leave_no_time_for_anything_else_are_refused(every: timedelta) -> None:
    define([await_signals("paid", look=lambda: None, look_every=every)])
    assert work(submit()).last_error_class == "workflows.waits.wait.WaitError"
    assert worker().process_next() is False


def test_a_wait_in_a_best_effort_call_is_that_steps_failure_and_nothing_is_waited_for() -> None:
    def say_one(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        return {"number": 1}

    define([Step(await_signals("paid"), name="call", once=True, best_effort=True), say_one])
    workflow = work(submit())
    assert (workflow.status, workflow.context["number"]) == ("COMPLETE", 1)
    assert "best_effort_failed" in kinds(workflow)


def test_a_deadline_that_no_worker_could_read_is_refused_and_shorter_it_waits() -> None:
    def await_for_days(days: int) -> WorkflowStep:
        return await_signals("paid", timeout=timedelta(days=days))

    define([await_for_days(3_000_000)])
    workflow = work(submit())
    assert (workflow.status, workflow.last_error_class) == ("FAILED", "workflows.waits.wait.WaitError")
    define([await_for_days(30)])
    operations.retry(workflow.pk, user=User.objects.create(username="boss", is_superuser=True))
    assert work(workflow).waiting_for == "the signal paid"


def test_names_that_no_row_could_hold_leave_the_retry_what_it_is() -> None:
    def fail(*, workflow: Workflow, context: Any) -> None:
        raise RetryableStepError("Not yet.", wake_on=["a\x00b", "paid"], base_delay=300)

    define([fail])
    workflow = work(submit())
    assert (workflow.retry_count, workflow.wake_on) == (1, ["paid"])


def test_words_that_no_row_could_hold_fail_the_step() -> None:
    words = ["a parcel"]

    def await_parcel(*, workflow: Workflow, context: Any) -> None:
        wait_for_signal(workflow, "parcel", "sent", timeout=HOUR, waiting_for=words[-1])

    define([await_parcel])
    workflow = work(submit())
    words.append("a\x00parcel")
    make_due(workflow)
    assert work(workflow).status == "FAILED"
