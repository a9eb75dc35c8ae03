"""Views: filters of the list of workflows that a user has named, for themselves or for a team."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import Group
from django.db.models import Q, QuerySet

from workflows.errors import NotAllowed
from workflows.models import SavedView
from workflows.models.saved_view import LONGEST_NAME, LONGEST_QUERY
from workflows.operations.guards import VIEW, record_for, require, short_transaction, stated

if TYPE_CHECKING:
    from django.contrib.auth.models import User

SHARE = "workflows.share_savedview"
# More would be no choice any more: of a user, or of a team.
MOST = 30


def visible(user: User) -> QuerySet[SavedView]:
    """The user's own views, and those of their teams; of all teams, for a user who may save views for teams."""
    teams = ~Q(team="") if user.has_perm(SHARE) else Q(team__in=user.groups.values("name"))
    return SavedView.objects.filter(Q(owner=user.pk) | teams).order_by("team", "name", "id")


def save(*, user: User, name: str, query: str, team: str = "") -> None:
    """Save filters under a name: the user's own, or for the team of this name.

    Raises NotAllowed if the name is taken or empty, and if there are too many.
    """
    require(user, VIEW)
    name, team = " ".join(stated(name).split()), stated(team)
    if not name or len(name) > LONGEST_NAME:
        raise NotAllowed(f"Give the view a name of at most {LONGEST_NAME} characters.")
    if not query or len(query) > LONGEST_QUERY:
        raise NotAllowed("Filter the list first, with fewer filters: this cannot be saved.")
    of: dict[str, Any] = {"team": team} if team else {"owner": user}
    if team:
        require(user, SHARE)
        if not Group.objects.filter(name=team).exists():
            raise NotAllowed("There is no such team.")
    with short_transaction():
        if SavedView.objects.filter(**of).count() >= MOST:
            raise NotAllowed(f"There are {MOST} views already: delete one first.")
        said = {"query": query, "saved_by": user.get_username()}
        row, is_new = SavedView.objects.get_or_create(**of, name=name, defaults=said)
        if not is_new:
            raise NotAllowed(f"There is a view “{name}” already: delete it first, or choose another name.")
        if team:
            record_for(row, user, f"Saved a view of the list of workflows for the team {team}", "")


def delete(view_id: int, *, user: User) -> None:
    """Delete a view: one's own; one of a team, if the user may save views for teams."""
    require(user, VIEW)
    with short_transaction():
        row = visible(user).select_for_update().filter(pk=view_id).first()
        if row is None or (row.team and not user.has_perm(SHARE)):
            raise NotAllowed("There is no such view that you may delete.")
        if row.team:
            record_for(row, user, f"Deleted a view of the list of workflows of the team {row.team}", "")
        row.delete()
