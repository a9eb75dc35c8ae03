"""WHAT NEEDS A PERSON: all that stands still until somebody acts, in one order, a page at a time.

First comes possible loss of money (unclear calls, failed reversals), then what is due first, then what has no due time,
oldest first. A task without a due time is due when it expires. The sources are open tasks (also the engine's own
questions), overdue waits, and those of features (`Extension.needs_a_person`). A page reads only as many rows of a
source as it shows, by an index in this order. Tasks use the index of their team and type, so a rare type costs no more
than a common one. Failed workflows are grouped by cause (`health.failures`). `health.for_whom` says whose a row is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import F, Model, Q, QuerySet, TextChoices, Value
from django.db.models.expressions import Combinable, RawSQL
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan
from django.utils import timezone

from workflows.effects.reconcile import DOUBT_TASK_TYPE
from workflows.engine import undo_question
from workflows.engine.undo_doubts import UNDO_TASK_TYPE
from workflows.extension import installed
from workflows.health import bounded, for_whom
from workflows.health.failures import Group, unacknowledged
from workflows.health.for_whom import SEE_WORKFLOWS, Part, TeamsAndTypes, Whose
from workflows.health.open_tasks import teams_and_types
from workflows.models import FollowUp, ManualTask, Workflow
from workflows.models.clock import microseconds, moment
from workflows.models.deputy import count_as_one, represented_by
from workflows.models.follow_up import GIVEN_UP
from workflows.models.manual_task import ASSIGN, DUE
from workflows.models.workflow import UNACKNOWLEDGED

if TYPE_CHECKING:
    from django.contrib.auth.models import User

PAGE = 50


class Kind(TextChoices):
    TASK = "task", "Task"
    UNCLEAR = "unclear", "Unclear call"
    REVERSAL = "reversal", "Failed reversal"
    UNDECIDED = "undecided", "Reversal to decide"
    FAILED = "failed", "Failed workflows"
    WAIT = "overdue-wait", "Overdue wait"


# The numbers of the engine's own sources.
OF_TASKS, OF_WAITS = 0, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A feature's source: `rows` of `model`, each with a `workflow`. No row has an owner.

    An index on `since` has these rows, and only these, oldest first. `number` is part of links, so it never changes;
    rows of the same age are sorted by it. The page shows what a row `asks`, for which it reads `columns`, and `whom` it
    is for: users with one of `permissions`, but nobody who counts as the user in the field `not_by`; or members of the
    group that the column `team` names. The rows of one that `is_late` are overdue, and stand among overdue tasks.
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
    permissions: tuple[str, ...] = ()
    not_by: str = ""
    is_late: bool = False
    team: str = ""


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
    DUE = 2
    REST = 3  # what has no due time


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
    """A row of the list: its source's number, its key, and when it is due, or since when it waits.

    Items sort in the list's order. As text an item is the place in a link after which a page starts.
    """

    rank: Rank
    since: datetime
    source: int
    pk: int

    def __str__(self) -> str:
        return ".".join(map(str, (int(self.rank), microseconds(self.since), self.source, self.pk)))


def place(text: str) -> Item | None:
    """The item in a link, as `str` writes it; None if the text is none."""
    parts = text.split(".")
    if len(parts) != 4 or not all(part.isascii() and part.isdecimal() and len(part) < 17 for part in parts):
        return None
    rank, since, source, pk = map(int, parts)
    if rank >= len(Rank) or source not in {OF_TASKS, OF_WAITS, *sources()}:
        return None
    return Item(Rank(rank), moment(since), source, pk)


@dataclass(frozen=True, slots=True)
class Page:
    """The items of a page, and the last of them if another page follows."""

    items: Sequence[Item]
    next: Item | None

    @classmethod
    def of(cls, found: Sequence[Item]) -> Page:
        """A page of these items. An extra item shows that another page follows."""
        return cls(found[:PAGE], found[PAGE - 1] if len(found) > PAGE else None)


def page_and_count(asked: Asked, *, after: Item | None = None, most: int = PAGE + 1) -> tuple[Page, int]:
    """The first items, or those after a place, and the place where the next page starts, if any; the number of all.

    That is at most `bounded.people_limit` and one. One statement, unless there are more.
    """
    branches = branches_of(asked)
    compiled = {rank: _compiled(branches(rank)) for rank in Rank}
    found, number = _counted([each for rank in Rank for each in compiled[rank]], most)
    if after is None and number <= bounded.people_limit():
        return Page.of(found), number
    found = []
    for rank in Rank:
        if len(found) < most and (after is None or rank >= after.rank):
            is_behind = after is not None and rank == after.rank
            found += _first(_compiled(branches(rank), after) if is_behind else compiled[rank], most - len(found))
    return Page.of(found), number


def _counted(compiled: Sequence[Compiled], most: int) -> tuple[list[Item], int]:
    """The first items of those that are counted, and how many these are. Those that are not may come before them."""
    # In order, because PostgreSQL could otherwise read all rows ever given up: it cannot know how few are left.
    limit = bounded.people_limit() + 1
    sql, given = _all_of(compiled, limit)
    if not sql:
        return [], 0
    with connection.cursor() as cursor:
        cursor.execute(
            f"""WITH counted AS MATERIALIZED (SELECT * FROM ({sql}) parts LIMIT {limit})
                SELECT (SELECT count(*) FROM counted), * FROM counted
                 ORDER BY rank, at, source, key LIMIT {most}""",  # noqa: S608 (the ORM's)
            given,
        )
        rows = cursor.fetchall()
    return [_item(each) for _, *each in rows], rows[0][0] if rows else 0


def tasks(asked: Asked) -> QuerySet[Any, Any]:
    """The keys of the open tasks that are asked for."""
    of_rank = branches_of(asked)
    branches = [each for rank in (Rank.MONEY, Rank.LEAD, Rank.DUE) for each in of_rank(rank)]
    parts = [rows.values("pk") for each in branches if each.source == OF_TASKS for rows in _apart(each)]
    return parts[0].union(*parts[1:], all=True) if parts else ManualTask.objects.none().values("pk")


def groups(asked: Asked, *, most: int | None = None) -> list[Group]:
    """The failures that are asked for, by cause, among the newest `most`.

    Those with money held come first, then those that this user looks after. Includes codes that need nobody.
    """
    if not asked.is_for(Kind.FAILED) or asked.whose == Whose.TEAMS or not asked.user.has_perm(SEE_WORKFLOWS):
        return []
    found, me = unacknowledged(most=most), asked.user.get_username()
    mine = {me}
    if {each.assignee for each in found} - {me, ""}:
        mine |= {*represented_by(asked.user).values_list(f"absent__{asked.user.USERNAME_FIELD}", flat=True)}
    found.sort(key=lambda each: (not each.charged, each.assignee not in mine))
    are_theirs = for_whom.failures(asked.user, mine, found)
    match asked.whose:
        case Whose.YOU:
            return [*filter(are_theirs, found)]
        case Whose.OTHERS:
            return [each for each in found if not are_theirs(each)]
        case Whose.MINE | Whose.UNASSIGNED:
            return [each for each in found if each.assignee in (mine if asked.whose == Whose.MINE else {""})]
    return found


# --- The sources --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Branch:
    """Rows of one source that an index has in the order of `since` and key.

    If there is `among`, an index has those of each of these teams and types in that order. If there is `of`, those are
    put in order, and then each is looked up, until there are enough that are among the rows.
    """

    source: int
    rows: QuerySet[Any]
    since: Combinable
    among: Sequence[tuple[str, str]] | None = None
    of: QuerySet[Any] | None = None
    rank: Rank = Rank.REST


Branches = Callable[[Rank], list[Branch]]


def branches_of(asked: Asked) -> Branches:
    """The branches of a rank, each read once."""
    among = teams_and_types()
    return cache(lambda rank: [replace(each, rank=rank) for each in _branches(asked, rank, among)])


def _branches(asked: Asked, rank: Rank, among: TeamsAndTypes) -> list[Branch]:
    match rank:
        case Rank.MONEY:
            return _tasks(asked, MONEY, DUE, among)
        case Rank.LEAD:
            found = for_whom.asking_leads(asked.user, asked.whose) if asked.is_for(Kind.TASK) else []
            of_type = [each.filter(task_type=asked.task_type) if asked.task_type else each for each in found]
            others = [Part(each.exclude(task_type__in=_KIND_OF_TYPE)) for each in of_type]
            return _of_tasks(asked, others, F("lead_asked_at"))
        case Rank.DUE:
            waits = for_whom.waits(asked.user, asked.whose) if asked.is_for(Kind.WAIT) else []
            late = [Branch(OF_WAITS, each.filter(due_at__lte=timezone.now()), F("due_at")) for each in waits]
            return [*_tasks(asked, [Kind.TASK], DUE, among), *late, *_of_features(asked, is_late=True)]
        case Rank.REST if not asked.only_overdue:
            return _of_features(asked, is_late=False)
    return []


def _tasks(asked: Asked, of: Collection[Kind], since: Combinable, among: TeamsAndTypes) -> list[Branch]:
    kinds = set(filter(asked.is_for, of))
    wanted = [each for each in among if kind_of(each[1]) in kinds and asked.task_type in ("", each[1])]
    found = for_whom.tasks(asked.user, asked.whose, wanted) if wanted else []
    if Kind.TASK in kinds and asked.user.has_perm(ASSIGN):
        found = [each.filter(lead_asked_at=None) for each in found]  # they have their own rank
    return _of_tasks(asked, found, since)


def _of_tasks(asked: Asked, found: Sequence[Part], since: Combinable) -> list[Branch]:
    late = {"due_at__lte": timezone.now()} if asked.only_overdue else {}
    return [Branch(OF_TASKS, each.rows, since, each.among, each.of) for each in (part.filter(**late) for part in found)]


def _of_features(asked: Asked, *, is_late: bool) -> list[Branch]:
    found = [each for each in sources().values() if each.is_late == is_late]
    return [Branch(of.number, rows, F(of.since)) for of in found for rows in _of_source(asked, of)]


def _of_source(asked: Asked, source: Source) -> list[QuerySet[Any]]:
    """The rows of a feature's source that are asked for. Nobody in particular has them."""
    user, rows = asked.user, source.rows()
    if not (asked.is_for(source.kind) and user.has_perm(SEE_WORKFLOWS)):
        return []
    if source.team:
        return _of_teams(asked, rows, {f"{source.team}__in": user.groups.values("name")})
    is_theirs = any(map(user.has_perm, source.permissions))
    own = Q(count_as_one(F(source.not_by), Value(user.pk), F(source.since))) if source.not_by else Q()
    match asked.whose:
        case Whose.MINE | Whose.TEAMS:
            return []
        case Whose.YOU:
            return [rows.exclude(own) if own else rows] if is_theirs else []
        case Whose.OTHERS if is_theirs:
            return [rows.filter(own)] if own else []
    return [rows]


def _of_teams(asked: Asked, rows: QuerySet[Any], theirs: dict[str, Any]) -> list[QuerySet[Any]]:
    match asked.whose:
        case Whose.MINE:
            return []
        case Whose.YOU | Whose.TEAMS if not asked.user.is_superuser:  # who is in every team
            return [rows.filter(**theirs)]
        case Whose.OTHERS:
            return [] if asked.user.is_superuser else [rows.exclude(**theirs)]
    return [rows]


def failures() -> QuerySet[Workflow]:
    """Failed workflows that nobody has acknowledged."""
    return Workflow.objects.filter(UNACKNOWLEDGED)


def given_up() -> QuerySet[FollowUp]:
    """Deferred steps that were given up, and that nobody has acknowledged."""
    return FollowUp.objects.filter(GIVEN_UP, workflow__status=Workflow.Status.COMPLETE)


def kind_of(task_type: str) -> Kind:
    return _KIND_OF_TYPE.get(task_type, Kind.TASK)


# --- Reading them -------------------------------------------------------------------------------

_LARGEST_KEY = 2**63 - 1


def _first(compiled: Sequence[Compiled], limit: int) -> list[Item]:
    """The first items of all branches, in order."""
    sql, given = _all_of(compiled, limit)
    if not sql:
        return []
    with connection.cursor() as cursor:
        cursor.execute(sql, given)
        return sorted(map(_item, cursor.fetchall()))[:limit]


def _item(row: Sequence[Any]) -> Item:
    rank, *rest = row
    return Item(Rank(rank), *rest)


def _sql(branch: Branch, after: Item | None) -> tuple[str, tuple[Any, ...]]:
    """SQL for the rows of a branch as items, or for those after a place, in order."""
    told = {"rank": Value(branch.rank.value), "at": branch.since, "source": Value(branch.source), "key": F("pk")}
    rows: QuerySet[Any] = _in_order(branch, after).annotate(**told).values_list(*told)
    sql, given = rows.query.sql_with_params()
    if branch.of is None:
        return sql, given
    # A subselect is not pulled into the sorted ones below it. `LIMIT 1`: or it would become a join.
    looked_up = branch.rows.filter(pk=RawSQL("of.key", ())).annotate(is_one=Value(True)).values("is_one")[:1]
    one, more = looked_up.query.sql_with_params()
    return f"SELECT of.* FROM ({sql}) of WHERE ({one})", (*given, *more)  # noqa: S608 (the ORM's)


def _in_order(branch: Branch, after: Item | None) -> QuerySet[Any]:
    ordered = _of_one(branch).order_by(branch.since, "pk")
    if after is None:
        return ordered
    _, since, source, pk = after
    # Of items of the same age, those of earlier sources were shown before, those of later ones were not.
    last = pk if branch.source == source else (0 if branch.source > source else _LARGEST_KEY)
    return ordered.filter(TupleGreaterThan(Tuple(branch.since, F("pk")), (since, last)))


def _of_one(branch: Branch) -> QuerySet[Any]:
    """The rows of a branch; within `_all_of` those of one team and type after the other."""
    if branch.among is None:
        return branch.rows if branch.of is None else branch.of
    return branch.rows.filter(team=RawSQL("of.team", ()), task_type=RawSQL("of.task_type", ()))


def _apart(branch: Branch) -> list[QuerySet[Any]]:
    """The rows of a branch, of each team and type for itself."""
    if branch.among is None:
        return [branch.rows]
    return [branch.rows.filter(team=team, task_type=task_type) for team, task_type in branch.among]


class Compiled(NamedTuple):
    """SQL for the rows of a branch as items, in order, and its parameters; it ends with `LIMIT %s`.

    Django builds it once for the count and the page: that takes longer than to read the page.
    """

    sql: str
    given: Sequence[Any]


def _compiled(branches: Sequence[Branch], after: Item | None = None) -> list[Compiled]:
    """SQL for each branch that has any rows, or for those after a place.

    LATERAL, so that PostgreSQL plans the tasks of all teams and types at once: planning takes longer than reading them.
    """
    found: list[Compiled] = []
    for each in branches:
        with suppress(EmptyResultSet):
            sql, given = _sql(each, after)
            if each.among is None:
                found.append(Compiled(f"{sql} LIMIT %s", given))
                continue
            of = "unnest(%s::text[], %s::text[]) AS of (team, task_type)"
            sql = f"SELECT those.* FROM {of}, LATERAL ({sql} LIMIT %s) those"  # noqa: S608 (the ORM's)
            found.append(Compiled(sql, [*map(list, zip(*each.among, strict=True)), *given]))
    return found


def _all_of(compiled: Sequence[Compiled], most: int) -> tuple[str, list[Any]]:
    """SQL for the first rows of each branch as items, and its parameters; empty if that is nothing."""
    given = [parameter for each in compiled for parameter in (*each.given, most)]
    return " UNION ALL ".join(f"({each.sql})" for each in compiled), given
