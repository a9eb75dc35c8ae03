"""RETRACT: withdraw a wrong answer about a call, or about its undo, while nothing builds on it.

| where the answer is | what retracting it does |
|---|---|
| in its signal, not read by any worker | closes the signal |
| with its wait; the worker that read it died before it decided | nothing more |
| on the ledger | restores the effect; removes the next generation that a no has made, if its call was not started |

Each time the wait is superseded, so the next run of the workflow asks again, by a new task. A call that started after
the answer was read builds on it, unless its service refused it, so the answer stands. The answer to the question before
a reversal is about all calls: "leave them" can be retracted until a retry, "reverse them" until the first undo starts.

The caller has locked the workflow's row, so no worker reads an answer or starts a call meanwhile. A worker that has
lost the row can still have one statement on its way to the server: no answer is retracted while its attempt is open.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from django.db.models import Q

from workflows.definition import definitions, is_to_be_undone, titled_step
from workflows.effects import MAY_HAVE_HAPPENED
from workflows.effects.reconcile import DOUBT_TASK_TYPE, effect_in_question
from workflows.effects.rows import begin_again
from workflows.engine import compensation, undo_doubts, undo_question
from workflows.models import Attempt, Confirmation, Correction, Effect, Event, ManualTask, Signal, Wait, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.operations import two_people
from workflows.operations.guards import why_emptied
from workflows.state import history, transitions

State = Effect.State


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """An answer, and where it is: with its `wait` after a worker has read it; `on_ledger` if the effect has it, too.

    `made` are the effects that the answer made or settled: after a no the next generation, before its call; after a
    call that was undone by hand, the undo.
    """

    task: ManualTask
    wait: Wait
    effect: Effect
    on_ledger: bool
    made: list[Effect]
    others: list[Effect]


def read_answer(task: ManualTask) -> GivenAnswer:
    wait = Wait.objects.get(pk=task.wait_id)
    step, generation = effect_in_question(wait.name)
    effects = list(Effect.objects.filter(workflow=task.workflow_id).order_by("id"))
    effect = next(e for e in effects if (e.step, e.generation, e.undo) == (step, generation, False))
    by = wait.result.get("by")
    made = [e for e in effects if _is_next(e, effect) or (_is_undo(e, effect) and e.settled_by == by)]
    others = [e for e in effects if e != effect and e not in made]
    on_ledger = effect.state in _STATES_AFTER.get((task.task_type, wait.outcome), ()) and effect.settled_by == by
    return GivenAnswer(task, wait, effect, on_ledger, made, others)


# The states of the effect after the answer, by the type of the question and the wait's outcome.
_STATES_AFTER: dict[tuple[str, str], tuple[State, ...]] = {
    (DOUBT_TASK_TYPE, "approved"): (State.DONE,),
    (DOUBT_TASK_TYPE, "rejected"): (State.NOT_DONE,),
    (undo_doubts.UNDO_TASK_TYPE, "approved"): (State.UNDONE, State.KEPT, State.NOT_DONE),
}
# The states of the effect while the question is open.
_STATES_BEFORE = {DOUBT_TASK_TYPE: (State.INTENT, State.UNKNOWN), undo_doubts.UNDO_TASK_TYPE: MAY_HAVE_HAPPENED}


def _is_next(effect: Effect, of: Effect) -> bool:
    """Whether `effect` is the generation after `of`, with a key that was never sent."""
    following = (of.step, of.generation + 1, False, State.NOT_DONE, None)
    return (effect.step, effect.generation, effect.undo, effect.state, effect.settled_at) == following


def _is_undo(effect: Effect, of: Effect) -> bool:
    return (effect.step, effect.generation, effect.undo) == (of.step, of.generation, True)


def why_not(task: ManualTask) -> str:
    """Why the answer to a task stands, in a sentence; empty if it can be retracted."""
    if task.task_type not in (*compensation.KEPT_ON_CANCEL, undo_question.TASK_TYPE):
        return "You can retract only an answer about a call or its reversal."
    if task.state == ManualTask.State.RETRACTED:
        return "It is retracted already."
    if task.state not in (ManualTask.State.APPROVED, ManualTask.State.REJECTED):
        return "Nobody has answered it."
    if emptied := why_emptied(task.workflow):
        return emptied
    if task.workflow.status == Workflow.Status.COMPLETE:
        return "Its workflow is complete: the answer is a part of what it has done."
    if by_hand := two_people.said_by_hand(task.workflow_id):
        return by_hand  # it would be reversed and fail again, and nobody would confirm it any more
    if Attempt.objects.filter(workflow=task.workflow_id, closed_at=None).exists():
        return "A worker was at it a moment ago, and how that ended is not known yet; try again in a moment."
    if task.task_type == undo_question.TASK_TYPE:
        return _why_reversed_or_retried(task)
    return _why_built_on(read_answer(task))


def _why_reversed_or_retried(task: ManualTask) -> str:
    """Why the answer before a reversal stands."""
    definition = definitions().get(task.workflow.workflow_type)
    if definition is None or definition.before_undo is None:
        return "This release does not ask before a reversal: without the answer it would be reversed."
    wait = Wait.objects.get(pk=task.wait_id)
    if wait.superseded:
        return "The workflow was retried since."
    if wait.outcome != "approved":
        return ""
    undos = Effect.objects.filter(workflow=task.workflow_id, undo=True, call_number__gt=wait.call_number)
    if undo := undos.order_by("call_number").first():
        step = titled_step(task.workflow.workflow_type, undo.step)
        return f"The reversal of {step} was started since, and builds on the answer."
    return "" if task.workflow.status == Workflow.Status.PENDING else "What was to be reversed is settled."


def _why_built_on(answer: GivenAnswer) -> str:
    wait, effect, workflow_type = answer.wait, answer.effect, answer.task.workflow.workflow_type
    if Wait.objects.filter(workflow=wait.workflow_id, name=wait.name, generation__gt=wait.generation).exists():
        return "The question has been asked again since."
    if answer.task.task_type == undo_doubts.UNDO_TASK_TYPE and wait.outcome == "rejected":
        return "The reversal is being tried again, as the answer said."
    if not answer.on_ledger:
        still_open = effect.state in _STATES_BEFORE[answer.task.task_type] and not wait.superseded
        step = titled_step(workflow_type, effect.step)
        return "" if still_open else f"What became of {step} has become known in another way since."
    for other in answer.others:
        if _is_started_since(other, wait) and not left_nothing(other, effect):
            begun = f"{'The reversal of ' if other.undo else ''}{titled_step(workflow_type, other.step)}"
            return f"{begun} was started since, and builds on the answer."
    return ""


def left_nothing(since: Effect, effect: Effect) -> bool:
    """Whether a step that ran since an answer about `effect` has left nothing that builds on it.

    It did not apply, which each attempt checks again; its service has refused the call, as a wrong answer often shows
    by the next call; or its key was never sent, as after another retraction. Of `effect`'s own step, and of a reversal,
    each call counts. What retracts the answer gives what was refused a new key: the next call names another result.
    """
    refused = since.state == State.NOT_DONE and since.settled_by == "call"
    never_sent = since.state == State.NOT_DONE and since.settled_at is None
    return (refused or never_sent or since.state == State.SKIPPED) and since.step != effect.step and not since.undo


def _is_started_since(effect: Effect, wait: Wait) -> bool:
    """Whether the effect's row, or its call, started after a worker had read the answer.

    Compares the numbers that both have drawn, because the clock may have been set back. An unread answer has none.
    """
    return wait.call_number is not None and (effect.call_number or 0) > wait.call_number


class Again(Enum):
    """When the workflow asks again after its answer is retracted."""

    AT_ONCE = "asks again at once"
    TO_UNDO = "is taken up again to reverse it, and asks at once"
    BY_A_RETRY = "asks again when somebody retries it"
    NOT = "has been retried, and goes on with it as done"


def step_of(task: ManualTask) -> str:
    """The step whose call an answer is about; empty for the answer before a reversal, which is about all."""
    return "" if task.task_type == undo_question.TASK_TYPE else read_answer(task).effect.step


def when_asked_again(task: ManualTask) -> Again:
    if task.workflow.status == Workflow.Status.PENDING:
        goes_on = task.task_type == undo_doubts.UNDO_TASK_TYPE and not task.workflow.compensating
        return Again.NOT if goes_on and read_answer(task).effect.result is not None else Again.AT_ONCE
    if task.task_type == undo_question.TASK_TYPE:
        return Again.TO_UNDO
    effect, definition = read_answer(task).effect, definitions().get(task.workflow.workflow_type)
    undone = is_to_be_undone(definition, effect.step, effect.has_undo)
    return Again.TO_UNDO if undone else Again.BY_A_RETRY


def retract(task: ManualTask) -> str:
    """Undo what the answer changed, and make the workflow ask again. Return when it does, in a sentence.

    A FAILED workflow asks when somebody retries it. But if the call has an undo, compensation resumes at once:
    otherwise nobody would be asked about a charge that may have to be given back.
    """
    Wait.objects.filter(pk=task.wait_id).update(superseded=True)
    # Not closed as ignored: a retry would restore the signal.
    unread = Signal.objects.filter(
        Q(closed_at=None) | Q(ignored=True), workflow=task.workflow_id, name=task.signal_name
    )
    unread.update(closed_at=ClockTimestamp(), ignored=False)
    if task.task_type == undo_question.TASK_TYPE:
        _restore_left(task)
    elif (answer := read_answer(task)).on_ledger:
        _restore(answer)
        begin_again(task.workflow, [each.step for each in answer.others if _is_started_since(each, answer.wait)])
    again = when_asked_again(task)
    match again:
        case Again.AT_ONCE | Again.NOT:
            transitions.make_due(task.workflow_id)
        case Again.TO_UNDO:
            Correction.objects.drop(task.workflow_id)
            Confirmation.objects.drop(task.workflow_id)
            transitions.reopen_compensation(task.workflow_id)
            asks = undo_question.mark_again(task.workflow_id)
            history.record(task.workflow_id, Event.Kind.COMPENSATING, step=step_of(task), **asks)
    return f"It is retracted; the workflow {again.value}."


def _restore_left(task: ManualTask) -> None:
    """Set the effects that the answer left as they are back to done."""
    assert task.decided_by
    left = Effect.objects.filter(workflow=task.workflow_id, undo=False, state=State.KEPT, result__isnull=False)
    left.filter(settled_by=task.decided_by.get_username()).update(state=State.DONE, settled_by="")


def _restore(answer: GivenAnswer) -> None:
    """Set the effect back to what it was: in doubt or, if its undo was in question, possibly done."""
    of_undo = answer.task.task_type == undo_doubts.UNDO_TASK_TYPE
    was_done = of_undo and answer.effect.result is not None
    # The person was asked after so many failures. A call that never happened has none.
    failures = {"undo_failures": compensation.MAX_UNDO_FAILURES} if of_undo and not was_done else {}
    unsettled = {"settled_at": None, "settled_by": ""}
    Effect.objects.filter(pk=answer.effect.pk).update(
        state=State.DONE if was_done else State.UNKNOWN,
        result=answer.effect.result if was_done else None,
        settled_at=answer.effect.settled_at if was_done else None,
        settled_by="",
        **failures,
    )
    new = [effect.pk for effect in answer.made if _is_started_since(effect, answer.wait)]
    Effect.objects.filter(pk__in=new).delete()
    # What is left of them is an undo that had been called before the answer.
    made = Effect.objects.filter(pk__in=[effect.pk for effect in answer.made])
    made.update(state=State.UNKNOWN, result=None, **unsettled)
