"""Each refusal to delete, erase or correct names a way, the page offers it, and it leads out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from tests import engine
from tests.engine import again, define, submit, work
from tests.workflows import rows
from tests.workflows.features.retention import test_purge as made
from tests.workflows.features.retention.test_holds import place
from tests.workflows.undoing import World, fail, states, to_rest
from workflows import operations
from workflows.console import acknowledging, workflow_list
from workflows.console.verbs import Verb
from workflows.engine.compensation import MAX_UNDO_FAILURES
from workflows.errors import UnknownOutcome
from workflows.features.by_hand import page as by_hand
from workflows.features.corrections import page as corrections
from workflows.features.outbox import page as outbox_event
from workflows.features.retention import page as retention
from workflows.features.retention.unsettled import settled, why_they_stay, words_of_reasons
from workflows.models import Effect, Hold, ManualTask, OutboxEvent, Workflow

pytestmark = engine.ENGINE[0]

Way = tuple[Verb, Callable[[Workflow], Any]]


def itself(row: Workflow) -> Workflow:
    return row


def held() -> Workflow:
    row = made.old()
    place(User.objects.create_superuser("ada"), row.pk)
    return row


def unclear() -> Workflow:
    """It failed in a call that nobody undoes; the service knows of it."""
    world = World()
    world.errors["charge"], world.found["charge"] = [ValueError("not JSON")], {}
    define([world.step("charge", undo=None, settle=0, lookup=world.lookup)])
    row = work(submit())
    assert (row.status, states()) == ("FAILED", {"charge": "unknown"})
    return row


def has_doubt_about_its_undo(row: Workflow) -> Workflow:
    """What a release before left behind: a person has left the charge, and nobody knows of its refund."""
    call = Effect.objects.get(workflow=row.pk)
    Effect.objects.filter(pk=call.pk).update(state="kept")
    Effect.objects.create(
        workflow=row,
        step=call.step,
        undo=True,
        state="unknown",
        attempt=1,
        idempotency_key=f"{call.idempotency_key}:undo",
    )
    return row


def left() -> Workflow:
    row = made.old(rows.failed, workflow_type="onboarding")
    Effect.objects.create(workflow=row, step="enroll_in_program", state="kept", attempt=1, idempotency_key="k")
    return row


def to_be_corrected() -> Workflow:
    return rows.asked_to_correct(made.old(rows.failed)).workflow


def said_by_hand(row: Workflow) -> Workflow:
    return rows.by_hand(User.objects.create_superuser("carla"), row).workflow


WAYS: dict[str, tuple[str, Callable[[], Workflow], Way | None]] = {
    "held": ("held", held, (retention.LIFT, lambda row: Hold.objects.get())),
    "pending": ("pending", lambda: rows.workflow(), (workflow_list.CANCEL, itself)),
    "unclear": ("unclear", unclear, (workflow_list.RETRY, itself)),
    "fading": ("fading", lambda: made.passed_over(days=0), None),
    "left": ("left", left, (acknowledging.ACKNOWLEDGE, itself)),
    "deferred": ("deferred", made.given_up, (acknowledging.ACKNOWLEDGE, itself)),
    "untold": ("untold", lambda: made.untold("given_up"), (outbox_event.DISCARD, lambda _: OutboxEvent.objects.get())),
    "correction": ("correction", to_be_corrected, (corrections.CLOSE, itself)),
    "said by hand": ("by_hand", lambda: said_by_hand(made.old(rows.not_made)), (by_hand.DO_NOT, itself)),
    "children": ("children", made.parent_of_one_under_way, (workflow_list.CANCEL, lambda row: row.children.get())),
    "parent": ("parent", lambda: made.child_of(made.old()), None),
    "money": ("money", made.charged, (acknowledging.ACKNOWLEDGE, itself)),
    "kept, its reversal unclear": (
        "money",
        lambda: has_doubt_about_its_undo(made.charged()),
        (acknowledging.ACKNOWLEDGE, itself),
    ),
}  # fmt: skip


def test_the_table_has_every_reason() -> None:
    assert {why for why, _, _ in WAYS.values()} == {*words_of_reasons()}


@pytest.mark.parametrize("case", WAYS)
def test_the_way_that_the_refusal_names_is_offered_and_leads_out(case: str, request: pytest.FixtureRequest) -> None:
    why, make, way = WAYS[case]
    if case == "unclear":
        request.getfixturevalue("engine")
    row = make()
    assert why_they_stay([row.pk]) == {row.pk: why}
    if way is None:
        assert "wait" in words_of_reasons()[why] or "after that one" in words_of_reasons()[why]
        Effect.objects.update(first_begun_at=made.long_ago(100))
        Workflow.objects.filter(pk=row.parent_id).update(emptied_at=timezone.now())
    else:
        verb, page_of = way
        assert verb.label.lower() in words_of_reasons()[why]
        follow(verb, page_of(row))
    if Workflow.objects.get(pk=row.pk).status == "PENDING":
        work(row)
    assert settled([row.pk]) == ([row.pk], {})


def follow(verb: Verb, row: Any) -> None:
    """As a person does: the page has a link to the verb, and its form does it."""
    client = Client()
    client.force_login(User.objects.get_or_create(username="lead", is_superuser=True, is_staff=True)[0])
    base = f"/admin/workflows/{row._meta.model_name}/{row.pk}/"
    assert f'href="{base}{verb.slug}/"' in client.get(f"{base}change/").content.decode()
    form = {"reason": "The patient has called.", "why": "other"}
    form |= {name: seen_in(type(row).objects.get(pk=row.pk)) for name, seen_in in verb.seen}
    assert client.post(f"{base}{verb.slug}/", form).status_code == 302


def test_a_charge_that_a_person_leaves_is_no_obstacle_though_nobody_knows_how_its_reversal_ended(
    engine: None, world: World
) -> None:
    """The doubt stays, and is told: the person has not said that nothing was paid back."""
    world.errors["undo charge"] = [UnknownOutcome("no answer") for _ in range(MAX_UNDO_FAILURES)]
    define([world.step("charge"), fail])
    workflow = work(submit())
    while not ManualTask.objects.exists():
        workflow = again(workflow)
    task, boss = ManualTask.objects.get(), User.objects.create_superuser("boss")
    assert states() == {"charge": "done", "undo charge": "unknown"}
    operations.approve(task.pk, user=boss, reason="The bank says so.", answer={"kept": True})
    assert to_rest(workflow).status == "FAILED"
    assert states() == {"charge": "kept", "undo charge": "unknown"}
    for status, state in (("COMPLETE", "done"), ("FAILED", "kept")):  # as after a retry, and as it is
        Workflow.objects.filter(pk=workflow.pk).update(status=status)
        Effect.objects.filter(workflow=workflow.pk, undo=False).update(state=state)
        assert why_they_stay([workflow.pk]) == {}
    operations.retract(task.pk, user=boss, reason="Another patient's.")
    assert states() == {"charge": "done", "undo charge": "unknown"}
