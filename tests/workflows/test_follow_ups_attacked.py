"""Follow-ups under attack: whatever one raises, leaves behind or waits for, its workflow stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from time import sleep
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import Error, connection, connections, transaction
from django.utils import timezone
from pydantic import BaseModel, PositiveInt

from tests import engine
from tests.engine import another_connection, define, do_chores, elsewhere, kinds, last_attempt, submit, terminate, work
from tests.engine import worker as a_worker
from tests.workflows.outages.services import Downstream, open_circuit
from workflows import operations
from workflows.definition import Retry, Step
from workflows.effects import KnownEffect
from workflows.errors import ClaimLost, NotAllowed, RetryableStepError, StepError, UnknownOutcome
from workflows.models import Attempt, Effect, FollowUp, ManualTask, Service, Wait, Workflow
from workflows.waits import Child, require_approval, wait_for_children, wait_for_signal, wait_for_time

pytestmark = engine.ENGINE

HOUR = timedelta(hours=1)
LATER = Retry(max_attempts=3, base_delay=60)

Act = Callable[[Workflow], Any]


class Confirmation:
    """A best-effort step that is let go at first, and then does what the test says."""

    def __init__(self, act: Act = lambda workflow: {}) -> None:
        self.act = act
        self.calls: list[int] = []

    def step(self, *, workflow: Workflow, context: Any) -> Any:
        self.calls.append(workflow.pk)
        if len(self.calls) == 1:
            raise RetryableStepError("Not now.")
        return self.act(workflow)


def let_go(act: Act = lambda workflow: {}, **policy: Any) -> tuple[Workflow, Confirmation]:
    """A COMPLETE workflow whose confirmation was let go, and that confirmation."""
    service = Confirmation(act)
    define([Step(service.step, **{"best_effort": True, "name": "confirm", "follow_up": LATER, **policy})])
    workflow = work(submit())
    assert workflow.status == "COMPLETE"
    return workflow, service


def come_due() -> None:
    FollowUp.objects.filter(due_at__isnull=False).update(due_at=timezone.now() - timedelta(seconds=1))


def follow_up() -> bool:
    come_due()
    return a_worker().process_follow_up()


def columns(workflow: Workflow) -> dict[str, Any]:
    row = Workflow.objects.get(pk=workflow.pk)
    return {field.name: getattr(row, field.attname) for field in Workflow._meta.fields}


def raising(error: BaseException) -> Act:
    def act(workflow: Workflow) -> None:
        raise error

    return act


def sql(*statements: str) -> Act:
    def act(workflow: Workflow) -> dict[str, Any]:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        return {}

    return act


def swallow(workflow: Workflow) -> dict[str, Any]:
    with suppress(Error):
        sql("SELECT 1 / 0")(workflow)
    return {}


def overstay(workflow: Workflow) -> None:
    sleep(5)


def a_neighbour_completes() -> bool:
    """Whether the worker's session serves the next workflow as before."""

    def step(*, workflow: Workflow, context: Any) -> None: ...

    define([step])
    return work(submit()).status == "COMPLETE"


# --- Whatever it raises -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "policy", "left"),
    [
        (raising(StepError("No.")), {}, "given up"),
        (raising(RetryableStepError("Not now.")), {}, "later"),
        (raising(UnknownOutcome("Silence.")), {"once": True, "key_ttl": HOUR}, "later"),
        (raising(ValueError("What?")), {"once": True, "key_ttl": HOUR}, "given up"),
        (raising(SystemExit(3)), {}, "given up"),
        (raising(KeyboardInterrupt()), {}, "given up"),
        (raising(GeneratorExit()), {}, "given up"),
        (raising(MemoryError()), {}, "later"),
        (swallow, {}, "given up"),
        (sql("SELECT 1 / 0"), {}, "given up"),
        (overstay, {"timeout": 0.2}, "later"),
        (overstay, {"timeout": 0.2, "once": True, "key_ttl": HOUR}, "later"),
        (lambda workflow: {"undeclared": 1}, {}, "given up"),
        (lambda workflow: "no dict", {}, "given up"),
        (sql("ROLLBACK"), {}, "lost"),
        (sql("COMMIT"), {}, "lost"),
    ],
)
def test_whatever_it_raises_its_workflow_stays_as_it_is(act: Act, policy: dict[str, Any], left: str) -> None:
    workflow, _ = let_go(act, **policy)
    before = columns(workflow)
    if left == "lost":
        with pytest.raises((ClaimLost, Error)):
            follow_up()
        connections.close_all()
    else:
        assert follow_up()
    assert columns(workflow) == before
    row = FollowUp.objects.get()
    assert (row.due_at is None) == (left == "given up")
    assert kinds(workflow)[-1] == {"given up": "follow_up_given_up", "later": "follow_up_failed"}.get(left, "completed")
    assert row.tries == (left == "lost")
    assert a_neighbour_completes()


def test_a_hook_that_raises_changes_nothing_of_what_was_done() -> None:
    def act(workflow: Workflow) -> dict[str, Any]:
        transaction.on_commit(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
        return {}

    workflow, _ = let_go(act)
    assert follow_up()
    assert not FollowUp.objects.exists()
    assert kinds(workflow)[-1] == "followed_up"
    assert last_attempt(workflow).outcome == "followed_up"
    assert a_neighbour_completes()


@pytest.fixture
def role() -> Iterator[str]:
    name = f"onramp_reader_{uuid4().hex}"
    with another_connection() as other:
        other.execute(f"CREATE ROLE {name}")
        yield name
        connections.close_all()
        other.execute(f"DROP ROLE {name}")


@pytest.mark.parametrize("fails", [False, True])
def test_a_session_that_is_left_as_another_role_is_ours_again(role: str, fails: bool) -> None:
    def act(workflow: Workflow) -> dict[str, Any]:
        sql(f"SET ROLE {role}")(workflow)
        if fails:
            raise StepError("No.")
        return {}

    workflow, _ = let_go(act)
    assert follow_up()
    assert kinds(workflow)[-1] == ("follow_up_given_up" if fails else "followed_up")
    assert a_neighbour_completes()


def test_a_deferred_constraint_that_it_breaks_is_its_failure() -> None:
    table = f"t{uuid4().hex}"
    with another_connection() as other:
        other.execute(f"CREATE TABLE {table} (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        try:
            workflow, _ = let_go(sql(f"INSERT INTO {table} VALUES (1), (1)"))
            assert follow_up()
            assert kinds(workflow)[-1] == "follow_up_given_up"
        finally:
            connections.close_all()
            other.execute(f"DROP TABLE {table}")


@pytest.mark.parametrize("alias", ["default", "journal"])
def test_a_connection_that_is_lost_in_it_decides_nothing_and_the_next_worker_repeats_the_call(alias: str) -> None:
    def act(workflow: Workflow) -> dict[str, Any]:
        if len(service.calls) == 2:
            terminate(alias)
        return {}

    workflow, service = let_go(act, once=True, key_ttl=HOUR)
    before = columns(workflow)
    this = a_worker()
    come_due()
    with pytest.raises((ClaimLost, Error)):
        this.process_follow_up()
    this._close_lost_attempt(how="gone")
    assert columns(workflow) == before
    assert last_attempt(workflow).outcome == "lost"
    row = FollowUp.objects.get()
    assert row.tries == 1
    assert row.due_at
    assert row.due_at > timezone.now() + timedelta(seconds=30), "it is put off, so that it is not the next one again"
    assert follow_up()
    assert not FollowUp.objects.exists()
    assert Effect.objects.get().state == "done"
    assert not Attempt.objects.filter(outcome="").exists()


# --- Calls in doubt, and calls that are done -----------------------------------------------------


def test_a_call_in_doubt_is_looked_up_and_that_it_is_too_early_is_no_failure() -> None:
    found: list[Any] = []

    def lookup(*, workflow: Workflow, context: Any, effect: KnownEffect) -> dict[str, Any] | None:
        return found[-1] if found else None

    def confirm(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        raise UnknownOutcome("Silence.")

    step = Step(confirm, best_effort=True, once=True, lookup=lookup, settle=3600, follow_up=LATER)
    define([step])
    workflow = work(submit())
    for _ in range(4):
        assert follow_up()
    row = FollowUp.objects.get()
    assert (row.failures, row.unavailable) == (0, 0)
    assert row.due_at
    assert row.due_at > timezone.now() + timedelta(minutes=50)
    found.append({})
    assert follow_up()
    assert not FollowUp.objects.exists()
    assert kinds(workflow)[-1] == "followed_up"


def test_a_call_that_is_done_is_not_made_again() -> None:
    workflow, service = let_go(once=True, key_ttl=HOUR)
    Effect.objects.update(state="done", result={})
    assert follow_up()
    assert len(service.calls) == 1
    assert not FollowUp.objects.exists()
    assert kinds(workflow)[-1] == "followed_up"


# --- It may not wait ----------------------------------------------------------------------------


def approve(workflow: Workflow) -> None:
    require_approval(workflow, "ask", question="May it?", facts={}, task_type="any", timeout=HOUR)


def start_children(workflow: Workflow) -> None:
    wait_for_children(workflow, "children", [Child("test", {})], timeout=HOUR)


@pytest.mark.parametrize(
    "act",
    [
        lambda workflow: wait_for_signal(workflow, "reply", "reply", timeout=HOUR),
        lambda workflow: wait_for_time(workflow, "rest", HOUR),
        approve,
        start_children,
    ],
)
def test_what_it_may_not_wait_for_is_not_begun(act: Act) -> None:
    """Else a person would be asked what nobody waits for, and children would be started."""
    workflow, _ = let_go(act)
    before = columns(workflow)
    assert follow_up()
    assert columns(workflow) == before
    assert kinds(workflow)[-1] == "follow_up_failed"
    assert not Wait.objects.exists()
    assert not ManualTask.objects.exists()
    assert Workflow.objects.count() == 1


def test_what_it_has_waited_for_already_is_known() -> None:
    def act(workflow: Workflow) -> dict[str, Any]:
        wait_for_time(workflow, "rest", timedelta(0))
        return {}

    service = Confirmation(act)

    def rest(*, workflow: Workflow, context: Any) -> None:
        wait_for_time(workflow, "rest", timedelta(0))

    define([rest, Step(service.step, best_effort=True, name="confirm", follow_up=LATER)])
    workflow = work(submit())
    assert workflow.status == "COMPLETE"
    assert follow_up()
    assert not FollowUp.objects.exists()


# --- Other releases -----------------------------------------------------------------------------


def test_a_release_that_has_renamed_it_does_it_under_its_old_key() -> None:
    workflow, service = let_go(raising(UnknownOutcome("Silence.")), once=True, key_ttl=HOUR)
    (before,) = Effect.objects.values_list("idempotency_key", flat=True)
    service.act = lambda workflow: {}
    renamed = Step(
        service.step, best_effort=True, name="tell", formerly=("confirm",), once=True, key_ttl=HOUR, follow_up=LATER
    )
    define([renamed])
    assert follow_up()
    effect = Effect.objects.get()
    assert (effect.state, effect.idempotency_key) == ("done", before)
    assert not FollowUp.objects.exists()
    assert kinds(workflow)[-1] == "followed_up"


@pytest.mark.parametrize("is_there", [True, False])
def test_a_release_that_follows_it_up_no_more_leaves_it_to_one_that_does(is_there: bool) -> None:
    workflow, service = let_go()
    define([Step(service.step, best_effort=True, name="confirm" if is_there else "another")])
    assert follow_up()
    assert len(service.calls) == 1
    row = FollowUp.objects.get()
    assert row.due_at
    assert row.due_at > timezone.now() + timedelta(minutes=7)
    define([Step(service.step, best_effort=True, name="confirm", follow_up=LATER)])
    assert follow_up()
    assert kinds(workflow)[-1] == "followed_up"


class Strict(BaseModel):
    """A release's context that does not read what the one before it has recorded."""

    number: int | None = None
    text: PositiveInt | None = None


class Untrue(BaseModel):
    """A context whose defaults its own types refuse: nobody has set them, so nobody is told."""

    number: PositiveInt = 0
    text: str = None  # type: ignore[assignment]


class Broken(BaseModel):
    """A context whose code fails on what another release has recorded."""

    text: str | None = None

    def model_post_init(self, context: Any) -> None:
        if self.text:
            raise LookupError(self.text)


@pytest.mark.parametrize("context_class", [Strict, Broken])
def test_a_release_that_cannot_read_the_recorded_context_leaves_it_to_one_that_can(
    context_class: type[BaseModel],
) -> None:
    def found(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        return {"text": "seven"}

    service = Confirmation()
    steps = [found, Step(service.step, best_effort=True, name="confirm", follow_up=LATER)]
    define(steps)
    workflow = work(submit())
    define(steps, context_class=context_class)
    assert follow_up()
    row = FollowUp.objects.get()
    assert row.due_at, "the release of the other hosts may read it"
    assert row.due_at > timezone.now() + timedelta(minutes=7)
    told = last_attempt(workflow).steps, workflow.events.get(kind="follow_up_failed").detail
    assert "seven" not in str(told)
    assert told[1]["error_code"] == "context_unreadable"
    define(steps)
    assert follow_up()
    assert kinds(workflow)[-1] == "followed_up"


def test_a_default_that_its_own_model_refuses_is_no_reason_to_give_up() -> None:
    service = Confirmation()
    define([Step(service.step, best_effort=True, name="confirm", follow_up=LATER)], context_class=Untrue)
    workflow = work(submit())
    assert follow_up()
    assert kinds(workflow)[-1] == "followed_up"


def test_while_the_ledger_holds_a_call_of_another_release_it_makes_no_call_and_asks_nobody() -> None:
    def reserve(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        return {}

    service = Confirmation()
    confirm = Step(service.step, best_effort=True, name="confirm", once=True, key_ttl=HOUR, follow_up=LATER)
    define([Step(reserve, once=True, key_ttl=HOUR), confirm])
    workflow = work(submit())
    Effect.objects.filter(step="confirm").delete()
    define([confirm])
    for _ in range(2):
        assert follow_up()
    assert len(service.calls) == 1
    assert not Wait.objects.exists()
    assert not ManualTask.objects.exists()
    assert kinds(workflow)[-1] == "follow_up_failed"


# --- People, workers and services ---------------------------------------------------------------


@pytest.mark.parametrize("verb", ["retry", "run_now", "cancel"])
def test_what_people_do_to_its_workflow_is_refused_as_for_any_that_is_complete(verb: str) -> None:
    workflow, _ = let_go()
    before = columns(workflow)
    with pytest.raises(NotAllowed, match="complete"):
        getattr(operations, verb)(workflow.pk, user=User.objects.create_superuser("ada"), reason="Because.")
    do_chores()
    assert columns(workflow) == before
    assert FollowUp.objects.get().due_at


def test_while_a_worker_is_at_it_people_are_told_that_it_runs() -> None:
    told: list[str] = []

    def act(workflow: Workflow) -> dict[str, Any]:
        def cancel() -> None:
            try:
                operations.retry(workflow.pk, user=User.objects.get(), reason="Because.")
            except NotAllowed as refusal:
                told.append(str(refusal))

        elsewhere(cancel)
        return {}

    User.objects.create_superuser("ada")
    let_go(act)
    assert follow_up()
    assert told == ["It is running right now; try again in a moment."]


def test_another_worker_passes_over_the_one_that_is_under_way() -> None:
    others: list[bool] = []

    def act(workflow: Workflow) -> dict[str, Any]:
        FollowUp.objects.using("journal").update(due_at=timezone.now() - HOUR)  # it takes longer than it was put off
        others.append(elsewhere(a_worker().process_follow_up))
        return {}

    _, service = let_go(act)
    assert follow_up()
    assert others == [False]
    assert len(service.calls) == 2


def test_it_is_for_the_workers_of_its_queue_and_a_drain_leaves_none_behind() -> None:
    service = Confirmation()
    define([Step(service.step, best_effort=True, name="confirm", follow_up=LATER)])
    submit(queue="letters")
    a_worker(queue="letters").run(drain=True)
    come_due()
    a_worker().run(drain=True)
    a_worker(queue="letters", only="compensation").run(drain=True)
    assert FollowUp.objects.get().tries == 0
    a_worker(queue="letters").run(drain=True)
    assert not FollowUp.objects.exists()


def seconds_until_due() -> float:
    due = FollowUp.objects.get().due_at
    assert due
    return (due - timezone.now()).total_seconds()


def test_in_a_long_outage_it_is_looked_at_once_an_hour(messages: Downstream) -> None:
    """Each look is an attempt: once a minute, an outage of a day would have 1,400 of each follow-up."""
    open_circuit("messages", trial_in=40)
    follow_up()
    assert 40 < seconds_until_due() < 60
    FollowUp.objects.update(created_at=timezone.now() - 8 * HOUR)
    follow_up()
    assert 3600 < seconds_until_due() < 3700


def test_a_hold_that_ends_early_holds_it_up_for_an_hour_at_most(messages: Downstream) -> None:
    open_circuit("messages", trial_in=3 * 86_400)
    Service.objects.update(held_by="ada")
    follow_up()
    assert 3600 < seconds_until_due() < 3700


@pytest.fixture
def messages() -> Downstream:
    """It is down, and the confirmation of a workflow was let go for it."""
    service = Downstream("messages")
    service.state = "down"
    define([Step(service.step, best_effort=True, once=True, key_ttl=HOUR, name="confirm", follow_up=LATER)])
    work(submit())
    return service


def test_a_trial_that_it_makes_and_that_is_in_vain_counts_once(messages: Downstream) -> None:
    open_circuit("messages", trial_in=-1)
    calls = len(messages.calls)
    follow_up()
    assert len(messages.calls) == calls + 1
    assert not Workflow.objects.exclude(status="COMPLETE").exists()
    follow_up()
    assert len(messages.calls) == calls + 1, "the trial has failed: the next one comes later"
