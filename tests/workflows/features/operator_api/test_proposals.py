"""Proposals: a key asks, another person than the key's approves, and nothing has changed meanwhile."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import F
from django.test import Client
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import parcels, session_of
from tests.workflows.features.operator_api.people import Program, person
from tests.workflows.features.retention.test_purge import old
from tests.workflows.operations.test_bulk import carry_out
from workflows import operations
from workflows.errors import NotAllowed
from workflows.features.bulk import operations as bulk
from workflows.features.notices import waiting
from workflows.features.operator_api import lapsing, proposals
from workflows.features.retention import content
from workflows.models import ApiKey, BulkOperation, Event, ManualTask, Notice, Proposal, Signal, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.models.deputy import Deputy

__all__ = ["parcels"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def anna() -> Program:
    """A lead's program."""
    return Program(person("anna", "support lead", "approver"))


@pytest.fixture
def ben(settings: Any) -> Client:
    """The browser of another lead."""
    return browser(person("ben", "support lead", "approver"))


def browser(user: User) -> Client:
    client = Client()
    client.cookies["sessionid"] = session_of(user)
    return client


def decide(client: Client, number: int, verb: str = "approve", reason: str = "Yes.") -> str:
    """The page that follows."""
    url = f"/admin/workflows/proposal/{number}/{verb}/"
    sent = {"reason": reason, "seen": number, "row": str(Proposal.objects.get(pk=number).asked_at)}
    return client.post(url, sent, follow=True).content.decode()


def test_a_retry_is_carried_out_when_another_person_approves_it_and_the_three_are_named(
    anna: Program, ben: Client
) -> None:
    row = rows.failed()
    made = anna.propose("retry", workflow=row.pk)
    assert (made["state"], made["workflow"], made["replayed"]) == ("asked", row.pk, False)
    assert Workflow.objects.get(pk=row.pk).status == "FAILED"
    assert "It will be tried again" in decide(ben, made["id"])
    assert Workflow.objects.get(pk=row.pk).status == "PENDING"
    told = anna.get(f"proposals/{made['id']}")
    assert (told["state"], told["decided_by"]) == ("approved", "ben")
    proposed, retried = Event.objects.filter(workflow=row.pk).order_by("id")
    assert (proposed.kind, proposed.actor, retried.kind, retried.actor) == ("proposed", "anna", "retried", "ben")
    history = anna.get(f"workflows/{row.pk}/history")["events"]
    assert history[0]["text"] == "It hangs.\nProposed by anna, with the API key Chat.\nYes."
    assert history[1]["text"] == "Retry, by the API key Chat: It hangs."


def test_a_cancellation_asks_for_what_its_page_asks(anna: Program, ben: Client) -> None:
    row = rows.waiting()
    number = anna.propose("cancel", workflow=row.pk)["id"]
    assert "button-danger" in ben.get(f"/admin/workflows/proposal/{number}/approve/").content.decode()
    assert "It is cancelled." in decide(ben, number)
    assert Workflow.objects.with_state().get(pk=row.pk).state == "cancelled"


@pytest.mark.parametrize(("verb", "state"), [("approve", "approved"), ("reject", "rejected")])
def test_a_task_is_decided_by_the_person_who_approves(verb: str, state: str, anna: Program, ben: Client) -> None:
    task = rows.open_task(rows.waiting(task=False))
    decide(ben, anna.propose(verb, task=task.pk)["id"])
    task.refresh_from_db()
    assert (task.state, task.decided_by and task.decided_by.username, task.reason) == (state, "ben", "It hangs.")
    assert Signal.objects.get(name=task.signal_name).payload["by"] == "ben"


def test_a_bulk_operation_is_frozen_by_its_preview_and_starts_in_the_proposers_name(anna: Program, ben: Client) -> None:
    made = [rows.failed(current_step="charge").pk for _ in range(3)]
    asked = {"verb": "retry", "filters": {"state": "failed", "step": "charge"}}
    shown = anna.post("bulk-previews", asked, 201)
    assert (shown["selected"], shown["can"], shown["chosen_by"]) == (3, 3, "state: Failed; step: Charge")
    later = rows.failed(current_step="charge")
    sent = {"verb": "bulk", "bulk": shown["id"], "version": shown["version"], "reason": "The bank is back."}
    number = anna.post("proposals", sent)["id"]
    assert "It has started." in decide(ben, number)
    bulk = BulkOperation.objects.get()
    assert (bulk.asked_by.username, bulk.approved_by and bulk.approved_by.username) == ("anna", "ben")
    carry_out(bulk)
    assert set(Workflow.objects.filter(status="PENDING").values_list("pk", flat=True)) == {*made}
    assert Workflow.objects.get(pk=later.pk).status == "FAILED"
    log = " ".join(str(each.get_change_message()) for each in LogEntry.objects.order_by("id"))
    assert log.count("Proposed by anna, with the API key Chat.") == 2
    assert log.count("Yes.") == 1, "the approver's words are in the approver's line alone"


def test_a_bulk_verb_that_the_list_does_not_offer_for_all_is_refused(anna: Program) -> None:
    rows.failed()
    for verb, filters in (("retry", {}), ("cancel", {"state": "failed"}), ("erase", {"state": "failed"})):
        assert anna.post("bulk-previews", {"verb": verb, "filters": filters}, 422)["code"] == "verb_invalid"
    asked = {"verb": "retry", "filters": {"patient": "x"}}
    assert anna.post("bulk-previews", asked, 422)["code"] == "filter_invalid"


def test_of_what_a_program_previews_the_newest_and_what_it_has_proposed_is_kept(
    anna: Program, ben: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "MOST_DRAFTS", 2)
    rows.failed()
    of_ben = bulk.choose("retry", Workflow.objects.values("pk"), user=User.objects.get(username="ben"), chosen_by="all")

    def previewed() -> dict[str, Any]:
        shown: dict[str, Any] = anna.post("bulk-previews", {"verb": "retry", "filters": {"state": "failed"}}, 201)
        return shown

    first = previewed()
    sent = {"verb": "bulk", "bulk": first["id"], "version": first["version"], "reason": "The bank is back."}
    anna.post("proposals", sent)
    later = [previewed()["id"] for _ in range(4)]
    assert set(BulkOperation.objects.values_list("pk", flat=True)) == {of_ben.pk, first["id"], *later[-2:]}


@pytest.mark.parametrize("refunded", ["before it is proposed", "before it is approved"])
def test_no_bulk_operation_is_proposed_that_charges_again_what_takes_two_people(
    refunded: str, anna: Program, ben: Client
) -> None:
    """The console takes two people for it, who have looked: the key's own has not."""
    row = rows.failed(workflow_type="onboarding")
    shown = anna.post("bulk-previews", {"verb": "retry", "filters": {"state": "failed"}}, 201)
    sent = {"verb": "bulk", "bulk": shown["id"], "version": shown["version"], "reason": "The bank is back."}
    if refunded == "before it is proposed":
        rows.refunded_charge(row)
        assert "takes two people" in anna.post("proposals", sent, 409)["detail"]
    else:
        number = anna.post("proposals", sent)["id"]
        rows.refunded_charge(row)
        assert "takes two people" in decide(ben, number)
    assert BulkOperation.objects.get().state == "draft"


# --- Who ------------------------------------------------------------------------------------------------


def test_the_keys_person_approves_nothing_by_page_operation_or_statement(anna: Program) -> None:
    row = rows.failed()
    number = anna.propose("retry", workflow=row.pk)["id"]
    page = decide(browser(anna.user), number)
    assert "You have asked for it yourself: another user approves it." in page
    with pytest.raises(NotAllowed, match="asked for it yourself"):
        proposals.approve(number, user=anna.user, seen=[number])
    with pytest.raises(IntegrityError, match="another"), transaction.atomic():
        Proposal.objects.filter(pk=number).update(state="approved", decided_by=anna.user)
    assert Proposal.objects.get().state == "asked"


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"email": "ANNA@clinic.example"}, "Your account has the same e-mail address as anna"),
        ({"date_joined": timezone.now()}, "Your account is less than a day old"),
    ],
)
def test_another_account_of_the_same_person_approves_nothing(
    fields: dict[str, Any], refusal: str, anna: Program
) -> None:
    number = anna.propose("retry", workflow=rows.failed().pk)["id"]
    other = person("other", "support lead", **fields)
    assert refusal in decide(browser(other), number)
    with pytest.raises(IntegrityError), transaction.atomic():
        Proposal.objects.filter(pk=number).update(state="approved", decided_by=other)


def test_a_deputy_of_the_keys_person_approves_nothing(anna: Program, ben: Client) -> None:
    number = anna.propose("retry", workflow=rows.failed().pk)["id"]
    other = User.objects.get(username="ben")
    now, day = timezone.now(), timedelta(days=1)
    Deputy.objects.create(absent=anna.user, deputy=other, begins_at=now - day, ends_at=now + day, set_by="anna")
    assert "count as one person" in decide(ben, number)
    assert not proposals.to_approve(other).exists()
    with pytest.raises(IntegrityError, match="deputy"), transaction.atomic():
        Proposal.objects.filter(pk=number).update(state="approved", decided_by=other)


def test_whoever_may_not_do_it_neither_proposes_nor_approves_nor_refuses_it(anna: Program) -> None:
    row, task = rows.failed(), rows.open_task(rows.waiting(task=False), team="clinicians")
    auditor = Program(person("ulla", "auditor"))
    assert auditor.propose("retry", 403, workflow=row.pk)["code"] == "not_permitted"
    assert anna.propose("approve", 409, task=task.pk)["code"] == "refused"  # of another team
    number = anna.propose("retry", workflow=row.pk)["id"]
    decide(browser(auditor.user), number)
    assert Proposal.objects.get(pk=number).state == "asked"
    with pytest.raises(NotAllowed, match="You may not do this yourself"):
        proposals.approve(number, user=auditor.user, seen=[number])
    with pytest.raises(NotAllowed, match="ask a support lead"):
        proposals.close(number, user=auditor.user, seen=[number], reason="No.")


def test_a_key_that_may_only_look_proposes_nothing() -> None:
    program = Program(person("anna", "support lead"), verbs=["look"])
    assert program.propose("retry", 403, workflow=rows.failed().pk)["code"] == "not_permitted"


@pytest.mark.parametrize("gone", ["person", "right", "key"])
def test_a_proposal_dies_with_the_person_the_right_or_the_key_behind_it(gone: str, anna: Program, ben: Client) -> None:
    number = anna.propose("retry", workflow=rows.failed().pk)["id"]
    match gone:
        case "person":
            User.objects.filter(pk=anna.user.pk).update(is_active=False)
            with pytest.raises(IntegrityError, match="closed"), transaction.atomic():
                Proposal.objects.update(state="approved", decided_by=User.objects.get(username="ben"))
        case "right":
            anna.user.groups.clear()
        case "key":
            ApiKey.objects.update(revoked_at=timezone.now())
    assert "do not approve it" in decide(ben, number)
    assert Proposal.objects.get().state == "asked"
    assert "It is refused" in decide(ben, number, "refuse")


@pytest.mark.parametrize("gone", ["person", "key"])
def test_what_nobody_can_approve_any_more_keeps_nobody_from_proposing_it(gone: str, anna: Program) -> None:
    row = rows.failed()
    anna.propose("retry", workflow=row.pk)
    if gone == "person":
        User.objects.filter(pk=anna.user.pk).update(is_active=False)
    else:
        ApiKey.objects.update(revoked_at=timezone.now())
    other = Program(person("carl", "support lead"))
    assert lapsing.lapse().changed == 1
    assert other.propose("retry", workflow=row.pk)["state"] == "asked"


def page_of(client: Client, number: int) -> str:
    return client.get(f"/admin/workflows/proposal/{number}/change/").content.decode()


def test_why_a_bulk_operation_was_refused_stands_on_its_proposal(anna: Program, ben: Client) -> None:
    rows.failed()
    asked = {"verb": "retry", "filters": {"state": "failed"}}
    made = anna.post("bulk-previews", asked, 201)
    number = anna.post(
        "proposals", {"verb": "bulk", "bulk": made["id"], "version": made["version"], "reason": "They hang."}
    )["id"]
    assert anna.get(f"proposals/{number}")["decision_reason"] == ""
    decide(ben, number, "refuse", "Not before the mend.")
    assert anna.get(f"proposals/{number}")["decision_reason"] == "Not before the mend."
    assert "<dd>Not before the mend.</dd>" in page_of(ben, number)


def test_whoever_may_decide_the_task_sees_its_facts_with_the_proposal_and_nobody_else(anna: Program) -> None:
    ben, eve = browser(person("ben", "approver")), browser(person("eve", "support lead"))
    task = rows.open_task(rows.waiting(task=False), question="May it?", facts=[["Answers", "Fever: no"]])
    number = anna.propose("approve", task=task.pk)["id"]
    asks = f"/admin/workflows/proposal/{number}/approve/"
    for html in (page_of(ben, number), ben.get(asks).content.decode()):
        assert "May it?" in html
        assert "Fever: no" in html
    assert "Fever" not in page_of(eve, number) + eve.get(asks, follow=True).content.decode()


def test_an_account_that_is_closed_at_the_moment_of_the_approval_is_told_in_words(
    anna: Program, ben: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = rows.failed()
    number = anna.propose("retry", workflow=row.pk)["id"]
    decided = proposals._decide

    def close_first(*args: Any) -> None:
        User.objects.filter(username="anna").update(is_active=False)
        decided(*args)

    monkeypatch.setattr(proposals, "_decide", close_first)
    assert "An account was closed or changed at this moment" in decide(ben, number)
    assert (Workflow.objects.get(pk=row.pk).status, Proposal.objects.get().state) == ("FAILED", "asked")


def test_a_colleague_refuses_it_and_its_person_withdraws_it(anna: Program, ben: Client) -> None:
    first, second = (anna.propose("retry", workflow=rows.failed().pk)["id"] for _ in range(2))
    assert "It is refused" in decide(ben, first, "refuse", "Not now.")
    assert anna.post(f"proposals/{second}/withdraw", {"reason": "A mistake."}, 200)["state"] == "withdrawn"
    assert anna.post(f"proposals/{second}/withdraw", {"reason": "A mistake."}, 409)["code"] == "refused"
    reasons = [anna.get(f"proposals/{each}")["decision_reason"] for each in (first, second)]
    assert reasons == ["Not now.", "A mistake."]
    assert "<dt>Reason of the decision</dt><dd>Not now.</dd>" in page_of(ben, first)
    kinds = Event.objects.exclude(kind="proposed").values_list("kind", "actor", "detail__proposed_by")
    assert set(kinds) == {("proposal_refused", "ben", "anna"), ("proposal_withdrawn", "anna", None)}
    assert Program(person("carl", "support lead")).get(f"proposals/{first}", 404)["code"] == "not_found"


# --- What has changed -----------------------------------------------------------------------------------


def test_a_proposal_about_another_state_than_that_which_stands_is_refused(anna: Program) -> None:
    row = rows.failed()
    version = anna.get(f"workflows/{row.pk}")["version"]
    Workflow.objects.filter(pk=row.pk).update(completed_at=F("completed_at") + timedelta(seconds=1))
    assert anna.propose("retry", 409, version=version, workflow=row.pk)["code"] == "changed"
    assert not Proposal.objects.exists()


def test_nobody_approves_what_has_changed_since(anna: Program, ben: Client) -> None:
    row = rows.waiting(task=False)
    task = rows.open_task(row)
    number = anna.propose("cancel", workflow=row.pk)["id"]
    operations.approve(task.pk, user=person("carl", "approver"))
    with pytest.raises(NotAllowed, match="has changed since"):
        proposals.approve(number, user=User.objects.get(username="ben"), seen=[number])
    assert (Proposal.objects.get().state, Workflow.objects.get(pk=row.pk).status) == ("stale", "PENDING")
    assert anna.get(f"proposals/{number}")["state"] == "stale"


def test_a_cancellation_does_not_meet_the_next_run(anna: Program, ben: Client) -> None:
    row = rows.retrying()
    number = anna.propose("cancel", workflow=row.pk)["id"]
    rows.event(row, "retried", actor="carl")  # it had failed meanwhile
    decide(ben, number)
    assert Workflow.objects.get(pk=row.pk).cancelled_at is None


def test_nobody_approves_it_after_a_day_and_the_rest_goes_away_by_itself(
    anna: Program, ben: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(proposals, "LAPSES", timedelta(0))
        row = rows.failed()
        number = anna.propose("retry", workflow=row.pk)["id"]
    assert "Nobody has decided it in a day" in decide(ben, number)
    with pytest.raises(IntegrityError, match="lapsed"), transaction.atomic():
        Proposal.objects.update(state="approved", decided_by=User.objects.get(username="ben"))
    assert anna.get(f"proposals/{number}")["state"] == "lapsed"
    retried = rows.failed()
    gone_on = anna.propose("retry", workflow=retried.pk)["id"]
    Workflow.objects.filter(pk=retried.pk).update(status="PENDING", completed_at=None)
    waits = anna.propose("retry", workflow=rows.failed().pk)["id"]
    assert lapsing.lapse().changed == 2
    assert dict(Proposal.objects.values_list("pk", "state")) == {number: "lapsed", gone_on: "stale", waits: "asked"}
    assert Event.objects.get(kind="proposal_lapsed").workflow_id == row.pk


# --- Once -----------------------------------------------------------------------------------------------


def test_the_same_request_again_is_the_same_proposal_and_another_is_refused(anna: Program) -> None:
    row, key = rows.failed(), str(uuid4())
    first = anna.propose("retry", workflow=row.pk, key=key)
    again = anna.propose("retry", workflow=row.pk, key=key)
    assert (again["id"], again["replayed"]) == (first["id"], True)
    other = anna.propose("retry", 422, workflow=rows.failed().pk, key=key)
    assert other["code"] == "idempotency_key_reused"
    assert anna.propose("retry", 409, workflow=row.pk)["detail"] == "That is proposed already, and waits for a person."
    assert Proposal.objects.count() == 1


def test_it_is_approved_once(anna: Program, ben: Client) -> None:
    row = rows.failed()
    number = anna.propose("retry", workflow=row.pk)["id"]
    decide(ben, number)
    with pytest.raises(NotAllowed, match="ben has decided it already"):
        proposals.approve(number, user=person("carl", "support lead"), seen=[number])
    with pytest.raises(IntegrityError, match="decided once"), transaction.atomic():
        Proposal.objects.update(state="refused")
    with pytest.raises(IntegrityError, match="stays as it was proposed"), transaction.atomic():
        Proposal.objects.update(row=row.pk + 1)
    assert Event.objects.filter(kind="retried").count() == 1


def test_a_key_proposes_so_many_at_a_time(anna: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "MOST_OPEN", 1)
    anna.propose("retry", workflow=rows.failed().pk)
    assert "wait already" in anna.propose("retry", 409, workflow=rows.failed().pk)["detail"]


def test_questions_about_calls_and_tasks_of_somebody_are_not_proposed(anna: Program) -> None:
    task = rows.unclear_charge()
    assert "answered in the console" in anna.propose("approve", 409, task=task.pk)["detail"]
    own = rows.open_task(rows.waiting(task=False))
    ManualTask.objects.filter(pk=own.pk).update(assignee=anna.user, claimed_at=ClockTimestamp())
    assert "unassign it" in anna.propose("approve", 409, task=own.pk)["detail"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"verb": "erase"}, "verb_invalid"),
        ({"verb": "retry", "workflow": True}, "target_invalid"),
        ({"verb": "retry", "workflow": 1, "task": 1}, "target_invalid"),
        ({"verb": "retry", "workflow": 1, "version": "x"}, "reason_invalid"),
        ({"verb": "retry", "workflow": 1, "reason": "x"}, "version_invalid"),
        ({"verb": "retry", "workflow": 1, "reason": "x", "version": "x", "force": True}, "field_unknown"),
    ],
)
def test_a_request_that_is_not_whole_is_refused(body: dict[str, Any], code: str, anna: Program) -> None:
    assert anna.post("proposals", body, 422)["code"] == code


def test_what_a_program_writes_of_the_patient_is_not_kept(anna: Program) -> None:
    row = rows.failed(payload={"to": "Nina Alvarez"})
    version = anna.get(f"workflows/{row.pk}")["version"]
    sent = {"verb": "retry", "workflow": row.pk, "version": version, "reason": "Nina Alvarez, n@example.com, asks."}
    made = anna.post("proposals", sent)
    assert made["reason"] == "•••, ••• asks."
    anna.post(f"proposals/{made['id']}/withdraw", {"reason": "Nina Alvarez has called."}, 200)
    assert Event.objects.get(kind="proposal_withdrawn").detail["reason"] == "••• has called."


# --- Telling of it --------------------------------------------------------------------------------------


def test_it_is_for_those_who_may_approve_it_and_for_nobody_else(anna: Program, ben: Client) -> None:
    row = rows.failed()
    task = rows.open_task(rows.waiting(task=False), team="clinicians")
    carl = person("carl", "approver", "clinicians")
    anna.user.groups.add(*carl.groups.all())
    anna.propose("retry", workflow=row.pk)
    anna.propose("approve", task=task.pk)
    retry, approve = f"proposes to retry workflow {row.pk}: It hangs.", f"proposes to approve task {task.pk}: It hangs."
    for client, theirs in ((ben, (True, False)), (browser(carl), (False, True)), (browser(anna.user), (False, False))):
        for page in ("/admin/", "/admin/needs-a-person/"):
            told = client.get(page).content.decode()
            assert (retry in told, approve in told) == theirs, page
    assert retry in browser(anna.user).get(f"/admin/workflows/workflow/{row.pk}/change/").content.decode()


def test_people_are_told_of_it(anna: Program) -> None:
    number = anna.propose("retry", workflow=rows.failed().pk)["id"]
    waiting.notice()
    assert Notice.objects.values_list("topic", "code", "subject").get() == ("second_person.wanted", "proposal", number)


def test_of_an_emptied_workflow_who_proposed_what_stays_and_why_goes(anna: Program, ben: Client) -> None:
    row = old()
    Proposal.objects.create(
        verb="retry",
        row=row.pk,
        workflow=row,
        seen={},
        reason="Nina asks.",
        api_key=ApiKey.objects.get(),
        asked_by=anna.user,
        lapses_at=timezone.now() + proposals.LAPSES,
        idempotency_key=uuid4(),
    )
    told = {"proposes": "retry", "api_key": "Chat", "proposed_by": "anna", "note": "Nina asks.", "reason": "Nina asks."}
    event = rows.event(row, "retried", actor="ben", detail=told)
    with transaction.atomic():
        content.empty([row.pk])
    event.refresh_from_db()
    assert (Proposal.objects.get().state, Proposal.objects.get().reason) == ("stale", "")
    assert event.detail == {**told, "note": "(deleted)", "reason": "(deleted)"}
