"""The list of what waits for somebody, as two pages: Needs a person has all of it, and the Inbox the tasks.

A row shows a task's type and not its question, which may hold what a patient has sent. What has failed is a line for
each cause, first where money is held; those that ask for nobody are folded away. The Inbox can also show closed tasks,
the newest first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.contrib.auth.models import User
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import QuerySet
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
from workflows.features.bulk import page as bulk_operation
from workflows.features.outages import cause_page as cause
from workflows.features.outages import health as services
from workflows.features.outbox import health as outbox
from workflows.features.queues import undelivered
from workflows.features.retention import page as retention
from workflows.health import bounded
from workflows.health import needs_a_person as needs
from workflows.health.bounded import Link
from workflows.health.counts import Counts
from workflows.health.needs_a_person import Asked, Item, Kind, Place, Rank, Source, Whose
from workflows.models import Correction, FollowUp, ManualTask, Wait, Workflow
from workflows.telling import patient, words
from workflows.wording import words_for_step

OPEN = ManualTask.State.OPEN
# The states of tasks that the Inbox can show.
STATES = {OPEN.value: "Open", "overdue": "Overdue", "done": "Closed", "all": "All"}
STATES.update((value, label) for value, label in ManualTask.State.choices if value != OPEN)

# What has no team and no assignee.
WHOEVER = {
    Source.TASK: "Approvers",
    Source.FOLLOW_UP: SUPPORT,
    Source.CORRECTION: "Support leads and engineers",
    Source.WAIT: SUPPORT,
}


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of the list, with its `filters`; one of the permissions is enough to see it."""

    title: str
    url: str
    kinds: Collection[Kind]
    filters: tuple[str, ...]
    permissions: tuple[str, ...]


NEEDS_A_PERSON = Listing(
    "Needs a person",
    "admin:needs_a_person",
    needs.EVERYTHING,
    ("kind", "whose"),
    (needs.SEE_TASKS, needs.SEE_WORKFLOWS),
)
INBOX = Listing(
    "Inbox",
    "admin:workflows_manualtask_changelist",
    needs.TASKS,
    ("state", "whose", "task_type"),
    (needs.SEE_TASKS,),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row of the list. `asks` leads to `url`, where one acts; `why` is in small print. The rest is for tasks only."""

    asks: str
    url: str
    why: str
    workflow: int
    type: str
    since: datetime
    whose: str
    patient: str = ""  # who it is about, masked
    task: int | None = None
    due: datetime | None = None
    expires: datetime | None = None
    is_overdue: bool = False
    closed: SafeString | str = ""

    @property
    def waits(self) -> str:
        return words.age(self.since)


@require_safe
def view(request: HttpRequest, *, site: AdminSite, of: Listing = NEEDS_A_PERSON) -> HttpResponse:
    assert isinstance(request.user, User)
    if not any(map(request.user.has_perm, of.permissions)):
        raise PermissionDenied
    choices = {name: _choices(name, request) for name in of.filters}
    given = _given(request, choices)
    url, after = reverse(of.url), needs.place(request.GET.get("after", ""))
    shown, number = _read(request.user, of, given, after)
    groups = needs.groups(_asked(request.user, of, given)) if of is NEEDS_A_PERSON and not after else []
    told = [each for each in groups if each.asks_nobody]
    charged = [each for each in groups if each.charged]
    others = [each for each in groups if not (each.charged or each.asks_nobody)]
    is_all = of is NEEDS_A_PERSON and not given and not after
    bulk = [(links.bulk_operation(row.pk), sentence) for row, sentence in bulk_operation.awaiting(request.user)]
    to_approve = [*bulk, *retention.awaiting(request.user)] if is_all else []
    causes = _causes(request.user) if is_all else []
    context = {
        **site.each_context(request),
        "title": of.title,
        "causes": causes,
        "to_approve": to_approve,
        "lines": list(lines(shown.items, urlencode(given))),
        "number": bounded.text(number + len(groups) - len(told) + len(to_approve) + len(causes)),
        "charged": list(map(line, charged[: needs.PAGE])),
        "charged_left": len(charged[needs.PAGE :]),
        "groups": list(map(line, others[: needs.PAGE])),
        "told": list(map(line, told[: needs.PAGE])),
        "number_told": sum(each.number for each in told),
        "is_open": _is_open(given),
        "filters": [(name, TITLES[name], given.get(name), choices[name].items()) for name in of.filters],
        "first_url": _url(url, given) if after else "",
        "next_url": _url(url, given, after=str(shown.next)) if shown.next else "",
        "assigns": of is INBOX and _is_open(given) and request.user.has_perm(operations.ASSIGN),
        "is_filtered": bool(given),
        "assigns_causes": request.user.has_perm(operations.ACKNOWLEDGE),
        "name_of_all": choosing.ALL,
        "sees_workflows": request.user.has_perm(needs.SEE_WORKFLOWS),
    }
    return TemplateResponse(request, "admin/workflows/needs_a_person.html", context)


def all_tasks(request: HttpRequest) -> tuple[QuerySet[Any, Any], str]:
    """The keys of the open tasks that the filters of the inbox let through, and these filters in words."""
    assert isinstance(request.user, User)
    choices = {name: _choices(name, request) for name in INBOX.filters}
    given = _given(request, choices)
    if not given or not _is_open(given):
        raise BadRequest("Of all tasks, and of closed ones, none is chosen.")
    chosen_by = "; ".join(f"{TITLES[name].lower()}: {choices[name][value]}" for name, value in given.items())
    return needs.tasks(_asked(request.user, INBOX, given)), chosen_by


def _causes(user: User) -> list[tuple[str, str]]:
    """What keeps many waiting until somebody acts, for who may see that: where it leads, and a sentence.

    Steps where many fail, destinations that are told nothing, and messages that could not be delivered.
    """
    braked = services.braked() if user.has_perm(services.SEE_SERVICES) else []
    untold = outbox.need_a_person(outbox.standings()) if user.has_perm(outbox.SEE_OUTBOX) else []
    lost = undelivered.need_a_person() if user.has_perm(undelivered.SEE_MESSAGES) else []
    of_steps = [(cause.sentence(row), Link("service", pk=row.pk)) for row in braked]
    return [(links.to(link), sentence) for sentence, link in (*of_steps, *untold, *lost)]


def number_of_causes(user: User, read: Counts) -> int:
    """How many sentences that is, from what Home has read."""
    braked = sum(not each.is_called for each in read.causes) if user.has_perm(services.SEE_SERVICES) else 0
    untold = outbox.need_a_person(read.destinations) if user.has_perm(outbox.SEE_OUTBOX) else []
    lost = undelivered.by_topic() if user.has_perm(undelivered.SEE_MESSAGES) else {}
    return braked + len(untold) + len(lost)


def _read(user: User, of: Listing, given: dict[str, str], after: Place | None) -> tuple[needs.Page, int]:
    """A page of what is asked for, and how many rows there are on all pages."""
    asked = _asked(user, of, given)
    if not _is_open(given):
        tasks = needs.of_whose(ManualTask.objects.all(), asked.whose, user)
        rows = _in_state(tasks.filter(task_type=asked.task_type) if asked.task_type else tasks, given["state"])
        return _newest(rows, after), bounded.count(rows)
    return needs.page(asked, after=after), needs.count(asked)


def _asked(user: User, of: Listing, given: dict[str, str]) -> Asked:
    kinds = (Kind(given["kind"]),) if "kind" in given else of.kinds
    whose = Whose(given["whose"]) if "whose" in given else None
    return Asked(user, kinds, whose, given.get("task_type", ""), only_overdue=given.get("state") == "overdue")


def _is_open(given: dict[str, str]) -> bool:
    return given.get("state", OPEN) in (OPEN, "overdue")


def _in_state(tasks: QuerySet[ManualTask], state: str) -> QuerySet[ManualTask]:
    match state:
        case "all":
            return tasks
        case "done":
            return tasks.exclude(state=OPEN)
    return tasks.filter(state=state)


def _newest(tasks: QuerySet[ManualTask], after: Place | None) -> needs.Page:
    if after:
        tasks = tasks.filter(pk__lt=after.item.pk)
    rows = tasks.order_by("-pk").values_list("created_at", "pk")[: needs.PAGE + 1]
    return needs.Page.of([Item(Rank.REST, since, Source.TASK, pk) for since, pk in rows], timezone.now())


# --- Filters ------------------------------------------------------------------------------------

TITLES = {"kind": "Kind", "state": "State", "whose": "Whose", "task_type": "Type"}


def _choices(name: str, request: HttpRequest) -> dict[str, str]:
    """Each value of a filter and its label. The first is the default."""
    match name:
        case "kind":
            return {"": "All", **dict(Kind.choices)}
        case "whose":
            return {"": "All", **dict(Whose.choices)}
        case "state":
            return STATES
    # No text in PostgreSQL holds a NUL. A type without open tasks may have closed ones.
    types = [*needs.open_task_types(), *filter(None, [request.GET.get(name, "").replace("\x00", "")])]
    return {"": "All", **{each: words.task_type(each) for each in types}}


def _given(request: HttpRequest, choices: dict[str, dict[str, str]]) -> dict[str, str]:
    """What a link asks for. An unknown value asks for nothing."""
    asked = {name: request.GET.get(name, "") for name in choices}
    return {name: value for name, value in asked.items() if value in list(choices[name])[1:]}


def _url(url: str, given: dict[str, str], **also: str) -> str:
    query = urlencode({**given, **also})
    return f"{url}?{query}" if query else url


# --- Rows ---------------------------------------------------------------------------------------


def lines(items: Sequence[Item], filters: str = "") -> Iterator[Line]:
    """The rows of a page, read at once by their keys, without those that were dealt with since the page was read."""
    rows = {source: _rows(source, [item.pk for item in items if item.source == source]) for source in Source}
    patients = patient.masked({row.workflow_id for of_source in rows.values() for row in of_source.values()})
    for item in items:
        if row := rows[item.source].get(item.pk):
            yield replace(_line(item.source, row, filters), patient=patients.get(row.workflow_id, ""))


def _line(source: Source, row: Any, filters: str) -> Line:
    match source:
        case Source.TASK:
            return _of_task(row, filters)
        case Source.FOLLOW_UP:
            return _of_deferred_step(row)
        case Source.WAIT:
            return _of_wait(row)
    return _of_correction(row)


def _rows(source: Source, pks: list[int]) -> dict[int, Any]:
    if not pks:
        return {}
    rows: Any
    match source:
        case Source.TASK:
            rows = ManualTask.objects.with_claims().select_related("assignee", "decided_by", "workflow")
            rows = rows.only(
                *("state", "team", "task_type", "created_at", "due_at", "expires_at", "decided_at", "lead_asked_at"),
                *("assignee__username", "decided_by__username", "workflow__workflow_type"),
            )
        case Source.FOLLOW_UP:
            rows = FollowUp.objects.select_related("workflow")
            rows = rows.only("step", "created_at", "workflow__workflow_type")
        case Source.CORRECTION:
            rows = Correction.objects.select_related("workflow")
            rows = rows.only("told", "asked_at", "workflow__workflow_type")
        case Source.WAIT:
            rows = Wait.objects.with_due_time().select_related("workflow")
            rows = rows.only(
                *("created_at", "due_at", "deadline", "team", "workflow__workflow_type", "workflow__current_step")
            )
    return {row.pk: row for row in rows.filter(pk__in=pks)}


def _of_task(row: ManualTask, filters: str) -> Line:
    is_open = row.state == OPEN
    url = reverse("admin:workflows_manualtask_change", args=[row.pk])
    return Line(
        asks=words.task_type(row.task_type),
        url=_url(url, {FILTERS: filters} if filters else {}),
        why=f"Task {row.pk}{', a lead is asked' if row.lead_asked_at and is_open else ''}",
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
        return capfirst(row.team) or WHOEVER[Source.TASK]
    name = f"{row.assignee.get_username()}{f' ({capfirst(row.team)})' if row.team else ''}"
    return f"{name}, who can no longer decide it" if is_stranded(row) else name


def is_overdue(task: ManualTask) -> bool:
    return task.state == OPEN and task.due_at is not None and task.due_at <= timezone.now()


def is_stranded(task: ManualTask) -> bool:
    """Whether the assignee of an open task can no longer decide it. False for a closed one."""
    return task.state == OPEN and task.assignee_id is not None and not task.is_held


def _of_deferred_step(row: FollowUp) -> Line:
    titled = words_for_step(wording_of_type(row.workflow.workflow_type), row.step).titled
    return _of_workflow(row.workflow, f"Given up: {titled}", Source.FOLLOW_UP, since=row.created_at)


def _of_wait(row: Wait) -> Line:
    """By its step, and not by what it waits for, which may hold what a patient has sent."""
    workflow = row.workflow
    titled = words_for_step(wording_of_type(workflow.workflow_type), workflow.current_step).titled
    found = _of_workflow(workflow, f"Overdue: {titled}", Source.WAIT, since=row.created_at)
    whose = capfirst(row.team) or found.whose
    return replace(found, whose=whose, due=row.due_at, expires=row.deadline, is_overdue=True)


def _of_correction(row: Correction) -> Line:
    labels = ", ".join(each["label"] for each in row.told)
    return _of_workflow(row.workflow, f"Correct {labels}?", Source.CORRECTION, since=row.asked_at)


def _of_workflow(row: Workflow, asks: str, source: Source, *, since: datetime) -> Line:
    return Line(
        asks=asks,
        why="",
        url=links.workflow(row.pk),
        workflow=row.pk,
        type=words.workflow_type(row.workflow_type),
        since=since,
        whose=WHOEVER[source],
    )
