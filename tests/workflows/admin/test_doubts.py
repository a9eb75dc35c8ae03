"""Did it happen? Is it dealt with? The questions about a call and about its undo, and what is told of the answers."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from html import unescape
from typing import Any

from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import IN_DOUBT, PAID, decide, offered, page, task, url, words
from workflows.models import Effect, Event, ManualTask, Signal, Workflow


def typed_in(html: str) -> list[str]:
    """What the fields of the decision hold before anybody has touched them."""
    form = html.split('/decide/">')[1].split("</form>")[0]
    texts = re.findall(r"<textarea[^>]*>(.*?)</textarea>", form, re.DOTALL)
    inputs = re.findall(r'<input type="(?:text|number|date)"[^>]*value="([^"]*)"', form)
    chosen = re.findall(r'<(?:input|option)[^>]*value="([^"]+)"[^>]*(?:checked|selected)', form)
    return [text.strip() for text in texts + inputs + chosen if text.strip()]


def test_no_form_decides_by_its_default(as_: Login) -> None:
    client = as_("approver")
    for fields in ({"task_type": "effect_in_doubt"}, IN_DOUBT, {"task_type": "undo_in_doubt"}):
        row = task(**fields)
        assert typed_in(page(client, row)) == []
        html = decide(client, row, decision="approve")
        assert "This field is required." in html or "Say which of the two." in html
    assert (set(ManualTask.objects.values_list("state", flat=True)), Signal.objects.count()) == ({"open"}, 0)


def test_whether_a_call_happened_has_a_typed_field_for_each_that_its_step_returns(as_: Login) -> None:
    client, row = as_("approver"), unclear_call()
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


def test_of_a_step_that_does_not_say_what_it_returns_an_object_has_to_be_typed(as_: Login) -> None:
    client, row = as_("approver"), task(**IN_DOUBT)
    assert "Give a JSON object." in decide(client, row, decision="approve", **{"answer-result": "[]"})
    assert (ManualTask.objects.get().state, Signal.objects.count()) == ("open", 0)
    decide(client, row, decision="approve", **{"answer-result": "{}"})
    assert Signal.objects.get().payload["answer"] == {}


def unclear_call() -> ManualTask:
    return task(task_type="effect_in_doubt")


def undo_task() -> ManualTask:
    later = timezone.now() + timedelta(days=1)
    return rows.open_task(rows.compensating(), task_type="undo_in_doubt", expires_at=later)


def test_what_could_not_be_undone_is_dealt_with_in_one_of_three_ways(as_: Login) -> None:
    client = as_("approver")
    ways: list[tuple[dict[str, str], dict[str, Any]]] = [
        ({"answer-how": "kept"}, {"kept": True, "reference": "", "never_happened": False}),
        (
            {"answer-how": "undone", "answer-reference": " re-9 "},
            {"kept": False, "reference": "re-9", "never_happened": False},
        ),
        ({"answer-how": "never"}, {"kept": False, "reference": "", "never_happened": True}),
    ]
    for typed, stored in ways:
        row = undo_task()
        assert "It never happened" not in page(client, row), "the call is done"
        if stored["never_happened"]:
            Effect.objects.filter(workflow=row.workflow_id).update(state="unknown", result=None)
            assert "It never happened" in page(client, row)
        html = page(client, row)
        assert offered(html) == ["Assign to me", "It is settled", "Try again"]
        assert "optional" not in html
        decide(client, row, decision="approve", reason="By phone.", **typed)
        assert Signal.objects.get(workflow=row.workflow_id).payload["answer"] == stored


def test_how_it_is_dealt_with_has_to_be_said_with_a_reason(as_: Login) -> None:
    client, row = as_("approver"), undo_task()
    wrong: list[tuple[dict[str, str], str]] = [
        ({"answer-how": "undone", "answer-reference": "re-9", "reason": ""}, "This field is required."),
        ({"answer-how": "kept", "answer-reference": "re-9"}, "Only what was reversed by hand has a reference"),
    ]
    for typed, said in wrong:
        assert said in decide(client, row, **{"decision": "approve", "reason": "By phone.", **typed})
    assert (ManualTask.objects.get().state, Signal.objects.count()) == ("open", 0)
    decide(client, row, **{**typed, "decision": "reject", "reason": "It is up again."})
    assert ManualTask.objects.get().state == "rejected"


TYPED = f"Charge id ch_1, Payment status paid, Receipt {PAID['answer-receipt']}"


ANSWERS: list[tuple[Callable[[], ManualTask], dict[str, str], str]] = [
    (unclear_call, PAID, f"It happened: {TYPED}"),
    (undo_task, {"answer-how": "kept"}, "Left as it is"),
    (undo_task, {"answer-how": "undone", "answer-reference": "re-9"}, "Reversed by hand: Reference re-9"),
]


def test_the_history_and_the_tasks_page_say_what_was_answered(as_: Login) -> None:
    client = as_("approver")
    for make, typed, said in ANSWERS:
        row = make()
        decide(client, row, decision="approve", reason="By phone.", **typed)
        told = words(page(client, row))
        assert f"Manual task {row.pk} Answered " in told, "nothing was approved"
        assert f"{said} Answered by some-approver at " in told
        history = words(client.get(f"/admin/workflows/workflow/{row.workflow_id}/change/").content.decode())
        what, _, fields = said.partition(": ")
        assert f"{what} by some-approver Charge{': ' if fields else ''}{fields} By phone. charge" in history


def test_what_was_typed_as_a_result_and_is_somebodys_is_not_in_the_history(as_: Login) -> None:
    client = as_("superuser")
    for value in ("Zebulon", "ch_zebulon9", "12025550123", "one two", "zeb@example.org", "Miller"):
        row = unclear_call()
        Workflow.objects.update(
            payload={"name": "Zebulon Smith", "phone": "+1 202 555-0123", "order": {"program": "ch_b9"}}
        )
        client.post(url(row, "decide"), {"decision": "approve", **PAID, "answer-charge_id": value})
        detail = Event.objects.get(workflow=row.workflow_id).detail
        assert value not in str(detail)
        assert "•••" in detail["fields"]["charge_id"]
        assert Signal.objects.get(workflow=row.workflow_id).payload["answer"]["charge_id"] == value


def test_of_a_step_that_does_not_say_what_it_returns_no_values_but_references_are_told(as_: Login) -> None:
    client, row = as_("superuser"), task(**IN_DOUBT)
    typed = '{"account": "acc-9", "reservation": {"Zebulon": 1}, "payment_status": "paid"}'
    decide(client, row, decision="approve", **{"answer-result": typed})
    fields = {"account": "acc-9", "reservation": "•••", "payment_status": "paid"}
    assert Event.objects.get().detail == {"task": row.pk, "reason": "", "said": "happened", "fields": fields}


def test_a_release_that_does_not_know_the_type_offers_no_yes(as_: Login) -> None:
    client, row = as_("approver"), unclear_call()
    Workflow.objects.update(workflow_type="of the next release")
    html = page(client, row)
    assert offered(html) == ["Assign to me", "It did not happen"]
    assert "“It happened” cannot be chosen here. This release does not know the type" in unescape(html)
