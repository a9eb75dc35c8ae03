"""WHAT NEEDS A PERSON: all that stands still until somebody acts, in one order, a page at a time.

First comes possible loss of money (unclear calls, failed reversals), then what is overdue, longest first, then the
rest, oldest first. The sources are open tasks (also the engine's own questions), overdue waits, and those of features
(`Extension.needs_a_person`). A page reads only as many rows of a source as it shows, by an index in this order. Tasks
use the index of their team and type, so a rare type costs no more than a common one. Failed workflows are grouped by
cause (`health.failures`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db.models import F, Model, Q, QuerySet, TextChoices, Value
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan
from django.utils import timezone

from workflows.effects.reconcile import DOUBT_TASK_TYPE
from workflows.engine import undo_question
from workflows.engine.compensation import UNDO_TASK_TYPE
from workflows.extension import installed
from workflows.health import bounded
from workflows.health.failures import Group, unacknowledged
from workflows.models import FollowUp, ManualTask, Wait, Workflow
from workflows.models.clock import microseconds, moment
from workflows.models.follow_up import GIVEN_UP
from workflows.models.manual_task import ASSIGN, OPERATIONS, RESOLVE
from workflows.models.workflow import UNACKNOWLEDGED
from workflows.postgres.skip_scan import skip_scan
from workflows.postgres.statements import fetch_all, fetch_one

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from workflows.models.manual_task import ManualTaskQuerySet

PAGE = 50
SEE_TASKS, SEE_WORKFLOWS = "workflows.view_manualtask", "workflows.view_workflow"


class Kind(TextChoices):
    TASK = "task", "Task"
    UNCLEAR = "unclear", "Unclear call"
    REVERSAL = "reversal", "Failed reversal"
    UNDECIDED = "undecided", "Reversal to decide"
    FAILED = "failed", "Failed workflows"
    WAIT = "overdue-wait", "Overdue wait"


class Whose(TextChoices):
    MINE = "mine", "Mine"
    TEAMS = "teams", "My teams'"
    UNASSIGNED = "unassigned", "Unassigned"


# The numbers of the engine's own sources.
OF_TASKS, OF_WAITS = 0, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A feature's source: `rows` of `model`, each with a `workflow`. No row has an owner.

    An index on `since` has these rows, and only these, oldest first. `number` is part of links, so it never changes;
    rows of the same age are sorted by it. The page shows what a row `asks`, for which it reads `columns`, and `whom` it
    is for. `is_late`: its rows are overdue, and stand among overdue tasks.
    """

    number: int
    kind: str
    label: str
    model: type[Model]
    rows: Callable[[], QuerySet[Any]]
    since: str
    columns: tuple[str, ...]
    asks: Callable[[Any], str]
    whom: str
    is_late: bool = False


def sources() -> dict[int, Source]:
    """The features' sources, by number."""
    return {source.number: source for each in installed() for source in each.needs_a_person}


def kinds() -> dict[str, str]:
    """All kinds, with their labels."""
    *first, last = Kind.choices
    return dict([*first, *((each.kind, each.label) for each in sources().values()), last])


class Rank(IntEnum):
    """The order of the list."""

    MONEY = 0
    LEAD = 1  # for leads: tasks that a lead was asked to look at
    OVERDUE = 2
    REST = 3


MONEY = (Kind.UNCLEAR, Kind.REVERSAL, Kind.UNDECIDED)
TASKS = (Kind.TASK, *MONEY)
_KIND_OF_TYPE = {
    DOUBT_TASK_TYPE: Kind.UNCLEAR,
    UNDO_TASK_TYPE: Kind.REVERSAL,
    undo_question.TASK_TYPE: Kind.UNDECIDED,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for, and by whom. None and empty mean any. Users get only what they may see."""

    user: User
    kinds: Collection[str] | None = None
    whose: Whose | None = None
    task_type: str = ""
    only_overdue: bool = False

    def is_for(self, kind: str) -> bool:
        return self.kinds is None or kind in self.kinds


class Item(NamedTuple):
    """A row of the list: its source's number, its key, and since when it waits or is overdue.

    Items sort in the list's order.
    """

    rank: Rank
    since: datetime
    source: int
    pk: int


class Place(NamedTuple):
    """The item after which a page starts. `at`: when the first page was read, so that the order stays the same."""

    at: datetime
    item: Item

    def __str__(self) -> str:
        rank, since, source, pk = self.item
        return ".".join(map(str, (microseconds(self.at), int(rank), microseconds(since), source, pk)))


def place(text: str) -> Place | None:
    """The place in a link, as `str` writes it; None if the text is none."""
    parts = text.split(".")
    if len(parts) != 5 or not all(part.isascii() and part.isdecimal() and len(part) < 17 for part in parts):
        return None
    at, rank, since, source, pk = map(int, parts)
    if rank >= len(Rank) or source not in {OF_TASKS, OF_WAITS, *sources()}:
        return None
    return Place(moment(at), Item(Rank(rank), moment(since), source, pk))


@dataclass(frozen=True, slots=True)
class Page:
    items: Sequence[Item]
    next: Place | None

    @classmethod
    def of(cls, found: Sequence[Item], at: datetime) -> Page:
        """A page of these items. An extra item shows that another page follows."""
        return cls(found[:PAGE], Place(at, found[PAGE - 1]) if len(found) > PAGE else None)


def page(asked: Asked, *, after: Place | None = None) -> Page:
    """The first items, or those after a place; and the place where the next page starts, if any."""
    at, among = after.at if after else timezone.now(), _teams_and_types()
    found: list[Item] = []
    for rank in Rank:
        if len(found) <= PAGE and (after is None or rank >= after.item.rank):
            behind = after if after and rank == after.item.rank else None
            found += _first(rank, _branches(asked, rank, at, among), behind, limit=PAGE + 1 - len(found))
    return Page.of(found, at)


def count(asked: Asked) -> int:
    """The number of rows, at most `bounded.limit` and one."""
    # In order, because PostgreSQL could otherwise read all rows ever given up: it cannot know how few are left.
    at, among = timezone.now(), _teams_and_types()
    branches = [each for rank in Rank for each in _branches(asked, rank, at, among)]
    parts = [_in_order(each).values_list("pk")[: bounded.limit() + 1] for each in branches]
    return int(_together(parts)[: bounded.limit() + 1].count()) if parts else 0


def tasks(asked: Asked) -> QuerySet[Any, Any]:
    """The keys of the open tasks that are asked for."""
    late = {"due_at__lte": timezone.now()} if asked.only_overdue else {}
    parts = [each.filter(**late).values("pk") for each in _tasks(asked, TASKS, _teams_and_types())]
    return _together(parts) if parts else ManualTask.objects.none().values("pk")


def groups(asked: Asked, *, most: int | None = None) -> list[Group]:
    """The failures that are asked for, by cause, among the newest `most`.

    Those with money held come first, then those that this user looks after. Includes codes that need nobody.
    """
    if not asked.is_for(Kind.FAILED) or asked.whose == Whose.TEAMS or not asked.user.has_perm(SEE_WORKFLOWS):
        return []
    found, me = unacknowledged(most=most), asked.user.get_username()
    if asked.whose:
        found = [each for each in found if each.assignee == (me if asked.whose == Whose.MINE else "")]
    return sorted(found, key=lambda each: (not each.charged, each.assignee != me))


TeamsAndTypes = Sequence[tuple[str, str]]


# --- The sources --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Branch:
    """Rows of one source that an index has in the order of `since` and key."""

    source: int
    rows: QuerySet[Any]
    since: str


def _branches(asked: Asked, rank: Rank, at: datetime, among: TeamsAndTypes) -> list[Branch]:
    late, not_late = Q(due_at__lte=at, due_at__isnull=False), Q(due_at=None) | Q(due_at__gt=at)
    match rank:
        case Rank.MONEY:
            found = _tasks(asked, MONEY, among)
            rows = [each.filter(late) for each in found] if asked.only_overdue else found
            return [Branch(OF_TASKS, each, "created_at") for each in rows]
        case Rank.LEAD:
            rows = [each.filter(late) for each in _for_leads(asked)] if asked.only_overdue else _for_leads(asked)
            return [Branch(OF_TASKS, each, "lead_asked_at") for each in rows]
        case Rank.OVERDUE:
            return [
                *(Branch(OF_TASKS, each.filter(late), "due_at") for each in _other_tasks(asked, among)),
                *(Branch(OF_WAITS, each.filter(late), "due_at") for each in _waits(asked)),
                *_of_features(asked, is_late=True),
            ]
        case Rank.REST if not asked.only_overdue:
            return [
                *_of_features(asked, is_late=False),
                *(Branch(OF_TASKS, each.filter(not_late), "created_at") for each in _other_tasks(asked, among)),
            ]
    return []


def _for_leads(asked: Asked) -> list[QuerySet[Any]]:
    """The tasks that a lead was asked to look at, if this user is a lead."""
    if not (asked.user.has_perm(ASSIGN) and asked.user.has_perm(SEE_TASKS) and asked.is_for(Kind.TASK)):
        return []
    tasks = of_whose(ManualTask.objects.open(), asked.whose, asked.user).filter(lead_asked_at__isnull=False)
    tasks = tasks.exclude(task_type__in=_KIND_OF_TYPE)
    return [tasks.filter(task_type=asked.task_type) if asked.task_type else tasks]


def _other_tasks(asked: Asked, among: TeamsAndTypes) -> list[QuerySet[Any]]:
    found = _tasks(asked, [Kind.TASK], among)
    return [each.filter(lead_asked_at=None) for each in found] if asked.user.has_perm(ASSIGN) else found


def _tasks(asked: Asked, of: Collection[Kind], among: TeamsAndTypes) -> list[QuerySet[Any]]:
    """The open tasks of these kinds that are asked for, as one branch for each team and type."""
    kinds = set(filter(asked.is_for, of))
    if not asked.user.has_perm(SEE_TASKS) or not kinds:
        return []
    found = [
        (team, task_type)
        for team, task_type in among
        if kind_of(task_type) in kinds and asked.task_type in ("", task_type)
    ]
    tasks = ManualTask.objects.open()
    if asked.whose == Whose.MINE:  # they are few, and one index has those of a person
        return [of_whose(tasks, asked.whose, asked.user).filter(task_type__in={each for _, each in found})]
    if asked.whose == Whose.TEAMS:
        is_theirs = _membership_of(asked.user)
        found = [(team, task_type) for team, task_type in found if is_theirs(team)]
    else:
        tasks = of_whose(tasks, asked.whose, asked.user)
    return [tasks.filter(team=team, task_type=task_type) for team, task_type in found]


def of_whose(tasks: ManualTaskQuerySet, whose: str | None, user: User) -> ManualTaskQuerySet:
    """The tasks that are the user's, free in their teams, or for nobody in particular yet."""
    match whose:
        case Whose.MINE:
            return tasks.filter(assignee=user)
        case Whose.UNASSIGNED:
            return tasks.free()
        case Whose.TEAMS:
            return tasks.exclude(team="").for_members(user)
    return tasks


def _of_features(asked: Asked, *, is_late: bool) -> list[Branch]:
    found = [each for each in sources().values() if each.is_late == is_late and _has(asked, each)]
    return [Branch(each.number, each.rows(), each.since) for each in found]


def _has(asked: Asked, source: Source) -> bool:
    is_theirs = asked.whose in (None, Whose.UNASSIGNED) and asked.user.has_perm(SEE_WORKFLOWS)
    return is_theirs and asked.is_for(source.kind)


def _waits(asked: Asked) -> list[QuerySet[Any]]:
    if not asked.is_for(Kind.WAIT) or asked.whose == Whose.MINE or not asked.user.has_perm(SEE_WORKFLOWS):
        return []
    teams = [team for (team,) in fetch_all(f"WITH RECURSIVE {_TEAMS_OF_WAITS} SELECT team FROM teams", ())]  # noqa: S608 (ours)
    if asked.whose == Whose.TEAMS:
        teams = list(filter(_membership_of(asked.user), teams))
    return [Wait.objects.with_due_time().filter(team=team) for team in teams]


_TEAMS_OF_WAITS = skip_scan("teams", "workflows_wait", "outcome = '' AND NOT superseded AND due_at IS NOT NULL", "team")


def failures() -> QuerySet[Workflow]:
    """Failed workflows that nobody has acknowledged."""
    return Workflow.objects.filter(UNACKNOWLEDGED)


def given_up() -> QuerySet[FollowUp]:
    """Deferred steps that were given up, and that nobody has acknowledged."""
    return FollowUp.objects.filter(GIVEN_UP, workflow__status=Workflow.Status.COMPLETE)


def kind_of(task_type: str) -> Kind:
    return _KIND_OF_TYPE.get(task_type, Kind.TASK)


def _membership_of(user: User) -> Callable[[str], bool]:
    """Tells whether a user is in the team of a name. A superuser is in every team. An empty name is no team."""
    if user.is_superuser:
        return bool
    resolves = [OPERATIONS] if user.has_perm(RESOLVE) else []
    return {*user.groups.values_list("name", flat=True), *resolves}.__contains__


_TEAMS_AND_TYPES = skip_scan("found", "workflows_manualtask", "state = 'open'", "team", "task_type")


def _teams_and_types() -> TeamsAndTypes:
    """The teams and types of open tasks, by one step down their index for each."""
    found = fetch_all(f"WITH RECURSIVE {_TEAMS_AND_TYPES} SELECT team, task_type FROM found", ())  # noqa: S608 (ours)
    return [(team, task_type) for team, task_type in found]


class OpenTasks(NamedTuple):
    """The number of open tasks of a type, and since when the oldest is open."""

    task_type: str
    number: int
    oldest: datetime


def open_tasks_by_type() -> list[OpenTasks]:
    """The open tasks of each type. Reading stops at the limit in each team and type."""
    found = fetch_all(
        f"""WITH RECURSIVE {_TEAMS_AND_TYPES}
            SELECT task_type, least(count(*), %(limit)s), min(created_at) FROM found CROSS JOIN LATERAL (
                SELECT t.created_at, t.workflow_id FROM workflows_manualtask t
                 WHERE t.state = 'open' AND t.team = found.team AND t.task_type = found.task_type
                 ORDER BY t.created_at, t.id LIMIT %(limit)s) open
             WHERE EXISTS (SELECT FROM workflows_workflow w WHERE w.id = open.workflow_id AND w.status = 'PENDING')
             GROUP BY task_type ORDER BY task_type""",  # noqa: S608 (ours)
        {"limit": bounded.limit() + 1},
    )
    return [OpenTasks(*each) for each in found]


_TYPES = skip_scan("types", "workflows_manualtask", "state = 'open'", "task_type")


def open_task_types() -> list[str]:
    """The types of the open tasks, in order."""
    (found,) = fetch_one(
        f"""WITH RECURSIVE {_TYPES}
           SELECT coalesce(array_agg(task_type ORDER BY task_type), '{{}}') FROM types CROSS JOIN LATERAL (
                  SELECT FROM workflows_manualtask t JOIN workflows_workflow w ON w.id = t.workflow_id
                   WHERE t.task_type = types.task_type AND t.state = 'open' AND w.status = 'PENDING' LIMIT 1) open""",  # noqa: S608 (ours)
        (),
    ) or ([],)
    return list(found)


# --- Reading them -------------------------------------------------------------------------------

_LARGEST_KEY = 2**63 - 1


def _first(rank: Rank, branches: Sequence[Branch], after: Place | None, *, limit: int) -> list[Item]:
    """The first items of all branches after a place, in order."""
    if not branches:
        return []
    parts = [
        _in_order(branch, after)
        .annotate(source=Value(branch.source), at=F(branch.since), key=F("pk"))
        .values_list("source", "at", "key")[:limit]
        for branch in branches
    ]
    return sorted(Item(rank, since, source, pk) for source, since, pk in _together(parts))[:limit]


def _in_order(branch: Branch, after: Place | None = None) -> QuerySet[Any]:
    """The rows of a branch, or those after a place."""
    ordered = branch.rows.order_by(branch.since, "pk")
    if after is None:
        return ordered
    _, since, source, pk = after.item
    # Of items of the same age, those of earlier sources were shown before, those of later ones were not.
    last = pk if branch.source == source else (0 if branch.source > source else _LARGEST_KEY)
    return ordered.filter(TupleGreaterThan(Tuple(F(branch.since), F("pk")), (since, last)))


def _together(parts: Sequence[QuerySet[Any]]) -> Any:
    return parts[0].union(*parts[1:], all=True)
