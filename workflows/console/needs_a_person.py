"""Needs a person: the list of all that waits for somebody, whoever it is. Each row leads to where one acts.

Of a task it shows the type and never the question, and of a failure its step and code in words: both may hold what a
patient has sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import TextChoices
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from workflows.console import words
from workflows.definition import wording_of_type
from workflows.health import bounded
from workflows.health import needs_a_person as needs
from workflows.health.needs_a_person import Asked, Item, Kind, Source, Whose
from workflows.models import FollowUp, ManualTask, Workflow
from workflows.wording import words_for_code, words_for_step

Choice = TypeVar("Choice", bound=TextChoices)

# One of them is enough: each row needs its own.
PERMISSIONS = (needs.SEE_TASKS, needs.SEE_WORKFLOWS)

# Of what has no team and no assignee.
WHOEVER = {
    Source.TASK: "Whoever may decide",
    Source.WORKFLOW: "Whoever may retry",
    Source.FOLLOW_UP: "Whoever may run it again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row of the list. `asks` leads to `url`, where one acts; `why` is empty of a task."""

    asks: str
    url: str
    why: str = ""
    workflow: int
    type: str
    since: datetime
    due: datetime | None = None
    is_overdue: bool = False
    whose: str

    @property
    def waits(self) -> str:
        return words.age(self.since)


@require_safe
def view(request: HttpRequest, *, site: AdminSite) -> HttpResponse:
    assert isinstance(request.user, User)
    if not any(map(request.user.has_perm, PERMISSIONS)):
        raise PermissionDenied
    asked = Asked(request.user, _choice(Kind, request, "kind"), _choice(Whose, request, "whose"))
    after = needs.place(request.GET.get("after", ""))
    shown = needs.page(asked, after=after)
    context = {
        **site.each_context(request),
        "title": "Needs a person",
        "lines": list(lines(shown.items)),
        "number": bounded.text(needs.count(asked)),
        "filters": [_choices("Kind", "kind", Kind, asked), _choices("Whose", "whose", Whose, asked)],
        "first_url": _url(asked) if after else "",
        "next_url": _url(asked, after=str(shown.next)) if shown.next else "",
        "sees_workflows": request.user.has_perm(needs.SEE_WORKFLOWS),
    }
    return TemplateResponse(request, "admin/workflows/needs_a_person.html", context)


# --- Filters ------------------------------------------------------------------------------------


def _choice(of: type[Choice], request: HttpRequest, name: str) -> Choice | None:
    """What a link asks for; None for all, and for what there is not."""
    return next((each for each in of if each.value == request.GET.get(name)), None)


def _choices(title: str, name: str, of: type[TextChoices], asked: Asked) -> tuple[str, list[tuple[str, str, bool]]]:
    """A filter: its title, and of each choice its label, its link, and whether it is chosen."""
    chosen = getattr(asked, name)
    choices: list[Any] = [None, *of]
    return title, [
        (str(each.label) if each else "All", _url(replace(asked, **{name: each})), chosen == each) for each in choices
    ]


def _url(asked: Asked, **also: str) -> str:
    given = {"kind": asked.kind, "whose": asked.whose, **also}
    query = urlencode({name: str(value) for name, value in given.items() if value})
    return f"{reverse('admin:needs_a_person')}{f'?{query}' if query else ''}"


# --- Rows ---------------------------------------------------------------------------------------


def lines(items: Sequence[Item]) -> Iterator[Line]:
    """The rows of a page, read at once by their keys. One that was dealt with since the page was read is left out."""
    rows = {source: _rows(source, [item.pk for item in items if item.source == source]) for source in Source}
    for item in items:
        if row := rows[item.source].get(item.pk):
            yield _line(item, row)


def _rows(source: Source, pks: list[int]) -> dict[int, Any]:
    if not pks:
        return {}
    rows: Any
    match source:
        case Source.TASK:
            rows = ManualTask.objects.with_claims().select_related("assignee", "workflow")
            rows = rows.only(
                *("team", "task_type", "created_at", "due_at"),
                *("assignee__username", "workflow__workflow_type"),
            )
        case Source.WORKFLOW:
            rows = Workflow.objects.only("workflow_type", "current_step", "last_error_code", "completed_at")
        case Source.FOLLOW_UP:
            rows = FollowUp.objects.select_related("workflow")
            rows = rows.only("step", "created_at", "workflow__workflow_type")
    return {row.pk: row for row in rows.filter(pk__in=pks)}


def _line(item: Item, row: Any) -> Line:
    match item.source:
        case Source.TASK:
            return _of_task(row, is_overdue=not item.in_time)
        case Source.WORKFLOW:
            return _of_workflow(row)
        case Source.FOLLOW_UP:
            return _of_deferred_step(row)


def _of_task(row: ManualTask, *, is_overdue: bool) -> Line:
    return Line(
        asks=words.task_type(row.task_type),
        url=reverse("admin:workflows_manualtask_change", args=[row.pk]),
        workflow=row.workflow_id,
        type=words.workflow_type(row.workflow.workflow_type),
        since=row.created_at,
        due=row.due_at,
        is_overdue=is_overdue,
        whose=_assignee(row) or row.team or WHOEVER[Source.TASK],
    )


def _assignee(row: ManualTask) -> str:
    if row.assignee is None:
        return ""
    return row.assignee.get_username() + ("" if row.is_held else ", who can no longer decide it")


def _of_workflow(row: Workflow) -> Line:
    wording = wording_of_type(row.workflow_type)
    step = words_for_step(wording, row.current_step).titled if row.current_step else ""
    assert row.completed_at
    return Line(
        asks=f"Failed at {step}" if step else "Failed",
        why=words_for_code(wording, row.last_error_code).staff,
        url=_page_of(row.pk),
        workflow=row.pk,
        type=words.workflow_type(row.workflow_type),
        since=row.completed_at,
        whose=WHOEVER[Source.WORKFLOW],
    )


def _of_deferred_step(row: FollowUp) -> Line:
    wording = wording_of_type(row.workflow.workflow_type)
    return Line(
        asks=f"Given up: {words_for_step(wording, row.step).titled}",
        url=_page_of(row.workflow_id),
        workflow=row.workflow_id,
        type=words.workflow_type(row.workflow.workflow_type),
        since=row.created_at,
        whose=WHOEVER[Source.FOLLOW_UP],
    )


def _page_of(workflow_id: int) -> str:
    return reverse("admin:workflows_workflow_change", args=[workflow_id])
