"""The pages of undelivered messages: which messages could not become signals, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString

from workflows import operations
from workflows.console.base import StateFilter, time_column
from workflows.console.choosing import ChoosesMany
from workflows.console.verbs import OptionalReasonForm, Verb
from workflows.features.queues import bulk_verbs, messages, undelivered
from workflows.models import UndeliveredMessage
from workflows.telling import words
from workflows.wording import of_person

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from workflows.search.find import Found

OF_REFUSED = (
    "No workflow was made of this submission. What it says is kept sealed, and shown nowhere. The sender can correct "
    "it and send it again; when what was wrong is mended on our side, redeliver it."
)
OF_LEFT = "Send the broker's dead letters again (docs/queues.md), or settle them there. Then discard this line."
ABOUT = of_person(
    "No workflow got this message. What it says is kept, and shown nowhere: it may be about a patient. The sender can "
    "correct it and send it again; if it came too early, redeliver it."
)
SETTLED = "Somebody has settled it. What it said is deleted."


def _is_open(row: UndeliveredMessage) -> bool:
    return row.state == UndeliveredMessage.State.OPEN


def _of_discard(row: UndeliveredMessage) -> str:
    if row.left_with_broker:
        return "Nobody is told of these any more. Nothing is deleted: the broker keeps its dead letters."
    held = ", unless a legal hold is on it" if row.queue else ""
    return f"No workflow gets it. What it says is deleted{held}, and it cannot be redelivered."


REDELIVER = Verb(
    slug="redeliver",
    main=True,
    label="Redeliver",
    permission=operations.SETTLE,
    operation=messages.redeliver,
    applies=lambda row: _is_open(row) and not row.left_with_broker,
    consequences=lambda row: bulk_verbs.REDELIVER_EACH.how[:1],
    form=OptionalReasonForm,
    done="It is delivered.",
)
DISCARD = Verb(
    slug="discard",
    label="Discard",
    permission=operations.SETTLE,
    operation=messages.discard,
    applies=_is_open,
    consequences=lambda row: [_of_discard(row)],
    seen=(("seen", lambda row: [row.left_with_broker]),),
    done="It is discarded.",
    dangerous=True,
)


class MessageStateFilter(StateFilter):
    states = UndeliveredMessage.State


class OfOpen(admin.SimpleListFilter):
    """The values of a column among open messages. A link may name another value."""

    column: str

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(each, each) for each in undelivered.open_values(self.column)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[UndeliveredMessage]) -> QuerySet[UndeliveredMessage]:
        return queryset if self.value() is None else queryset.filter(**{self.column: self.value()})


class TopicFilter(OfOpen):
    title = parameter_name = column = "topic"


class CodeFilter(OfOpen):
    title = parameter_name = column = "code"


@admin.register(UndeliveredMessage)
class UndeliveredMessageAdmin(ChoosesMany):
    """A message's state, and why it was not delivered. Its content is never loaded."""

    list_display = ("message", "badge", "code", "reason", "read")
    list_filter = (MessageStateFilter, TopicFilter, CodeFilter)
    bulk_verbs = ("redeliver", "discard")
    verbs = (REDELIVER, DISCARD)
    read = time_column("Read", "created_at")
    ordering = ("-id",)
    page_template = "admin/workflows/facts.html"
    identity = ("topic", "partition", "offset", "created_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[UndeliveredMessage]:
        return UndeliveredMessage.objects.defer("content", "hashes")

    def choosable(self, request: HttpRequest) -> Sequence[str]:
        return self.bulk_verbs if request.GET.get("state") == "open" else ()

    def page(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        topic = [("Topic", row.topic), ("Partition", str(row.partition)), ("Offset", str(row.offset))]
        if row.queue:
            topic = [("Queue", row.queue), *(topic[1:] if not row.left_with_broker else [])]
        if row.idempotency_key:
            topic.append(("Idempotency-Key", str(row.idempotency_key)))
        facts = [
            *([("Source", row.webhook)] if row.webhook else topic),
            *([("How many", str(row.left_with_broker))] if row.left_with_broker else []),
            ("Code", row.code),
            ("Reason", row.reason),
            ("Read", words.clock(row.created_at)),
        ]
        is_emptied = not _is_open(row) and not row.content
        about = OF_LEFT if row.left_with_broker else SETTLED if is_emptied else OF_REFUSED if row.queue else ABOUT
        return {"badge": self.badge(row), "name": self.message(row), "facts": facts, "about": about}

    @admin.display(description="Message")
    def message(self, row: UndeliveredMessage) -> str:
        return str(row) if row.webhook or row.queue else f"{row.topic} {row.partition}:{row.offset}"

    @admin.display(description="State")
    def badge(self, row: UndeliveredMessage) -> SafeString:
        return words.badge(f"message-{row.state or 'open'}", UndeliveredMessage.State(row.state).label)


# --- In words -----------------------------------------------------------------------------------


def found(by_search: Found, user: User) -> list[tuple[str, str]]:
    """A sentence for each refused submission that a search found, with its page for users who may see it."""
    follows = user.has_perm(undelivered.SEE_MESSAGES)
    rows = UndeliveredMessage.objects.filter(pk__in=by_search.refused).defer("content", "hashes").order_by("-pk")
    return [
        (
            f"Message {row.pk}, of {row.queue}, came {words.clock(row.created_at)} and was refused ({row.code}): "
            f"{UndeliveredMessage.State(row.state).label.lower() if row.state else 'an engineer has to look at it'}.",
            reverse("admin:workflows_undeliveredmessage_change", args=[row.pk]) if follows else "",
        )
        for row in rows
    ]
