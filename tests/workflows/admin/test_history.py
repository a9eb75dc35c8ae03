"""The lines of a workflow's history: in words, with the names of the code and what was recorded in small print."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from onboarding.wording import WORDING
from workflows.models import Event
from workflows.telling import history

LATER = datetime(2126, 1, 2, 3, 4, tzinfo=UTC)  # in the name of a test, which must be the same in each process
AT = f"{LATER:%Y-%m-%d %H:%M} UTC"
UNREACHABLE = {
    "error_class": "RetryableStepError",
    "error_code": "unreachable",
    "error_message": "Connection refused by programs:8080.",
}
UNHEARD_OF = {"error_class": "StepError", "error_code": "moon_phase", "error_message": "It is waning."}
AGAIN = {"invisible_until": LATER.isoformat()}


def told(kind: str, step: str = "", **detail: Any) -> tuple[str, str]:
    """The text of a line, and its small print."""
    line = history.line(Event(kind=kind, step=step, actor="", detail=detail), WORDING)
    return line.text, line.small_print


DOWN, REFUSED = "A service could not be reached.", "unreachable: Connection refused by programs:8080."
ENROL, CHARGE, CARD = "enroll_in_program", "execute_checkout", "attach_payment_card"
CONFIRM, REVIEW = "send_confirmation", "request_clinical_review"
PAID = {"charge_id": "ch_1", "payment_status": "paid"}


@pytest.mark.parametrize(
    ("kind", "step", "detail", "text", "recorded"),
    [
        (
            *("retry_scheduled", ENROL, {"failures": 1, "max_attempts": 45, **AGAIN, **UNREACHABLE}),
            *(f"Enrol in the program, failure 1 of 45: {DOWN}\nNext attempt at {AT}", REFUSED),
        ),
        # What nobody has words for is in the small print only.
        (
            "failed",
            CHARGE,
            UNHEARD_OF,
            "Charge the card: Something unforeseen happened.",
            "moon_phase: It is waning.",
        ),
        (
            *("undo_failed", CHARGE, {"failures": 2, "max_attempts": 3, **UNREACHABLE}),
            *(f"Charge the card, failure 2 of 3: {DOWN}", REFUSED),
        ),
        (
            *("best_effort_failed", CARD, {"error_code": "card_invalid", "error_message": "No."}),
            "Attach the card: The card cannot be used. The patient is enrolled, and the payment is due.",
            "card_invalid: No.",
        ),
        (
            *("compensated", "", {"undone": [ENROL, CHARGE]}),
            *("Reversed: “Enrol in the program”, “Charge the card”.", f"{ENROL}, {CHARGE}"),
        ),
        ("compensated", "", {"undone": []}, "Nothing was left to reverse.", ""),
        (
            *("waiting", REVIEW, {"waiting_for": "May this patient take part?", "until": LATER.isoformat()}),
            *(f"Have a clinician review the answers, until {AT}: May this patient take part?", ""),
        ),
        (
            *("parked", ENROL, {"service": "programs"}),
            *("Enrol in the program: the programs service is unavailable.", ""),
        ),
        ("killed", CHARGE, {"how": "overdue"}, "Charge the card: overdue", ""),
        ("crashed", f"undo {CHARGE}", {"how": "SIGSEGV"}, "Reversal of “Charge the card”: SIGSEGV", ""),
        ("followed_up", CONFIRM, {}, "“Send the confirmation” has been done.", ""),
        ("follow_up_asked", CONFIRM, {"reason": "It is right."}, "Send the confirmation: It is right.", ""),
        (
            *("acknowledged", "", {"steps": [CONFIRM], "reason": "She was called."}),
            *("Send the confirmation: She was called.", CONFIRM),
        ),
        (
            *("approved", CHARGE, {"said": "happened", "fields": PAID, "reason": "Seen."}),
            *("Charge the card: Charge ch_1, Payment paid\nSeen.", ""),
        ),
        (
            *("approved", CHARGE, {"said": "undone_by_hand", "reference": "re-9"}),
            *("Charge the card: Reference re-9", ""),
        ),
        (
            *("taken_back", CHARGE, {"said": "happened", "answered_by": "anna", "reason": "Another patient's."}),
            *("Charge the card: “It happened”, as anna had answered\nAnother patient's.", ""),
        ),
        ("task_assigned", "", {"to": "bob", "reason": "You know her."}, "To bob: You know her.", ""),
    ],
)
def test_steps_have_their_titles_codes_their_words_and_fields_their_labels(
    kind: str, step: str, detail: dict[str, Any], text: str, recorded: str
) -> None:
    assert told(kind, step, **detail) == (text, ", ".join(filter(None, (step, recorded))))


def test_a_charge_that_was_only_looked_for_is_no_failed_reversal() -> None:
    lines = [
        history.line(Event(kind="undo_failed", step="", actor="", detail={"unclear": it}), WORDING)
        for it in (True, False)
    ]
    assert [each.headline for each in lines] == [
        "Not reversed: it is not known yet whether it happened",
        "Reversal failed",
    ]


def test_no_line_has_a_name_of_the_code_but_in_its_small_print() -> None:
    """Whatever its detail holds; and where there is nothing, there is a line all the same."""
    everything = {
        "failures": 1,
        "max_attempts": 3,
        "undone": ["execute_checkout"],
        "steps": ["execute_checkout"],
        "waiting_for": "An answer.",
        "until": AT,
        "service": "programs",
        "how": "overdue",
        "said": "happened",
        "fields": {"payment_card_id": "c1"},
        "answered_by": "anna",
        "reason": "So.",
        "to": "bob",
    }
    for kind in Event.Kind:
        line = history.line(
            Event(kind=kind, step="execute_checkout", actor="", detail={**everything, **UNREACHABLE}), WORDING
        )
        assert not re.search(r"[a-z]_[a-z]|unreachable", f"{line.headline} {line.text}"), line
        assert history.line(Event(kind=kind, step="", actor="", detail={}), WORDING).headline


def test_a_correction_whose_hidden_part_alone_changes_says_so() -> None:
    told = [{"label": "Phone", "was": "ending 23", "is": "ending 23"}, {"label": "Plan", "was": "a", "is": "b"}]
    assert history.in_words(told) == "Phone from ending 23 to another that is masked alike; Plan from a to b"
