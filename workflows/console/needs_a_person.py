"""For you: what this user may decide or was asked to see to, money first, then by due time; *For others* is folded.

A row shows a task's type, but not its question, which may contain what a patient has sent. Failures have one line for
each cause, those with money held first; causes that need nobody are folded away. The same page shows closed tasks,
newest first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.views.decorators.http import require_safe

from workflows import operations
from workflows.console import choosing, links
from workflows.console.failures import SUPPORT, line
from workflows.console.next_task import FILTERS
from workflows.definition import wording_of_type
from workflows.extension import installed
from workflows.health import bounded
from workflows.health import needs_a_person as needs
from workflows.health.counts import Counts
from workflows.health.for_whom import SEE_TASKS, SEE_WORKFLOWS, Whose, of_whose
from workflows.health.needs_a_person import OF_TASKS, OF_WAITS, Asked, Item, Rank
from workflows.health.open_tasks import open_task_types
from workflows.models import Confirmation, ManualTask, Wait, Workflow
from workflows.telling import patient, words
from workflows.wording import words_for_step

TITLE = "For you"
# One of them is enough to see the page.
PERMISSIONS = (SEE_TASKS, SEE_WORKFLOWS)
# How many rows for others are folded below. The filter has all of them.
OTHERS_SHOWN = 10
# The value of the filter “Whose” for all rows that the user may see.
ALL = "all"
OPEN = ManualTask.State.OPEN
# The states of tasks that the page can show.
STATES = {OPEN.value: "Open", "overdue": "Overdue", "done": "Closed", "all": "All"}
STATES.update((value, label) for value, label in ManualTask.State.choices if value != OPEN)

# The words for a row without a team and an assignee.
WHOEVER = {
    OF_TASKS: "Approvers",
    OF_WAITS: SUPPORT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row of the list. `asks` links to `url`, where the user acts; `why` is in small print. The rest is for tasks."""

    asks: str
    url: str
    why: str
    workflow: int
    type: str
    since: datetime
    whose: str
    patient: str = ""  # the masked name of the patient
    amount: str = ""  # what the workflow charges, or has charged
    task: int | None = None
    due: datetime | None = None
    expires: datetime | None = None
    is_overdue: bool = False
    closed: SafeString | str = ""

    @property
    def waits(self) -> str:
        return words.age(self.since)


@require_safe
def view(request: HttpRequest, *, site: AdminSite) -> HttpResponse:
    assert request.user.is_authenticated
    user = request.user
    if not any(map(user.has_perm, PERMISSIONS)):
        raise PermissionDenied
    choices, given = _filters(request)
    asked, after = _asked(user, given), needs.place(request.GET.get("after", ""))
    shown, number = _read(asked, given, after)
    groups = [] if after or not _is_open(given) else needs.groups(asked)
    told = [each for each in groups if each.asks_nobody]
    charged = [each for each in groups if each.charged]
    others = [each for each in groups if not (each.charged or each.asks_nobody)]
    extensions = () if given or after else installed()
    to_approve = [each for of in extensions for each in of.awaiting(user)]
    causes = [each for of in extensions for each in of.stands_still(user)]
    is_open, filters = _is_open(given), urlencode(given)
    context = {
        **site.each_context(request),
        "title": TITLE,
        "causes": [(links.to(link), sentence) for sentence, link in causes],
        "to_approve": [(links.to(link), sentence) for sentence, link in to_approve],
        "lines": list(lines(shown.items, filters)),
        "for_others": [] if given or after else list(lines(needs.page(_for_others(user), most=OTHERS_SHOWN).items)),
        "number": bounded.text(number + len(groups) - len(told) + len(to_approve) + len(causes)),
        "charged": list(map(line, charged[: needs.PAGE])),
        "charged_left": len(charged[needs.PAGE :]),
        "groups": list(map(line, others[: needs.PAGE])),
        "told": list(map(line, told[: needs.PAGE])),
        "number_told": sum(each.number for each in told),
        "is_open": is_open,
        "is_for_you": asked.whose == Whose.YOU,
        "filters": [(name, TITLES[name], given.get(name), of.items()) for name, of in choices.items()],
        "first_url": _url("", given) or "?" if after else "",
        "next_url": _url("", given, after=str(shown.next)) if shown.next else "",
        "assigns": is_open and user.has_perm(operations.ASSIGN),
        "assign_url": _url(reverse("admin:workflows_manualtask_changelist"), given),
        "assigns_all": bool(given) and _has_tasks_alone(asked),
        "assigns_causes": user.has_perm(operations.ACKNOWLEDGE),
        "name_of_all": choosing.ALL,
        "sees_workflows": user.has_perm(SEE_WORKFLOWS),
    }
    return TemplateResponse(request, "admin/workflows/needs_a_person.html", context)


def all_tasks(request: HttpRequest) -> tuple[QuerySet[Any, Any], str]:
    """The keys of the open tasks that match the filters, and these filters in words."""
    assert request.user.is_authenticated
    choices, given = _filters(request)
    asked = _asked(request.user, given)
    if not given or not _is_open(given) or not _has_tasks_alone(asked):
        raise BadRequest("Of all tasks, and of closed ones, none is chosen.")
    chosen_by = "; ".join(f"{TITLES[name].lower()}: {choices[name][value]}" for name, value in given.items())
    return needs.tasks(asked), chosen_by


def number_of_causes(user: User, read: Counts) -> int:
    """The number of sentences about what keeps many waiting, from what Home has read."""
    return sum(each.number_that_stand_still(user) for each in read.figures)


def _read(asked: Asked, given: dict[str, str], after: Item | None) -> tuple[needs.Page, int]:
    """A page of the rows that match, and the number of rows on all pages."""
    if not _is_open(given):
        whose = None if asked.whose == Whose.YOU else asked.whose
        tasks = of_whose(ManualTask.objects.all(), whose, asked.user)
        rows = _in_state(tasks.filter(task_type=asked.task_type) if asked.task_type else tasks, given["state"])
        return _newest(rows, after), bounded.count(rows)
    return needs.page(asked, after=after), needs.count(asked)


def _asked(user: User, given: dict[str, str]) -> Asked:
    """What the filters ask for. Only tasks have a type, or are overdue tasks."""
    kinds = (given["kind"],) if "kind" in given else needs.TASKS if {"state", "task_type"} & given.keys() else None
    whose = given.get("whose", Whose.YOU)
    of = None if whose == ALL else Whose(whose)
    return Asked(user, kinds, of, given.get("task_type", ""), only_overdue=given.get("state") == "overdue")


def _for_others(user: User) -> Asked:
    return Asked(user, whose=Whose.OTHERS)


def _has_tasks_alone(asked: Asked) -> bool:
    return asked.kinds is not None and set(asked.kinds) <= set(needs.TASKS)


def _is_open(given: dict[str, str]) -> bool:
    return given.get("state", OPEN) in (OPEN, "overdue")


def _in_state(tasks: QuerySet[ManualTask], state: str) -> QuerySet[ManualTask]:
    match state:
        case "all":
            return tasks
        case "done":
            return tasks.exclude(state=OPEN)
    return tasks.filter(state=state)


def _newest(tasks: QuerySet[ManualTask], after: Item | None) -> needs.Page:
    if after:
        tasks = tasks.filter(pk__lt=after.pk)
    rows = tasks.order_by("-pk").values_list("created_at", "pk")[: needs.PAGE + 1]
    return needs.Page.of([Item(Rank.REST, since, OF_TASKS, pk) for since, pk in rows])


# --- Filters ------------------------------------------------------------------------------------

TITLES = {"whose": "Whose", "kind": "Kind", "state": "State", "task_type": "Type of task"}


def _filters(request: HttpRequest) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """The choices of each filter, and those of the link."""
    choices = {name: _choices(name, request) for name in TITLES}
    return choices, _given(request, choices)


def _choices(name: str, request: HttpRequest) -> dict[str, str]:
    """Each value of a filter with its label. The first is the default."""
    match name:
        case "kind":
            return {"": "All", **needs.kinds()}
        case "whose":
            first, *rest = Whose.choices
            return {"": first[1], **dict(rest), ALL: "All"}
        case "state":
            return STATES
    # PostgreSQL cannot store a NUL. A type without open tasks may have closed ones.
    types = [*open_task_types(), *filter(None, [request.GET.get(name, "").replace("\x00", "")])]
    return {"": "All", **{each: words.task_type(each) for each in types}}


def _given(request: HttpRequest, choices: dict[str, dict[str, str]]) -> dict[str, str]:
    """The filters of a link. Unknown values are ignored."""
    asked = {name: request.GET.get(name, "") for name in choices}
    return {name: value for name, value in asked.items() if value in list(choices[name])[1:]}


def _url(url: str, given: dict[str, str], **also: str) -> str:
    query = urlencode({**given, **also})
    return f"{url}?{query}" if query else url


# --- Rows ---------------------------------------------------------------------------------------


def lines(items: Sequence[Item], filters: str = "") -> Iterator[Line]:
    """The rows of a page, read together by their keys. Leaves out rows that were settled since the page was read."""
    sources = {item.source for item in items}
    rows = {source: _rows(source, [item.pk for item in items if item.source == source]) for source in sources}
    about = patient.listed({row.workflow_id for of_source in rows.values() for row in of_source.values()})
    for item in items:
        if row := rows[item.source].get(item.pk):
            whom, amount = about.get(row.workflow_id, ("", ""))
            yield replace(_line(item.source, row, filters), patient=whom, amount=amount)


def _line(source: int, row: Any, filters: str) -> Line:
    if source == OF_TASKS:
        return _of_task(row, filters)
    if source == OF_WAITS:
        return _of_wait(row)
    of = needs.sources()[source]
    whose, since = capfirst(getattr(row, of.team)) if of.team else of.whom, getattr(row, of.since)
    found = _of_workflow(row.workflow, of.asks(row), whose, since=since)
    return replace(found, due=since, is_overdue=True) if of.is_late else found


def _rows(source: int, pks: list[int]) -> dict[int, Any]:
    rows: Any
    match source:
        case needs.OF_TASKS:
            name = get_user_model().USERNAME_FIELD
            rows = ManualTask.objects.with_claims().select_related("assignee", "decided_by", "workflow")
            said = Confirmation.objects.filter(workflow=OuterRef("workflow_id"), task=OuterRef("pk"), state="asked")
            rows = rows.annotate(is_said=Exists(said))
            rows = rows.only(
                *("state", "team", "task_type", "created_at", "due_at", "expires_at", "decided_at", "lead_asked_at"),
                *(f"assignee__{name}", f"decided_by__{name}", "workflow__workflow_type"),
            )
        case needs.OF_WAITS:
            rows = Wait.objects.with_due_time().select_related("workflow")
            rows = rows.only(
                *("created_at", "due_at", "deadline", "team", "workflow__workflow_type", "workflow__current_step")
            )
        case _:
            of = needs.sources()[source]
            rows = of.model._default_manager.select_related("workflow")
            rows = rows.only(*of.columns, of.since, "workflow__workflow_type")
    return {row.pk: row for row in rows.filter(pk__in=pks)}


def _of_task(row: ManualTask, filters: str) -> Line:
    is_open = row.state == OPEN
    url = reverse("admin:workflows_manualtask_change", args=[row.pk])
    waits_for = ", waits for a second person" if getattr(row, "is_said", False) else ""
    return Line(
        asks=words.task_type(row.task_type),
        url=_url(url, {FILTERS: filters} if filters else {}),
        why=f"Task {row.pk}{', a lead is asked' if row.lead_asked_at and is_open else waits_for if is_open else ''}",
        task=row.pk,
        workflow=row.workflow_id,
        type=words.workflow_type(row.workflow.workflow_type),
        since=row.created_at,
        whose=_whose(row),
        due=row.due_at if is_open else None,
        expires=row.expires_at if is_open else None,
        is_overdue=is_overdue(row),
        closed="" if is_open else words.badge(row.state, row.get_state_display()),
    )


def _whose(row: ManualTask) -> str:
    if row.decided_by and row.decided_at:
        return f"Decided by {row.decided_by.get_username()}, {words.clock(row.decided_at)}"
    if row.assignee is None:
        return capfirst(row.team) or WHOEVER[OF_TASKS]
    name = f"{row.assignee.get_username()}{f' ({capfirst(row.team)})' if row.team else ''}"
    return f"{name}, who can no longer decide it" if is_stranded(row) else name


def is_overdue(task: ManualTask) -> bool:
    return task.state == OPEN and task.due_at is not None and task.due_at <= timezone.now()


def is_stranded(task: ManualTask) -> bool:
    """Whether an open task has an assignee who can no longer decide it."""
    return task.state == OPEN and task.assignee_id is not None and not task.is_held


def _of_wait(row: Wait) -> Line:
    """A row for a wait. It names the step, not what the step waits for, which may contain patient data."""
    workflow = row.workflow
    titled = words_for_step(wording_of_type(workflow.workflow_type), workflow.current_step).titled
    whose = capfirst(row.team) or WHOEVER[OF_WAITS]
    found = _of_workflow(workflow, f"Overdue: {titled}", whose, since=row.created_at)
    return replace(found, due=row.due_at, expires=row.deadline, is_overdue=True)


def _of_workflow(row: Workflow, asks: str, whose: str, *, since: datetime) -> Line:
    return Line(
        asks=asks,
        why="",
        url=links.workflow(row.pk),
        workflow=row.pk,
        type=words.workflow_type(row.workflow_type),
        since=since,
        whose=whose,
    )
