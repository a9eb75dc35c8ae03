"""For you: what this user may decide or was asked to see to, money first, then by due time.

Failures have one line for each cause, those with money held first; causes that need nobody are folded away. The same
page shows closed tasks, newest first.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.contrib.auth.models import User
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from workflows import operations
from workflows.console import choosing, links
from workflows.console.failures import line
from workflows.console.needs_a_person_rows import OPEN, lines
from workflows.extension import installed
from workflows.health import bounded
from workflows.health import needs_a_person as needs
from workflows.health.counts import Counts
from workflows.health.for_whom import SEE_TASKS, SEE_WORKFLOWS, Whose, of_whose
from workflows.health.needs_a_person import OF_TASKS, Asked, Item, Rank
from workflows.health.open_tasks import open_task_types
from workflows.models import ManualTask
from workflows.telling import words

TITLE = "For you"
# One of them is enough to see the page.
PERMISSIONS = (SEE_TASKS, SEE_WORKFLOWS)
# How many causes of failures stand beside the list, of those with money held and of the others. The filter has a page.
CAUSES_SHOWN = 10
# The value of the filter “Whose” for all rows that the user may see.
ALL = "all"
# What the page is called if it has more, or something else, than what is for the user.
TITLES_OF = {Whose.OTHERS.value: "For others", ALL: "For you and others"}
# The states of tasks that the page can show.
STATES = {OPEN.value: "Open", "overdue": "Overdue", "done": "Closed", "all": "All"}
STATES.update((value, label) for value, label in ManualTask.State.choices if value != OPEN)


@require_safe
def view(request: HttpRequest, *, site: AdminSite) -> HttpResponse:
    assert request.user.is_authenticated
    user = request.user
    if not any(map(user.has_perm, PERMISSIONS)):
        raise PermissionDenied
    choices, given = filters_of(request)
    asked, after = asked_by(user, given), needs.place(request.GET.get("after", ""))
    shown, number = read(asked, given, after)
    groups = [] if after or not _is_open(given) else needs.groups(asked)
    told = [each for each in groups if each.asks_nobody]
    charged = [each for each in groups if each.charged]
    others = [each for each in groups if not (each.charged or each.asks_nobody)]
    extensions = () if given or after else installed()
    to_approve = [each for of in extensions for each in of.awaiting(user)]
    causes = [each for of in extensions for each in of.stands_still(user)]
    is_open, filters = _is_open(given), urlencode(given)
    most_causes = needs.PAGE if given.get("kind") == needs.Kind.FAILED else CAUSES_SHOWN
    most = bounded.people_limit() if is_open else None
    listed = list(lines(shown.items, filters))
    context = {
        **site.each_context(request),
        "title": TITLES_OF.get(given.get("whose", ""), TITLE),
        "causes": [(links.to(link), sentence) for sentence, link in causes],
        "to_approve": [(links.to(link), sentence) for sentence, link in to_approve],
        "lines": listed,
        "number": bounded.text(number + len(groups) - len(told) + len(to_approve) + len(causes), most),
        "number_in_words": _in_words(number, len(groups) - len(told), len(to_approve), len(causes), most),
        "charged": list(map(line, charged[:most_causes])),
        "charged_left": len(charged[most_causes:]),
        "groups": list(map(line, others[:most_causes])),
        "groups_left": len(others[most_causes:]),
        "told": list(map(line, told[: needs.PAGE])),
        "number_told": sum(each.number for each in told),
        "is_open": is_open,
        "stops_at": f"{most or bounded.limit():,}",
        "is_for_you": asked.whose == Whose.YOU,
        "filters": [(name, TITLES[name], given.get(name), of.items()) for name, of in choices.items()],
        "causes_url": _url("", given, kind=needs.Kind.FAILED) if most_causes < needs.PAGE else "",
        "first_url": _url("", given) or "?" if after else "",
        "next_url": _url("", given, after=str(shown.next)) if shown.next else "",
        "assigns": is_open and any(each.task for each in listed) and user.has_perm(operations.ASSIGN),
        "assign_url": _url(reverse("admin:workflows_manualtask_changelist"), given),
        "assigns_all": bool(given) and _has_tasks_alone(asked),
        "assigns_causes": user.has_perm(operations.ACKNOWLEDGE),
        "name_of_all": choosing.ALL,
        "sees_workflows": user.has_perm(SEE_WORKFLOWS),
    }
    return TemplateResponse(request, "admin/workflows/needs_a_person.html", context)


def _in_words(listed: int, groups: int, to_approve: int, causes: int, most: int | None) -> str:
    """What the number at the top of the page counts, part by part; empty if that is the list alone."""
    sorts = (
        (causes, "step that fails for many", "steps that fail for many"),
        (to_approve, "request to look at", "requests to look at"),
        (listed, "in the list", "in the list"),
        (groups, "cause of failures", "causes of failures"),
    )
    return ", ".join(
        f"{bounded.text(each, most)} {one if each == 1 else many}" for each, one, many in sorts if each
    ) * (listed != listed + groups + to_approve + causes)


def all_tasks(request: HttpRequest) -> tuple[QuerySet[Any, Any], str]:
    """The keys of the open tasks that match the filters, and these filters in words."""
    assert request.user.is_authenticated
    choices, given = filters_of(request)
    asked = asked_by(request.user, given)
    if not given or not _is_open(given) or not _has_tasks_alone(asked):
        raise BadRequest("Of all tasks, and of closed ones, none is chosen.")
    chosen_by = "; ".join(f"{TITLES[name].lower()}: {choices[name][value]}" for name, value in given.items())
    return needs.tasks(asked), chosen_by


def number_of_causes(user: User, read: Counts) -> int:
    """The number of sentences about what keeps many waiting, from what Home has read."""
    return sum(each.number_that_stand_still(user) for each in read.figures)


def read(asked: Asked, given: dict[str, str], after: Item | None) -> tuple[needs.Page, int]:
    """A page of the rows that match, and the number of rows on all pages."""
    if not _is_open(given):
        whose = None if asked.whose == Whose.YOU else asked.whose
        tasks = of_whose(ManualTask.objects.all(), whose, asked.user)
        rows = _in_state(tasks.filter(task_type=asked.task_type) if asked.task_type else tasks, given["state"])
        return _newest(rows, after), bounded.count(rows)
    return needs.page_and_count(asked, after=after)


def asked_by(user: User, given: dict[str, str]) -> Asked:
    """What the filters ask for. Only tasks have a type, or are overdue tasks."""
    kinds = (given["kind"],) if "kind" in given else needs.TASKS if {"state", "task_type"} & given.keys() else None
    whose = given.get("whose", Whose.YOU)
    of = None if whose == ALL else Whose(whose)
    return Asked(user, kinds, of, given.get("task_type", ""), only_overdue=given.get("state") == "overdue")


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


def filters_of(request: HttpRequest) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
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
