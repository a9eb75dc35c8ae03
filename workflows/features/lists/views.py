"""Saved views: links above the list of workflows, and the page on which they are saved and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.auth.models import Group
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from workflows.console import workflow_list
from workflows.console.paging import is_number
from workflows.console.workflow_order import PARAMETER, order_of
from workflows.errors import NotAllowed
from workflows.features.lists import operations
from workflows.models import SavedView, Workflow
from workflows.models.saved_view import LONGEST_NAME
from workflows.operations.guards import VIEW

TEAMS_SHOWN = 100


def filters_of(sent: Mapping[str, Any]) -> dict[str, str]:
    """The list's filters, and its order, among what an address asks for."""
    return {name: str(value) for name, value in sent.items() if name in _known() and value}


def links(request: HttpRequest) -> list[dict[str, Any]]:
    """The views that the user may see: name, team, address and whether the list shows it now.

    The address is empty if this release has no such filter: without it, the view would show what it was to leave out.
    """
    assert request.user.is_authenticated
    now = filters_of(request.GET)
    return [_link(row, now) for row in operations.visible(request.user)[: 4 * operations.MOST]]


def in_words(request: HttpRequest, given: Mapping[str, str], site: AdminSite) -> list[tuple[str, str]]:
    """These filters, and the order if they name one: title and choice, as the list shows them."""
    request = copy(request)
    request.GET = QueryDict(urlencode(given))
    page: workflow_list.WorkflowAdmin = site.get_model_admin(Workflow)  # type: ignore[assignment]
    try:
        listed: workflow_list.WorkflowList = page.get_changelist_instance(request)  # type: ignore[assignment]
    except IncorrectLookupParameters as error:
        raise BadRequest("There is no such filter.") from error
    order = [("order", order_of(request).label)] if PARAMETER in given else []
    return [*((title, label) for title, label, _ in listed.chips), *order]


@require_http_methods(["GET", "HEAD", "POST"])
def view(request: HttpRequest, *, site: AdminSite) -> HttpResponse:
    """GET shows the views, and a form to save the filters of its address. POST saves, or deletes."""
    if not request.user.has_perm(VIEW):
        raise PermissionDenied
    assert request.user.is_authenticated
    given = filters_of(request.GET)
    if request.method == "POST":
        return _change(request)
    may_share = request.user.has_perm(operations.SHARE)
    context = {
        **site.each_context(request),
        "title": "Saved views",
        "filters": in_words(request, given, site) if given else [],
        "views": links(request),
        "query": urlencode(given),
        "has_days": any("/" in value for value in given.values()),
        "longest": LONGEST_NAME,
        "may_share": may_share,
        "teams": Group.objects.order_by("name").values_list("name", flat=True)[:TEAMS_SHOWN] if may_share else (),
    }
    return TemplateResponse(request, "admin/workflows/lists/views.html", context)


def _change(request: HttpRequest) -> HttpResponse:
    assert request.user.is_authenticated
    sent, back = request.POST, reverse("admin:saved_views")
    try:
        if "delete" in sent:
            operations.delete(int(sent["delete"]) if is_number(sent["delete"]) else 0, user=request.user)
            messages.success(request, "The view is deleted. The workflows are as they were.")
        else:
            query = urlencode(filters_of(dict(parse_qsl(sent.get("query", "")))))
            operations.save(user=request.user, name=sent.get("name", ""), query=query, team=sent.get("team", ""))
            messages.success(request, "The view is saved: it is a link above the list.")
            back = f"{reverse('admin:workflows_workflow_changelist')}?{query}"
    except NotAllowed as refusal:
        messages.error(request, str(refusal))
        back = request.get_full_path()
    return HttpResponseRedirect(back)


def _known() -> set[str]:
    return {str(getattr(each, "parameter_name", "")) for each in workflow_list.WorkflowAdmin.list_filter}


def _link(row: SavedView, now: Mapping[str, str]) -> dict[str, Any]:
    asked = dict(parse_qsl(row.query))
    url = f"{reverse('admin:workflows_workflow_changelist')}?{row.query}" if asked.keys() <= _known() else ""
    return {"row": row, "url": url, "is_current": bool(url) and asked == now}
