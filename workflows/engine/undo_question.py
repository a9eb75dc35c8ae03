"""BEFORE UNDO: a person decides whether the calls of a failed workflow are reversed, retried or left as they are.

Only where the definition asks (`before_undo`), and only when the workflow failed by itself. The transaction that begins
the compensation marks its event, so that a crash before the question loses nothing; a cancelled workflow has no mark.
The compensation asks right before its first undo, when it knows that there is something to undo (docs/adr/0035).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workflows import waits
from workflows.before_undo import LONGEST, BeforeUndo
from workflows.definition import WorkflowDefinition
from workflows.engine.outcomes import StartAgain
from workflows.errors import LetFail, WorkflowCancelled, WorkflowExpired, error_chain
from workflows.models import Event, Workflow
from workflows.postgres.statements import fetch_row
from workflows.state import attempt_log
from workflows.waits import WaitFailed
from workflows.wording import words_for_code, words_for_step

TASK_TYPE = "before_undo"
# The name of the wait for the answer; and the question.
WAIT = "before_undo:"
ASKED = "Is what this workflow has done to be reversed?"

_ASKED_BY_ANOTHER_RELEASE = BeforeUndo("", (), LONGEST)
# A person has already decided, or the time was up: see `before_undo.NEVER_ASKED`.
_NEVER_AFTER = (WorkflowCancelled, WorkflowExpired, LetFail, WaitFailed)


def mark(definition: WorkflowDefinition | None, error: BaseException, code: str) -> dict[str, Any]:
    """The mark for the event of a compensation: `asks`, if a person is asked after this error."""
    if definition is None or definition.before_undo is None:
        return {}
    is_own = not any(isinstance(each, _NEVER_AFTER) for each in error_chain(error))
    when = definition.before_undo.when
    return {"asks": True} if is_own and (not when or code in when) else {}


def mark_again(workflow_id: int) -> dict[str, Any]:
    """The mark for a compensation that is resumed: that of the last one."""
    begun = Event.objects.filter(workflow=workflow_id, kind=Event.Kind.COMPENSATING).order_by("-id").first()
    return {"asks": True} if begun and "asks" in begun.detail else {}


def who_leaves_it(definition: WorkflowDefinition, workflow: Workflow, to_undo: Sequence[str]) -> str:
    """The name of the person who leaves the calls as they are; empty if they are to be undone.

    `to_undo` names the steps whose calls would be undone. Raises Suspend until somebody answers, and StartAgain.
    """
    if not _is_asked(definition, *attempt_log.execute(_STANDING, [workflow.pk])[0]):
        return ""
    words, asks = definition.wording, definition.before_undo or _ASKED_BY_ANOTHER_RELEASE
    at, why = words_for_step(words, workflow.current_step), words_for_code(words, workflow.last_error_code)
    answer = waits.ask(
        workflow,
        WAIT,
        question=ASKED,
        facts={
            "Why it failed": f"{at.titled}: {why.staff}",
            "To be reversed": ", ".join(words_for_step(words, step).titled for step in to_undo),
        },
        task_type=TASK_TYPE,
        timeout=asks.timeout,
        team=asks.team,
        due=min(waits.URGENT, asks.timeout),
    )
    if (answer.result.get("answer") or {}).get("retry"):
        raise StartAgain(answer.result["by"], answer.result["reason"])
    return str(answer.result["by"]) if answer.outcome == "rejected" else ""


def is_undecided(definition: WorkflowDefinition | None, workflow: Workflow) -> bool:
    """Whether a person is deciding, or will be asked, whether the current compensation undoes anything."""
    if not workflow.compensating or (workflow.waiting_for != ASKED and not (definition and definition.before_undo)):
        return False
    outcome, marked = fetch_row(_STANDING, [workflow.pk])
    return not outcome and _is_asked(definition, outcome, marked)


def _is_asked(definition: WorkflowDefinition | None, outcome: str | None, marked: bool) -> bool:
    """An existing question counts, even if this release would ask none. `outcome` is None if there is no question."""
    return outcome is not None or bool(marked and definition and definition.before_undo)


# The outcome of the question, and whether one is to be asked: see migrations/0022_narrow_looks.py.
_STANDING = "SELECT outcome, is_asked FROM workflows_undo_question(%s)"
