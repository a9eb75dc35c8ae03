"""THE INCIDENT: one page for a cause of failures, in all releases.

How many failed and when, what has become of them, the money that they hold, and what to do. Each number is a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.db.models import Count, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from workflows import operations
from workflows.console import charts, failures, links, ranges
from workflows.console.charts import Bar, Chart
from workflows.console.choosing import ALL
from workflows.console.panels import by_place
from workflows.console.ranges import Range
from workflows.definition import definitions, wording_of_type
from workflows.extension import Mark, installed
from workflows.health import bounded, money_at_risk, recent_failures, states
from workflows.health.bounded import Link
from workflows.health.failures import Ends, Group, between, ends, unacknowledged
from workflows.models import Event, State, Workflow
from workflows.models.failure import Cause, of_code
from workflows.models.workflow import UNACKNOWLEDGED, is_parked_on
from workflows.operations.bulk_verbs import MOST
from workflows.operations.payments import would_charge_again
from workflows.telling import words
from workflows.telling.steps import title_of
from workflows.wording import words_for_code

FOR_LEADS = "A retry charges again what was refunded, so only a support lead may retry."


@dataclass(frozen=True, slots=True)
class Row:
    """A number with its list, and how many of these hold money; `held` is empty if the type charges nothing."""

    label: str
    number: str
    url: str
    held: str = ""
    held_url: str = ""
    total: str = ""


@require_safe
def view(request: HttpRequest, *, site: AdminSite) -> HttpResponse:
    if not request.user.has_perm(failures.SEE):
        raise PermissionDenied
    cause = failures.cause_of(request)
    if cause is None:
        raise Http404("No cause of failures is named.")
    now, left = timezone.now(), next(iter(unacknowledged(cause)), None)
    shown = _range(request.GET.get("range", ""), left, now)
    times = recent_failures.interval_text(*shown.window(now))
    still = next(iter(between(*shown.window(now), cause)), None)
    ended = ends(*shown.window(now), cause)
    marks = [mark for each in installed() for mark in each.marks(cause, shown.key, now) if _may_see(mark, request)]
    step = title_of(wording_of_type(cause.workflow_type), cause.step) or words.plain(cause.step)
    is_for_leads = (
        left is not None
        and not request.user.has_perm(operations.CANCEL_PAID)
        and {*left.newest} <= would_charge_again(*left.newest)
    )
    context = {
        **site.each_context(request),
        "now": now,
        "title": f"Failed at “{step}”" if step else "Failed",
        "small_print": f"Type {cause.workflow_type}, step {cause.step or 'none'}, code {cause.code or 'none'}.",
        "standing": " ".join([*_told(cause, left), *([FOR_LEADS] if is_for_leads else [])]),
        "tone": "failed" if left else "good",
        "left": left,
        "these": _these(left) if left else "",
        "rows": list(_rows(cause, left, still, shown, times)),
        "trends": _trends(cause, shown, now, marks),
        "marks": [(each, links.to(each.link) if each.link else "") for each in reversed(marks)],
        "ended": _so_many(ended),
        "bars": _bars(cause, ended, times),
        "releases": _releases(cause, left, still, times),
        "services": _services(left or still, request),
        "asked": len(left.newest) if left else len(still.newest) if still else 0,
        "list_url": links.failures_of(cause),
        "assign_url": f"{reverse('admin:assign_failures')}?{links.query(cause)}" if left else "",
        "retries": request.user.has_perm(operations.RETRY) and not is_for_leads,
        "assigns_causes": request.user.has_perm(operations.ACKNOWLEDGE),
        "name_of_all": ALL,
        "panels": by_place(panel for each in installed() for panel in each.incident(cause, left or still, request)),
    }
    return TemplateResponse(request, "admin/workflows/incident.html", context)


def _range(asked: str, left: Group | None, now: datetime) -> Range:
    """The range that is asked for; or the shortest with the first failure that is left, the longest if none has it."""
    for each in ranges.RANGES:
        if each.key == asked or (not asked and (left is None or each.window(now)[0] <= left.first)):
            return each
    return ranges.RANGES[0] if asked else ranges.RANGES[-1]


def _told(cause: Cause, left: Group | None) -> Iterator[str]:
    code = words_for_code(wording_of_type(cause.workflow_type), cause.code)
    yield f"{words.workflow_type(cause.workflow_type)}: {words.ended(code.staff)}"
    if left is None:
        yield "Nobody has to do anything: what failed was retried or acknowledged."
        return
    shown, first = failures.line(left), words.clock(left.first)
    if left.number == 1:
        yield f"1 workflow has failed and is not acknowledged, since {first}."
    else:
        yield f"{shown.number} workflows have failed and are not acknowledged: the first at {first}, the last at"
        yield f"{words.clock(left.last)}."
    whose = shown.whose[0].lower() + shown.whose[1:] if left.asks_nobody else shown.whose
    yield f"{shown.advice} It is for {whose}."


def _these(left: Group) -> str:
    """What a button does it to; a bulk operation takes so many at the most."""
    if left.number > MOST:
        return f"{MOST:,} of these"
    return f"these {left.number:,}" if left.number > 1 else "it"


def _so_many(ended: Ends) -> str:
    number = f"{bounded.text(ended.number)} failure{'s' * (ended.number != 1)}"
    return f"{number} of {bounded.text(len(ended.workflows))} workflow{'s' * (len(ended.workflows) != 1)}"


# --- Numbers ------------------------------------------------------------------------------------


def _rows(cause: Cause, left: Group | None, still: Group | None, shown: Range, times: str) -> Iterator[Row]:
    of_cause = Workflow.objects.filter(
        of_code(cause.code), workflow_type=cause.workflow_type, current_step=cause.step
    ).order_by("-completed_at", "-id")
    if left:
        row = Row("Failed, and not acknowledged", failures.number_of(left), links.failures_of(cause))
        yield _with_money(row, cause, of_cause.filter(UNACKNOWLEDGED), links.failures_of(cause, money="held"))
    if still:
        label = f"Failed in the last {shown.label}, and failed still"
        row = Row(label, failures.number_of(still), links.failures_of(cause, times))
        since, until = recent_failures.interval(times) or (still.first, still.last)
        rows = recent_failures.failed_between(of_cause, since, until)
        yield _with_money(row, cause, rows, links.failures_of(cause, times, money="held"))
    parked = Workflow.objects.filter(is_parked_on(cause.name)).order_by("-id")
    if number := bounded.count(parked):
        waiting = (("parked_on", cause.name),)
        row = Row("Parked here, until it is mended", bounded.text(number), links.to(Link("workflow", filters=waiting)))
        held = links.to(Link("workflow", filters=(*waiting, ("money", "held"))))
        yield _with_money(row, cause, parked, held)


def _with_money(row: Row, cause: Cause, rows: QuerySet[Workflow], url: str) -> Row:
    """The row with the money that these hold: the newest, if they are many."""
    if cause.workflow_type in definitions() and not wording_of_type(cause.workflow_type).money:
        return row
    found = money_at_risk.held_by(rows)
    number = f"{len(found.workflows):,}"
    among = f" of the newest {found.asked:,}" if found.asked == money_at_risk.FAILURES else ""
    return replace(row, held=f"{number}{among}", held_url=url if found.workflows else "", total=found.total)


def _bars(cause: Cause, ended: Ends, times: str) -> list[Bar]:
    """What the workflows that failed in these times are now."""
    counted = states.of(ended.workflows)
    return charts.bars(
        [
            (state.label, counted[state], links.failed_in(times, cause, state=state.value), state.value)
            for state in State
            if counted[state]
        ],
        tell=bounded.text,
    )


def _releases(cause: Cause, left: Group | None, still: Group | None, times: str) -> list[tuple[str, str, Any, str]]:
    """Of each release: its name, how many failures are left, or of these times, its first and last; and the list."""
    group = left or still
    if group is None or not any(each.release for each in group.releases):
        return []
    of = "" if left else times
    return [
        (each.release or "none", f"{each.number:,}", each, links.failures_of(cause, of, release=each.release))
        for each in group.releases
    ]


def _services(group: Group | None, request: HttpRequest) -> list[tuple[str, int, str]]:
    """The services that the newest of these have waited for: name, how many of them, and its page."""
    if group is None or not request.user.has_perm("workflows.view_service"):
        return []
    waited = Event.objects.filter(workflow__in=group.newest, kind=Event.Kind.PARKED).exclude(detail__has_key="mend")
    found = waited.order_by().values_list("detail__service").annotate(number=Count("workflow", distinct=True))
    named = [(name, number) for name, number in found if name]
    return [(name, number, links.to(Link("service", pk=name))) for name, number in sorted(named)]


# --- The chart ----------------------------------------------------------------------------------


def _may_see(mark: Mark, request: HttpRequest) -> bool:
    return mark.link is None or request.user.has_perm(f"workflows.view_{mark.link.model}")


def _trends(cause: Cause, shown: Range, now: datetime, marks: Iterable[Mark]) -> dict[str, Any]:
    """The context of `trends.html`; without charts if no feature counts."""
    found = [chart for each in installed() for chart in each.charts(shown.key, now, {cause}).values()]
    moments = [(each.at, each.tone) for each in marks]
    drawn = [_linked(chart, cause, shown, now).marked(*shown.window(now), moments) for chart in found]
    urls = [(f"?{links.query(cause, range=each.key)}", each.label, each == shown) for each in ranges.RANGES]
    rows = list(zip(*(chart.columns for chart in drawn), strict=True))
    return {"ranges": urls, "range": shown, "charts": drawn, "rows": rows}


def _linked(chart: Chart, cause: Cause, shown: Range, now: datetime) -> Chart:
    since, until = shown.window(now)
    starts = [since + number * shown.column for number in range(shown.number)]

    def url(since: datetime, until: datetime) -> str:
        return links.failed_in(recent_failures.interval_text(since, until), cause)

    return chart.linked([*starts, until], shown.together, url)
