"""The page of legal holds, the verbs on a workflow's page, and what that page notes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString

from workflows import times
from workflows.console import links
from workflows.console.base import ConsoleAdmin, time_column
from workflows.console.typed import DayField
from workflows.console.verbs import ReasonForm, Verb, reason_field
from workflows.definition import definitions
from workflows.extension import Note
from workflows.features.retention import erasing, holds
from workflows.features.retention.erasure_page import ASK, CANNOT_BE, STAYS, ForEverForm, linked
from workflows.health.bounded import Link
from workflows.models import Erasure, Hold, Workflow
from workflows.operations.guards import ERASE, PLACE_HOLD
from workflows.telling import words

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class UntilForm(ReasonForm):
    until = DayField(label="Until")
    reason = reason_field(STAYS)
    field_order = ("until", "of_person", "reason")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["until"].help_text = f"It ends when that day begins, in {times.zone()}."


class LegalHoldForm(UntilForm):
    of_person = forms.BooleanField(
        label="Hold all that has its e-mail address, also what comes later", required=False, initial=False
    )


def _is_on(row: Hold) -> bool:
    return row.until > timezone.now()


# --- Legal holds --------------------------------------------------------------------------------------


def _place(row_id: int, *, user: User, until: datetime, **said: Any) -> str:
    holds.place(row_id, user=user, until=until, **said)
    return f"A legal hold is on it until {times.both(until)}."


def _extend(hold_id: int, *, user: User, until: datetime, **said: Any) -> str:
    holds.extend(hold_id, user=user, until=until, **said)
    return f"Another hold is placed on the same, until {times.both(until)}."


PLACE = Verb(
    slug="place_hold",
    label="Place a legal hold",
    permission=PLACE_HOLD,
    operation=_place,
    applies=lambda row: True,
    consequences=lambda row: [
        "What was sent, and what came of it, is kept until the hold ends: no age and no erasure deletes it.",
        "The workflow itself goes on as before.",
    ],
    form=LegalHoldForm,
    asks="Place a legal hold on {}",
    done="",
    rare=True,
)
EXTEND = Verb(
    slug="extend",
    label="Extend",
    permission=PLACE_HOLD,
    operation=_extend,
    applies=_is_on,
    consequences=lambda row: ["Another hold is placed on the same, until then. This one stays as it is."],
    form=UntilForm,
    done="",
)
LIFT = Verb(
    slug="lift",
    label="Lift",
    permission=PLACE_HOLD,
    operation=holds.lift,
    applies=_is_on,
    consequences=lambda row: [
        "It ends now. What is old enough is deleted within minutes, unless another hold is on it.",
        "An erasure may be asked for.",
    ],
    form=ForEverForm,
    done="It is lifted.",
    dangerous=True,
)


def notes(row: Workflow, user: User) -> Iterator[Note]:
    """The notes on a workflow's page: its legal holds, undecided erasures, and when it is soon deleted."""
    for hold in holds.on(row.pk):
        url = links.to(Link("hold", pk=str(hold.pk))) if user.has_perm(PLACE_HOLD) else ""
        yield Note(_held(hold), url, f"Legal hold {hold.pk}")
    for asked in erasing.waiting(row.pk) if user.has_perm(ERASE) else ():
        yield Note(_waits(asked), links.to(Link("erasure", pk=str(asked.pk))), f"Erasure {asked.pk}")
    if told := soon(row):
        yield Note(told, is_plain=True)


def _held(hold: Hold) -> str:
    return (
        f"A legal hold is on it until {times.both(hold.until)}, placed by {hold.placed_by}: "
        f"{words.ended(hold.reason)} Nothing of it is deleted before, whatever its age."
    )


def _waits(asked: Erasure) -> str:
    others = len(asked.workflows) - 1
    which = f"this and {others} other{'s' * (others > 1)}" if others else "this"
    return " ".join(
        [
            f"{asked.asked_by.get_username()} asked at {words.clock(asked.asked_at)} to erase {which}: "
            f"{words.ended(asked.reason)} Once another user approves it, what was sent is deleted for good.",
            *([f"{CANNOT_BE} {why}"] if (why := erasing.why_unsettled(asked)) else []),
        ]
    )


# So long before its content is deleted for its age, a workflow's page says so.
SOON = timedelta(days=7)


def soon(row: Workflow) -> str:
    """A sentence about when a workflow's content is deleted for its age; empty unless that is soon."""
    definition = definitions().get(row.workflow_type)
    if definition is None or row.completed_at is None or row.emptied_at:
        return ""
    at = row.completed_at + definition.retention.content
    if at > timezone.now() + SOON:
        return ""
    return f"What it was sent is deleted for its age, from {words.clock(at)} on, unless it is unsettled or held."


@admin.register(Hold)
class HoldAdmin(ConsoleAdmin):
    list_display = ("number", "on", "state", "ends", "placed", "reason")
    ordering = ("-id",)
    page_template = "admin/workflows/facts.html"
    identity = ("placed_at",)
    verbs = (EXTEND, LIFT)
    ends = time_column("Until", "until")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(PLACE_HOLD)

    def page(self, request: HttpRequest, row: Hold) -> dict[str, Any]:
        facts = [
            ("On", self.on(row)),
            ("Until", words.clock(row.until)),
            ("Placed", self.placed(row)),
            ("Reason", row.reason),
            ("Lifted by", row.lifted_by),
            ("Because", row.lifted_reason),
        ]
        about = (
            "Nothing under it is deleted, whatever its age, even if a person asks. An e-mail address is kept as a hash."
        )
        return {"badge": self.state(row), "name": f"Legal hold {row.pk}", "facts": facts, "about": about}

    @admin.display(description="On")
    def on(self, row: Hold) -> str | SafeString:
        return linked([row.workflow_id]) if row.workflow_id else "an e-mail address"

    @admin.display(description="State")
    def state(self, row: Hold) -> SafeString:
        return words.badge("waiting", "Held") if _is_on(row) else words.badge("complete", "Ended")

    @admin.display(description="Placed")
    def placed(self, row: Hold) -> str:
        return f"{words.clock(row.placed_at)}, by {row.placed_by}"


VERBS = (PLACE, ASK)
