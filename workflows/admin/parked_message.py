"""The list of parked messages: what did a topic say that no workflow could be told, and why?"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from workflows.admin import words
from workflows.admin.base import ConsoleAdmin
from workflows.models import ParkedMessage


@admin.register(ParkedMessage)
class ParkedMessageAdmin(ConsoleAdmin):
    """Where a message is, and why it was parked. Its key, headers and value are not even read."""

    list_display = ("message", "code", "reason", "parked")
    ordering = ("-id",)
    page_template = "admin/workflows/parkedmessage/page.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[ParkedMessage]:
        return ParkedMessage.objects.defer("key", "value", "headers")

    def page(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        facts = [
            ("Topic", row.topic),
            ("Partition", row.partition),
            ("Offset", row.offset),
            ("Code", row.code),
            ("Reason", row.reason),
            ("Parked", self.parked(row)),
        ]
        return {"facts": facts}

    @admin.display(description="Message")
    def message(self, row: ParkedMessage) -> str:
        return f"{row.topic} {row.partition}:{row.offset}"

    @admin.display(description="Parked")
    def parked(self, row: ParkedMessage) -> str:
        return words.clock(row.created_at)
