"""The lines of a workflow's history: in words, with the names of the code and what was recorded in small print."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from onboarding.wording import WORDING
from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import words
from workflows.console import history
from workflows.models import Event

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
    line = history.line(Event(kind=kind, step=step, detail=detail), WORDING)
    return line.text, line.small_print


def test_a_retry_says_what_failed_how_often_and_why_in_words() -> None:
    assert told("retry_scheduled", "enroll_in_program", failures=1, max_attempts=45, **AGAIN, **UNREACHABLE) == (
        f"Enrol in the program, failure 1 of 45: A service could not be reached.\nNext attempt at {AT}",
        "enroll_in_program, unreachable: Connection refused by programs:8080.",
    )


def test_an_error_that_nobody_has_words_for_is_told_as_it_was_recorded() -> None:
    assert told("failed", "execute_checkout", **UNHEARD_OF) == (
        "Charge the card: moon_phase: It is waning.",
        "execute_checkout",
    )
    assert told("failed", "execute_checkout", **{**UNHEARD_OF, "error_code": ""}) == (
        "Charge the card: StepError: It is waning.",
        "execute_checkout",
    )


@pytest.mark.parametrize(
    ("kind", "step", "detail", "text", "small_print"),
    [
        (
            "undo_failed",
            "execute_checkout",
            {"failures": 2, "max_attempts": 3, **UNREACHABLE},
            "Charge the card, failure 2 of 3: A service could not be reached.",
            "execute_checkout, unreachable: Connection refused by programs:8080.",
        ),
        (
            "retry_scheduled",
            "execute_checkout",
            {"error_code": "unsettled", "error_message": "Too early.", **AGAIN},
            "Charge the card: It is too early to know whether a call was made; it is found out by itself.\n"
            f"Next attempt at {AT}",
            "execute_checkout, unsettled: Too early.",
        ),
        (
            "best_effort_failed",
            "attach_payment_card",
            {"error_code": "card_invalid", "error_message": "No."},
            "Attach the card: The card cannot be used. The patient is enrolled, and the payment is due.",
            "attach_payment_card, card_invalid: No.",
        ),
        (
            "follow_up_failed",
            "send_confirmation",
            UNREACHABLE,
            "Send the confirmation: A service could not be reached.",
            "send_confirmation, unreachable: Connection refused by programs:8080.",
        ),
        (
            "follow_up_given_up",
            "send_confirmation",
            UNHEARD_OF,
            "Send the confirmation: moon_phase: It is waning.",
            "send_confirmation",
        ),
        (
            "compensated",
            "",
            {"undone": ["enroll_in_program", "execute_checkout"]},
            "Reversed: “Enrol in the program”, “Charge the card”.",
            "enroll_in_program, execute_checkout",
        ),
        ("compensated", "", {"undone": []}, "Nothing was left to reverse.", ""),
        (
            "waiting",
            "request_clinical_review",
            {"waiting_for": "May this patient take part?", "until": LATER.isoformat()},
            f"Have a clinician review the answers, until {AT}: May this patient take part?",
            "request_clinical_review",
        ),
        (
            "parked",
            "enroll_in_program",
            {"service": "programs"},
            "Enrol in the program: the programs service is unavailable.",
            "enroll_in_program",
        ),
        ("killed", "execute_checkout", {"how": "overdue"}, "Charge the card: overdue", "execute_checkout"),
        (
            "crashed",
            "undo execute_checkout",
            {"how": "SIGSEGV"},
            "Reversal of “Charge the card”: SIGSEGV",
            "undo execute_checkout",
        ),
        ("crashed", "", {"how": "SIGSEGV"}, "SIGSEGV", ""),
        ("followed_up", "send_confirmation", {}, "“Send the confirmation” has been done.", "send_confirmation"),
        (
            "follow_up_asked",
            "send_confirmation",
            {"reason": "Her address is right now."},
            "Send the confirmation: Her address is right now.",
            "send_confirmation",
        ),
        (
            "acknowledged",
            "",
            {"steps": ["send_confirmation"], "reason": "She was called."},
            "Send the confirmation: She was called.",
            "send_confirmation",
        ),
        (
            "approved",
            "execute_checkout",
            {"said": "happened", "fields": {"charge_id": "ch_1", "payment_status": "paid"}, "reason": "Seen."},
            "Charge the card: Charge ch_1, Payment paid\nSeen.",
            "execute_checkout",
        ),
        (
            "approved",
            "execute_checkout",
            {"said": "undone_by_hand", "reference": "re-9"},
            "Charge the card: Reference re-9",
            "execute_checkout",
        ),
        ("rejected", "execute_checkout", {"said": "did_not_happen"}, "Charge the card", "execute_checkout"),
        (
            "taken_back",
            "execute_checkout",
            {"said": "happened", "answered_by": "anna", "reason": "Another patient's."},
            "Charge the card: “It happened”, as anna had answered\nAnother patient's.",
            "execute_checkout",
        ),
        ("task_assigned", "", {"to": "bob", "reason": "You know her."}, "To bob: You know her.", ""),
        ("retried", "execute_checkout", {"reason": "Again."}, "Again.", ""),
    ],
)
def test_steps_have_their_titles_codes_their_words_and_fields_their_labels(
    kind: str, step: str, detail: dict[str, Any], text: str, small_print: str
) -> None:
    assert told(kind, step, **detail) == (text, small_print)


@pytest.mark.parametrize("kind", Event.Kind.values)
def test_no_line_has_a_name_of_the_code_but_in_its_small_print(kind: str) -> None:
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
    line = history.line(Event(kind=kind, step="execute_checkout", detail={**everything, **UNREACHABLE}), WORDING)
    assert not re.search(r"[a-z]_[a-z]|unreachable", f"{line.headline} {line.text}"), line
    assert history.line(Event(kind=kind, step="", detail={}), WORDING).headline


def test_the_page_has_the_small_print_beneath_the_words(as_: Login) -> None:
    row = rows.workflow(workflow_type="onboarding")
    rows.event(row, "failed", attempt=1, step="enroll_in_program", detail=UNREACHABLE)
    html = as_("support").get(f"/admin/workflows/workflow/{row.pk}/change/").content.decode()
    line = html.split('<li class="line line-failed">')[1].split("</li>")[0]
    assert words(line.split("</time>")[1]) == (
        "Failed attempt 1 Enrol in the program: A service could not be reached. "
        "enroll_in_program, unreachable: Connection refused by programs:8080."
    )
    small = re.search(r'<div class="quiet name">(.*?)</div>', line)
    assert small
    assert small[1] == "enroll_in_program, unreachable: Connection refused by programs:8080."
