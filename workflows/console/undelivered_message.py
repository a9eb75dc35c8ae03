"""The list of undelivered messages: which messages could not become signals, and why?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from workflows import operations
from workflows.console.base import OptionalReasonForm, StateFilter, Verb, time_column
from workflows.console.choosing import ChoosesMany
from workflows.models import UndeliveredMessage
from workflows.telling import bulk_operations, words

ABOUT = (
    "No workflow got this message. What it says is kept, and shown nowhere: it may be about a patient. The sender can "
    "correct it and send it again; if it came too early, redeliver it."
)
SETTLED = "Somebody has settled it. What it said is deleted."


def _is_open(row: UndeliveredMessage) -> bool:
    return row.state == UndeliveredMessage.State.OPEN


REDELIVER = Verb(
    slug="redeliver",
    label="Redeliver",
    permission=operations.SETTLE,
    operation=operations.redeliver,
    applies=_is_open,
    consequences=lambda row: bulk_operations.OF_VERB["redeliver"].how[:1],
    form=OptionalReasonForm,
    done="It is delivered.",
)
DISCARD = Verb(
    slug="discard",
    label="Discard",
    permission=operations.SETTLE,
    operation=operations.discard,
    applies=_is_open,
    consequences=lambda row: ["No workflow gets it. What it says is deleted, and it cannot be redelivered."],
    done="It is discarded.",
    dangerous=True,
)


class MessageStateFilter(StateFilter):
    states = UndeliveredMessage.State


@admin.register(UndeliveredMessage)
class UndeliveredMessageAdmin(ChoosesMany):
    """Where a message is, and why it was not delivered. What it says is not read."""

    list_display = ("message", "badge", "code", "reason", "read")
    list_filter = (MessageStateFilter,)
    bulk_verbs = ("redeliver", "discard")
    verbs = (REDELIVER, DISCARD)
    read = time_column("Read", "created_at")
    ordering = ("-id",)
    page_template = "admin/workflows/facts.html"
    identity = ("topic", "partition", "offset", "created_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[UndeliveredMessage]:
        return UndeliveredMessage.objects.defer("content")

    def choosable(self, request: HttpRequest) -> Sequence[str]:
        return self.bulk_verbs if request.GET.get("state") == "open" else ()

    def page(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        topic = [("Topic", row.topic), ("Partition", str(row.partition)), ("Offset", str(row.offset))]
        facts = [
            *([("Source", row.webhook)] if row.webhook else topic),
            ("Code", row.code),
            ("Reason", row.reason),
            ("Read", words.clock(row.created_at)),
        ]
        about = ABOUT if _is_open(row) else SETTLED
        return {"badge": self.badge(row), "name": self.message(row), "facts": facts, "about": about}

    @admin.display(description="Message")
    def message(self, row: UndeliveredMessage) -> str:
        return f"webhook of {row.webhook}" if row.webhook else f"{row.topic} {row.partition}:{row.offset}"

    @admin.display(description="State")
    def badge(self, row: UndeliveredMessage) -> SafeString:
        return words.badge(f"message-{row.state or 'open'}", UndeliveredMessage.State(row.state).label)
