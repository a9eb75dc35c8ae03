"""The rows of *For you*: tasks, waits and what features add, read together for a page.

A row shows a task's type, but not its question, which may contain what a patient has sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth import get_user_model
from django.db.models import Exists, OuterRef, Subquery
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from workflows.console import links
from workflows.console.failures import SUPPORT
from workflows.console.next_task import FILTERS
from workflows.definition import wording_of_type
from workflows.effects.reconcile import DOUBT_TASK_TYPE
from workflows.engine.undo_doubts import UNDO_TASK_TYPE
from workflows.health import needs_a_person as needs
from workflows.health.needs_a_person import OF_TASKS, OF_WAITS, Item
from workflows.models import Confirmation, ManualTask, Wait, Workflow
from workflows.telling import patient, words
from workflows.wording import words_for_step

OPEN = ManualTask.State.OPEN
# The words for a row without a team and an assignee.
WHOEVER = {
    OF_TASKS: words.team("approver"),
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
    whose, since = words.team(getattr(row, of.team)) if of.team else of.whom, getattr(row, of.since)
    found = _of_workflow(row.workflow, of.asks(row), whose, since=since)
    return replace(found, due=since, is_overdue=True) if of.is_late else found


def _rows(source: int, pks: list[int]) -> dict[int, Any]:
    rows: Any
    match source:
        case needs.OF_TASKS:
            name = get_user_model().USERNAME_FIELD
            rows = ManualTask.objects.with_claims().select_related("assignee", "decided_by", "workflow")
            said = Confirmation.objects.filter(workflow=OuterRef("workflow_id"), task=OuterRef("pk"), state="asked")
            about = Wait.objects.filter(pk=OuterRef("wait_id")).values("name")
            rows = rows.annotate(is_said=Exists(said), about=Subquery(about))
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
        asks=_asks(row),
        url=f"{url}?{urlencode({FILTERS: filters})}" if filters else url,
        why=f"Task {row.pk}{', a lead is asked' if row.lead_asked_at and is_open else waits_for if is_open else ''}",
        task=row.pk,
        workflow=row.workflow_id,
        type=words.workflow_type(row.workflow.workflow_type),
        since=row.created_at,
        whose=_whose(row),
        due=row.due_at if is_open else None,
        expires=row.expires_at if is_open else None,
        is_overdue=is_overdue(row),
        closed="" if is_open else words.task_badge(row),
    )


def _asks(row: ManualTask) -> str:
    """The task's type; of an unclear call or a failed reversal also the step, which is no patient's data."""
    what = words.task_type(row.task_type)
    if row.task_type not in (DOUBT_TASK_TYPE, UNDO_TASK_TYPE):
        return what
    # Named "effect:STEP:1" or "undo:STEP:1"; no row of another release keeps the list from being read.
    step = (getattr(row, "about", "") or "").partition(":")[2].rpartition(":")[0]
    return f"{what}: {words_for_step(wording_of_type(row.workflow.workflow_type), step).titled}" if step else what


def _whose(row: ManualTask) -> str:
    if row.decided_by and row.decided_at:
        return f"Decided by {row.decided_by.get_username()}, {words.clock(row.decided_at)}"
    if row.assignee is None:
        return words.team(row.team) or WHOEVER[OF_TASKS]
    name = f"{row.assignee.get_username()}{f' ({words.team(row.team)})' if row.team else ''}"
    if row.stand_in:
        return f"{name}, who is away: {row.stand_in} {'cannot decide it' if is_stranded(row) else 'stands in'}"
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
    whose = words.team(row.team) or WHOEVER[OF_WAITS]
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
