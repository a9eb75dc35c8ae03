"""Once a workflow is emptied nothing can be done with it: so nothing is offered, anywhere, and every call says why."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import Client
from django.utils import timezone

from tests.dumps import dump
from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_
from tests.workflows.admin.walk.stored import Watch
from workflows import operations
from workflows.console.manual_task import ManualTaskAdmin
from workflows.console.workflow_list import WorkflowAdmin
from workflows.errors import NotAllowed
from workflows.features.bulk import operations as bulk
from workflows.features.bulk import previews as bulk_previews
from workflows.features.business_key import holders
from workflows.features.business_key.operations import not_a_duplicate
from workflows.features.by_hand import operations as by_hand
from workflows.features.cases import operations as cases
from workflows.features.corrections import operations as corrections
from workflows.features.deferred_steps import operations as deferred_steps
from workflows.features.doctor import replay
from workflows.features.doubts import operations as doubts
from workflows.features.operator_api import proposals
from workflows.features.operator_api.acts import seen_of_workflow, version_of
from workflows.features.pauses import operations as pauses
from workflows.features.retention import content, erasing, holds
from workflows.models import (
    ApiKey,
    BusinessKeyHash,
    Correction,
    Effect,
    Event,
    FollowUp,
    ManualTask,
    Proposal,
    Wait,
    Workflow,
)

__all__ = ["as_"]

pytestmark = pytest.mark.django_db(transaction=True)

PAID = {"checkout": {"amount_cents": 14500, "currency": "USD"}}


def with_charge(state: str, make: Callable[..., Workflow] = rows.failed, **fields: Any) -> Workflow:
    row = make(workflow_type="onboarding", payload=PAID)
    call = {"step": "execute_checkout", "state": state, "result": {"charge_id": "ch_1"}, "attempt": 1, **fields}
    Effect.objects.create(workflow=row, idempotency_key=f"{row.key}:charge", **call)
    return row


def given_up() -> Workflow:
    row = rows.given_up()
    FollowUp.objects.filter(workflow=row).update(acknowledged_failure=FollowUp.objects.get(workflow=row).created_at)
    return row


def answered() -> Workflow:
    """A person has said that a call happened; then it failed, and nothing builds on the answer."""
    task = rows.open_task(
        row := rows.waiting(task=False), task_type="effect_in_doubt", about="reserve", team="operations"
    )
    boss, _ = User.objects.get_or_create(username="boss", is_superuser=True, is_staff=True)
    operations.approve(task.pk, user=boss, answer={})
    Effect.objects.filter(workflow=row).update(state="done", result={}, settled_by="boss")
    Wait.objects.filter(workflow=row).update(outcome="approved", result={"by": "boss"})
    Workflow.objects.filter(pk=row.pk).update(status="FAILED", completed_at=timezone.now())
    return row


def corrected() -> Workflow:
    asked = rows.asked_to_correct()
    corrections.close(asked.workflow_id, user=User.objects.get(username="bob-who-asks"), reason="No.", seen=[asked.pk])
    return Workflow.objects.get(pk=asked.workflow_id)


STATES: dict[str, Callable[[], Workflow]] = {
    "complete": rows.complete,
    "failed": rows.failed,
    "cancelled": rows.cancelled,
    "refunded": lambda: with_charge("undone"),
    "failed, and its charge stands": lambda: with_charge("done"),
    "a duplicate": lambda: rows.failed(last_error_code="duplicate_of"),
    "with a step that failed": rows.left_undone,
    "with a step that was given up": given_up,
    "with an answer about a call": answered,
    "with a correction that was withdrawn": corrected,
}


def emptied(make: Callable[[], Workflow]) -> Workflow:
    pk = make().pk
    with transaction.atomic():
        Workflow.objects.filter(pk=pk).update(completed_at=timezone.now() - timedelta(days=91))
        content.empty([pk])
    return Workflow.objects.with_state().get(pk=pk)


WHY = "What it was sent was deleted at"


def test_no_verb_is_offered_whatever_its_state_and_an_old_page_says_why(as_: Login) -> None:
    client = as_("superuser")
    for state, make in STATES.items():
        row = emptied(make)
        tasks = [f"manualtask/{pk}" for pk in ManualTask.objects.filter(workflow=row).values_list("pk", flat=True)]
        for each in (f"workflow/{row.pk}", *tasks):
            page = client.get(f"/admin/workflows/{each}/change/")
            shown = [page.context[name] for name in ("verbs", "barred", "barred_rare")]
            assert shown == [[], [], []], (state, each)
        for task in tasks:
            assert WHY in client.get(f"/admin/workflows/{task}/take_back/").content.decode()
    for verb in WorkflowAdmin.verbs:
        for ask in (client.get, client.post):
            answer = ask(f"/admin/workflows/workflow/{row.pk}/{verb.slug}/")
            assert (answer.status_code, [WHY in str(each) for each in get_messages(answer.wsgi_request)][-1]) == (
                302,
                True,
            )


# By the verb: what its page calls, or a command.
CALLS: dict[str, Callable[[Workflow, User], Any]] = {
    "retry": lambda row, user: operations.retry(row.pk, user=user),
    "run_now": lambda row, user: operations.run_now(row.pk, user=user),
    "cancel": lambda row, user: operations.cancel(row.pk, user=user, reason="So."),
    "correct": lambda row, user: corrections.ask(row.pk, user=user, reason="So.", values={}, seen=[]),
    "approve_correction": lambda row, user: corrections.approve(row.pk, user=user, values={}, seen=[]),
    "close_correction": lambda row, user: corrections.close(row.pk, user=user, reason="So.", seen=[]),
    "confirm_retry": lambda row, user: operations.confirm_retry(row.pk, user=user, seen=[], reason="So."),
    "do_not_confirm_retry": lambda row, user: operations.do_not_confirm_retry(row.pk, user=user, reason="So.", seen=[]),
    "by_hand": lambda row, user: by_hand.say(row.pk, user=user, reason="So.", reference="7", result={}, seen=[]),
    "confirm_by_hand": lambda row, user: by_hand.confirm(row.pk, user=user, seen=[], reason="So."),
    "do_not_confirm_by_hand": lambda row, user: by_hand.do_not_confirm(row.pk, user=user, seen=[], reason="So."),
    "not_by_hand": lambda row, user: by_hand.retract(row.pk, user=user, reason="So.", seen=[]),
    "say_whether": lambda row, user: doubts.ask(row.pk, user=user, seen=[]),
    "review_alone": lambda row, user: operations.review_alone(row.pk, user=user, reason="So.", seen=[]),
    "not_a_duplicate": lambda row, user: not_a_duplicate(row.pk, user=user, reason="So."),
    "follow_up": lambda row, user: deferred_steps.follow_up(row.pk, user=user, step="thank"),
    "acknowledge": lambda row, user: operations.acknowledge(row.pk, user=user, reason="So.", seen=[]),
    "not_dealt_with": lambda row, user: cases.not_dealt_with(row.pk, user=user, reason="So.", seen=[]),
    "note": lambda row, user: cases.add_note(row.pk, user=user, reason="So."),
    "ask_lead for it": lambda row, user: cases.ask_lead(row.pk, user=user, reason="So."),
    "lead_has_seen": lambda row, user: cases.lead_has_seen(row.pk, user=user, reason="So.", seen=[]),
    "hand_to_team": lambda row, user: cases.hand_to_team(row.pk, user=user, team="engineer", reason="So."),
    "team_has_seen": lambda row, user: cases.team_has_seen(row.pk, user=user, reason="So.", seen=[]),
    "pause": lambda row, user: pauses.pause(row.pk, user=user, reason="So.", until=timezone.now() + timedelta(hours=1)),
    "resume": lambda row, user: pauses.resume(row.pk, user=user, reason="So.", seen=[]),
    "reveal": lambda row, user: operations.reveal(row.pk, user=user, fields=["patient.email"], reason="So."),
    "place_hold": lambda row, user: holds.place(
        row.pk, user=user, reason="So.", until=timezone.now() + timedelta(days=9)
    ),
    "ask_erasure": lambda row, user: erasing.ask(workflow_id=row.pk, user=user, reason="So."),
    **{
        f"propose {verb}": lambda row, user, verb=verb: proposals.propose(
            Proposal.Verb(verb),
            row.pk,
            key=ApiKey(),
            user=user,
            reason="So.",
            version=version_of(seen_of_workflow(row)),
            idempotency_key=uuid4(),
        )
        for verb in ("retry", "cancel")
    },
    "replay": lambda row, user: replay.replay(row.pk, rows.PARCEL),
    **{
        f"workflow {verb}": lambda row, user, verb=verb: call_command(
            "workflow", verb, str(row.pk), "--actor", user.username, "--reason", "So."
        )
        for verb in ("retry", "cancel", "run-now", "replay", "note")
    },
}
OF_TASKS: dict[str, Callable[[ManualTask, User], Any]] = {
    "take_back": lambda task, user: operations.retract(task.pk, user=user, reason="So."),
    "assign": lambda task, user: operations.assign(task.pk, user=user, to=user.pk, seen=[]),
    "ask_lead": lambda task, user: operations.ask_lead(task.pk, user=user, reason="So."),
    "confirm": lambda task, user: operations.confirm(task.pk, user=user, seen=[], reason="So."),
    "do_not_confirm": lambda task, user: operations.do_not_confirm(task.pk, user=user, seen=[], reason="So."),
    "claim": lambda task, user: operations.claim_task(task.pk, user=user),
    "release": lambda task, user: operations.release_task(task.pk, user=user),
    "approve": lambda task, user: operations.approve(task.pk, user=user, answer={}),
    "reject": lambda task, user: operations.reject(task.pk, user=user, reason="So."),
}


# Which refuse it with another sentence.
OTHERWISE = {
    "close_correction": "There is no such correction.",
    "place_hold": "is not there, or what it was sent was deleted already.",
    "ask_erasure": "Nothing of this person is here, or it was deleted already.",
    **dict.fromkeys(OF_TASKS.keys() - {"take_back"}, "boss approved it already"),
    **dict.fromkeys(("confirm", "do_not_confirm"), "Nobody asks for that any more"),
    "review_alone": "It is reviewed already.",
    "lead_has_seen": "No lead is asked any more",
    "hand_to_team": "This is no team",
    "team_has_seen": "It is not with that team any more",
    "resume": "Somebody has paused or resumed it",
}


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises((NotAllowed, CommandError)) as refused:
        call()
    return str(refused.value)


def test_every_call_is_refused_with_the_same_sentence_and_changes_nothing(db: None) -> None:
    assert {verb.slug for verb in (*WorkflowAdmin.verbs, *ManualTaskAdmin.verbs)} <= CALLS.keys() | OF_TASKS.keys()
    found = {name: emptied(make) for name, make in STATES.items()}
    boss = rows.corrector("boss")
    User.objects.filter(pk=boss.pk).update(is_superuser=True)
    boss = User.objects.get(pk=boss.pk)
    watch = Watch()
    told = {
        (name, state): refusal(lambda call=call, row=row: call(row, boss))  # type: ignore[misc]
        for name, call in CALLS.items()
        for state, row in found.items()
    }
    (task,) = ManualTask.objects.filter(workflow=found["with an answer about a call"])
    told |= {(name, ""): refusal(lambda call=call: call(task, boss)) for name, call in OF_TASKS.items()}  # type: ignore[misc]
    assert {each: why for each, why in told.items() if OTHERWISE.get(each[0], WHY) not in why} == {}
    assert watch.changed() == []


@pytest.mark.parametrize("verb", ["retry", "run_now", "cancel", "acknowledge"])
def test_the_preview_of_many_says_so_of_those_that_are_emptied(verb: str, db: None) -> None:
    for make in STATES.values():
        emptied(make)
    boss = User.objects.filter(is_superuser=True).get()
    made = bulk.choose(verb, Workflow.objects.order_by().values("pk"), user=boss, chosen_by="all of them")
    shown = bulk_previews.preview(made, boss)
    assert (shown.can, shown.cannot) == (0, [(len(STATES), "what it was sent was deleted")])


def test_the_children_of_an_emptied_workflow_are_not_started_again_when_its_retry_is_refused(db: None) -> None:
    parent = rows.cancelled()
    child = rows.cancelled(parent=parent, parent_wait="all", child_key="1")
    child.signals.create(name="cancel", source="engine", dedupe_key="1", payload={}, closed_at=timezone.now())
    boss = User.objects.create_superuser("boss")
    with transaction.atomic():
        content.empty([parent.pk])
    assert WHY in refusal(lambda: operations.retry(parent.pk, user=boss))
    assert not Event.objects.filter(workflow=child, kind="retried").exists()


# --- What its page says ---------------------------------------------------------------------------------

FAILED = {"error_class": "StepError", "error_code": "odd", "error_message": "Said by Ann."}
LATER = "2026-03-02T09:40:00+00:00"
DETAILS: list[tuple[str, dict[str, Any]]] = [
    ("retry_scheduled", {"failures": 2, "max_attempts": 5, "invisible_until": LATER, **FAILED}),
    ("failed", {"failures": 5, **FAILED, "error_code": "card_declined"}),
    ("waiting", {"waiting_for": "May Ann have it?", "until": LATER}),
    ("parked", {"service": "payments"}),
    ("best_effort_failed", FAILED),
    ("compensated", {"undone": ["reserve"]}),
    ("crashed", {"how": "signal 9"}),
    ("task_assigned", {"to": "carla", "reason": "You know Ann.", "task": 1}),
    ("approved", {"said": "happened", "fields": {"charge_id": "Ann1"}, "reason": "Ann says so.", "task": 1}),
    ("rejected", {"said": "try_again", "reason": "Ann says so.", "task": 1}),
    ("taken_back", {"said": "happened", "answered_by": "boss", "reason": "It was not Ann.", "step": "reserve"}),
    ("acknowledged", {"reason": "Ann was told.", "steps": ["thank"]}),
    ("retried", {"reason": "Ann has asked.", "bulk": 7}),
    (
        "corrected",
        {
            "corrected": [{"label": "Note", "was": "nothing", "is": "Ann••"}],
            "asked_by": "bob",
            "reason": "Ann says so.",
            "note": "",
        },
    ),
    ("duplicate", {"first": 12, "error_code": "duplicate_differs"}),
    ("compensating", {"asks": True}),
    ("expired", {"type": "before_undo", "counts_as": "expired", "task": 1}),
    ("run_now", {"reason": ""}),
    ("failed", {**FAILED, "error_code": ""}),
    ("parked", {"service": "p", "mend": "somebody to mend it"}),
    ("approved", {"said": "undone_by_hand", "reference": "re_9", "reason": ""}),
]


def refunded(reference: str) -> Workflow:
    """By hand: the reference is what somebody has typed."""
    row = with_charge("undone", has_undo=True)
    call = {"step": "execute_checkout", "undo": True, "state": "done", "settled_at": timezone.now(), "attempt": 2}
    Effect.objects.create(workflow=row, idempotency_key="undo", result={"reference": reference, "note": "Ann"}, **call)
    return row


def with_history() -> Workflow:
    row = refunded("re_77")
    for kind, detail in DETAILS:
        rows.event(row, kind, step="reserve", actor="ada", detail=detail)
    rows.event(row, "acknowledged", actor="ada", detail={"reason": "Ann was told."})
    Workflow.objects.filter(pk=row.pk).update(acknowledged_failure=row.completed_at, last_error_code="odd")
    return row


def duplicate() -> Workflow:
    first, row = (
        rows.complete(workflow_type="onboarding", payload=PERSON),
        rows.failed(last_error_code="duplicate_of", workflow_type="onboarding", payload=PERSON),
    )
    rows.event(row, "duplicate", detail={"first": first.pk})
    for each, key_id in holders.hashes_of(row):
        for of, role in ((first, "holder"), (row, "former")):
            BusinessKeyHash.objects.create(hash=each, workflow=of, key_id=key_id, role=role)
    Workflow.objects.filter(pk=row.pk).update(acknowledged_failure=timezone.now())
    return row


PERSON = {
    "patient": {"email": "ann@example.com", "first_name": "A"},
    "checkout": {"program": "sleep", **PAID["checkout"]},
}


def approved() -> Workflow:
    asked = rows.asked_to_correct()
    decided = {"state": "approved", "decided_by": rows.corrector("carl"), "decided_at": timezone.now()}
    Correction.objects.filter(pk=asked.pk).update(proposed=None, **decided)
    return asked.workflow


TOLD_OF: dict[str, Callable[[], Workflow]] = {
    **STATES,
    "a duplicate": duplicate,
    "with a long history": with_history,
    "kept": lambda: with_charge("kept"),
    "never charged": lambda: with_charge("not_done", result=None, settled_by="anna", settled_at=timezone.now()),
    "left in doubt": lambda: with_charge("kept", result=None, settled_by="anna", settled_at=timezone.now()),
    "with a reference that somebody has typed": lambda: refunded("in cash, to Ann"),
    "with a reference that repeats what was sent": lambda: with_reference(),
    "with a correction": approved,
    "cancelled without a reason": lambda: rows.cancelled(last_error_message="Cancelled by ada."),
}
TOLD_OF.pop("with a step that was given up")  # it leaves the sentence, and is told as a step that failed


def with_reference() -> Workflow:
    row = with_charge("done", result={"charge_id": "ch_15550102323"})
    Workflow.objects.filter(pk=row.pk).update(payload={**PAID, "patient": {"phone": "15550102323"}})
    return row


def told(client: Client, row: Workflow) -> list[str]:
    """All that the page says of what happened, part by part."""
    said = client.get(f"/admin/workflows/workflow/{row.pk}/change/").context
    lines = [(each.headline, each.text, each.small_print, each.actor, each.attempt) for each in said["history"]]
    steps = [
        (step.title, step.label, step.error, step.recorded, step.note) for each in said["phases"] for step in each.steps
    ]
    effects = [(title, each.get_state_display(), *errors) for each, title, *errors in said["effects"]]
    waits = [(wait.waiting_for, outcome) for wait, outcome in said["waits"]]
    tasks = [f"/admin/workflows/manualtask/{pk}/change/" for pk in row.manual_tasks.values_list("pk", flat=True)]
    answers = [client.get(each).context.get("said") for each in tasks]
    notes = [note for note in said["notes"] if "deleted for its age" not in note.text]
    names = ("money", "to_tell", "small_print")
    of_all = {name: said[name] for name in names} | {"standing": said["standing"].partition(f"\n{WHY[:16]}")[0]}
    return [str(each) for each in (*of_all.items(), *notes, *lines, *steps, *effects, *waits, *answers)]


# What somebody has said, or an author has written, in these rows: nothing else is deleted.
SAID = re.compile("Ann|The card was declined|There is no address|Asked for by phone|May this parcel|Note|No[.]")


def is_the_same(was: str, now: str) -> bool:
    found = re.fullmatch(re.escape(now).replace(re.escape(content.DELETED), "(.+?)"), was, re.DOTALL)
    return found is not None and all(map(SAID.search, found.groups()))


@pytest.mark.parametrize("state", TOLD_OF)
def test_its_page_says_what_it_said_before_but_for_what_is_named_as_deleted(state: str, as_: Login) -> None:
    client, pk = as_("superuser"), TOLD_OF[state]().pk
    Workflow.objects.filter(pk=pk).update(completed_at=(at := timezone.now() - timedelta(days=91)))
    Workflow.objects.filter(pk=pk, acknowledged_failure__isnull=False).update(acknowledged_failure=at)
    before = told(client, Workflow.objects.get(pk=pk))
    with transaction.atomic():
        content.empty([pk])
    after = told(client, Workflow.objects.get(pk=pk))
    assert len(after) == len(before)
    other = [(was, now) for was, now in zip(before, after, strict=True) if not is_the_same(was, now)]
    assert other == []
    assert "Ann" not in dump()


def test_what_names_a_charge_stays_on_the_ledger_though_no_page_shows_all_of_it(db: None) -> None:
    emptied(lambda: with_charge("done", result={"charge_id": "1234567890", "name": "Ann"}))
    assert Effect.objects.get().result == {"charge_id": "1234567890"}
