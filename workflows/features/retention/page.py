"""The pages of legal holds and erasures, and their verbs on a workflow's page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from workflows import times
from workflows.console import links
from workflows.console.base import ConsoleAdmin, time_column
from workflows.console.typed import DayField
from workflows.console.verbs import ReasonForm, Verb, reason_field
from workflows.definition import definitions
from workflows.extension import Note
from workflows.features.retention import erasing, holds
from workflows.health.bounded import Link
from workflows.models import Erasure, Hold, Workflow
from workflows.operations.guards import ERASE, PLACE_HOLD
from workflows.telling import words

if TYPE_CHECKING:
    from django.contrib.auth.models import User

STAYS = "The reason stays for ever, with your name: name nobody in it. The number of a ticket, say."
# The most erasures that are listed for a second person.
LISTED = 50


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


class ForEverForm(ReasonForm):
    reason = reason_field(STAYS)


class NoReasonForm(ReasonForm):
    reason = None  # type: ignore[assignment]


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
            *([f"It cannot be approved now. {why}"] if (why := erasing.why_unsettled(asked)) else []),
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
        return _linked([row.workflow_id]) if row.workflow_id else "an e-mail address"

    @admin.display(description="State")
    def state(self, row: Hold) -> SafeString:
        return words.badge("waiting", "Held") if _is_on(row) else words.badge("complete", "Ended")

    @admin.display(description="Placed")
    def placed(self, row: Hold) -> str:
        return f"{words.clock(row.placed_at)}, by {row.placed_by}"


# --- Erasures -----------------------------------------------------------------------------------------


def _ask(row_id: int, *, user: User, reason: str) -> str:
    asked = erasing.ask(user=user, workflow_id=row_id, reason=reason)
    return f"Erasure {asked.pk} is asked for. Another user approves it: they find it in “For you”."


def _approve(row_id: int, *, user: User) -> None:
    erasing.approve(row_id, user=user)


ERASED = (
    "What was sent, what steps and services answered, and what people typed about it is deleted, and nobody finds it "
    "any more. When and how each ended stays, and what names a charge, with its amount."
)


def _of_asking(row: Workflow) -> Iterator[str]:
    yield format_html(
        "To be erased: {}. That is all of its e-mail address, with what these started, or were started by.",
        _linked(erasing.found_with(row.pk)),
    )
    if refused := erasing.messages_found_with(row.pk):
        yield f"And refused submissions: {_of_refused(refused)}."
    yield ERASED
    yield "Nothing is deleted before another user approves it."


def _of_former(row: Erasure) -> Iterator[SafeString]:
    if former := sorted(erasing.only_as_first_sent(row.workflows, [bytes(row.hash)] if row.hash else [])):
        yield format_html(
            "Of {} only what was first sent is deleted: it was corrected, and has another address since.",
            _linked(former),
        )


def _is_asked(row: Erasure) -> bool:
    return row.state == Erasure.State.ASKED


ASK = Verb(
    slug="ask_erasure",
    label="Ask to erase",
    permission=ERASE,
    operation=_ask,
    applies=lambda row: True,
    why_not=lambda row, user: erasing.why_not_ask(row.pk),
    consequences=_of_asking,
    form=ForEverForm,
    asks="Ask to erase {}",
    done="",
    dangerous=True,
    rare=True,
)
APPROVE = Verb(
    slug="approve",
    label="Approve and erase",
    permission=ERASE,
    operation=_approve,
    applies=_is_asked,
    why_not=erasing.why_not_approve,
    consequences=lambda row: [
        format_html("Deleted now, for good: {}. Backups keep it for as long as you keep them.", _all_of(row)),
        ERASED,
        *_of_former(row),
        "What that person has sent since it was asked for is not among these, and stays: ask for it, too.",
    ],
    form=NoReasonForm,
    asks="Approve {}, and erase",
    done="It is erased. This page is the receipt.",
    dangerous=True,
)
REFUSE = Verb(
    slug="refuse",
    label="Do not erase",
    permission=ERASE,
    operation=erasing.refuse,
    applies=_is_asked,
    consequences=lambda row: ["Nothing is deleted. If you have asked for it yourself, it is withdrawn."],
    form=NoReasonForm,
    asks="Refuse {}",
    done="Nothing is erased.",
)


def awaiting(user: User) -> list[tuple[str, Link]]:
    """The erasures that wait for this user as the second person: a sentence, and its page."""
    return [
        (
            f"{row.asked_by.get_username()} asks to erase what a person has sent: {words.ended(row.reason)}",
            Link("erasure", pk=str(row.pk)),
        )
        for row in erasing.to_approve(user).select_related("asked_by")[:LISTED]
    ]


@admin.register(Erasure)
class ErasureAdmin(ConsoleAdmin):
    list_display = ("number", "state_shown", "asked", "decided", "reason")
    ordering = ("-id",)
    page_template = "admin/workflows/facts.html"
    identity = ("asked_at",)
    verbs = (APPROVE, REFUSE)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(ERASE)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Erasure]:
        return Erasure.objects.select_related("asked_by", "decided_by")

    def page(self, request: HttpRequest, row: Erasure) -> dict[str, Any]:
        facts = [
            ("Workflows", _linked(row.workflows)),
            ("Refused submissions", _of_refused(row.messages or ())),
            ("Asked", self.asked(row)),
            ("Reason", row.reason),
            ("Decided", self.decided(row)),
            ("Hash of the address", bytes(row.hash).hex()),
        ]
        about = "This record names nobody but the two users. The hash tells whether it was an address that one has."
        return {"badge": self.state_shown(row), "name": f"Erasure {row.pk}", "facts": facts, "about": about}

    @admin.display(description="State")
    def state_shown(self, row: Erasure) -> SafeString:
        kind = {Erasure.State.ASKED: "waiting", Erasure.State.DONE: "complete"}.get(
            Erasure.State(row.state), "cancelled"
        )
        return words.badge(kind, row.get_state_display())

    @admin.display(description="Asked")
    def asked(self, row: Erasure) -> str:
        return f"{words.clock(row.asked_at)}, by {row.asked_by.get_username()}"

    @admin.display(description="Decided")
    def decided(self, row: Erasure) -> str:
        return f"{words.clock(row.decided_at)}, by {row.decided_by}" if row.decided_at else ""


def _linked(ids: Sequence[int]) -> SafeString:
    return format_html_join(", ", '<a href="{}">workflow {}</a>', ((links.workflow(each), each) for each in ids))


def _of_refused(ids: Sequence[int]) -> str:
    return ", ".join(f"message {each}" for each in ids)


def _all_of(row: Erasure) -> SafeString:
    parts = filter(None, (_linked(row.workflows), _of_refused(row.messages or ())))
    return format_html_join(", ", "{}", ((each,) for each in parts))


# The verbs on a workflow's page.
VERBS = (PLACE, ASK)
