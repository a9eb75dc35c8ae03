"""Home's sentence and numbers, with links to the pages that this user may see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import cast

from django.contrib.auth.models import AnonymousUser, User
from django.utils.safestring import SafeString

from workflows import operations
from workflows.console import charts, failures, links, needs_a_person, needs_a_person_rows
from workflows.console.charts import Bar
from workflows.extension import Extension, installed
from workflows.health import bounded
from workflows.health import needs_a_person as needs
from workflows.health.bounded import Link
from workflows.health.counts import Counts
from workflows.health.failures import Group
from workflows.health.for_whom import Whose
from workflows.health.health import Health
from workflows.health.needs_a_person import Asked, Item
from workflows.health.reasons import Level, Piece
from workflows.models import ManualTask
from workflows.models.manual_task import DUE
from workflows.telling import words

# The counts above the charts, with their labels.
NUMBERS = {
    "failed": "Failed in the last hour, and failed still",
    "failed_today": "Failed in the last 24 hours, and failed still",
    "overdue": "Overdue tasks",
    "overdue_waits": "Overdue waits for a message",
    "workers": "Live workers",
}
# The number of lines that are for the user.
FIRST = 5


@dataclass(frozen=True, slots=True)
class Shown:
    level: Level
    word: str
    reasons: list[list[tuple[str, str]]]  # each reason's pieces: text, and address


def health(found: Health, user: User | AnonymousUser) -> Shown:
    """All users see the same sentence: without one of its reasons it would be wrong."""
    return Shown(
        found.level, found.word, [[_shown(piece, user) for piece in reason.pieces] for reason in found.reasons]
    )


def numbers(counts: Counts, user: User | AnonymousUser) -> list[tuple[str, str, str]]:
    """The numbers behind the sentence: label, number, and the list that they count."""
    shown = [(label, getattr(counts, name)) for name, label in NUMBERS.items()]
    return [(label, str(count), links.to(count.link)) for label, count in shown if may_follow(count.link, user)]


def states(counts: Counts) -> list[Bar]:
    shown = [(each.label, count.number, links.to(count.link), each.value) for each, count in counts.states.items()]
    return charts.bars(shown, tell=bounded.text)


def for_you(user: User, read: Counts, *, most: int = FIRST) -> tuple[list[First], int]:
    """The first lines of what “For you” has for a user, in its order, and how much it has."""
    asked = Asked(user, whose=Whose.YOU)
    failed, (page, rows) = needs.groups(asked, most=bounded.limit()), needs.page_and_count(asked, most=most)
    awaiting = {each: each.number_awaiting(user) for each in installed()}
    asking = sum(not each.asks_nobody for each in failed) + sum(filter(None, awaiting.values()))
    number = needs_a_person.number_of_causes(user, read) + rows + asking
    told = [each for each in awaiting if awaiting[each] != 0]
    return list(islice(_lines(user, page.items, failed, told), most)), number


@dataclass(frozen=True, slots=True)
class First:
    """A line of what needs a person. `number` is empty unless it is a group."""

    what: str
    url: str
    whose: str
    age: SafeString
    number: str = ""
    is_overdue: bool = False
    patient: str = ""  # masked


def _lines(user: User, items: Sequence[Item], groups: Sequence[Group], told: Iterable[Extension]) -> Iterator[First]:
    """The lines of what is for a user, first those of the features that have something to tell."""
    for feature in told:
        yield from feature.first_lines(user)
    yield from (_of_group(each) for each in groups if each.charged)
    for each in needs_a_person_rows.lines(items):
        yield First(each.asks, each.url, each.whose, words.age_of(each.since), "", each.is_overdue, each.patient)
    yield from (_of_group(each) for each in groups if not (each.charged or each.asks_nobody))


def _of_group(group: Group) -> First:
    shown, number = failures.line(group), f"{group.number:,} times" if group.number > 1 else ""
    return First(shown.what, shown.url, shown.whose, words.age_of(group.first), number)


def next_task(user: User | AnonymousUser) -> ManualTask | None:
    """The task that this user decides next."""
    tasks = operations.decidable(cast("User", user)).only("due_at", "expires_at")
    return tasks.order_by(DUE, "id").first()


def _shown(piece: Piece, user: User | AnonymousUser) -> tuple[str, str]:
    if piece.link is None:
        return piece.text, ""
    if may_follow(piece.link, user):
        return piece.text, links.to(piece.link)
    # Only users who may see services see a service's name. A cause is named by its step.
    return ("a service" if piece.link.model == "service" and piece.link.pk == piece.text else piece.text), ""


def may_follow(link: Link, user: User | AnonymousUser) -> bool:
    if "parked_on" in dict(link.filters) and not user.has_perm("workflows.view_service"):
        return False  # its address names the service
    return user.has_perm(f"workflows.view_{'workerprocess' if link.model == 'chore' else link.model}")
