"""The services: what is down, what waits, and what was done about it?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone

from workflows.console.base import StandingsAdmin
from workflows.console.hold_form import HoldForm
from workflows.console.paging import older
from workflows.console.verbs import Verb
from workflows.features.outages import circuits, health, operations
from workflows.features.outages.circuits import CircuitState
from workflows.features.outages.health import Standing
from workflows.features.trends import page as trends
from workflows.models import CircuitEvent, Service
from workflows.operations import guards
from workflows.telling import words

EVENTS_SHOWN = 100
KINDS: Mapping[str, str] = {CircuitEvent.Kind.OPENED: "Down", CircuitEvent.Kind.CLOSED: "Up again"}


HOLD = Verb(
    slug="hold",
    label="Hold",
    permission=guards.HOLD,
    operation=operations.hold,
    applies=lambda row: True,
    consequences=lambda row: _once_held(row),
    done="",
    form=HoldForm,
)
TRY_NOW = Verb(
    slug="try_now",
    main=True,
    label="Try now",
    asks="Have {} tried now",
    permission=guards.TRY_NOW,
    operation=operations.try_now,
    applies=lambda row: (
        row.state in (CircuitState.OPEN, CircuitState.HELD)
        and not circuits.is_trial_due(row.service)
        and not row.service.elsewhere
    ),
    consequences=lambda row: _once_tried(row),
    done="The next workflow that needs it tries it.",
)


def _once_held(row: Standing) -> list[str]:
    if row.is_destination:
        return ["No event is sent to it before that time. They are kept; then one is tried, and the others follow."]
    return [
        "No workflow that a worker takes up from now on calls the service before that time. One that is running just "
        "now may.",
        "A workflow that needs the service is parked, and goes on by itself afterwards. A best-effort step is passed "
        "over, unless it parks.",
        "A workflow that is parked meanwhile counts no failure, however long that is.",
        "When the time is over one workflow tries the service; if it answers, the others follow.",
        *([f"This takes the place of the hold of {row.service.held_by}."] if row.service.held_by else []),
    ]


def _once_tried(row: Standing) -> list[str]:
    if row.is_destination:
        return ["A relay sends one event to it. If that is taken the others follow; else the next trial comes later."]
    instead = f" instead of at {words.clock(row.service.retry_at)}" if row.service.retry_at else ""
    return [
        f"One workflow calls {row.pk} at once{instead}.",
        "If it is answered, the service is up, and what is parked is released: 1, then 2, then 4 and so on.",
        "If the service is still unavailable, the workflow is parked again, and the next trial follows soon: from one "
        f"to the next the time doubles, up to {circuits.LONGEST_COOL_OFF:.0f} seconds or so.",
        *([f"The hold of {row.service.held_by} ends."] if row.service.held_by else []),
    ]


@admin.register(Service)
class ServiceAdmin(StandingsAdmin):
    list_template = "admin/workflows/service/list.html"
    page_template = "admin/workflows/service/page.html"
    verbs: tuple[Verb, ...] = (HOLD, TRY_NOW)

    def lines(self) -> dict[str, Any]:
        return {"lines": [self.line(row, columns) for row in health.standings()]}

    def line(self, row: Standing, columns_of: Callable[[Standing], dict[str, Any]]) -> dict[str, Any]:
        return {"row": row, "url": self.url_of("change", row), **columns_of(row)}

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """How the service stands: workflows may be parked on one that has no row."""
        return None if "\x00" in object_id else health.standing(object_id)

    def page(self, request: HttpRequest, row: Standing) -> dict[str, Any]:
        events = CircuitEvent.objects.filter(service=row.pk)
        story = list(older(events, request.GET.get("before", ""))[: EVENTS_SHOWN + 1])
        words_of, kinds = self.words_for(row)
        return {
            **words_of(row),
            "story": [(event, label_of(event, kinds)) for event in story[:EVENTS_SHOWN]],
            "trends": trends.of_service(row.pk, request.GET.get("range", ""), timezone.now()),
            "older": story[EVENTS_SHOWN - 1].pk if len(story) > EVENTS_SHOWN else None,
        }

    def words_for(self, row: Standing) -> tuple[Callable[[Standing], dict[str, Any]], Mapping[str, str]]:
        """What the page says of the row, and the words of its story."""
        return page_of, KINDS


# --- In words -----------------------------------------------------------------------------------


def page_of(row: Standing) -> dict[str, Any]:
    told = {"title": f"Service {row.pk}", "standing": sentence(row), "none_yet": "It has never been down."}
    return {**columns(row), **told, "facts": facts(row)}


def columns(row: Standing) -> dict[str, Any]:
    """What the list, and the page, say of a service."""
    since = words.clock(row.since) if row.since else ""
    return {
        "badge": words.badge(f"circuit-{row.state}", row.state.label),
        "since": f"down since {since}" if row.state in (CircuitState.HELD, CircuitState.TRIED) else since,
        "failed_calls": _counted(row) if row.service.since and row.state != CircuitState.CLOSED else "",
        "longest_since": words.clock(row.longest_since),
        "next_trial": next_trial(row),
        "told": told(row.last_event),
    }


def sentence(row: Standing) -> str:
    """The first sentences of the page: whether the service is called, what waits for it, and what happens next."""
    if row.is_destination:
        return _of_destination(row)
    return " ".join(filter(None, (_circuit(row), _waiting(row), _next(row))))


def _of_destination(row: Standing) -> str:
    if row.is_called:
        return f"Up{_since(row)}: events are sent to it as usual."
    down = _circuit(row) if row.state == CircuitState.HELD else f"Down{_since(row)}."
    return f"{down} Its events wait. The next trial: {next_trial(row)}."


def _circuit(row: Standing) -> str:
    service, since = row.service, _since(row)
    match row.state:
        case CircuitState.HELD:
            return (
                f"Held by {service.held_by} until {words.until(service.retry_at)}: {words.ended(service.held_reason)}"
            )
        case CircuitState.OPEN | CircuitState.TRIED:
            why = f": {circuits.last_calls(service)}" if service.failed >= circuits.VOTES else ""
            return f"Down{since}{why}."
        case CircuitState.SUSPECTED:
            return f"Maybe down{since}: {circuits.last_calls(service)}. Workflows call it as usual."
    return f"Up{since}." if row.parked.number else f"Up{since}: workflows call it as usual."


def _waiting(row: Standing) -> str:
    number, service = row.parked.number, row.service
    if row.state in (CircuitState.CLOSED, CircuitState.SUSPECTED):
        if not number:
            return ""
        last = f", the last {service.cohort} of them at {words.clock(service.released_at)}" if service.cohort else ""
        return f"{workflows(row)} {'is' if number == 1 else 'are'} being released{last}."
    return f"{workflows(row)} {'waits' if number < 2 else 'wait'} for it."


def workflows(row: Standing) -> str:
    """How many are parked on it, as the start of a sentence."""
    match row.parked.number:
        case 0:
            return "No workflow"
        case 1:
            return "1 workflow"
    return f"{row.parked} workflows"


def _next(row: Standing) -> str:
    match row.state:
        case CircuitState.TRIED:
            return "A workflow tries it just now."
        case CircuitState.OPEN if circuits.is_trial_due(row.service):
            return "A trial is due: the next workflow that needs it makes it."
        case CircuitState.OPEN:
            return f"The next trial is at {words.clock(row.service.retry_at)}."
        case CircuitState.HELD:
            return "It is tried when the hold is over."
    return ""


def _counted(row: Standing) -> str:
    return f"{row.service.failed} of {row.service.failed + row.service.answered}"


def next_trial(row: Standing) -> str:
    match row.state:
        case CircuitState.CLOSED | CircuitState.SUSPECTED:
            return ""
        case CircuitState.TRIED:
            return "now"
    if circuits.is_trial_due(row.service):
        return "due"
    return words.clock(row.service.retry_at) if row.service.retry_at else "when somebody says so"


def label_of(event: CircuitEvent, kinds: Mapping[str, str] = KINDS) -> str:
    """A line of its story."""
    return kinds.get(CircuitEvent.Kind(event.kind), event.get_kind_display())


def told(event: CircuitEvent | None) -> str:
    """The last word of a story."""
    if event is None:
        return ""
    by = f" by {event.actor}" if event.actor else ""
    return f"{label_of(event)}{by} at {words.clock(event.at)}: {event.reason}"


def facts(row: Standing) -> list[tuple[str, str]]:
    service = row.service
    return [
        ("Failed calls", f"{_counted(row)}, since {words.clock(service.since)}" if service.since else ""),
        ("Next trial", next_trial(row)),
        ("Last found unavailable", words.clock(service.failed_at) if service.failed_at else ""),
        ("Last up", words.clock(service.closed_at) if service.closed_at else ""),
        ("Last released", f"{service.cohort} at {words.clock(service.released_at)}" if service.cohort else ""),
    ]


def _since(row: Standing) -> str:
    return f" since {words.clock(row.since)}" if row.since else ""
