"""What to tell the patient, and who calls: each a sentence that is true. What it says of money is in `test_money`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from onboarding.samples import Kind, sample
from onboarding.workflow import ONBOARDING
from workflows.console.phases import phases
from workflows.models import Effect, State, Workflow
from workflows.models.workflow import PAUSED
from workflows.operations.amounts import amount
from workflows.telling.patient import aim_told, caller, to_tell
from workflows.telling.steps import StepLine
from workflows.telling.words import day
from workflows.wording import ENGINE_CODES, Money, StepWords, Wording

AT = datetime(2023, 11, 28, tzinfo=UTC)
PAYLOAD = sample(Kind.NET_NEW).payload | {
    "checkout": {"program": "body", "plan": "monthly", "amount_cents": 14500, "currency": "usd"}
}


@pytest.mark.parametrize(
    ("units", "currency", "shown"),
    [
        (14500, "usd", "$145.00"),
        (5, "eur", "€0.05"),
        (123456789, "gbp", "£1,234,567.89"),
        (1200, "jpy", "1,200 JPY"),
        (1200, "chf", "12.00 CHF"),
        (1200, "<b>", "12.00"),
        (True, "usd", "An amount"),
        ("12", "usd", "An amount"),
        (1200, None, "An amount"),
    ],
)
def test_an_amount(units: Any, currency: Any, shown: str) -> None:
    money = Money(step="pay", amount="checkout.cents", currency="checkout.in", reference="id", refund="id")
    assert amount({"checkout": {"cents": units, "in": currency}}, money) == shown


def workflow(state: str, **fields: Any) -> Workflow:
    row = Workflow(**{"current_step": "", "last_error_code": "", **fields})
    row.state = state
    return row


def told(state: str, **fields: Any) -> str:
    own = {name: fields.pop(name) for name in ("passed_over", "asked") if name in fields}
    return to_tell(ONBOARDING, workflow(state, **fields), **own)


def test_every_state_has_something_to_tell() -> None:
    assert all(told(state, last_error_code="of_nobody").endswith(".") for state in State)
    assert all(to_tell(None, workflow(state)).endswith(".") for state in State)


def test_what_was_passed_over_is_told_when_it_concerns_the_patient() -> None:
    line = told("complete", passed_over=["card_invalid", "of_nobody"])
    assert line == (
        "Everything is done. Your card could not be used. "
        "You are enrolled all the same; we will ask you for another card."
    )


def test_it_names_what_the_patient_gets_while_it_is_set_up_and_once_it_is() -> None:
    aim = aim_told(ONBOARDING, PAYLOAD)
    paid = {"state": "done", "result": {"charge_id": "ch_1"}, "undo": False, "has_undo": True}
    call = Effect(
        step="execute_checkout", begun_at=AT, generation=1, undo_failures=0, undo_unavailable=0, by_hand="", **paid
    )
    own: dict[str, Any] = {"effects": [call], "amount": "$145.00", "aim": aim}
    assert to_tell(ONBOARDING, workflow("queued"), **own).endswith(
        "Your card was charged $145.00 on 28 November 2023; your enrolment in the body program is still being set up. "
        "If we cannot go on, you get your money back."
    )
    assert to_tell(ONBOARDING, workflow("complete", completed_at=AT), **own) == (
        "Everything is done: your enrolment in the body program was set up on 28 November 2023. "
        "Your card was charged $145.00 on 28 November 2023."
    )
    call.state = "unknown"
    assert "we are finding out. Your enrolment in the body" in to_tell(ONBOARDING, workflow("running"), **own)
    assert to_tell(ONBOARDING, workflow("parked"), aim=aim).endswith(f"{aim[1:]} is still being set up.")
    assert aim not in to_tell(ONBOARDING, workflow("failed"), **own)


@pytest.mark.parametrize("sent", [{"program": "<b>"}, {"program": ["body"]}, {}, None])
def test_what_was_sent_is_never_told_itself(sent: Any) -> None:
    assert (aim_told(ONBOARDING, {"checkout": sent}), aim_told(None, PAYLOAD)) == ("", "")


def test_while_it_waits_it_says_for_what() -> None:
    assert "clinician" in told("waiting", current_step="request_clinical_review", asked=True)
    assert "Our team is checking" in told("waiting", current_step="start_visit", asked=True)
    assert "waiting for something" in told("waiting", current_step="start_visit")


def test_while_a_person_has_paused_it_it_promises_nothing_of_what_it_waited_for() -> None:
    told_in = "This is paused for now, and we go on with it after that."
    row = workflow("waiting", current_step="request_clinical_review", waiting_for=PAUSED)
    tomorrow = timezone.now() + timedelta(days=1)
    assert to_tell(ONBOARDING, row, asked=True) == told_in
    assert to_tell(ONBOARDING, row, paused_until=AT) == told_in, "its time is over"
    assert to_tell(ONBOARDING, row, paused_until=tomorrow) == f"{told_in} We expect that by {day(tomorrow)}."


def test_nothing_is_promised_that_nobody_is_asked_to_do() -> None:
    assert "contact us if you want to know the reason" in told("failed", last_error_code="approval_rejected")
    assert not [code for code, words in ENGINE_CODES.items() if "We will tell you" in words.patient]


def test_a_caller_is_verified_by_parts_of_what_was_sent() -> None:
    shown = dict(caller(ONBOARDING, PAYLOAD))
    sent = PAYLOAD["patient"]
    assert shown["E-mail"] == f"{sent['email'][0]}•••@{sent['email'].partition('@')[2]}"
    assert shown["Phone"] == f"ending {sent['phone'][-2:]}"
    assert (shown["Program"], shown["Plan"]) == ("body", "monthly")
    assert sent["email"] not in str(shown)
    assert (caller(ONBOARDING, {"patient": "?"}), caller(None, PAYLOAD)) == ([], [])


def line(name: str, outcome: str = "", ms: int = 0) -> StepLine:
    return StepLine(name, outcome, outcome, ms=ms)


def test_steps_stand_in_phases_and_what_is_done_is_folded() -> None:
    wording = Wording(
        steps={
            **{name: StepWords(name.title(), "First") for name in ("one", "two")},
            **{name: StepWords(name.title(), "Second") for name in ("three", "four")},
            "five": StepWords("Five", "Third"),
        }
    )
    steps = [
        line("one", "ran", 1200),
        line("two", "recorded", 300),
        line("three", "ran"),
        line("four", "failed"),
        line("five"),
        line("six", "ran"),
    ]
    found = phases(wording, steps)
    assert [(each.title, each.state, each.is_open, each.summary) for each in found] == [
        ("First", "done", False, "2 steps, 1.5 s"),
        ("Second", "failed", True, "1 of 2 done"),
        ("Third", "ahead", False, "0 of 1 done"),
        ("", "done", False, "1 step, 0.0 s"),
    ]
    assert phases(wording, [line("one", "waiting"), line("two")])[0].state == "current"
