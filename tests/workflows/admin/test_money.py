"""THE TABLE of the money: each state that the ledger of a charge can have, and what each page, list and client says."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.utils import timezone

from onboarding.workflow import ONBOARDING
from tests.workflows import rows
from tests.workflows.admin.test_patient import PAYLOAD
from workflows import charges
from workflows.charges import ChargeState, charges_the_patient, judged, moves_money
from workflows.console.failures import line as failures_line
from workflows.console.find import rows_of
from workflows.console.workflow_page import page
from workflows.definition import Step, WorkflowDefinition, definitions
from workflows.engine.undo_question import ASKED
from workflows.features.bulk import previews as bulk_previews
from workflows.features.corrections.operations import _unclear
from workflows.features.retention.unsettled import why_they_stay
from workflows.health import failures, money_at_risk
from workflows.models import Effect, Workflow
from workflows.operations import held_by
from workflows.postgres.statements import fetch_all
from workflows.search.find import Found
from workflows.telling import words
from workflows.telling.consequences import of_cancel, of_retry
from workflows.telling.money import NOTHING, UNKNOWN_HERE, in_short, money_line
from workflows.telling.patient import DECIDING, NOT_CHARGED, message_of
from workflows.wording import Money, Wording

pytestmark = pytest.mark.django_db

STEP = "execute_checkout"
AT, LATER = (datetime(2024, 3, 1, 3, minute, tzinfo=ZoneInfo("UTC")) for minute in (24, 41))
S = ChargeState


def call(state: str, result: Any = None, **fields: Any) -> dict[str, Any]:
    """A row of the ledger: of a charge, unless the fields say otherwise."""
    return {"step": STEP, "state": state, "result": result, "begun_at": AT, "settled_at": LATER, **fields}


def undo(state: str, result: Any = None, by: str = "call", **fields: Any) -> dict[str, Any]:
    return call(state, result, undo=True, begun_at=LATER, settled_by=by, **fields)


PAID: dict[str, Any] = {"charge_id": "ch_1", "payment_status": "paid"}
DUNNING: dict[str, Any] = {"charge_id": None, "payment_status": "payment_due"}
BY_HAND = undo("done", {"reference": "wire-77"}, "anna")

CHARGED = "$145.00 charged at 2024-03-01 03:24 UTC, ch_1"
MAY_BE = "$145.00 may have been charged at 2024-03-01 03:24 UTC"
THEN = "2024-03-01 03:41 UTC"
SO_FAR = "Your card was charged $145.00 on 1 March 2024."
MAY_SO_FAR = "Your card may have been charged $145.00 on 1 March 2024"
NOT_REFUNDED, REFUNDED = "Your payment was not refunded.", "Your payment was refunded."
ON_ITS_WAY, DELAYED = "Your refund is on its way.", "Your refund is on its way; it is taking longer than usual."
OURS = "We could not refund your payment yet. Our team is working on it."
REFUND_UNKNOWN = "We cannot tell yet whether your payment was refunded. Our team is working on it."
CANNOT_TELL = "We cannot tell yet whether you were charged."
FINDING_OUT = "We are finding out whether you were charged. If you were, you will get your money back."
LEFT_MAYBE = "We cannot tell whether your payment was refunded."
LEFT_UNCLEAR = "We cannot tell whether you were charged. If you were, that was not refunded."
AIM = "your enrolment in the body program"
IF_NOT = "If we cannot go on, you get your money back."
UNDER_WAY, MAY_UNDER_WAY = f"{SO_FAR} {IF_NOT}", f"{MAY_SO_FAR}; we are finding out. {IF_NOT}"

RECORDED = "1 call is on record and not made again: “Charge the card”."
CHECKED = (
    "We don't know yet whether this went through; it is checked automatically, and not done twice: “Charge the card”."
)
AGAIN = "The card will be charged again: $145.00."
MAY_AGAIN = "The card may be charged again: $145.00."
REVERSED = "Reversed before, and done again: “Charge the card”."
GIVEN_BACK = "$145.00 is given back."
FOUND_OUT = "Unclear: “Charge the card”. That is found out, and what happened is reversed where it can be."
IF_IT_WAS = "$145.00 may have been charged: if it was, it is given back."
NO_CALL = "Nothing is given back: no call that would have to be reversed is on record."


class Cell(NamedTuple):
    """The rows, and what is said of them: by the money line (`reversing`: while it is reversed, if that is another).

    `failed`, `reverses`, `asked` (with a question open), `waits` and `complete` are the patient's sentences.
    `retry` and `cancel`: the sentences of these pages that tell of the charge.
    """

    rows: list[dict[str, Any]]
    states: list[ChargeState]
    line: str
    reversing: str = ""
    failed: str = ""
    reverses: str = ""
    asked: str = ""
    waits: str = ""
    complete: str = ""
    short: str = ""
    retry: Collection[str] = ()
    cancel: Collection[str] = (NO_CALL,)
    stays: str = ""
    held: int = 0
    unclear: int = 0


NONE = {"states": [S.NOTHING], "line": NOTHING}
# Nobody is charged, and nothing is left.
HELD: dict[str, Any] = {
    "failed": NOT_REFUNDED,
    "waits": UNDER_WAY,
    "complete": SO_FAR,
    "short": "$145.00 charged",
    "retry": [RECORDED],
    "cancel": [GIVEN_BACK, "Reversed: “Charge the card”."],
    "stays": "money",
    "held": 1,
}
IN_DOUBT: dict[str, Any] = {
    "failed": CANNOT_TELL,
    "reverses": FINDING_OUT,
    "asked": FINDING_OUT,
    "waits": MAY_UNDER_WAY,
    "complete": f"{MAY_SO_FAR}.",
    "short": "$145.00 unclear",
    "retry": [CHECKED],
    "cancel": [IF_IT_WAS, FOUND_OUT],
    "stays": "unclear",
    "held": 1,
    "unclear": 1,
}
GONE: dict[str, Any] = {
    **dict.fromkeys(("failed", "reverses", "asked", "waits", "complete"), REFUNDED),
    "states": [S.REFUNDED],
    "short": "$145.00 refunded",
    "retry": [AGAIN, REVERSED],
}
STAYS: dict[str, Any] = {"cancel": ["This stays: “Charge the card”."]}
LEFT_IN_DOUBT = {
    **IN_DOUBT, **dict.fromkeys(("failed", "reverses", "asked"), LEFT_UNCLEAR), **STAYS,
    "states": [S.UNCLEAR_LEFT], "waits": f"{MAY_SO_FAR}.", "stays": "money",
}  # fmt: skip
DELAYS: dict[str, Any] = {"reverses": DELAYED, "asked": OURS}
TABLE = {
    "not called": Cell([], states=[], line=NOTHING),
    "another's call": Cell(
        [call("done", PAID, step="enroll_in_program")], [], NOTHING, cancel=["Reversed: “Enrol in the program”."],
        retry=["1 call is on record and not made again: “Enrol in the program”."],
    ),
    "skipped": Cell([call("skipped")], **NONE),
    "refused": Cell([call("not_done", settled_by="call")], **NONE),
    "not found": Cell([call("not_done", settled_by="lookup")], **NONE),
    "never, by a person": Cell(
        [call("not_done", settled_by="anna")], [S.NEVER], f"$145.00 was not charged: anna said so at {THEN}."
    ),
    "under way": Cell([call("intent")], [S.UNCLEAR], f"Unclear: {MAY_BE}.", **IN_DOUBT),
    "in doubt": Cell([call("unknown")], [S.UNCLEAR], f"Unclear: {MAY_BE}.", **IN_DOUBT),
    "charged": Cell(
        [call("done", PAID)], [S.CHARGED], f"{CHARGED}.", f"{CHARGED}; it is to be refunded.",
        **{**HELD, "reverses": ON_ITS_WAY, "asked": OURS},
    ),
    "dunning": Cell(
        [call("done", DUNNING)], **NONE, retry=[RECORDED], cancel=["Reversed: “Charge the card”."]
    ),
    "a name that is empty": Cell(
        [call("done", {"charge_id": ""})], **NONE, retry=[RECORDED], cancel=["Reversed: “Charge the card”."]
    ),
    "the refund was refused": Cell(
        [call("done", PAID), undo("not_done")], [S.CHARGED], f"{CHARGED}.", f"{CHARGED}; it is to be refunded.",
        **{**HELD, "reverses": ON_ITS_WAY, "asked": OURS},
    ),
    "the refund failed once": Cell(
        [call("done", PAID, undo_failures=1), undo("not_done")],
        [S.REFUND_FAILED], f"{CHARGED}; the refund failed 1 time.", **HELD, **DELAYS,
    ),
    "the refund failed three times": Cell(
        [call("done", PAID, undo_failures=3), undo("not_done")],
        [S.REFUND_FAILED], f"{CHARGED}; the refund failed 3 times.", **HELD, **DELAYS,
    ),
    "the refund meets an outage": Cell(
        [call("done", PAID, undo_unavailable=2), undo("not_done")],
        [S.REFUND_FAILED], f"{CHARGED}; the refund could not be made yet, for a service is down.", **HELD, **DELAYS,
    ),
    "the refund is under way": Cell(
        [call("done", PAID), undo("intent")],
        [S.REFUND_UNCLEAR], f"{CHARGED}; a refund was started at {THEN}, and its outcome is not known yet.",
        **{**HELD, "stays": "unclear", "failed": REFUND_UNKNOWN, "reverses": ON_ITS_WAY, "asked": REFUND_UNKNOWN},
    ),
    "the refund is in doubt": Cell(
        [call("done", PAID, undo_failures=3), undo("unknown")],
        [S.REFUND_UNCLEAR], f"{CHARGED}; a refund was started at {THEN}, and its outcome is not known yet.",
        **{**HELD, "stays": "unclear", "failed": REFUND_UNKNOWN, "reverses": DELAYED, "asked": REFUND_UNKNOWN},
    ),
    "refunded by us": Cell(
        [call("undone", PAID, settled_by="undo"), undo("done", {"refund_id": "re_9", "charge_id": "ch_1"})],
        line=f"{CHARGED}; refunded at {THEN}, re_9.", **GONE,
    ),
    "refunded, and its call returns nothing": Cell(
        [call("undone", PAID, settled_by="undo"), undo("done", {})],
        line=f"{CHARGED}; refunded at {THEN}.", **GONE,
    ),
    "refunded by hand": Cell(
        [call("undone", PAID, settled_by="anna"), BY_HAND],
        line=f"{CHARGED}; refunded by hand, wire-77, as anna said at {THEN}.", **GONE,
    ),
    "a lookup found the refund": Cell(
        [call("undone", PAID, settled_by="lookup"), undo("done", {"refund_id": "re_9"}, "lookup")],
        line=f"{CHARGED}; refunded, re_9, as the service said at {THEN}.", **GONE,
    ),
    "in doubt, and refunded by hand": Cell(
        [call("undone", settled_by="anna"), BY_HAND],
        line=f"{MAY_BE}; refunded by hand, wire-77, as anna said at {THEN}.", **GONE,
    ),
    "dunning, reversed": Cell(
        [call("undone", DUNNING, settled_by="undo"), undo("done", {})], **NONE, retry=[REVERSED]
    ),
    "left as it is": Cell(
        [call("kept", PAID, settled_by="anna"), undo("not_done")], [S.LEFT], f"{CHARGED}; left as it is by anna.",
        **{**HELD, "reverses": NOT_REFUNDED, "asked": NOT_REFUNDED, "waits": SO_FAR, **STAYS},
    ),
    "left as it is, and its refund in doubt": Cell(
        [call("kept", PAID, settled_by="anna"), undo("unknown")], [S.REFUND_UNCLEAR_LEFT],
        f"{CHARGED}; a refund was started at {THEN}, and its outcome is not known; left as it is by anna.",
        **{**HELD, **dict.fromkeys(("failed", "reverses", "asked"), LEFT_MAYBE), "waits": SO_FAR, **STAYS},
    ),
    "dunning, left": Cell(
        [call("kept", DUNNING, settled_by="anna")], **NONE, retry=[RECORDED], **STAYS
    ),
    "in doubt, and left as it is": Cell(
        [call("kept", settled_by="anna")], line=f"{MAY_BE}; left as it is by anna at {THEN}.",
        **LEFT_IN_DOUBT,
    ),
    "refunded, and charged again": Cell(
        [call("undone", PAID), undo("done", {"refund_id": "re_9"}), call("done", {"charge_id": "ch_2"}, generation=2)],
        line=f"{CHARGED}; refunded at {THEN}, re_9. $145.00 charged at 2024-03-01 03:24 UTC, ch_2.",
        reversing=f"{CHARGED}; refunded at {THEN}, re_9. "
        "$145.00 charged at 2024-03-01 03:24 UTC, ch_2; it is to be refunded.",
        **{**HELD, "states": [S.REFUNDED, S.CHARGED], "reverses": ON_ITS_WAY, "asked": OURS},
    ),
    "refunded, and declined then": Cell(
        [call("undone", PAID), undo("done", {"refund_id": "re_9"}), call("not_done", generation=2)],
        line=f"{CHARGED}; refunded at {THEN}, re_9.",
        **{**GONE, "states": [S.REFUNDED, S.NOTHING], "retry": [AGAIN]},
    ),
    "refunded, and in doubt again": Cell(
        [call("undone", PAID), undo("done", {"refund_id": "re_9"}), call("unknown", generation=2)],
        line=f"{CHARGED}; refunded at {THEN}, re_9. Unclear: {MAY_BE}.",
        **{**IN_DOUBT, "states": [S.REFUNDED, S.UNCLEAR], "retry": [MAY_AGAIN, CHECKED]},
    ),
    "refunded, and left in doubt": Cell(
        [call("undone", PAID), undo("done", {"refund_id": "re_9"}), call("kept", generation=2, settled_by="anna")],
        line=f"{CHARGED}; refunded at {THEN}, re_9. {MAY_BE}; left as it is by anna at {THEN}.",
        **{**LEFT_IN_DOUBT, "states": [S.REFUNDED, S.UNCLEAR_LEFT], "retry": [MAY_AGAIN, CHECKED]},
    ),
    "two stand": Cell(
        [call("done", PAID), call("done", {"charge_id": "ch_2"}, generation=2)],
        line=f"{CHARGED}. $145.00 charged at 2024-03-01 03:24 UTC, ch_2.",
        reversing=f"{CHARGED}; it is to be refunded. "
        "$145.00 charged at 2024-03-01 03:24 UTC, ch_2; it is to be refunded.",
        **{
            **HELD, "states": [S.CHARGED] * 2, "reverses": ON_ITS_WAY, "asked": OURS, "held": 2,
            "waits": f"{SO_FAR} {SO_FAR} {IF_NOT}", "complete": f"{SO_FAR} {SO_FAR}",
            "cancel": ["$290.00 is given back.", "Reversed: “Charge the card”."],
        },
    ),
}  # fmt: skip
CELLS = pytest.mark.parametrize("cell", TABLE.values(), ids=list(TABLE))


def made(cell: Cell, **fields: Any) -> Workflow:
    row = rows.workflow(workflow_type="onboarding", payload=PAYLOAD, last_error_code="program_full", **fields)
    for number, each in enumerate(cell.rows):
        Effect.objects.create(workflow=row, attempt=1, idempotency_key=f"{row.pk}:{number}", **each)
    found: Workflow = Workflow.objects.with_state().get(pk=row.pk)
    return found


def failed(cell: Cell, **fields: Any) -> Workflow:
    return made(cell, status="FAILED", completed_at=timezone.now(), **fields)


FULL = "The program is full, so we could not enrol you."
RECEIVED = "You do not need to do anything."


@CELLS
def test_the_page_and_the_client_are_told(cell: Cell) -> None:
    """The money line, and the patient's, which the client gets, too; in each state that a workflow may be in."""
    later = {"invisible_until": timezone.now() + timedelta(hours=1)}
    reversing = {"compensating": True, **later}
    waits, done = (
        made(cell, waiting_for="a letter", **later),
        made(cell, status="COMPLETE", completed_at=timezone.now()),
    )
    asked = made(cell, **reversing)
    rows.open_task(asked)
    for row, line, lead, told in (
        (failed(cell), cell.line, FULL, cell.failed),
        (failed(cell, cancelled_at=AT), cell.line, "This was cancelled.", cell.failed or NOT_CHARGED),
        (made(cell, **reversing), cell.reversing or cell.line, FULL, cell.reverses),
        (asked, cell.reversing or cell.line, FULL, cell.asked),
        (waits, cell.line, f"We are waiting for something before we go on. {RECEIVED}", cell.waits),
        (made(cell), cell.line, f"We have received it and are working on it. {RECEIVED}", cell.waits),
        (rows_running(cell), cell.line, f"We are working on it just now. {RECEIVED}", cell.waits),
        (done, cell.line, "Everything is done.", cell.complete),
    ):
        shown = page(row, AnonymousUser())
        message = message_of(row)
        assert (shown["money"], message) == (line, f"{lead} {told}".strip()), row.state
        assert without_its_aim(shown["to_tell"]) == message, row.state
        assert disagree(shown) == [], row.state


@CELLS
def test_the_patient_is_told_what_stands_until_a_person_has_decided(cell: Cell) -> None:
    row = made(cell, compensating=True, waiting_for=ASKED, invisible_until=timezone.now() + timedelta(hours=1))
    rows.open_task(row, task_type="before_undo")
    shown = page(row, AnonymousUser())
    unclear, held = cell.unclear, cell.held
    told = CANNOT_TELL if unclear else DECIDING if held else REFUNDED if S.REFUNDED in cell.states else ""
    assert (shown["money"], shown["to_tell"]) == (cell.line, f"{FULL} {told}".strip())
    assert message_of(row) == shown["to_tell"]
    assert disagree(shown) == []


def without_its_aim(told: str) -> str:
    """What the sender is told, too: the intake may not read what was sent."""
    to_come = " is still being set up"
    told = told.replace(f"; {AIM}{to_come}", "").replace(f" {AIM.capitalize()}{to_come}.", "")
    return re.sub(rf": {AIM} was set up on \d+ \w+\.", ".", told)


def rows_running(cell: Cell) -> Workflow:
    row = made(cell)
    rows.attempt(row, closed_at=None)
    return Workflow.objects.with_state().get(pk=row.pk)  # type: ignore[no-any-return]


def disagree(shown: dict[str, Any]) -> list[str]:
    """In what the sentence, the money line, and what to tell of one page are not of one mind."""
    sentence, line, told = (str(shown[name]).lower() for name in ("standing", "money", "to_tell"))
    charged, unclear, refunded = (
        "charged at" in line and "ch_" in line,
        "may have been charged" in line,
        "refunded" in line,
    )
    says = {
        "tells of money, and the line of none": ("card was" in told or "payment" in told or "refund" in told)
        and not (charged or unclear),
        "tells of none, and the line of money": (charged or unclear)
        and not any(each in told for each in ("charged", "payment", "refund")),
        "tells of a refund that the line does not have": "payment was refunded" in told.partition("whether")[0]
        and "; refunded" not in line,
        "is sure, and the line is not": "payment was" in told and unclear and not charged and not refunded,
        "is not sure, and the line is": ("may have" in told or "whether you were charged" in told) and not unclear,
        "says that the charge was reversed": "charge the card" in sentence.replace("whether “charge the card”", "")
        and "; refunded" not in line,
    }
    return [what for what, holds in says.items() if holds]


@CELLS
def test_the_lists_and_what_would_happen(cell: Cell) -> None:
    row, pending, lead = failed(cell), made(cell), User.objects.create(username="lead", is_superuser=True)
    held = bool(cell.held)
    (group,) = failures.unacknowledged()
    assert (failures_line(group).money, bool(group.charged)) == ("Held by 1" if held else "None held", held)
    assert bool(money_at_risk.standing_charges()) == held
    by_money = {"held": held, "unclear": bool(cell.unclear), "refunded": not held and S.REFUNDED in cell.states}
    for money, is_so in by_money.items():
        assert money_at_risk.newest_with(Workflow.objects.filter(pk=row.pk), money) == {row.pk for _ in range(is_so)}, (
            money
        )
    assert [each["money"] for each in rows_of(Found([row.pk], {}), sees_services=True)] == [cell.short]
    assert why_they_stay([row.pk]).get(row.pk, "") == cell.stays
    assert _unclear(row) == ("“Charge the card”" if cell.unclear else "")
    assert of_the_money(of_retry(row)) == list(cell.retry)
    assert of_the_money(of_cancel(pending)) == list(cell.cancel)
    retry, acknowledge, cancel = (
        bulk_previews.preview(rows.bulk_operation(lead, each, verb=verb), lead)
        for verb, each in (("retry", row), ("acknowledge", row), ("cancel", pending))
    )
    again = any(each in (AGAIN, MAY_AGAIN) for each in cell.retry)
    assert retry.money == ("$145.00 is charged again, for 1 of them: it was refunded." if again else "")
    assert acknowledge.can == (not held)
    of_all = f"${145 * cell.held}.00 has been charged, or may have been, for 1 of them: "
    assert cancel.money.startswith(of_all) if held else not cancel.money


def of_the_money(told: Iterator[str]) -> list[str]:
    """The sentences that tell of calls, but for those that were not made."""
    about = ("charged again", "on record", "checked automatically", "Reversed", "given back", "Unclear", "This stays")
    return [each for each in told if any(word in each for word in about)]


@CELLS
def test_one_judgement_in_python_and_in_sql(cell: Cell) -> None:
    row = failed(cell)
    found = judged(ONBOARDING, Effect.objects.filter(workflow=row).order_by("id"), reversing=False)
    assert [each.state for each in found] == cell.states
    assert sum(each.is_held for each in found) == cell.held
    held = held_by(row)
    assert (len(held.standing) + len(held.unclear), len(held.unclear)) == (cell.held, cell.unclear)
    in_sql = fetch_all(
        f"""SELECT e.id, {charges.HELD}, {charges.UNCLEAR}, {charges.REFUNDED}, {charges.REVERSIBLE}
              FROM workflows_workflow w JOIN workflows_effect e ON e.workflow_id = w.id {charges.JOIN}
             WHERE charge.step IS NOT NULL AND NOT e.undo ORDER BY e.id""",
        charges.parameters(),
    )
    assert in_sql == [
        (each.call.pk, each.is_held, each.is_unclear, each.state == S.REFUNDED, each.is_reversible) for each in found
    ]
    [(is_left,)] = fetch_all(f"SELECT {charges.LEFT} FROM workflows_workflow w", charges.parameters())
    assert is_left == (bool(cell.held) or any(each["state"] == "kept" for each in cell.rows))


# --- What no cell has ---------------------------------------------------------------------------------


def pay(**_: Any) -> None: ...


def shop(name: str = "pay", **options: Any) -> WorkflowDefinition:
    """One step, which charges, and which nothing undoes."""
    money = Money(step=name, amount="cents", currency="in", reference="charge_id", refund="refund_id")
    step = Step(pay, name=name, once=True, **options)
    return WorkflowDefinition(name="shop", steps=[step], context_class=rows.Context, wording=Wording(money=money))


SHOP = shop()


@pytest.fixture
def of_shop(settings: Any) -> None:
    settings.WORKFLOWS = [*settings.WORKFLOWS, "tests.workflows.admin.test_money.SHOP"]
    definitions.cache_clear()


def sold(state: str = "done", has_undo: bool = False, cents: Any = 500, **fields: Any) -> Workflow:
    row = rows.workflow(workflow_type="shop", payload={"cents": cents, "in": "usd"}, **fields)
    result = {"charge_id": "ch_1"} if state == "done" else None
    own = {"step": "pay", "state": state, "has_undo": has_undo, "result": result, "begun_at": AT, "settled_by": "call"}
    Effect.objects.create(workflow=row, attempt=1, idempotency_key=f"{row.pk}", **own)
    found: Workflow = Workflow.objects.with_state().get(pk=row.pk)
    return found


def test_what_no_step_gives_back_is_promised_to_nobody(of_shop: None, admin_user: User) -> None:
    """But to an undo that a release has lost a person sees."""
    done, unclear = sold(), sold("unknown")
    assert message_of(done).endswith("Your card was charged $5.00 on 1 March 2024.")
    assert message_of(unclear).endswith("Your card may have been charged $5.00 on 1 March 2024; we are finding out.")
    assert message_of(sold(has_undo=True)).endswith(IF_NOT)
    reversing = {"compensating": True, "last_error_code": "refused"}
    assert message_of(sold(**reversing)).endswith(NOT_REFUNDED)
    assert message_of(sold("unknown", **reversing)).endswith(CANNOT_TELL)
    assert message_of(sold(has_undo=True, **reversing)).endswith(ON_ITS_WAY)
    assert "What it did is being reversed where it can be." in page(sold(**reversing), AnonymousUser())["standing"]
    assert of_the_money(of_cancel(done)) == ["This stays: “Pay”."]
    bulk = rows.bulk_operation(admin_user, done, unclear, sold(has_undo=True), verb="cancel")
    told = "$15.00 has been charged, or may have been, for 3 of them: it is given back where a step gives it back."
    assert bulk_previews.preview(bulk, admin_user).money == told


def test_a_sum_has_the_charges_of_each_that_is_cancelled_with_it_and_each_once(of_shop: None, admin_user: User) -> None:
    """Not the amount of the workflow that started them; and it says so where it does not know one."""
    parent = sold("not_done", cents=99_900)
    child = sold(parent=parent, parent_wait="w", child_key="a")
    bulk = rows.bulk_operation(admin_user, parent, child, verb="cancel")
    money = bulk_previews.preview(bulk, admin_user).money
    assert money.startswith("$5.00 has been charged, or may have been, for 2 of")
    assert NO_CALL not in list(of_cancel(parent))
    stranger = rows.workflow(workflow_type="of-another-release", parent=parent, parent_wait="w", child_key="b")
    Effect.objects.create(workflow=stranger, step="anything", state="done", result={}, attempt=1, idempotency_key="s")
    assert bulk_previews.preview(bulk, admin_user).money.startswith("$5.00 and more has been charged")
    Workflow.objects.update(cancelled_at=timezone.now(), status="FAILED", completed_at=timezone.now())
    Effect.objects.filter(workflow=child).update(state="undone")
    assert "The card will be charged again: $5.00." in list(of_retry(parent))


def test_an_amount_that_is_not_known_is_left_out(of_shop: None) -> None:
    assert message_of(sold(cents="?")).endswith("Your card was charged on 1 March 2024.")
    assert page(sold(cents="?"), AnonymousUser())["money"].startswith("An amount charged at")


def test_a_day_of_this_year_has_no_year() -> None:
    assert str(timezone.now().year) not in words.day(timezone.now())


def test_a_charge_under_an_earlier_name_of_its_step_is_a_charge() -> None:
    found = judged(shop("buy", formerly=("pay",)), Effect.objects.filter(workflow=sold()), reversing=False)
    assert [each.state for each in found] == [S.CHARGED]


def test_of_a_type_without_words_for_money_nothing_is_said(of_shop: None) -> None:
    row = sold()
    effects = Effect.objects.filter(workflow=row)
    silent = WorkflowDefinition(name="shop", steps=[Step(pay, once=True)], context_class=rows.Context)
    assert (money_line(row, silent, {}, effects), money_line(row, None, {}, effects)) == ("", UNKNOWN_HERE)
    assert money_line(row, None, {}, effects.exclude(pk__gt=0)) == ""


def test_a_reference_that_is_the_patients_is_masked() -> None:
    row = failed(Cell([call("done", {"charge_id": PAYLOAD["patient"]["email"]})], [], ""))
    assert PAYLOAD["patient"]["email"] not in page(row, AnonymousUser())["money"]


@pytest.mark.parametrize(
    ("state", "status", "line", "short"),
    [
        ("done", "COMPLETE", "$5.00 paid out at 2024-03-01 03:24 UTC, ch_1.", "$5.00 paid out"),
        ("undone", "FAILED", "$5.00 may have been paid out at 2024-03-01 03:24 UTC; reversed.", "$5.00 reversed"),
        ("unknown", "PENDING", "Unclear: $5.00 may have been paid out at 2024-03-01 03:24 UTC.", "$5.00 unclear"),
        ("skipped", "COMPLETE", "Nothing has been paid out.", ""),
    ],
)
@pytest.mark.usefixtures("of_shop")
def test_nobody_is_told_that_a_pay_out_was_charged(
    monkeypatch: pytest.MonkeyPatch, state: str, status: str, line: str, short: str
) -> None:
    money = replace(SHOP.wording.money, pays_out=True)
    monkeypatch.setattr(SHOP, "wording", replace(SHOP.wording, money=money))
    row = Workflow.objects.with_state().get(pk=sold(state, status=status).pk)
    effects = list(Effect.objects.filter(workflow=row))
    assert money_line(row, SHOP, row.payload, effects) == line
    assert in_short(SHOP, "$5.00", effects) == short
    assert not re.search("charged|refund|payment|get it back", message_of(row))
    assert (moves_money(SHOP, money.step), charges_the_patient(SHOP, money.step)) == (True, False)
