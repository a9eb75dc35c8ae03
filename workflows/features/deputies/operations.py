"""DEPUTIES: a colleague gets what is asked of somebody who is away, from a time until another (docs/adr/0045).

A deputy gains no right: they act where they may act anyway. What changes is who is asked, and who counts as one person.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.db.models import F, Q, QuerySet, Value
from django.db.models.functions import Greatest, Now
from django.utils import timezone

from workflows import times
from workflows.errors import NotAllowed
from workflows.models import Deputy, ManualTask
from workflows.models.manual_task import able_to_decide, deciders
from workflows.operations.guards import ASSIGN, record_for, short_transaction
from workflows.signals.waking import Slice

if TYPE_CHECKING:
    from django.contrib.auth.models import User

# A forgotten one would go on for ever; and how far ahead an absence is planned.
LONGEST, FURTHEST = timedelta(days=180), timedelta(days=365)
# Four eyes ask for it as long as something is undecided from its time; few workflows are so old.
KEPT = timedelta(days=400)
# What the database holds them to.
AS_ONE = "Meanwhile neither of the two approves what the other has asked for, or asks for: another person does."
# The most that a page shows.
SHOWN = 100


def appoint(absent_id: int, *, user: User, deputy: int, until: datetime, begins: datetime | None = None) -> str:
    """Let a colleague stand in for somebody, from now or from `begins` on, until a time; return a sentence.

    Users do so for themselves; with the permission to assign, for anybody: for whoever is ill already. Raises
    NotAllowed and PermissionDenied.
    """
    if absent_id != user.pk and not user.has_perm(ASSIGN):
        raise PermissionDenied(ASSIGN)
    with short_transaction():
        now = timezone.now()
        begins = max(begins or now, now)
        # Locked, in order: two who appoint each other at the same moment see each other's row.
        both = people().filter(pk__in=(absent_id, deputy)).order_by("pk").select_for_update(no_key=True, of=("self",))
        found = {each.pk: each for each in both}
        if (absent := found.get(absent_id)) is None or (standing_in := found.get(deputy)) is None:
            raise NotAllowed("This user cannot sign in: choose somebody else.")
        if why_not := _why_not(absent, standing_in, begins, until, now):
            raise NotAllowed(why_not)
        given = {"begins_at": begins, "ends_at": until, "set_by": user.get_username()}
        Deputy.objects.create(absent=absent, deputy=standing_in, **given)
        record_for(absent, user, f"Deputy: {standing_in.get_username()}", "")
    since = f"from {times.both(begins)} " if begins > now else ""
    name, left = standing_in.get_username(), left_by(absent, standing_in)
    said = f"It is set: {name} stands in for {absent.get_username()} {since}until {times.both(until)}."
    return " ".join([said, *([f"{left}: meanwhile everybody who may can decide."] if left else []), AS_ONE])


def _why_not(absent: User, deputy: User, begins: datetime, until: datetime, now: datetime) -> str:
    if absent == deputy:
        return "Nobody stands in for themselves: choose a colleague."
    if until <= begins:
        return "The end comes before the beginning, or is over: choose a later one."
    if begins > now + FURTHEST:
        return f"It begins in {FURTHEST.days} days at the latest."
    if until > begins + LONGEST:
        return f"It is for {LONGEST.days} days at the most. It can be set again."
    if not deciders().filter(pk=deputy.pk).exists() and deciders().filter(pk=absent.pk).exists():
        return f"{deputy.get_username()} may decide no tasks: choose somebody else."
    meanwhile = Deputy.objects.filter(begins_at__lt=until, ends_at__gt=Greatest(Value(begins), F("begins_at")))
    if row := meanwhile.filter(absent=absent).select_related("deputy").first():
        span = f"from {times.both(row.begins_at)} until {times.both(row.ends_at)}"
        return f"{row.deputy.get_username()} stands in for them {span}: end that first."
    if row := meanwhile.filter(absent=deputy).first():
        return f"{deputy.get_username()} is away until {times.both(row.ends_at)}: choose somebody else."
    return ""


def left_by(absent: User, deputy: User) -> str:
    """What the deputy will not decide of the tasks that are assigned to the other now; empty if nothing."""
    theirs = ManualTask.objects.open().filter(assignee=absent)
    left = theirs.count() - theirs.for_members(deputy).permitted_to(deputy).for_other_eyes(deputy).count()
    return f"{deputy.get_username()} may not decide {left} of the open tasks of {absent.get_username()}" if left else ""


def unfit(absent: User) -> dict[int, str]:
    """What each user will not decide of the tasks that are assigned to this one now, the newest of them; in words.

    Without the users who may decide all of these tasks.
    """
    alike: dict[object, list[ManualTask]] = defaultdict(list)
    tasks = ManualTask.objects.open().filter(assignee=absent).order_by("-id")[:SHOWN]
    for task in tasks:
        alike[task.team, task.four_eyes and (task.requested_by_id, task.created_at)].append(task)
    able: Counter[int] = Counter()
    for each in alike.values():  # the same people may decide them
        able.update(dict.fromkeys(able_to_decide(each[0]).values_list("pk", flat=True), len(each)))
    number = len(tasks)
    left = {pk: number - able[pk] for pk in deciders().values_list("pk", flat=True)} if number else {}
    return {pk: f"(may not decide {of_them} of the {number} open tasks)" for pk, of_them in left.items() if of_them}


def end(pk: int, *, user: User) -> str:
    """End it now, or take it back before it begins; return a sentence. For the absent person, and for leads."""
    with short_transaction():
        row = open_ones().select_for_update(of=("self",)).filter(pk=pk).first()
        if row is None:
            raise NotAllowed("It is over already.")
        if row.absent_id != user.pk and not user.has_perm(ASSIGN):
            raise PermissionDenied(ASSIGN)
        open_ones().filter(pk=pk).update(ends_at=Greatest(F("begins_at"), Now()))
        record_for(row.absent, user, f"No deputy any more: {row.deputy.get_username()}", "")
    return f"It is ended: {row.deputy.get_username()} does not stand in for {row.absent.get_username()} any more."


def people() -> QuerySet[User]:
    """The users of the console."""
    return get_user_model().objects.filter(is_active=True, is_staff=True)


def open_ones() -> QuerySet[Deputy]:
    """Those that hold, or are still to come, in order."""
    rows = Deputy.objects.filter(ends_at__gt=Greatest(Now(), F("begins_at")))
    return rows.select_related("absent", "deputy").order_by("begins_at", "id")


def now_of(user: Any) -> list[Deputy]:
    """Those that hold now, and in which this user is one of the two; for a lead all."""
    is_one = Q() if user.has_perm(ASSIGN) else Q(absent=user.pk) | Q(deputy=user.pk)
    found = Deputy.objects.now().filter(is_one).select_related("absent", "deputy").order_by("ends_at", "id")
    return list(found[:SHOWN])


def useless(rows: Collection[Deputy]) -> set[int]:
    """The keys of those of these whose deputy may decide nothing, or is away at some time of it, too."""
    deputies, now = {row.deputy_id for row in rows}, timezone.now()
    able = set(deciders().filter(pk__in=deputies).values_list("pk", flat=True))
    absences = list(open_ones().filter(absent__in=deputies))
    return {
        row.pk
        for row in rows
        if row.deputy_id not in able
        or any(
            each.absent_id == row.deputy_id and max(row.begins_at, each.begins_at, now) < min(row.ends_at, each.ends_at)
            for each in absences
        )
    }


def leaving(rows: Collection[Deputy]) -> set[int]:
    """The keys of those of these whose deputy lacks now a right or a team for an open task of the other."""
    now = [row for row in rows if row.begins_at <= timezone.now()]
    theirs = ManualTask.objects.open().filter(assignee__in={row.absent_id for row in now})
    left = set(theirs.free().order_by().values_list("assignee", flat=True).distinct())
    return {row.pk for row in now if row.absent_id in left}


def forget(after: int = 0) -> Slice:
    """Maintenance: delete those that were over long ago. Absences are nobody's business for longer."""
    return Slice(Deputy.objects.filter(ends_at__lt=Now() - KEPT).delete()[0])
