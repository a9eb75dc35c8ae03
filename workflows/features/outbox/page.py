"""The pages of events for others: which were sent, which wait, and which were given up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from workflows import operations
from workflows.console import links
from workflows.console.base import StateFilter, time_column
from workflows.console.choosing import ChoosesMany
from workflows.console.verbs import OptionalReasonForm, Verb
from workflows.features.outbox import bulk_verbs
from workflows.features.outbox import health as outbox
from workflows.features.outbox import operations as outbox_operations
from workflows.models import OutboxEvent
from workflows.telling import words
from workflows.wording import of_person

State = OutboxEvent.State
ABOUT = of_person(
    "What it says is shown nowhere: it may be about a patient. While it is not sent, the later events of the workflow "
    "for this destination wait."
)

REDELIVER = Verb(
    slug="redeliver",
    main=True,
    label="Redeliver",
    permission=operations.SETTLE,
    operation=outbox_operations.redeliver_event,
    applies=lambda row: row.state == State.GIVEN_UP,
    consequences=lambda row: bulk_verbs.REDELIVER_EACH.how,
    form=OptionalReasonForm,
    done="A relay sends it as soon as it can.",
)
DISCARD = Verb(
    slug="discard",
    label="Discard",
    permission=operations.SETTLE,
    operation=outbox_operations.discard_event,
    applies=lambda row: row.state in (State.OPEN, State.GIVEN_UP),
    consequences=lambda row: bulk_verbs.DISCARD_EACH.how,
    done="It is discarded.",
    dangerous=True,
)


class EventStateFilter(StateFilter):
    """Leaves out discarded events: they are few among many, and no index has them."""

    states = (State.OPEN, State.GIVEN_UP, State.SENT)


class DestinationFilter(admin.SimpleListFilter):
    title, parameter_name = "destination", "destination"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        return [(each.name, each.name) for each in outbox.standings()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[OutboxEvent]) -> QuerySet[OutboxEvent]:
        known = {name for name, _ in self.lookup_choices}
        return queryset.filter(destination=self.value()) if self.value() in known else queryset


@admin.register(OutboxEvent)
class OutboxEventAdmin(ChoosesMany):
    """An event's state, and why it was not sent. Its body is never loaded."""

    list_display = ("event", "badge", "destination", "of", "error", "published")
    list_filter = (EventStateFilter, DestinationFilter)
    bulk_verbs = ("redeliver_event", "discard_event")
    verbs = (REDELIVER, DISCARD)
    published = time_column("Published", "at")
    ordering = ("-id",)
    page_template = "admin/workflows/facts.html"
    identity = ("event_id", "destination")

    def get_queryset(self, request: HttpRequest) -> QuerySet[OutboxEvent]:
        return OutboxEvent.objects.defer("body")

    def choosable(self, request: HttpRequest) -> Sequence[str]:
        return self.bulk_verbs if request.GET.get("state") == "given_up" else ()

    def workflow_of(self, row: OutboxEvent) -> int | None:
        return row.workflow_id

    def page(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        is_open, pk = row.state == State.OPEN, row.workflow_id
        facts = [
            ("Destination", row.destination),
            ("Workflow", pk and format_html('<a href="{}">{}</a>', links.workflow(pk), pk)),
            ("Id", str(row.event_id)),
            ("Published", words.clock(row.at)),
            ("Tries", str(row.tries)),
            ("The last one", row.error),
            ("Tried again", words.clock(row.due_at) if is_open and row.tries else ""),
            (State(row.state).label, words.clock(row.settled_at) if row.settled_at else ""),
        ]
        return {"badge": self.badge(row), "name": self.event(row), "facts": facts, "about": ABOUT}

    @admin.display(description="Event")
    def event(self, row: OutboxEvent) -> str:
        return f"{row.topic} {row.pk}"

    @admin.display(description="State")
    def badge(self, row: OutboxEvent) -> SafeString:
        return words.badge(f"outbox-{row.state or 'open'}", State(row.state).label)

    @admin.display(description="Workflow")
    def of(self, row: OutboxEvent) -> str:
        return str(row.workflow_id or "")
