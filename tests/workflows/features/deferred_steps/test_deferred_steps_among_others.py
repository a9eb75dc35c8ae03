"""Deferred steps among other releases, workers, people and services in an outage."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pydantic import BaseModel, PositiveInt

from tests import engine
from tests.clock import standing_still
from tests.engine import define, elsewhere, kinds, last_attempt, submit, work
from tests.engine import worker as a_worker
from tests.workflows.features.outages.services import Downstream, open_circuit
from tests.workflows.letting_go import HOUR, LATER, Confirmation, come_due, follow_up, let_go
from workflows.definition import Step
from workflows.engine.loop import LOOK_EVERY
from workflows.errors import UnknownOutcome
from workflows.models import Effect, FollowUp, ManualTask, Service, Wait, Workflow

pytestmark = engine.ENGINE


def fall_silent(workflow: Workflow) -> None:
    raise UnknownOutcome("Silence.")


# --- Other releases -----------------------------------------------------------------------------


def test_a_release_that_has_renamed_it_does_it_under_its_old_key() -> None:
    workflow, service = let_go(fall_silent, once=True, key_ttl=HOUR)
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


def test_another_worker_passes_over_the_one_that_is_under_way() -> None:
    others: list[bool] = []

    def act(workflow: Workflow) -> dict[str, Any]:
        FollowUp.objects.using("attempt_log").update(
            due_at=timezone.now() - HOUR
        )  # it takes longer than it was rescheduled
        others.append(elsewhere(a_worker().process_from_sources))
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


def test_a_look_that_finds_none_is_the_only_one_of_its_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, this = standing_still(monkeypatch, "workflows.engine.loop"), a_worker()
    assert not this._look_at_sources()
    let_go()
    come_due()
    assert not this._look_at_sources()
    clock.now += LOOK_EVERY
    assert this._look_at_sources()


def test_in_a_long_outage_it_is_looked_at_once_an_hour(messages: Downstream) -> None:
    """Each look is an attempt: once a minute, an outage of a day would have 1,400 of each deferred step."""
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
