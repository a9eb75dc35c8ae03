"""POISON: what happens to a workflow whose workers die.

The next worker that claims the workflow judges it, before any step runs, by how the attempts since the last decision
ended. The process that saw an attempt end has recorded how. Nothing is counted in an `except`, because a crash never
reaches one.

- Three crashes in a row: the payload is poison, and the workflow is FAILED, like after any final failure.
- Killed or vanished, from the second time in a row on: that may have any cause (a host without memory, an operator), so
  the workflow is tried again, later each time; after every tenth death in a row a person is asked.
- Killed by its supervisor because a step was overdue: a failure of that step, retried and limited by its own policy.

Attempts that were lost (the database went away, or refused a statement of the engine), interrupted past the grace (a
deploy) or rescheduled say nothing about a payload: they are ignored. But a step that ends its own connection, or whose
query crashes the server, would be tried for ever, and no person would know. So when a workflow is lost ten times in a
row at the same step, while other workflows were decided in between, a person is asked whether it may be tried again.
Only a no fails the workflow. Without an answer it is tried once more, and if it is lost again, a person is asked again.
While the database is in trouble nothing is decided, so nobody is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from itertools import takewhile

from django.db.models.expressions import Combinable

from workflows.definition import UNKNOWN_STEP, WorkflowDefinition
from workflows.engine.backoff import calculate_invisible_until
from workflows.engine.compensation import DEATHS_TASK_TYPE, LOSSES_TASK_TYPE
from workflows.engine.executor import Failed
from workflows.engine.results import describe_engine_error
from workflows.errors import RetryableStepError, StepError, Suspend
from workflows.models import Attempt, Workflow
from workflows.state import attempt_log
from workflows.state.attempt_log import OpenAttempt, PastAttempt
from workflows.waits import ApprovalExpired, require_go_ahead, withdraw

CRASHES_OF_POISON = 3
DEATHS_BEFORE_A_PERSON = 10
# A whole weekend. Only this one row waits for the answer.
TIME_TO_ANSWER = timedelta(hours=72)
# 2 s after the second death, doubling: with ten deaths about nine minutes, in which a host may recover.
FIRST_DELAY, MAX_DELAY, JITTER = 2.0, 300.0, 0.2

# In a row, and at the same step. The workflow is rescheduled from its second loss on (see workflows.engine.loop): ten
# losses take more than an hour.
LOSSES_BEFORE_A_PERSON = 10
# After a day without an answer the workflow is tried again: the database may have recovered long before.
TIME_TO_ANSWER_ABOUT_LOSSES = timedelta(hours=24)

# Seconds until what is lost again and again is tried again, doubling. By the tenth time 75 minutes have passed: a bad
# hour of the database's asks nobody about each of its workflows, and makes none of them wait much longer than that.
PUT_OFF_DELAY, MAX_PUT_OFF_DELAY, PUT_OFF_JITTER = 60.0, 900.0, 0.2

# Attempts of other workflows that are looked at for a decision. If so many in a row hold none, nothing is decided.
OTHERS_LIMIT = 10_000

_CRASHED = Attempt.Outcome.CRASHED
_DEATHS = (_CRASHED, Attempt.Outcome.KILLED, Attempt.Outcome.VANISHED)
_DECIDED = (
    *(Attempt.Outcome.COMPLETE, Attempt.Outcome.WAITING, Attempt.Outcome.RETRY),
    *(Attempt.Outcome.FAILED, Attempt.Outcome.COMPENSATED),
)


@dataclass(frozen=True, slots=True)
class Rescheduled:
    """Some time passes before the next try: until `due`, for this `reason`."""

    due: Combinable
    reason: str
    step: str


@dataclass(frozen=True, slots=True)
class Held:
    """The workflow's workers keep dying, or losing it: a person is asked whether it may be tried again."""

    suspend: Suspend
    step: str


PoisonOutcome = Failed | Rescheduled | Held


def judge(definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt) -> PoisonOutcome | None:
    """What to do instead of running `workflow`; None to run it."""
    if not attempt.past:
        return None
    if overdue := _overdue(attempt.past):
        return _failed_as_overdue(definition, overdue)
    deaths = [past for past in attempt.past if past.outcome in _DEATHS]
    recent = deaths[: len(deaths) % DEATHS_BEFORE_A_PERSON]  # since a person last said that it may be tried again
    if len(recent) >= CRASHES_OF_POISON and all(past.outcome == _CRASHED for past in recent[:CRASHES_OF_POISON]):
        return _poisoned(definition, recent[:CRASHES_OF_POISON])
    if len(deaths) >= DEATHS_BEFORE_A_PERSON and (verdict := _ask(definition, workflow, deaths)):
        return verdict
    if (lost := _lost_by_itself(attempt)) and (verdict := _ask_about_losses(definition, workflow, lost)):
        return verdict
    if rescheduled := _rescheduled_as_lost(attempt):
        return rescheduled
    # Only if the very last attempt died: after a back-off, the last attempt is one that was rescheduled. By then it is
    # also known whether an attempt that was found open had crashed.
    if len(recent) > 1 and recent[0] is attempt.past[0] and recent[0].outcome != _CRASHED:
        return _rescheduled_as_dying(len(recent), recent[0])
    return None


def _rescheduled_as_dying(deaths: int, last: PastAttempt) -> Rescheduled:
    """After the second death in a row, and from then on: later each time."""
    due = calculate_invisible_until(deaths - 1, base_delay=FIRST_DELAY, max_delay=MAX_DELAY, jitter_factor=JITTER)
    return Rescheduled(due, f"Its worker died {deaths} times in a row; it is tried again later.", last.died_in)


def _rescheduled_as_lost(attempt: OpenAttempt) -> Rescheduled | None:
    """From the second loss in a row on, if the worker that lost the workflow has not been able to reschedule it.

    The row is free as soon as that worker has lost it, and due before all others: this worker was quicker. Whether the
    last attempt was lost, too, is perhaps not written yet, and then it looks vanished.
    """
    lost, last = losses(attempt), attempt.past[0]
    if len(lost) < 2 or not last.still_due or last.outcome not in (Attempt.Outcome.LOST, Attempt.Outcome.VANISHED):
        return None
    times = len(lost) + (last.outcome == Attempt.Outcome.VANISHED)
    return Rescheduled(due_after_losses(times), describe_losses(times), last.died_in)


def due_after_losses(times: int) -> Combinable:
    """When a workflow that was lost so many `times` in a row is tried again."""
    return calculate_invisible_until(
        max(1, times - 1), base_delay=PUT_OFF_DELAY, max_delay=MAX_PUT_OFF_DELAY, jitter_factor=PUT_OFF_JITTER
    )


def describe_losses(times: int) -> str:
    return f"Its claim was lost {times} times in a row."


def losses(attempt: OpenAttempt) -> list[PastAttempt]:
    """The attempts before this one that were lost, newest first, since the last decision."""
    return [past for past in attempt.past if past.outcome == Attempt.Outcome.LOST]


def _lost_by_itself(attempt: OpenAttempt) -> list[PastAttempt]:
    """The last losses in a row at the same step, newest first, if ten of them are the workflow's doing; else none."""
    lost = losses(attempt)
    in_a_row = list(takewhile(lambda past: past.died_in == lost[0].died_in, lost))
    ten = in_a_row[len(in_a_row) % LOSSES_BEFORE_A_PERSON :][:LOSSES_BEFORE_A_PERSON]
    return in_a_row if ten and _others_were_decided(attempt, between=(ten[-1].number, ten[0].number)) else []


def _others_were_decided(attempt: OpenAttempt, *, between: tuple[int, int]) -> bool:
    """Whether other workflows were decided between two attempts of this one: then the database was there."""
    ((decided,),) = attempt_log.execute(
        f"""SELECT EXISTS (
               SELECT FROM (
                   SELECT workflow_id, outcome FROM workflows_attempt
                    WHERE id > (SELECT id FROM workflows_attempt
                                 WHERE workflow_id = %(workflow_id)s AND number = %(first)s)
                      AND id < (SELECT id FROM workflows_attempt
                                 WHERE workflow_id = %(workflow_id)s AND number = %(last)s)
                    ORDER BY id DESC LIMIT {OTHERS_LIMIT}) others
                WHERE workflow_id <> %(workflow_id)s AND outcome = ANY (%(decided)s))""",  # noqa: S608 (ours)
        {
            "workflow_id": attempt.workflow_id,
            "first": between[0],
            "last": between[1],
            "decided": [str(outcome) for outcome in _DECIDED],
        },
    )
    return bool(decided)


def judge_compensation(attempt: OpenAttempt) -> Rescheduled | StepError | None:
    """What to do instead of calling the next undo: wait, or ask a person for the reason that is returned.

    Nothing fails here, for the workflow has failed already: whatever kills its workers, a person is asked in the end.
    """
    deaths = [past for past in attempt.past if past.outcome in _DEATHS or _is_overdue(past)]
    crashes = [past for past in deaths if past.outcome == _CRASHED or _is_overdue(past)]
    if len(crashes) >= CRASHES_OF_POISON or len(deaths) >= DEATHS_BEFORE_A_PERSON:
        return StepError(
            f"Its workers died {len(deaths)} times in a row, last {_describe_end(deaths[0])}.", code=DEATHS_TASK_TYPE
        )
    if lost := _lost_by_itself(attempt):
        message = f"Its claim was lost {len(lost)} times in a row, last {_describe_end(lost[0])}."
        return StepError(message, code=LOSSES_TASK_TYPE)
    if attempt.past and (rescheduled := _rescheduled_as_lost(attempt)):
        return rescheduled
    if len(deaths) > 1 and deaths[0] is attempt.past[0] and deaths[0] not in crashes:
        return _rescheduled_as_dying(len(deaths), deaths[0])
    return None


def _is_overdue(past: PastAttempt) -> bool:
    return past.outcome == Attempt.Outcome.INTERRUPTED and past.died_how == "overdue"


def _poisoned(definition: WorkflowDefinition, crashes: list[PastAttempt]) -> Failed:
    ends = list(dict.fromkeys(_describe_end(past) for past in reversed(crashes)))
    error = StepError(f"It crashed its worker {len(crashes)} times in a row: {', '.join(ends)}.", code="poison")
    return _failed(definition, crashes[0].died_in, error)


def _overdue(past: list[PastAttempt]) -> PastAttempt | None:
    """The last attempt that says something about the payload, if its worker was killed because a step was overdue.

    It is found only once: the decision now is a retry, and attempts before a decision no longer count.
    """
    for each in past:
        if _is_overdue(each):
            return each
        if each.outcome in _DEATHS:
            return None
    return None


def _failed_as_overdue(definition: WorkflowDefinition, past: PastAttempt) -> Failed:
    error = RetryableStepError(f"{past.died_in} did not come to an end, and its worker was killed.", code="overdue")
    return _failed(definition, past.died_in, error, retryable=True)


def _ask(definition: WorkflowDefinition, workflow: Workflow, deaths: list[PastAttempt]) -> Held | Failed | None:
    """Ask a person whether the workflow may be tried again; None when a person has said yes.

    There is one question for each ten deaths, named after the tenth, the twentieth, ...
    """
    last, tenth = deaths[0], deaths[len(deaths) % DEATHS_BEFORE_A_PERSON]
    try:
        require_go_ahead(
            workflow,
            f"{DEATHS_TASK_TYPE}:{tenth.number}",
            question="Its workers keep dying. May it be tried again?",
            facts={"Workers lost in a row": str(len(deaths)), "The last one": _describe_end(last)},
            task_type=DEATHS_TASK_TYPE,
            timeout=TIME_TO_ANSWER,
        )
    except Suspend as suspend:
        return Held(suspend, last.died_in)
    except StepError as error:
        return _failed(definition, last.died_in, error)
    return None


def _ask_about_losses(
    definition: WorkflowDefinition, workflow: Workflow, lost: list[PastAttempt]
) -> Held | Failed | None:
    """Ask a person whether the workflow may be tried again; None after a yes, or a day without an answer."""
    last, tenth = lost[0], lost[len(lost) % LOSSES_BEFORE_A_PERSON]
    name = f"{LOSSES_TASK_TYPE}:{tenth.number}"
    try:
        require_go_ahead(
            workflow,
            name,
            question="Its workers keep losing the database. May it be tried again?",
            facts={"Attempts lost in a row": str(len(lost)), "The last one": _describe_end(last)},
            task_type=LOSSES_TASK_TYPE,
            timeout=TIME_TO_ANSWER_ABOUT_LOSSES,
        )
    except ApprovalExpired:
        withdraw(workflow, name)  # so that a person is asked again if the workflow is lost again
    except Suspend as suspend:
        return Held(suspend, last.died_in)
    except StepError as error:
        return _failed(definition, last.died_in, error)
    return None


def _failed(definition: WorkflowDefinition, died_in: str, error: StepError, *, retryable: bool = False) -> Failed:
    return Failed(None, definition.find_or_removed_step(died_in), error, retryable, describe_engine_error(error))


def _describe_end(past: PastAttempt) -> str:
    return f"in {past.died_in or UNKNOWN_STEP} by {past.died_how or 'an unknown cause'}"
