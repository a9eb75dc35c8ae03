"""The page of erasures, and the verb on a workflow's page that asks for one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from workflows.console import links
from workflows.console.base import ConsoleAdmin
from workflows.console.home import First
from workflows.console.verbs import ReasonForm, Verb, read_once, reason_field
from workflows.features.retention import erasing
from workflows.health.bounded import Link
from workflows.models import Erasure, Workflow
from workflows.operations.guards import ERASE
from workflows.telling import words

if TYPE_CHECKING:
    from django.contrib.auth.models import User

CANNOT_BE = "It cannot be approved now."
STAYS = "The reason stays for ever, with your name: name nobody in it. The number of a ticket, say."


class ForEverForm(ReasonForm):
    reason = reason_field(STAYS)


class NoReasonForm(ReasonForm):
    reason = None  # type: ignore[assignment]


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
        linked(erasing.found_with(row.pk)),
    )
    if refused := erasing.messages_found_with(row.pk):
        yield f"And refused submissions: {_of_refused(refused)}."
    yield ERASED
    yield "Nothing is deleted before another user approves it."


def _of_former(row: Erasure) -> Iterator[SafeString]:
    if former := sorted(erasing.only_as_first_sent(row.workflows, [bytes(row.hash)] if row.hash else [])):
        yield format_html(
            "Of {} only what was first sent is deleted: it was corrected, and has another address since.",
            linked(former),
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


def awaiting(user: User) -> Iterator[tuple[Erasure, str, str]]:
    """The erasures that wait for this user, each with a sentence, and why nobody can approve it, if so."""
    for row, why in read_once(user, "erasures", lambda: erasing.awaiting(user)):
        asks = f"{row.asked_by.get_username()} asks to erase what a person has sent: {words.ended(row.reason)}"
        yield row, f"{asks} {CANNOT_BE} {why}" if why else asks, why


def first_lines(user: User) -> list[First]:
    """The same as lines on Home."""
    waits = {True: "Waits until it can be approved", False: Erasure.State.ASKED.label}
    return [
        First(sentence, links.to(Link("erasure", pk=str(row.pk))), waits[bool(why)], words.age_of(row.asked_at))
        for row, sentence, why in awaiting(user)
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
            ("Workflows", linked(row.workflows)),
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


def linked(ids: Sequence[int]) -> SafeString:
    return format_html_join(", ", '<a href="{}">workflow {}</a>', ((links.workflow(each), each) for each in ids))


def _of_refused(ids: Sequence[int]) -> str:
    return ", ".join(f"message {each}" for each in ids)


def _all_of(row: Erasure) -> SafeString:
    parts = filter(None, (linked(row.workflows), _of_refused(row.messages or ())))
    return format_html_join(", ", "{}", ((each,) for each in parts))


# The verbs on a workflow's page.
