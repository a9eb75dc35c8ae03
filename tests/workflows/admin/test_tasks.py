"""The page of a manual task: what is asked, whose it is, until when, and the form of its answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone
from pydantic import BaseModel, Field, field_validator

from tests.workflows import rows
from workflows import operations
from workflows.models import Effect, Event, ManualTask, Signal, Workflow

Login = Callable[..., Client]


class Dose(BaseModel):
    milligrams: float = Field(gt=0, le=15, description="Per week.")
    start: date
    note: str = Field(default="", max_length=1000)


class Parcel(BaseModel):
    contents: list[str]

    @field_validator("contents")
    @classmethod
    def priced(cls, contents: list[str]) -> list[str]:
        return sorted(contents, key={"lamp": 1}.__getitem__)  # and of anything else it has no price


DOSE = f"{__name__}.Dose"
# Of a step that does not say what it returns.
IN_DOUBT = {"task_type": "effect_in_doubt", "about": "reserve"}
TYPED = {"answer-milligrams": "2.5", "answer-start": "2026-03-01", "answer-note": "Slowly."}


def task(**fields: Any) -> ManualTask:
    return rows.open_task(rows.waiting(task=False), **fields)


def url(row: ManualTask, page: str = "change") -> str:
    return f"/admin/workflows/manualtask/{row.pk}/{page}/"


def words(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def page(client: Client, row: ManualTask) -> str:
    return client.get(url(row)).content.decode()


def offered(html: str) -> list[str]:
    """The buttons."""
    return re.findall(r"<button[^>]*>([^<]+)</button>", html.split('id="content"')[1])


# --- What it says -------------------------------------------------------------------------------


def test_it_says_whose_it_is_until_when_and_what_happens_then(as_: Login) -> None:
    carla = User.objects.create_user("carla")
    hour = timezone.now() + timedelta(hours=1)
    row = task(team="approver", due_at=hour, on_expiry="rejected", requested_by=carla, four_eyes=True)
    told = words(page(as_("approver"), row))
    for shown in [
        "Requested by carla. It takes four eyes: somebody else decides.",
        "For the team approver",
        "Claimed by nobody",
        f"Due {hour:%Y-%m-%d %H:%M:%S} UTC",
        f"Expires {row.expires_at:%Y-%m-%d %H:%M:%S} UTC. If nobody has decided by then it counts as rejected",
    ]:
        assert shown in told


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "it expires, and the workflow fails"),
        ({"on_expiry": "approved"}, "it counts as approved, and the workflow goes on"),
        ({"task_type": "effect_in_doubt"}, "Then it is asked again"),
    ],
)
def test_what_happens_when_nobody_decides_is_said(as_: Login, fields: dict[str, Any], said: str) -> None:
    assert said in words(page(as_("approver"), task(**fields)))


def test_what_an_expiry_counted_as_is_said(as_: Login) -> None:
    row = task(state="expired", on_expiry="approved")
    assert "nobody decided in time. That counts as approved." in words(page(as_("support"), row))


def test_it_is_claimed_and_given_back_with_a_button(as_: Login) -> None:
    client, row = as_("approver"), task()
    assert offered(page(client, row)) == ["Claim it", "Approve", "Reject"]
    html = client.post(url(row, "claim"), follow=True).content.decode()
    assert re.search(r"It is yours\..*Claimed by some-approver, since \d{4}-", words(html))
    assert offered(html) == ["Give it back", "Approve", "Reject"]
    html = client.post(url(row, "release"), follow=True).content.decode()
    assert re.search(r"It is nobody's again\..*Claimed by nobody", words(html))
    kinds = Event.objects.order_by("id").values_list("kind", "actor")
    assert list(kinds) == [("task_claimed", "some-approver"), ("task_released", "some-approver")]


def test_what_would_be_refused_is_not_offered_and_the_page_says_why(as_: Login) -> None:
    client = as_("approver")
    me, other = User.objects.get(username="some-approver"), User.objects.create_superuser("other")
    taken = {"assignee": other, "claimed_at": timezone.now()}
    for fields, said in [
        ({"team": "packers"}, "It is for the team packers, and you are not in it."),
        ({"requested_by": me, "four_eyes": True}, "You have requested this yourself"),
        (taken, "other has claimed it, at "),
    ]:
        html = page(client, task(facts=[["Weight", "ninety-two"]], **fields))
        assert offered(html) == []
        assert said in words(html)
        assert "ninety-two" not in html
    assert offered(page(as_("superuser"), task(**taken))) == ["Give it back"]
    assert offered(page(as_("support"), task())) == []


def test_of_a_claim_that_counts_for_nothing_the_page_says_so_and_offers_the_task(as_: Login) -> None:
    client, gone = as_("approver"), User.objects.create_superuser("gone")
    row = task(assignee=gone, claimed_at=timezone.now(), facts=[["Weight", "ninety-two"]])
    assert "can no longer decide it" not in page(client, row)
    User.objects.filter(pk=gone.pk).update(is_active=False)
    html = page(client, row)
    assert re.search(r"Claimed by gone, since [-0-9]+ [:0-9]+ UTC, but can no longer decide it", words(html))
    assert "ninety-two" in html
    assert offered(html) == ["Claim it", "Give it back", "Approve", "Reject"]
    assert "Assigned to gone, but can no longer decide it" in words(page(client, task(assignee=gone)))
    html = client.post(url(row, "claim"), follow=True).content.decode()
    assert re.search(r"It is yours\..*Claimed by some-approver, since [-0-9]+ [:0-9]+ UTC Expires", words(html))
    assert "can no longer" not in page(client, task(assignee=gone, state="expired")), "nobody asks any more"


def test_a_claim_that_comes_second_is_told_whose_it_is(as_: Login) -> None:
    client, row = as_("approver"), task()
    operations.claim_task(row.pk, user=User.objects.create_superuser("boss"))
    html = client.post(url(row, "claim"), follow=True).content.decode()
    assert "boss has claimed it, at " in html
    assert ManualTask.objects.get().assignee != User.objects.get(username="some-approver")


# --- Its form -----------------------------------------------------------------------------------


def test_the_decision_has_the_fields_of_the_answer_and_keeps_what_was_typed(as_: Login) -> None:
    client, row = as_("approver"), task(answer_model=DOSE)
    html = page(client, row)
    for shown in ['name="answer-milligrams"', "Per week.", 'type="date"', '<textarea name="answer-note"']:
        assert shown in html
    html = client.post(url(row, "decide"), {"decision": "approve", "reason": "Fine.", **TYPED}, follow=True)
    assert "Your answer is kept: approve." in words(html.content.decode())
    assert Signal.objects.get().payload == {
        "approved": True,
        "reason": "Fine.",
        "by": "some-approver",
        "answer": {"milligrams": 2.5, "start": "2026-03-01", "note": "Slowly."},
    }


def test_enter_in_a_field_decides_nothing(as_: Login) -> None:
    """It presses the first button of the form, which is not to be yes."""
    form = page(as_("approver"), task(answer_model=DOSE)).split('/decide/">')[1]
    assert re.findall(r"<button([^>]*)>", form)[0].split() == ["disabled", "hidden"]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"answer-milligrams": "20"}, "Ensure this value is less than or equal to 15."),
        ({"answer-milligrams": ""}, "This field is required."),
        ({"answer-milligrams": "much"}, "Enter a number."),
    ],
)
def test_an_error_is_told_beside_its_field_and_what_was_typed_is_kept(
    as_: Login, typed: dict[str, str], said: str
) -> None:
    client, row = as_("approver"), task(answer_model=DOSE)
    data = {"decision": "approve", "reason": "My reasons.", **TYPED, **typed}
    html = client.post(url(row, "decide"), data).content.decode()
    beside = re.search(r'<ul class="errorlist"[^>]*>(.*?)</ul>\s*<label for="([^"]+)"', html, re.DOTALL)
    assert beside
    assert (words(beside[1]), beside[2]) == (said, "id_answer-milligrams")
    for kept in ["Slowly.", "My reasons.", 'value="2026-03-01"']:
        assert kept in html
    if typed["answer-milligrams"]:
        assert f'value="{typed["answer-milligrams"]}"' in html
    assert (ManualTask.objects.get().state, Signal.objects.count()) == ("open", 0)


def test_a_refusal_keeps_what_was_typed_where_there_is_still_something_to_decide(as_: Login) -> None:
    client, row = as_("approver"), task(answer_model=DOSE)
    html = client.post(url(row, "decide"), {"decision": "reject", "reason": " ", **TYPED}).content.decode()
    assert "a rejection needs a reason" in html
    assert "Slowly." in html
    assert 'value="2.5"' in html
    assert "This field is required" not in html
    operations.reject(row.pk, user=User.objects.create_superuser("boss"), reason="No.")
    html = client.post(url(row, "decide"), {"decision": "approve", **TYPED}).content.decode()
    assert "Boss rejected it already, at " in html
    assert "Your decision" not in html
    assert "Slowly." not in html


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "9" * 5_000, '{"a": ' + "9" * 5_000 + "}", '{"a": "\\ud800"}', '{"a": "\\u0000"}', "{"]
)
@pytest.mark.parametrize("fields", [IN_DOUBT, {"answer_model": f"{__name__}.Parcel"}])
def test_json_that_cannot_be_read_or_kept_is_shown_again_with_its_error(
    as_: Login, fields: dict[str, str], text: str
) -> None:
    client, row = as_("approver"), task(**fields)
    data = {"decision": "approve", "answer-result": text, "answer-contents": text}
    response = client.post(url(row, "decide"), data)
    assert response.status_code == 200
    assert "errorlist" in response.content.decode()
    assert text in unescape(response.content.decode())
    assert (ManualTask.objects.get().state, Signal.objects.count()) == ("open", 0)


def test_a_model_that_breaks_on_an_answer_is_an_error_of_the_form_and_quotes_nothing(
    as_: Login, caplog: pytest.LogCaptureFixture
) -> None:
    client, row = as_("approver"), task(answer_model=f"{__name__}.Parcel")
    data = {"decision": "approve", "answer-contents": '["canary-7f3a"]'}
    html = client.post(url(row, "decide"), data).content.decode()
    assert "What checks the answer broke on it, and the error is ours: the log says where." in words(html)
    assert "Parcel broke on an answer" in caplog.text
    assert "test_tasks.py" in caplog.text
    assert "canary-7f3a" not in caplog.text
    assert (ManualTask.objects.get().state, Signal.objects.count()) == ("open", 0)


def test_a_rejection_needs_none_of_the_fields(as_: Login) -> None:
    client, row = as_("approver"), task(answer_model=DOSE)
    assert "formnovalidate>Reject<" in page(client, row)
    client.post(url(row, "decide"), {"decision": "reject", "reason": "Too heavy.", "answer-milligrams": "much"})
    assert ManualTask.objects.get().state == "rejected"
    assert "answer" not in Signal.objects.get().payload


def test_a_model_that_this_release_does_not_have_leaves_only_the_rejection(as_: Login) -> None:
    client, row = as_("approver"), task(answer_model="tests.nowhere.Dose")
    html = page(client, row)
    assert offered(html) == ["Claim it", "Reject"]
    said = (
        "“Approve” cannot be said here. This release does not have what the answer is checked by (tests.nowhere.Dose)"
    )
    assert said in unescape(html)
    html = client.post(url(row, "decide"), {"decision": "approve", "reason": "My reasons."}).content.decode()
    assert "This release does not have what the answer is checked by" in html
    assert "My reasons." in html
    client.post(url(row, "decide"), {"decision": "reject", "reason": "Nobody can say."})
    assert ManualTask.objects.get().state == "rejected"


def test_who_is_in_a_team_sees_its_facts(as_: Login) -> None:
    client, row = as_("approver"), task(team="clinicians", facts=[["Weight", "ninety-two"]])
    assert "ninety-two" not in page(client, row)
    User.objects.get().groups.add(Group.objects.create(name="clinicians"))
    assert "ninety-two" in page(client, row)


# --- Did it happen? Is it dealt with? -----------------------------------------------------------


def typed_in(html: str) -> list[str]:
    """What the fields of the decision hold before anybody has touched them."""
    form = html.split('/decide/">')[1].split("</form>")[0]
    texts = re.findall(r"<textarea[^>]*>(.*?)</textarea>", form, re.DOTALL)
    inputs = re.findall(r'<input type="(?:text|number|date)"[^>]*value="([^"]*)"', form)
    chosen = re.findall(r'<(?:input|option)[^>]*value="([^"]+)"[^>]*(?:checked|selected)', form)
    return [text.strip() for text in texts + inputs + chosen if text.strip()]


PAID = {
    "answer-charge_id": "ch_1",
    "answer-payment_status": "paid",
    "answer-receipt": "6f6d0c5e-4f0a-4b53-9d7e-0c6f1d2a3b4c",
}


def decide(client: Client, row: ManualTask, **data: str) -> str:
    return words(client.post(url(row, "decide"), data, follow=True).content.decode())


@pytest.mark.parametrize("fields", [{"task_type": "effect_in_doubt"}, IN_DOUBT, {"task_type": "undo_in_doubt"}])
def test_no_form_decides_by_its_default(as_: Login, fields: dict[str, str]) -> None:
    client, row = as_("approver"), task(**fields)
    assert typed_in(page(client, row)) == []
    html = decide(client, row, decision="approve")
    assert "This field is required." in html or "Say which of the two." in html
    assert (ManualTask.objects.get().state, Signal.objects.count()) == ("open", 0)


def test_whether_a_call_happened_has_a_typed_field_for_each_that_its_step_returns(as_: Login) -> None:
    client, row = as_("approver"), task(task_type="effect_in_doubt")
    html = page(client, row)
    for shown in [
        '<input type="text" name="answer-charge_id" autocomplete="off" maxlength="40" required',
        "As the payments service calls it.",
        '<option value="" selected>Choose</option>',
        '<option value="payment_due">Payment due</option>',
        'name="answer-receipt"',
    ]:
        assert shown in html
    assert "Your answer is kept: it happened." in decide(client, row, decision="approve", **PAID)
    assert Signal.objects.get().payload["answer"] == {key.partition("-")[2]: value for key, value in PAID.items()}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"answer-charge_id": " "}, "This field is required."),
        ({"answer-payment_status": ""}, "This field is required."),
        ({"answer-payment_status": "gone"}, "Select a valid choice."),
        ({"answer-receipt": "null"}, "Enter a valid UUID."),
    ],
)
def test_a_field_of_a_call_that_happened_is_told_what_is_wrong_with_it(
    as_: Login, typed: dict[str, str], said: str
) -> None:
    client, row = as_("approver"), task(task_type="effect_in_doubt")
    assert said in decide(client, row, **{"decision": "approve", **PAID, **typed})
    assert (ManualTask.objects.get().state, Signal.objects.count()) == ("open", 0)
    assert "Your answer is kept" in decide(client, row, decision="reject", reason="Not there.", **typed)


@pytest.mark.parametrize("text", ["", "null", "[]", '"ch_1"', "7"])
def test_of_a_step_that_does_not_say_what_it_returns_an_object_has_to_be_typed(as_: Login, text: str) -> None:
    client, row = as_("approver"), task(**IN_DOUBT)
    html = decide(client, row, decision="approve", **{"answer-result": text})
    assert ("This field is required." if text in ("", "null") else "Give a JSON object.") in html
    assert (ManualTask.objects.get().state, Signal.objects.count()) == ("open", 0)
    decide(client, row, decision="approve", **{"answer-result": "{}"})
    assert Signal.objects.get().payload["answer"] == {}


def undo_task() -> ManualTask:
    later = timezone.now() + timedelta(days=1)
    return rows.open_task(rows.compensating(), task_type="undo_in_doubt", expires_at=later)


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        ({"answer-how": "kept"}, {"kept": True, "reference": ""}),
        ({"answer-how": "undone", "answer-reference": " re-9 "}, {"kept": False, "reference": "re-9"}),
    ],
)
def test_what_could_not_be_undone_is_dealt_with_in_one_of_two_ways(
    as_: Login, typed: dict[str, str], stored: dict[str, Any]
) -> None:
    client, row = as_("approver"), undo_task()
    assert offered(page(client, row)) == ["Claim it", "It is dealt with", "Try again"]
    assert "optional" not in page(client, row)
    decide(client, row, decision="approve", reason="By phone.", **typed)
    assert Signal.objects.get().payload["answer"] == stored


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({}, "Say which of the two."),
        ({"answer-how": "perhaps"}, "Select a valid choice."),
        ({"answer-how": "undone"}, "What was undone by hand has a reference"),
        ({"answer-how": "undone", "answer-reference": "re-9", "reason": ""}, "This field is required."),
        ({"answer-how": "kept", "answer-reference": "re-9"}, "What stays as it is has no reference"),
    ],
)
def test_how_it_is_dealt_with_has_to_be_said_with_a_reason(as_: Login, typed: dict[str, str], said: str) -> None:
    client, row = as_("approver"), undo_task()
    assert said in decide(client, row, **{"decision": "approve", "reason": "By phone.", **typed})
    assert (ManualTask.objects.get().state, Signal.objects.count()) == ("open", 0)
    decide(client, row, **{**typed, "decision": "reject", "reason": "It is up again."})
    assert ManualTask.objects.get().state == "rejected"


def test_the_history_and_the_tasks_page_say_what_was_answered(as_: Login) -> None:
    client, row = as_("approver"), task(task_type="effect_in_doubt")
    decide(client, row, decision="approve", reason="Seen at the bank.", **PAID)
    said = f"charge_id ch_1, payment_status paid, receipt {PAID['answer-receipt']}"
    assert f"It happened: {said} Answered by some-approver at " in words(page(client, row))
    history = words(client.get(f"/admin/workflows/workflow/{row.workflow_id}/change/").content.decode())
    assert f"It happened by some-approver charge: {said} Seen at the bank." in history

    row = task(task_type="effect_in_doubt")
    decide(client, row, decision="reject", reason="Not there.")
    history = words(client.get(f"/admin/workflows/workflow/{row.workflow_id}/change/").content.decode())
    assert "It did not happen by some-approver charge Not there." in history
    assert "It did not happen Answered by some-approver" in words(page(client, row))


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"decision": "approve", "answer-how": "kept"}, "Left as it is"),
        ({"decision": "approve", "answer-how": "undone", "answer-reference": "re-9"}, "Undone by hand: reference re-9"),
        ({"decision": "reject"}, "To be tried again"),
    ],
)
def test_the_history_and_the_tasks_page_say_how_it_was_dealt_with(as_: Login, typed: dict[str, str], said: str) -> None:
    client, row = as_("approver"), undo_task()
    decide(client, row, reason="By phone.", **typed)
    assert f"Decision {said} " in words(page(client, row))
    history = words(client.get(f"/admin/workflows/workflow/{row.workflow_id}/change/").content.decode())
    what, _, reference = said.partition(": ")
    assert f"{what} by some-approver charge{': ' if reference else ''}{reference} By phone." in history


@pytest.mark.parametrize("value", ["Zebulon", "ch_zebulon9", "12025550123", "one two", "zeb@example.org", "Miller"])
def test_what_was_typed_as_a_result_and_is_somebodys_is_not_in_the_history(as_: Login, value: str) -> None:
    client, row = as_("superuser"), task(task_type="effect_in_doubt")
    Workflow.objects.update(
        payload={"name": "Zebulon Smith", "phone": "+1 202 555-0123", "order": {"program": "ch_b9"}}
    )
    decide(client, row, decision="approve", **{**PAID, "answer-charge_id": value})
    assert value not in str(Event.objects.get().detail)
    assert "•••" in Event.objects.get().detail["fields"]["charge_id"]
    assert Signal.objects.get().payload["answer"]["charge_id"] == value


def test_what_is_nobodys_may_be_in_the_history(as_: Login) -> None:
    client, row = as_("superuser"), task(task_type="effect_in_doubt")
    Workflow.objects.update(payload={"order": {"program": "ch_b9"}})
    decide(client, row, decision="approve", **{**PAID, "answer-charge_id": "ch_b9"})
    assert Event.objects.get().detail["fields"]["charge_id"] == "ch_b9"


def test_of_a_step_that_does_not_say_what_it_returns_no_values_but_references_are_told(as_: Login) -> None:
    client, row = as_("superuser"), task(**IN_DOUBT)
    typed = '{"account": "acc-9", "reservation": {"Zebulon": 1}, "payment_status": "paid"}'
    decide(client, row, decision="approve", **{"answer-result": typed})
    fields = {"account": "acc-9", "reservation": "•••", "payment_status": "paid"}
    assert Event.objects.get().detail == {"task": row.pk, "reason": "", "said": "happened", "fields": fields}


def test_a_release_that_does_not_know_the_type_offers_no_yes(as_: Login) -> None:
    client, row = as_("approver"), task(task_type="effect_in_doubt")
    Workflow.objects.update(workflow_type="of the next release")
    html = page(client, row)
    assert offered(html) == ["Claim it", "It did not happen"]
    assert "“It happened” cannot be said here. This release does not know the type" in unescape(html)


# --- Taking an answer back ----------------------------------------------------------------------


def take_back(client: Client, row: ManualTask, **data: str) -> str:
    return words(client.post(url(row, "take_back"), data, follow=True).content.decode())


@pytest.mark.django_db(transaction=True)
def test_an_answer_is_taken_back_on_a_page_that_says_what_will_happen(as_: Login) -> None:
    client, row = as_("approver"), task(task_type="effect_in_doubt")
    assert "A wrong answer can be taken back while nothing has built on it." in page(client, row)
    decide(client, row, decision="approve", **PAID)
    assert f'href="{url(row, "take_back")}">Take the answer back</a>' in page(client, row)
    html = words(client.get(url(row, "take_back")).content.decode())
    for said in [
        "Take the answer back?",
        "Whether charge happened counts as not known again.",
        "The workflow asks again at once: “May this parcel go out?” is then another task.",
        "The answer stays in the history, with who took it back, and why.",
    ]:
        assert said in html
    assert "This field is required." in take_back(client, row)
    html = take_back(client, row, reason="Another patient's.")
    assert "It is taken back; the workflow asks again at once." in html
    assert re.search(r"Answered by some-approver at .*Taken back by some-approver at .*Another patient's\.", html)
    assert "Take the answer back" not in html
    history = words(client.get(f"/admin/workflows/workflow/{row.workflow_id}/change/").content.decode())
    assert (
        "Answer taken back by some-approver charge: “It happened”, as some-approver had answered Another patient's."
        in history
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"status": "FAILED", "completed_at": timezone.now()}, "it asks again when somebody retries it"),
        ({"status": "PENDING"}, "The workflow asks again at once"),
    ],
)
def test_when_it_will_be_asked_again_is_said(as_: Login, fields: dict[str, Any], said: str) -> None:
    client, row = as_("approver"), task(task_type="effect_in_doubt")
    decide(client, row, decision="approve", **PAID)
    Workflow.objects.update(**fields)
    assert said in words(client.get(url(row, "take_back")).content.decode())
    Effect.objects.update(has_undo=True)
    said = "is taken up again to undo charge" if fields["status"] == "FAILED" else said
    assert said in words(client.get(url(row, "take_back")).content.decode())


def test_an_answer_that_stands_offers_no_button_and_its_page_says_why(as_: Login) -> None:
    client, row = as_("approver"), task(task_type="effect_in_doubt")
    decide(client, row, decision="approve", **PAID)
    Workflow.objects.update(status="COMPLETE", completed_at=timezone.now())
    assert "Take the answer back" not in page(client, row)
    html = words(client.get(url(row, "take_back")).content.decode())
    assert "Nothing: it cannot be taken back. Its workflow is complete" in html


def test_only_who_may_decide_takes_an_answer_back(as_: Login) -> None:
    row = task(task_type="effect_in_doubt")
    decide(as_("approver"), row, decision="approve", **PAID)
    support = as_("support")
    assert "Take the answer back" not in page(support, row)
    assert support.get(url(row, "take_back")).status_code == 403
    assert support.post(url(row, "take_back"), {"reason": "x"}).status_code == 403


def test_what_a_step_has_asked_offers_no_taking_back(as_: Login) -> None:
    client, row = as_("approver"), task()
    assert "A decision is final." in page(client, row)
    decide(client, row, decision="approve")
    assert "Take the answer back" not in page(client, row)
