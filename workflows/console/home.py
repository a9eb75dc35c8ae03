"""Home's verdict and numbers as the page has them: with links to the pages that this user may see, and to no other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.contrib.auth.models import AnonymousUser, User
from django.urls import reverse

from workflows import operations
from workflows.health.overview import Summary
from workflows.health.verdict import Health, Level, Link, Piece, Verdict
from workflows.models import ManualTask
from workflows.models.manual_task import DUE

# The fields of Health that stand beside the verdict, and their labels.
NUMBERS = {
    "failed": "Failed in the last hour",
    "failed_today": "Failed in the last 24 hours",
    "overdue": "Overdue tasks",
    "workers": "Live workers",
}


@dataclass(frozen=True, slots=True)
class Shown:
    level: Level
    reasons: list[list[tuple[str, str]]]  # of each its pieces: text, and where it leads


def verdict(found: Verdict, user: User | AnonymousUser) -> Shown:
    """All that see Home read the same verdict: it would be wrong without a part of its reasons."""
    return Shown(found.level, [[_shown(piece, user) for piece in reason.pieces] for reason in found.reasons])


def numbers(found: Health, user: User | AnonymousUser) -> list[tuple[str, str, str]]:
    """What the verdict compares: label, number, and the list of what it counted."""
    counted = [(label, getattr(found, name)) for name, label in NUMBERS.items()]
    return [(label, number.text, url_of(number.link)) for label, number in counted if _may_follow(number.link, user)]


def next_task(shown: Summary, user: User | AnonymousUser) -> ManualTask | None:
    """The task that this user decides next; for a user who can decide none just now, the one that is due first."""
    theirs = operations.decidable(cast("User", user)).only("due_at", "expires_at").order_by(DUE, "id")
    return theirs.first() or shown.next_task


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
    # Its name is for those who see services.
    return ("a service" if piece.link.model == "service" and piece.link.pk else piece.text), ""


def _may_follow(link: Link, user: User | AnonymousUser) -> bool:
    return user.has_perm(f"workflows.view_{link.model}")
