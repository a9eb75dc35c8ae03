"""Home's sentence and numbers, with links to the pages that this user may see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.contrib.auth.models import AnonymousUser, User
from django.urls import reverse

from workflows import operations
from workflows.console import charts
from workflows.console.charts import Bar
from workflows.health import bounded
from workflows.health.bounded import Count, Link
from workflows.health.counts import Counts
from workflows.health.health import Health, Level, Piece
from workflows.models import ManualTask, State
from workflows.models.manual_task import DUE

# The counts that stand below the sentence, and their labels.
NUMBERS = {
    "failed": "Failed in the last hour",
    "failed_today": "Failed in the last 24 hours",
    "overdue": "Overdue tasks",
    "workers": "Live workers",
}

AT_REST = (State.COMPLETE, State.FAILED, State.CANCELLED)


@dataclass(frozen=True, slots=True)
class Shown:
    level: Level
    reasons: list[list[tuple[str, str]]]  # of each its pieces: text, and where it leads


def health(found: Health, user: User | AnonymousUser) -> Shown:
    """All users who see Home read the same sentence: without one of its reasons it would be wrong."""
    return Shown(found.level, [[_shown(piece, user) for piece in reason.pieces] for reason in found.reasons])


def numbers(counts: Counts, user: User | AnonymousUser) -> list[tuple[str, str, str]]:
    """The numbers behind the sentence: label, number, and the list of what was counted."""
    shown = [(label, getattr(counts, name)) for name, label in NUMBERS.items()]
    return [(label, str(count), url_of(count.link)) for label, count in shown if _may_follow(count.link, user)]


def at_rest(counts: Counts) -> dict[State, Count]:
    return {state: count for state, count in counts.states.items() if state in AT_REST}


def waits(counts: Counts) -> list[Bar]:
    """What has not ended, by state."""
    waiting = [(state, count) for state, count in counts.states.items() if state not in AT_REST]
    shown = [(state.label, count.number, url_of(count.link)) for state, count in waiting]
    return charts.bars(shown, tell=bounded.text)


def next_task(user: User | AnonymousUser) -> ManualTask | None:
    """The task that this user decides next; for a user who can decide none, the one that is due first."""
    for tasks in (operations.decidable(cast("User", user)), ManualTask.objects.open()):
        if found := tasks.only("due_at", "expires_at").order_by(DUE, "id").first():
            return found
    return None


def url_of(link: Link) -> str:
    if link.pk:
        return reverse(f"admin:workflows_{link.model}_change", args=[quote(link.pk)])
    url = reverse(f"admin:workflows_{link.model}_changelist")
    return f"{url}?{urlencode(link.filters)}" if link.filters else url


def _shown(piece: Piece, user: User | AnonymousUser) -> tuple[str, str]:
    if piece.link is None:
        return piece.text, ""
    if _may_follow(piece.link, user):
        return piece.text, url_of(piece.link)
    # Only users who may see services see its name. A cause is named by its step.
    return ("a service" if piece.link.model == "service" and piece.link.pk == piece.text else piece.text), ""


def _may_follow(link: Link, user: User | AnonymousUser) -> bool:
    return user.has_perm(f"workflows.view_{link.model}")
