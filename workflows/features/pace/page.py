"""The pages of queues, types and tenants: what is held or paced, by whom, and how many workflows wait to begin."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from workflows.console.base import StandingsAdmin
from workflows.console.hold_form import HoldForm
from workflows.console.verbs import ReasonForm, Verb
from workflows.features.outages.circuits import CircuitState
from workflows.features.outages.service_page import told
from workflows.features.pace import health, operations
from workflows.features.pace.health import PaceStanding
from workflows.health import bounded
from workflows.models import CircuitEvent, Pace
from workflows.operations import guards
from workflows.telling import words

EVENTS_SHOWN = 100


class PaceForm(ReasonForm):
    per_second = forms.FloatField(
        label="Begin in a second", required=False, help_text="Over all workers. Empty: as many as the workers can."
    )
    field_order = ("per_second", "reason")


class CapForm(ReasonForm):
    at_once = forms.IntegerField(
        label="At a time", required=False, help_text="In workers' hands. Empty: as many as there are workers."
    )
    field_order = ("at_once", "reason")


HOLD = Verb(
    slug="hold",
    label="Hold",
    permission=guards.SET_PACE,
    operation=operations.hold_queue,
    applies=lambda row: not row.is_service,
    consequences=lambda row: [
        f"Nothing of {row.name} begins until that time: within two seconds, on every worker.",
        "What has begun goes on: retries, waits that end, and reversals. So does what a person retries alone.",
        "Submissions are taken and wait. When the time is over they begin by themselves, the oldest first.",
        *([f"This takes the place of the hold of {row.pace.held_by}."] if row.is_held else []),
    ],
    done="",
    form=HoldForm,
)
RELEASE = Verb(
    slug="release",
    main=True,
    label="Release",
    permission=guards.SET_PACE,
    operation=operations.release_queue,
    applies=lambda row: row.is_held,
    consequences=lambda row: [
        f"{_waiting(row)} {_pace(row) or 'They begin as fast as the workers can.'}",
        f"The hold of {row.pace.held_by} ends: {words.ended(row.pace.held_reason)}",
    ],
    done="It is released.",
)
SET_PACE = Verb(
    slug="set_pace",
    label="Set the pace",
    asks="Set the pace of {}",
    permission=guards.SET_PACE,
    operation=operations.set_pace,
    applies=lambda row: not row.is_service,
    consequences=lambda row: [
        f"So many of {row.name} begin in a second, over all workers: within two seconds.",
        "What has begun goes on as fast as the workers can.",
        "A pace has no end: it stays until somebody sets another.",
    ],
    done="The pace is set.",
    form=PaceForm,
)


SET_CAP = Verb(
    slug="set_cap",
    label="Set the cap",
    asks="Set the cap of {}",
    permission=guards.SET_PACE,
    operation=operations.set_cap,
    applies=lambda row: True,
    consequences=lambda row: _once_capped(row),
    done="The cap is set.",
    form=CapForm,
)


def _once_capped(row: PaceStanding) -> list[str]:
    if row.is_service:
        what = [
            f"Workers make so many calls to {row.name} at a time, all together: within two seconds.",
            "A workflow that finds so many under way is parked until its turn comes, and counts no failure.",
        ]
    else:
        what = [
            f"No more of {row.name} begin while so many are in workers' hands: within two seconds.",
            "What has begun goes on, and counts.",
        ]
    return [*what, "A cap has no end: it stays until somebody sets another."]


@admin.register(Pace)
class PaceAdmin(StandingsAdmin):
    list_template = "admin/workflows/pace/list.html"
    page_template = "admin/workflows/pace/page.html"
    verbs = (HOLD, RELEASE, SET_PACE, SET_CAP)

    def lines(self) -> dict[str, Any]:
        found = health.everything()
        return {"lines": [{"row": row, "url": self.url_of("change", row), **_columns(row)} for row in found]}

    def name_of(self, row: PaceStanding) -> str:
        return row.name

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """The state instead of a row: most have none."""
        return health.standing(object_id)

    def page(self, request: HttpRequest, row: PaceStanding) -> dict[str, Any]:
        story = CircuitEvent.objects.filter(service=row.pk).order_by("-id")[:EVENTS_SHOWN]
        return {
            "title": capfirst(row.name.removeprefix("the ")),
            "standing": " ".join(filter(None, (_hold(row), _pace(row), _cap(row), _waiting(row)))),
            "story": [(event, event.get_kind_display()) for event in story],
            **_columns(row),
        }


# --- In words -----------------------------------------------------------------------------------


def banner() -> list[str]:
    """Sentences above every page while something is held."""
    rows = Pace.objects.filter(held_until__gt=timezone.now()).order_by("key")[:3]
    return [
        f"The {row.key.replace(':', ' ', 1)} is held by {row.held_by} until {words.until(row.held_until)}: "
        f"nothing of it begins. {words.ended(row.held_reason)}"
        for row in rows
    ]


def _columns(row: PaceStanding) -> dict[str, Any]:
    return {
        "badge": _badge(row),
        "waiting": bounded.text(row.waiting),
        "pace": f"{row.pace.per_second:g} a second" if row.pace.per_second else "",
        "cap": f"{row.pace.at_once} at a time" if row.pace.at_once else "",
        "until": words.until(row.pace.held_until) if row.is_held else "",
        "told": told(row.last_event),
    }


def _badge(row: PaceStanding) -> SafeString:
    if row.is_held:
        return words.badge("circuit-held", "Held")
    if row.circuit and not (row.circuit == CircuitState.CLOSED and row.pace.at_once):
        return words.badge(f"circuit-{row.circuit}", row.circuit.label)
    if row.pace.per_second or row.pace.at_once:
        return words.badge("circuit-suspected", "Paced" if row.pace.per_second else "Capped")
    return words.badge("unlimited", "Not limited")


def _hold(row: PaceStanding) -> str:
    if not row.is_held:
        return ""
    until = words.until(row.pace.held_until)
    return f"Held by {row.pace.held_by} until {until}: {words.ended(row.pace.held_reason)} Nothing begins until then."


def _pace(row: PaceStanding) -> str:
    if not row.pace.per_second:
        return "" if row.is_held or row.is_service else "It goes as fast as the workers can."
    by, why = row.pace.paced_by, words.ended(row.pace.paced_reason)
    return f"{row.pace.per_second:g} begin in a second at most, as {by} has set it: {why}"


def _cap(row: PaceStanding) -> str:
    if not row.pace.at_once:
        return ""
    by, why = row.pace.capped_by, words.ended(row.pace.capped_reason)
    return f"No more than {row.pace.at_once} are under way at a time, as {by} has set it: {why}"


def _waiting(row: PaceStanding) -> str:
    if row.is_service:
        return f"{bounded.text(row.waiting)} parked." if row.waiting else ""
    if not row.waiting:
        return "Nothing waits to begin."
    return "1 workflow waits to begin." if row.waiting == 1 else f"{bounded.text(row.waiting)} workflows wait to begin."
