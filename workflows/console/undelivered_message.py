"""The list of undelivered messages: which messages could not become signals, and why?"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from workflows.console import words
from workflows.console.base import ConsoleAdmin
from workflows.models import UndeliveredMessage

ABOUT = (
    "No workflow got this message. What it says is kept, and shown nowhere: it may be about a patient. The sender can "
    "correct it and send it to the topic again."
)


@admin.register(UndeliveredMessage)
class UndeliveredMessageAdmin(ConsoleAdmin):
    """Where a message is, and why it was not delivered. Its key, headers and value are not read."""

    list_display = ("message", "code", "reason", "read")
    ordering = ("-id",)
    page_template = "admin/workflows/facts.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[UndeliveredMessage]:
        return UndeliveredMessage.objects.defer("key", "value", "headers")

    def page(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        facts = [
            ("Topic", row.topic),
            ("Partition", str(row.partition)),
            ("Offset", str(row.offset)),
            ("Code", row.code),
            ("Reason", row.reason),
            ("Read", self.read(row)),
        ]
        return {"name": self.message(row), "facts": facts, "about": ABOUT}

    @admin.display(description="Message")
    def message(self, row: UndeliveredMessage) -> str:
        return f"{row.topic} {row.partition}:{row.offset}"

    @admin.display(description="Read")
    def read(self, row: UndeliveredMessage) -> str:
        return words.clock(row.created_at)
