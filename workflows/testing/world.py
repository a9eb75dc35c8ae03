"""The outside world of a test: sources of signals, and time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from django.db import connection
from django.utils import timezone

from workflows.definition import definitions
from workflows.models import ManualTask, Wait, Workflow
from workflows.signals import store

if TYPE_CHECKING:
    from workflows.testing.run import Run

# After so many runs a workflow counts as one that never finishes.
MOST_RUNS = 200

# Codes of a question whose team or user does not exist.
NOBODY_TO_ASK = ("team_unknown", "assignee_unknown", "requester_unknown")

Signals = Mapping[str, Mapping[str, Any] | Callable[[Workflow], Mapping[str, Any]]]


class World:
    """Lets tasks be answered, sends signals, and lets deadlines pass. `this` is the watched run."""

    def __init__(
        self, this: Run, answer: Callable[[ManualTask], None], signals: Signals, overdue: Collection[str]
    ) -> None:
        self.this = this
        self.answer = answer
        self.signals = signals
        self.overdue = overdue
        self.runs: Counter[int] = Counter()
        self.met: set[str] = set()  # the names in `overdue` that a wait had
        self.looked: set[int] = set()  # the waits whose `look` was called

    def next_of(self, queue: str) -> Workflow | None:
        """The next workflow that can go on, parents before children; None if all wait for something else."""
        for workflow in Workflow.objects.filter(queue=queue, status=Workflow.Status.PENDING).order_by("pk"):
            if workflow.last_error_code in NOBODY_TO_ASK:
                told = (
                    f"{workflow.last_error_message} The tables of a test are empty: make the group or the user in it."
                )
                raise AssertionError(f"{self.this.definition.name}: {told}")
            if self._can_go_on(workflow):
                self.runs[workflow.pk] += 1
                if self.runs[workflow.pk] > MOST_RUNS:
                    raise AssertionError(f"{self.this} does not come to rest: it has run {MOST_RUNS} times")
                return workflow
        return None

    def require_met(self) -> None:
        """Raise AssertionError for a name in `overdue` that no wait had: the test would prove nothing."""
        unmet = sorted({*self.overdue} - self.met)
        waits = Wait.objects.filter(workflow__queue=self.this.workflow.queue).values_list("name", flat=True)
        assert not unmet, f"No wait is called {', '.join(unmet)}, but {', '.join(waits) or 'none was met'}: {self.this}"

    def _can_go_on(self, workflow: Workflow) -> bool:
        """Whether it is due, or would be after some time. Answers its open task, or sends it a signal, first."""
        if not workflow.waiting_for or workflow.invisible_until <= timezone.now():
            return True
        wait = Wait.objects.filter(workflow=workflow.pk, outcome="", superseded=False).order_by("pk").last()
        overdue = {name for name in self.overdue if wait and fnmatchcase(wait.name, name)}
        self.met |= overdue
        if wait and (wait.kind == Wait.Kind.TIME or overdue):
            Workflow.objects.filter(pk=workflow.pk).update(invisible_until=wait.deadline)
            return True
        if task := ManualTask.objects.open().filter(workflow=workflow.pk).first():
            self.answer(task)
            return True
        if name := next((name for name in workflow.wake_on if name in self.signals), None):
            _require_linking_id(workflow)
            signal = self.signals[name]
            payload = signal(workflow) if callable(signal) else signal
            store.send(source="testing", dedupe_key=str(uuid4()), name=name, workflow_id=workflow.pk, payload=payload)
            return True
        if wait and workflow.invisible_until < wait.deadline and wait.pk not in self.looked:
            self.looked.add(wait.pk)
            return True
        return False


def _require_linking_id(workflow: Workflow) -> None:
    """Raise AssertionError for a workflow that should have a linking id: in production, no signal would reach it."""
    field = definitions()[workflow.workflow_type].linking_id
    assert workflow.linking_id or not field, (
        f"The {workflow.workflow_type} waits for {workflow.waiting_for}, and has no linking id: its payload has no "
        f"text or number of up to 200 characters at {field!r}. A signal to a linking id would never reach it."
    )


def let_time_pass(workflow: Workflow) -> None:
    """Make the workflow due before all others, and age its effects, waits and tasks by the skipped time."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH due AS (
                SELECT id, greatest(invisible_until - clock_timestamp(), interval '0') AS passed
                  FROM workflows_workflow WHERE id = %s),
            effects AS (
                UPDATE workflows_effect e SET begun_at = begun_at - passed, first_begun_at = first_begun_at - passed
                  FROM due WHERE e.workflow_id = due.id),
            waits AS (
                UPDATE workflows_wait w SET created_at = created_at - passed, deadline = deadline - passed
                  FROM due WHERE w.workflow_id = due.id AND w.outcome = ''),
            tasks AS (
                UPDATE workflows_manualtask t SET due_at = due_at - passed, expires_at = expires_at - passed
                  FROM due WHERE t.workflow_id = due.id AND t.state = 'open')
            UPDATE workflows_workflow w
               SET invisible_until = least(created_at, invisible_until - passed), expires_at = expires_at - passed
              FROM due WHERE w.id = due.id
            """,
            [workflow.pk],
        )
