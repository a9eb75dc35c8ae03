"""The pages of maintenance tasks: whether each is done in time, which ones fail, and which are set aside."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from workflows import operations
from workflows.console.base import ConsoleAdmin, time_column
from workflows.console.verbs import Verb
from workflows.engine.maintenance import DEATHS
from workflows.health import late
from workflows.models import Chore
from workflows.telling import words

ABOUT = (
    "Workers do this beside the workflows, a slice at a time. If three workers in a row die in it, it is set aside: no "
    "worker does it, and what it does stands still, until somebody has found the cause and lets it go on."
)
GO_ON = Verb(
    slug="go_on",
    main=True,
    label="Let it go on",
    asks="Let {} go on",
    permission=operations.TRY_NOW,
    operation=operations.go_on,
    applies=lambda chore: chore.set_aside_at is not None,
    consequences=lambda chore: [
        "The next worker goes on where the last one died.",
        f"If it was the task that killed them, {DEATHS} more workers die, and it is set aside again.",
    ],
    done="It goes on.",
)


@admin.register(Chore)
class ChoreAdmin(ConsoleAdmin):
    list_display = ("task", "badge", "due", "error")
    ordering = ("name",)
    page_template = "admin/workflows/facts.html"
    verbs = (GO_ON,)
    due = time_column("Due", "due_at")

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """A user who may see the workers may see their maintenance."""
        return bool(request.user.has_perm("workflows.view_workerprocess"))

    has_module_permission = has_view_permission

    def get_queryset(self, request: HttpRequest) -> QuerySet[Chore]:
        return late.chores()

    def page(self, request: HttpRequest, row: Chore) -> dict[str, Any]:
        facts = [
            ("Due", "" if row.set_aside_at else words.clock(row.due_at)),
            ("Fails since", words.clock(row.failing_since) if row.failing_since else ""),
            ("Last error", row.error),
            ("Set aside", words.clock(row.set_aside_at) if row.set_aside_at else ""),
        ]
        return {"badge": self.badge(row), "name": row.name, "facts": facts, "about": ABOUT}

    @admin.display(description="Task")
    def task(self, row: Chore) -> str:
        return row.name

    @admin.display(description="State")
    def badge(self, row: Chore) -> SafeString:
        if row.set_aside_at:
            return words.badge("failed", "Set aside")
        return words.badge("failed", "Fails") if row.failing_since else words.badge("complete", "Done in turn")
