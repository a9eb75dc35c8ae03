"""FAILURES, grouped by type, step and code, in all releases. A group's page is the incident (`console.incident`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from workflows import operations
from workflows.console import links, ranges
from workflows.console.charts import Chart
from workflows.console.panels import by_place
from workflows.console.verbs import OptionalReasonForm, colleague_field
from workflows.definition import definitions, wording_of_type
from workflows.errors import NotAllowed
from workflows.extension import installed
from workflows.health import failures
from workflows.health.failures import Group
from workflows.models import Event
from workflows.models.failure import Cause
from workflows.telling import words
from workflows.telling.steps import title_of
from workflows.wording import of_person, words_for_code

SEE = "workflows.view_workflow"
PER_PAGE = 50
# The choices of the page: failures that nobody has acknowledged, or all failures of a range of time.
TIMES = {each.key: each for each in ranges.RANGES}
SHOWN = {
    "": "Not acknowledged",
    "24h": "All of the last 24 hours",
    "7d": "All of the last 7 days",
    "30d": "All of the last 30 days",
}

SUPPORT, ENGINEERS, NOBODY = words.team("support"), words.team("engineer"), of_person("Nobody: the patients were told")
ADVICE = {
    "passing": "Probably temporary; try once more.",
    "explained": "A retry alone does not help.",
    "unforeseen": "An engineer looks before it is retried.",
}


@dataclass(frozen=True, slots=True)
class Line:
    """A group as the page shows it."""

    group: Group
    what: str
    why: str
    advice: str
    url: str
    number: str
    money: str
    whose: str
    assign_url: str
    chart: Chart | None = None  # of all releases, and what was retried since
    chart_url: str = ""


@require_safe
def view(request: HttpRequest, *, site: AdminSite) -> HttpResponse:
    _require(request, SEE)
    show = request.GET.get("show", "") if request.GET.get("show") in TIMES else ""
    now = timezone.now()
    found = failures.between(TIMES[show].window(now)[0], now) if show else failures.unacknowledged()
    workflow_type = request.GET.get("workflow_type", "")
    if workflow_type in definitions():
        found = [each for each in found if each.cause.workflow_type == workflow_type]
    page = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    given = {"show": show, "workflow_type": workflow_type}
    types = {"": "All", **{name: words.workflow_type(name) for name in sorted(definitions())}}
    context = {
        **site.each_context(request),
        "title": "Failures",
        "filters": [("show", "Show", show, SHOWN.items()), ("workflow_type", "Type", workflow_type, types.items())],
        "lines": _lines([*page], show, now),
        "assigns_causes": request.user.has_perm(operations.ACKNOWLEDGE),
        "told": _told(found),
        "page": page,
        "query": urlencode({name: value for name, value in given.items() if value}),
        "charted": show or "24h",
        "panels": by_place(panel for each in installed() for panel in each.failures()),
    }
    return TemplateResponse(request, "admin/workflows/failures.html", context)


def _told(found: Sequence[Group]) -> str:
    number = sum(each.number for each in found)
    if number >= failures.MOST:
        return f"The newest {number:,} failures, in {len(found):,} groups"
    return f"{number:,} failure{'s' * (number != 1)} in {len(found):,} group{'s' * (len(found) != 1)}"


def _lines(found: Sequence[Group], show: str, now: datetime) -> list[Line]:
    causes = {each.cause for each in found}
    charts = {of: chart for each in installed() for of, chart in each.charts(show, now, causes).items()}
    by = _acknowledged_by([each.newest[0] for each in found if not each.left])
    return [
        replace(
            line(each, show, by.get(each.newest[0], "")),
            chart=(chart := charts.get(each.cause)),
            chart_url=links.incident(each.cause, show or "24h") if chart and chart.drawn else "",
        )
        for each in found
    ]


def line(group: Group, shown: str = "", by: str = "") -> Line:
    """The line of a group; `shown` names the range of time that it counts, if that is not all that is left."""
    cause, code = group.cause, words_for_code(wording_of_type(group.cause.workflow_type), group.cause.code)
    step = title_of(wording_of_type(cause.workflow_type), cause.step) or words.plain(cause.step)
    return Line(
        group,
        what=f"Failed at “{step}”" if step else "Failed",
        why=code.staff,
        advice=ADVICE[group.kind],
        url=links.incident(cause, shown) if group.number > 1 else links.workflow(group.newest[0]),
        number=number_of(group),
        money=_money(group),
        assign_url=f"{reverse('admin:assign_failures')}?{urlencode(cause._asdict())}" if group.left else "",
        whose=f"Acknowledged by {by}" if by else whose(group),
    )


def number_of(group: Group) -> str:
    return f"{group.number:,}" if group.number < failures.MOST else f"{failures.MOST:,}+"


def whose(group: Group) -> str:
    if group.assignee:
        return group.assignee
    if group.asks_nobody:
        return NOBODY
    return ENGINEERS if group.kind == "unforeseen" else SUPPORT


def _money(group: Group) -> str:
    """How many of the newest workflows hold money; empty if the type charges nothing."""
    if group.cause.workflow_type in definitions() and not wording_of_type(group.cause.workflow_type).money:
        return ""
    held, asked = len(group.charged), len(group.newest)
    if not held:
        return "None held" if asked == group.number else f"None held by the newest {asked}"
    return f"Held by {held}" if asked == group.number else f"Held by {held} of the newest {asked}"


def _acknowledged_by(ids: Sequence[int]) -> dict[int, str]:
    """The user who last acknowledged each of these workflows."""
    said = Event.objects.filter(workflow__in=ids, kind=Event.Kind.ACKNOWLEDGED).order_by("id")
    return dict(said.values_list("workflow", "actor"))


# --- A group ------------------------------------------------------------------------------------


class AssignForm(OptionalReasonForm):
    """A colleague who may acknowledge failures, and a note."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields = {"to": colleague_field(operations.able_to_acknowledge()), **self.fields}
        self.fields["reason"].label = "Note"


def assign(request: HttpRequest, *, site: AdminSite) -> HttpResponse:
    """Assign the failures of a cause to a user: GET says what that means, POST does it."""
    _require(request, operations.ACKNOWLEDGE)
    _require(request, SEE)
    cause = cause_of(request)
    if cause is None:
        raise Http404("No group of failures is named.")
    form = AssignForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        assert request.user.is_authenticated
        try:
            messages.success(request, operations.assign_cause(cause, user=request.user, **form.cleaned_data))
        except NotAllowed as refusal:
            messages.error(request, str(refusal))
        return HttpResponseRedirect(links.incident(cause))
    context = {
        **site.each_context(request),
        "title": "Assign",
        "verb": {"label": "Assign"},
        "asks": "Assign these failures to a colleague",
        "consequences": [
            *(
                f"{each.number:,}: {line(each).what}. {line(each).why} Whose: {line(each).whose}."
                for each in failures.unacknowledged(cause)
            ),
            "Your colleague finds them first in “For you”, and under “Mine”.",
            "What fails for the same reason meanwhile is theirs, too, until all of it is retried or acknowledged.",
        ],
        "form": form,
        "back": links.incident(cause),
    }
    return TemplateResponse(request, "admin/workflows/of_cause.html", context)


def cause_of(request: HttpRequest) -> Cause | None:
    """The cause that the filters of a list name; None if they name none."""
    workflow_type, step, code = map(request.GET.get, Cause._fields)
    if workflow_type is None or step is None or code is None:
        return None
    return None if "\x00" in workflow_type + step + code else Cause(workflow_type, step, code)  # PostgreSQL stores none


def _require(request: HttpRequest, permission: str) -> None:
    if not request.user.has_perm(permission):
        raise PermissionDenied
