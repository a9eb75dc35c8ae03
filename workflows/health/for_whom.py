"""FOR WHOM: which open tasks, overdue waits and failures are for a user, for others, or of whoever else is asked for.

A user gets only what they may see. Each part of an answer has an index of its own, so that no part reads all tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet, TextChoices

from workflows.models import ManualTask, Wait
from workflows.models.manual_task import ASSIGN, DECIDE, OPERATIONS, PERMISSION_BACKEND, RESOLVE
from workflows.operations.guards import ACKNOWLEDGE, TRY_NOW
from workflows.postgres.skip_scan import skip_scan
from workflows.postgres.statements import fetch_all

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from workflows.health.failures import Group
    from workflows.models.manual_task import ManualTaskQuerySet

SEE_TASKS, SEE_WORKFLOWS = "workflows.view_manualtask", "workflows.view_workflow"
TeamsAndTypes = Iterable[tuple[str, str]]


class Whose(TextChoices):
    YOU = "you", "For you"  # what the user may decide now, or was asked to see to
    OTHERS = "others", "For others"  # all that is not for them
    MINE = "mine", "Mine"
    TEAMS = "teams", "My teams'"
    UNASSIGNED = "unassigned", "Unassigned"


class Part(NamedTuple):
    """Rows of tasks; if there is `among`, those of one team and type after the other.

    If there is `of`, the rows are some of these: an index has these, and the others are told only one by one.
    """

    rows: QuerySet[Any]
    among: Sequence[tuple[str, str]] | None = None
    of: QuerySet[Any] | None = None

    def filter(self, **conditions: Any) -> Part:
        """Those that meet the conditions."""
        of = self.of if self.of is None else self.of.filter(**conditions)
        return self._replace(rows=self.rows.filter(**conditions), of=of)


def tasks(user: User, whose: Whose | None, among: TeamsAndTypes) -> list[Part]:
    """The open tasks of these teams and types, in parts."""
    if not user.has_perm(SEE_TASKS):
        return []
    found, among = ManualTask.objects.open(), list(among)
    match whose:
        case Whose.YOU:
            theirs = found.free_for(user).for_other_eyes(user)
            return _of_each(theirs, filter(_decides(user), among))
        case Whose.OTHERS:
            decides, types = _decides(user), {task_type for _, task_type in among}
            own = [each for each in among if decides(each)]
            of_teams: dict[str, Any] = {"task_type__in": types, "team__in": {team for team, _ in own}}
            in_teams = found.filter(**of_teams)
            requested = in_teams.requested_by(user).free_for(user)
            claimed = ManualTask.objects.filter(state=ManualTask.State.OPEN, assignee__isnull=False, **of_teams)
            taken = Part(in_teams.taken_from(user), of=claimed.exclude(assignee=user))
            rest = _of_each(found, (each for each in among if not decides(each)))
            return [*rest, taken, Part(requested)]
        case Whose.MINE:  # they are few, and one index has those of a person
            found = found.held_by(user)
            return [Part(found.filter(task_type__in={task_type for _, task_type in among}))]
        case Whose.TEAMS:
            is_theirs = _membership_of(user)
            return _of_each(found, (each for each in among if is_theirs(each[0])))
    return _of_each(of_whose(found, whose, user), among)


def of_whose(tasks: ManualTaskQuerySet, whose: str | None, user: User) -> ManualTaskQuerySet:
    """The tasks that are the user's, free in their teams, or for nobody in particular yet."""
    match whose:
        case Whose.MINE:
            return tasks.held_by(user)
        case Whose.UNASSIGNED:
            return tasks.free()
        case Whose.TEAMS:
            return tasks.exclude(team="").for_members(user)
    return tasks


def asking_leads(user: User, whose: Whose | None) -> list[QuerySet[Any]]:
    """The tasks that a lead was asked to look at, if this user is a lead: they are for any lead."""
    if whose == Whose.OTHERS or not (user.has_perm(ASSIGN) and user.has_perm(SEE_TASKS)):
        return []
    return [of_whose(ManualTask.objects.open(), whose, user).filter(lead_asked_at__isnull=False)]


def waits(user: User, whose: Whose | None) -> list[QuerySet[Any]]:
    """The open waits that have a due time, in parts. A wait without a team is for support."""
    if whose == Whose.MINE or not user.has_perm(SEE_WORKFLOWS):
        return []
    teams = [team for (team,) in fetch_all(f"WITH RECURSIVE {_TEAMS_OF_WAITS} SELECT team FROM teams", ())]  # noqa: S608 (ours)
    in_team, is_support = _membership_of(user), user.has_perm(ACKNOWLEDGE)
    match whose:
        case Whose.TEAMS:
            teams = list(filter(in_team, teams))
        case Whose.YOU | Whose.OTHERS:
            is_for_them = {team: in_team(team) if team else is_support for team in teams}
            teams = [team for team in teams if is_for_them[team] == (whose == Whose.YOU)]
    return [Wait.objects.with_due_time().filter(team=team) for team in teams]


def failures(user: User, names: Collection[str], found: Iterable[Group]) -> Callable[[Group], bool]:
    """Tells whether failures are for a user: what is assigned to one of these `names`, and what is free for them.

    What an engineer looks at first is for engineers, as long as there is one. Superusers do not count as one.
    """
    sees_to_free_ones = user.has_perm(ACKNOWLEDGE)
    is_asked = any(each.kind == "unforeseen" and not each.assignee for each in found)
    is_engineer = user.has_perm(TRY_NOW) or not (sees_to_free_ones and is_asked and _has_engineers())

    def are(group: Group) -> bool:
        return group.assignee in names or (
            not group.assignee and sees_to_free_ones and (is_engineer or group.kind != "unforeseen")
        )

    return are


def _has_engineers() -> bool:
    users = get_user_model().objects
    each = [
        users.with_perm(may, include_superusers=False, backend=PERMISSION_BACKEND)
        for may in (ACKNOWLEDGE, TRY_NOW, SEE_WORKFLOWS)
    ]
    return users.filter(*(Q(pk__in=able.values("pk")) for able in each), is_staff=True).exists()


_TEAMS_OF_WAITS = skip_scan("teams", "workflows_wait", "outcome = '' AND NOT superseded AND due_at IS NOT NULL", "team")


def _of_each(tasks: ManualTaskQuerySet, among: TeamsAndTypes) -> list[Part]:
    return [Part(tasks, found)] if (found := list(among)) else []


def _decides(user: User) -> Callable[[tuple[str, str]], bool]:
    """Tells whether a user may decide the tasks of a team and type, claims and four eyes apart.

    The same as `operations.decidable`, by what is known of a team.
    """
    in_team, decides, resolves = _membership_of(user), user.has_perm(DECIDE), user.has_perm(RESOLVE)

    def may(of: tuple[str, str]) -> bool:
        team, _ = of
        return (not team or in_team(team)) and (decides or (resolves and team == OPERATIONS))

    return may


def _membership_of(user: User) -> Callable[[str], bool]:
    """Tells whether a user is in the team of a name. A superuser is in every team. An empty name is no team."""
    if user.is_superuser:
        return bool
    resolves = [OPERATIONS] if user.has_perm(RESOLVE) else []
    return {*user.groups.values_list("name", flat=True), *resolves}.__contains__
