"""What to tell the patient, who calls, and the money: each a sentence that is true."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from onboarding.samples import Kind, sample
from onboarding.workflow import ONBOARDING
from tests.engine import Context
from workflows.console.phases import phases
from workflows.definition import Step, WorkflowDefinition
from workflows.models import Effect, State, Workflow
from workflows.operations.amounts import amount
from workflows.telling import patient
from workflows.telling.consequences import Calls
from workflows.telling.money import money_line
from workflows.telling.patient import caller, to_tell
from workflows.telling.steps import StepLine
from workflows.wording import Money, StepWords, Wording

AT = datetime(2026, 3, 1, 3, 24, tzinfo=ZoneInfo("UTC"))
LATER = datetime(2026, 3, 1, 3, 41, tzinfo=ZoneInfo("UTC"))
PAYLOAD = sample(Kind.NET_NEW).payload | {
    "checkout": {"program": "body", "plan": "monthly", "amount_cents": 14500, "currency": "usd"}
}
SILENT = WorkflowDefinition(name="silent", steps=[], context_class=Context)


def charge(state: str = "done", charge_id: Any = "ch_1a2b", **fields: Any) -> Effect:
    result = {"charge_id": charge_id, "payment_status": "paid"} if state in ("done", "undone", "kept") else None
    known = {"step": "execute_checkout", "result": result, "begun_at": AT, "settled_at": AT}
    return Effect(
        **{**known, "generation": 1, "undo": False, "undo_failures": 0, "undo_unavailable": 0, "state": state, **fields}
    )


def refund(state: str = "done", result: Any = None, **fields: Any) -> Effect:
    known = {"step": "execute_checkout", "undo": True, "begun_at": LATER, "settled_at": LATER, "generation": 1}
    return Effect(**{**known, "state": state, "result": result or {"refund_id": "re_9"}, **fields})


CHARGED = "$145.00 charged at 2026-03-01 03:24 UTC, ch_1a2b"
MAY_BE = "Unclear: $145.00 may have been charged at 2026-03-01 03:24 UTC."
REFUNDED = f"{CHARGED}; refunded at 2026-03-01 03:41 UTC,"
NOTHING = "Nothing has been charged."


@pytest.mark.parametrize(
    ("effects", "line"),
    [
        ([], NOTHING),
        ([charge("not_done")], NOTHING),
        ([charge("skipped")], NOTHING),
        ([charge(charge_id=None)], NOTHING),
        ([charge()], f"{CHARGED}."),
        ([charge("unknown")], MAY_BE),
        ([charge("intent")], MAY_BE),
        (
            [charge("undone"), refund()],
            f"{REFUNDED} re_9.",
        ),
        (
            [charge("undone"), refund(result={"reference": "wire-77"})],
            f"{REFUNDED} wire-77.",
        ),
        ([charge(), refund("not_done")], f"{CHARGED}."),
        ([charge("undone")], f"{CHARGED}; refunded by hand."),
        ([charge("kept")], f"{CHARGED}; a person decided to leave it."),
        ([charge(undo_failures=3)], f"{CHARGED}; the refund failed 3 times."),
        ([charge(undo_failures=1)], f"{CHARGED}; the refund failed 1 time."),
        (
            [charge(), refund("intent")],
            f"{CHARGED}; a refund was started at 2026-03-01 03:41 UTC, and its outcome is not known yet.",
        ),
        (
            [charge("undone"), refund(), charge(charge_id="ch_2", generation=2)],
            f"{REFUNDED} re_9. $145.00 charged at 2026-03-01 03:24 UTC, ch_2.",
        ),
        ([charge(step="enroll_in_program")], NOTHING),
    ],
)
def test_the_money(effects: list[Effect], line: str) -> None:
    assert money_line(ONBOARDING, PAYLOAD, effects) == line


def test_a_reference_that_is_the_patients_is_masked() -> None:
    assert PAYLOAD["patient"]["email"] not in money_line(
        ONBOARDING, PAYLOAD, [charge(charge_id=PAYLOAD["patient"]["email"])]
    )


def test_a_definition_that_says_nothing_of_money_has_no_line() -> None:
    assert (money_line(SILENT, {}, [charge()]), money_line(None, {}, [charge()])) == ("", "")


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


def told(state: str, *, effects: list[Effect] | None = None, **fields: Any) -> str:
    own = {name: fields.pop(name) for name in ("passed_over", "asked") if name in fields}
    return to_tell(ONBOARDING, workflow(state, **fields), effects=effects or [], **own)


def test_every_state_has_something_to_tell() -> None:
    assert all(told(state, last_error_code="of_nobody").endswith(".") for state in State)
    assert all(to_tell(None, workflow(state)).endswith(".") for state in State)


FULL = "The program is full, so we could not enrol you."


@pytest.mark.parametrize(
    ("state", "effects", "fields", "of_the_money"),
    [
        ("failed", [], {}, ""),
        ("failed", [charge(charge_id=None)], {}, ""),
        ("failed", [charge("undone"), refund()], {}, patient.REFUNDED),
        ("failed", [charge("kept")], {}, patient.NOT_REFUNDED),
        ("failed", [charge()], {}, patient.NOT_REFUNDED),
        ("failed", [charge("unknown")], {}, patient.UNKNOWN),  # nobody finds out: its step has no undo
        ("compensating", [charge("intent")], {}, patient.UNCLEAR),
        ("compensating", [charge("unknown")], {}, patient.UNCLEAR),
        ("compensating", [charge()], {}, patient.BEING_REFUNDED),
        ("compensating", [charge(), refund("unknown")], {}, patient.BEING_REFUNDED),
        ("compensating", [charge(undo_failures=2)], {}, patient.REFUND_DELAYED),
        ("compensating", [charge(undo_unavailable=1)], {}, patient.REFUND_DELAYED),
        ("compensating", [charge()], {"parked_on": "payments"}, patient.REFUND_DELAYED),
        ("compensating", [charge(undo_failures=3)], {"asked": True}, patient.REFUND_ASKED),
        ("compensating", [charge()], {"asked": True}, patient.REFUND_ASKED),
        (
            "compensating",
            [charge("undone"), refund(result={"refund_id": "re_9", "charge_id": "ch_1"})],
            {"asked": True},
            patient.REFUNDED,
        ),
        ("compensating", [charge("kept")], {}, patient.NOT_REFUNDED),
    ],
)
def test_the_sentence_of_the_money_follows_the_ledger(
    state: str, effects: list[Effect], fields: dict[str, Any], of_the_money: str
) -> None:
    failed = {"parked_on": "", **fields, "effects": effects}
    assert told(state, last_error_code="program_full", **failed) == f"{FULL} {of_the_money}".strip()
    cancelled = told(state, cancelled_at=AT, last_error_code="cancelled", **failed)
    assert cancelled == f"This was cancelled. {of_the_money}".strip()


def shop(name: str, **options: Any) -> WorkflowDefinition:
    """One step, which charges, and which nothing undoes."""
    money = Money(step=name, amount="cents", currency="in", reference="charge_id", refund="refund_id")
    step = Step(lambda *, workflow, context: None, name=name, once=True, **options)
    return WorkflowDefinition(name="shop", steps=[step], context_class=Context, wording=Wording(money=money))


def test_a_charge_under_an_earlier_name_of_its_step_is_a_charge() -> None:
    renamed = shop("pay", formerly=("execute_checkout",))
    assert to_tell(renamed, workflow("cancelled"), effects=[charge("undone")]).endswith(patient.REFUNDED)
    assert Calls(workflow("cancelled"), renamed, [charge("undone")]).charges_again()


def test_who_waits_for_a_mend_is_promised_the_money_only_if_something_gives_it_back() -> None:
    waits = {"effects": [charge()], "to_be_mended": True}
    assert to_tell(ONBOARDING, workflow("parked"), **waits).endswith(patient.PAID_SO_FAR)
    assert to_tell(shop("execute_checkout"), workflow("parked"), **waits) == patient.TO_BE_MENDED


def test_what_was_passed_over_is_told_when_it_concerns_the_patient() -> None:
    line = told("complete", passed_over=["card_invalid", "of_nobody"])
    assert line == (
        "Everything is done. Your card could not be used. "
        "You are enrolled all the same; we will ask you for another card."
    )


def test_while_it_waits_it_says_for_what() -> None:
    assert "clinician" in told("waiting", current_step="request_clinical_review", asked=True)
    assert "Our team is checking" in told("waiting", current_step="start_visit", asked=True)
    assert "waiting for something" in told("waiting", current_step="start_visit")


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
