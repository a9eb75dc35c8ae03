"""The page of a task whose answer waits for a second person: what was said, and the buttons to confirm it or not."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User

from workflows import operations
from workflows.console.dialogues import dialogue_for
from workflows.console.verbs import KEPT, ReasonForm, Verb, read_once, reason_field
from workflows.models import Confirmation, ManualTask
from workflows.operations import two_people
from workflows.telling import words


class ConfirmForm(ReasonForm):
    reason = reason_field(f"Where you have looked, and what you have found there. {KEPT}", label="What you have seen")


def _open(row: ManualTask) -> Confirmation | None:
    """The answer that waits for a second person."""

    def read() -> Confirmation | None:
        is_open = row.state == ManualTask.State.OPEN and two_people.takes_two(row.workflow.workflow_type)
        return two_people.open_of(row.workflow_id, row.pk) if is_open else None

    return read_once(row, "to_confirm", read)


def _why_not_confirm(row: ManualTask, user: User) -> str:
    asked = _open(row)
    return (operations.why_not_decide(row, user) or two_people.why_not_confirm(asked, user)) if asked else ""


def _why_not_theirs(row: ManualTask, user: User) -> str:
    asked = _open(row)
    return operations.why_not_decide(row, user) if asked and asked.asked_by_id != user.pk else ""


def _consequences(row: ManualTask) -> list[str]:
    if (asked := _open(row)) is None:
        return []
    return [
        f"{asked.asked_by.get_username()} has said: “{_said(row, asked)}”. {words.ended(asked.reason)}",
        "Look yourself, where it can be seen, before you confirm it: you are the last who can see a mistake.",
        dialogue_for(row).consequences,
    ]


def _said(row: ManualTask, asked: Confirmation) -> str:
    texts = dialogue_for(row)
    other = texts.approve if asked.decision == ManualTask.State.APPROVED else texts.reject
    return words.SAID.get(operations.said(row, asked).get("said", ""), other)


CONFIRM = Verb(
    slug="confirm",
    key="a",
    main=True,
    label="Confirm it",
    permission=operations.MAY_DECIDE,
    operation=operations.confirm,
    applies=lambda row: _open(row) is not None,
    why_not=lambda row, user: _why_not_confirm(row, user),
    consequences=_consequences,
    seen=(("seen", lambda row: [asked.pk] if (asked := _open(row)) else []),),
    form=ConfirmForm,
    asks="Confirm the answer to {}",
    done="It is confirmed, and the workflow goes on.",
)
DO_NOT = Verb(
    slug="do_not_confirm",
    key="r",
    label="Do not confirm it",
    permission=operations.MAY_DECIDE,
    operation=operations.do_not_confirm,
    applies=lambda row: _open(row) is not None,
    why_not=lambda row, user: _why_not_theirs(row, user),
    consequences=lambda row: [
        "The question stays open, and nothing is called. If the answer is your own, it is withdrawn.",
        "If you know what happened, go back and answer that instead: no confirmation is needed for it.",
    ],
    seen=CONFIRM.seen,
    asks="Do not confirm the answer to {}",
    done="It is not confirmed.",
)
VERBS = (CONFIRM, DO_NOT)


def ticket(row: ManualTask) -> dict[str, Any]:
    """What the page shows of an answer that waits, and the button that would only say the same again."""
    if (asked := _open(row)) is None:
        return {}
    again = dialogue_for(row).retry if (asked.answer or {}).get("retry") else asked.decision
    # “It is settled” has other answers beside “never made”, which take one person.
    is_same = asked.answer is None or (asked.answer or {}).get("retry")
    return {"to_confirm": asked, "first_said": _said(row, asked), "hidden": again if is_same else ""}
