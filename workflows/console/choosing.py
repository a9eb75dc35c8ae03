"""CHOOSING rows of a list for a bulk operation: the ticked rows, or all that match the list's filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from workflows.console import paging
from workflows.console.base import ConsoleAdmin
from workflows.errors import NotAllowed
from workflows.extension import installed
from workflows.operations.bulk_verbs import MOST, BulkVerb, verbs

# The name of the button that chooses all matching rows. Its value is the verb.
ALL = "bulk_all"
TICKED = "ticked one by one"


class ChoosesMany(ConsoleAdmin):
    """A list whose rows can be chosen for a bulk operation. Each choice leads to a preview."""

    change_list_template = "admin/workflows/choosing.html"
    bulk_verbs: Sequence[str] = ()

    def choosable(self, request: HttpRequest) -> Sequence[str]:
        """The verbs that make sense for all rows that match the list's filters; none without a filter."""
        raise NotImplementedError

    def cause_of(self, request: HttpRequest) -> str:
        """The name of the cause of failures that the list's filters name; empty if they name none."""
        return ""

    def get_actions(self, request: HttpRequest, action_location: object = None) -> Any:
        """The list's verbs as actions. Django 6.1 adds `action_location`; we have only one."""
        return {verb.name: (_ticked, verb.name, verb.label) for verb in self._permitted(request, self.bulk_verbs)}

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if request.method == "POST" and ALL in request.POST:
            return self._choose_all(request, request.POST[ALL])
        offered = [(verb.name, verb.label) for verb in self._permitted(request, self.choosable(request))]
        return super().changelist_view(request, {"choose_all": offered, "name_of_all": ALL, **(extra_context or {})})

    def _permitted(self, request: HttpRequest, names: Sequence[str]) -> list[BulkVerb]:
        known = verbs()
        return [known[name] for name in names if name in known and request.user.has_perm(known[name].permission)]

    def _choose_all(self, request: HttpRequest, verb: str) -> HttpResponse:
        permitted = [each.name for each in self._permitted(request, self.bulk_verbs)]
        if not self.has_view_permission(request) or verb not in permitted:
            raise PermissionDenied
        return choose(self, request, verb, *self.all_matching(request))

    def all_matching(self, request: HttpRequest) -> tuple[QuerySet[Any, Any], str, str]:
        """The ids of all rows that match the list's filters, these filters in words, and the cause that they name."""
        try:
            listed: paging.KeysetList = self.get_changelist_instance(request)  # type: ignore[assignment]
        except IncorrectLookupParameters as error:
            raise BadRequest("There is no such filter.") from error
        filters = [f"{title}: {label}" for title, label, _ in listed.chips]
        if listed.has_more:
            filters.append(f"{MOST:,} of them, for there are more")
        return listed.all_ids(request)[:MOST], "; ".join(filters) or "all", self.cause_of(request)

    def offered_for_all(self, request: HttpRequest) -> list[str]:
        """The verbs that this user may choose for all rows that match the list's filters."""
        return [each.name for each in self._permitted(request, self.choosable(request))]


def choose(
    admin: ConsoleAdmin, request: HttpRequest, verb: str, ids: QuerySet[Any, Any], chosen_by: str, cause: str = ""
) -> HttpResponse:
    """Store the choice, and redirect to its preview."""
    assert request.user.is_authenticated
    try:
        stored = (each.choose(verb, ids, user=request.user, chosen_by=chosen_by, cause=cause) for each in installed())
        return HttpResponseRedirect(next(filter(None, stored)))
    except NotAllowed as refusal:
        admin.message_user(request, str(refusal), messages.WARNING)
        return HttpResponseRedirect(request.get_full_path())


def _ticked(admin: ChoosesMany, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
    """An action of the list, on the ticked rows, or on all matching ones if the user has chosen those."""
    verb = request.POST["action"]
    if request.POST.get("select_across") == "1":
        return admin._choose_all(request, verb)
    return choose(admin, request, verb, queryset.order_by().values("pk"), TICKED, admin.cause_of(request))
