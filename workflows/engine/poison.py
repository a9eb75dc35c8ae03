"""POISON: what happens to a workflow whose workers die, or lose it (docs/internals/attempts.md).

Nothing is counted in an `except`, because a crash never gets there: attempts are judged by how they ended.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import takewhile
from typing import NamedTuple

from workflows.definition import UNKNOWN_STEP, WorkflowDefinition
from workflows.engine import step_session
from workflows.engine.backoff import Policy
from workflows.engine.extension import Hooks
from workflows.engine.outcomes import Failed, Held, PoisonOutcome, Rescheduled, failed_by_engine
from workflows.engine.undo_doubts import DEATHS_TASK_TYPE, LOSSES_TASK_TYPE
from workflows.errors import RetryableStepError, StepError, Suspend
from workflows.models import Attempt, Workflow
from workflows.state import attempt_log
from workflows.state.attempt_log import OpenAttempt, PastAttempt
from workflows.waits import URGENT, ApprovalExpired, require_go_ahead, withdraw

CRASHES_OF_POISON = 3
# 2 s after the second death, doubling: ten deaths take about nine minutes, in which a host may recover.
DEATHS = Policy(10, base_delay=2.0, max_delay=300.0, jitter_factor=0.2)
# Ten losses take 75 minutes. So a bad hour of the database causes no question about each of its workflows, and no
# workflow waits much longer than that.
LOSSES = Policy(10, base_delay=60.0, max_delay=900.0, jitter_factor=0.2)


class Question(NamedTuple):
    """What a person is asked after every `every` attempts in a row that ended in the same way."""

    task_type: str
    every: int
    question: str
    counted: str
    timeout: timedelta
    fails_unanswered: bool = True


# A whole weekend: only this row waits for the answer.
ABOUT_DEATHS = Question(
    DEATHS_TASK_TYPE,
    DEATHS.max_attempts,
    question="Its workers keep dying. May it be tried again?",
    counted="Workers lost in a row",
    timeout=timedelta(hours=72),
)
# After a day without an answer the workflow is tried again: the database may have recovered long before.
ABOUT_LOSSES = Question(
    LOSSES_TASK_TYPE,
    LOSSES.max_attempts,
    question="Its workers keep losing the database. May it be tried again?",
    counted="Attempts lost in a row",
    timeout=timedelta(hours=24),
    fails_unanswered=False,
)

# How many attempts of other workflows are searched for a decision. If none is found, nothing counts as decided.
OTHERS_LIMIT = 10_000

_CRASHED = Attempt.Outcome.CRASHED
_DEATHS = (_CRASHED, Attempt.Outcome.KILLED, Attempt.Outcome.VANISHED)


def judge(
    definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt, hooks: Hooks
) -> PoisonOutcome | None:
    """What to do instead of running `workflow`; None to run it."""
    if not attempt.past:
        return None
    if broken := step_session.find_broken(attempt.past):
        return _failed(definition, broken.died_in, step_session.failure_of(broken))
    if (crash := last_crash(attempt)) and (error := hooks.crashed(workflow, crash)):
        return _failed(definition, crash.died_in, error)
    if overdue := _overdue(attempt.past):
        message = f"{overdue.died_in} did not come to an end, and its worker was killed."
        return _failed(definition, overdue.died_in, RetryableStepError(message, code="overdue"))
    deaths = [past for past in attempt.past if past.outcome in _DEATHS]
    recent = deaths[: len(deaths) % DEATHS.max_attempts]  # since a person last allowed another try
    if len(recent) >= CRASHES_OF_POISON and all(past.outcome == _CRASHED for past in recent[:CRASHES_OF_POISON]):
        return _poisoned(definition, recent[:CRASHES_OF_POISON])
    if len(deaths) >= DEATHS.max_attempts and (verdict := _ask(ABOUT_DEATHS, definition, workflow, deaths)):
        return verdict
    if (lost := _lost_by_itself(attempt)) and (verdict := _ask(ABOUT_LOSSES, definition, workflow, lost)):
        return verdict
    if rescheduled := _rescheduled_as_lost(attempt):
        return rescheduled
    # Only if the very last attempt died: after a back-off the last attempt is the rescheduled one. By then it is also
    # known whether an attempt that was found open had crashed.
    if len(recent) > 1 and recent[0] is attempt.past[0] and recent[0].outcome != _CRASHED:
        return _rescheduled_as_dying(len(recent), recent[0])
    return None


def last_crash(attempt: OpenAttempt) -> PastAttempt | None:
    """The last attempt in which the workflow crashed a worker at a known step."""
    return next((past for past in attempt.past if past.outcome == _CRASHED and past.died_in), None)


def _rescheduled_as_dying(deaths: int, last: PastAttempt) -> Rescheduled:
    """From the second death in a row on: later each time."""
    reason = f"Its worker died {deaths} times in a row; it is tried again later."
    return Rescheduled(DEATHS.due_after(deaths - 1), reason, last.died_in)


def _rescheduled_as_lost(attempt: OpenAttempt) -> Rescheduled | None:
    """From the second loss in a row on, if the worker that lost the workflow could not reschedule it itself.

    The row is free, and due before all others, as soon as that worker has lost it; this worker was quicker. The last
    loss may not be recorded yet; then the attempt looks vanished.
    """
    lost, last = losses(attempt), attempt.past[0]
    if len(lost) < 2 or not last.still_due or last.outcome not in (Attempt.Outcome.LOST, Attempt.Outcome.VANISHED):
        return None
    times = len(lost) + (last.outcome == Attempt.Outcome.VANISHED)
    return reschedule_as_lost(times, last.died_in)


def reschedule_as_lost(times: int, step: str = "", reason: str = "") -> Rescheduled:
    """After this many losses in a row: later each time."""
    reason = reason or f"Its claim was lost {times} times in a row."
    return Rescheduled(LOSSES.due_after(max(1, times - 1)), reason, step)


def losses(attempt: OpenAttempt) -> list[PastAttempt]:
    """The attempts before this one that were lost, newest first, since the last decision."""
    return [past for past in attempt.past if past.outcome == Attempt.Outcome.LOST]


def _lost_by_itself(attempt: OpenAttempt) -> list[PastAttempt]:
    """The last losses in a row at the same step, newest first, if ten of them are the workflow's fault; else none."""
    lost = losses(attempt)
    in_a_row = list(takewhile(lambda past: past.died_in == lost[0].died_in, lost))
    ten = in_a_row[len(in_a_row) % LOSSES.max_attempts :][: LOSSES.max_attempts]
    return in_a_row if ten and _others_were_decided(attempt, between=(ten[-1].number, ten[0].number)) else []


def _others_were_decided(attempt: OpenAttempt, *, between: tuple[int, int]) -> bool:
    """Whether other workflows were decided between two attempts of this one, so that the database was available."""
    number_of = "SELECT id FROM workflows_attempt WHERE workflow_id = %(workflow_id)s AND number ="
    ((decided,),) = attempt_log.execute(
        f"""SELECT EXISTS (
               SELECT FROM (
                   SELECT workflow_id, outcome FROM workflows_attempt
                    WHERE id > ({number_of} %(first)s) AND id < ({number_of} %(last)s)
                    ORDER BY id DESC LIMIT {OTHERS_LIMIT}) others
                WHERE workflow_id <> %(workflow_id)s AND outcome = ANY (%(decided)s))""",  # noqa: S608 (ours)
        {"workflow_id": attempt.workflow_id, "first": between[0], "last": between[1], "decided": list(Attempt.DECIDED)},
    )
    return bool(decided)


def judge_compensation(attempt: OpenAttempt) -> Rescheduled | StepError | None:
    """What to do instead of the next undo: wait, or ask a person, with the returned error as the reason.

    Nothing fails here, because the workflow has already failed: in the end a person is always asked.
    """
    deaths = [past for past in attempt.past if past.outcome in _DEATHS or _is_overdue(past)]
    crashes = [past for past in deaths if past.outcome == _CRASHED or _is_overdue(past)]
    if len(crashes) >= CRASHES_OF_POISON or len(deaths) >= DEATHS.max_attempts:
        message = f"Its workers died {len(deaths)} times in a row, last {_describe_end(deaths[0])}."
        return StepError(message, code=DEATHS_TASK_TYPE)
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
    """The last attempt that says something about the payload, if its worker was killed because of an overdue step.

    It is found only once: the decision that follows is a retry, and attempts before a decision no longer count.
    """
    for each in past:
        if _is_overdue(each):
            return each
        if each.outcome in _DEATHS:
            return None
    return None


def _ask(
    about: Question, definition: WorkflowDefinition, workflow: Workflow, ended: list[PastAttempt]
) -> Held | Failed | None:
    """Ask a person whether the workflow may be tried again; None to try it.

    There is one question for every ten attempts that `ended` so, named after the tenth, the twentieth, ...
    """
    last, name = ended[0], f"{about.task_type}:{ended[len(ended) % about.every].number}"
    try:
        require_go_ahead(
            workflow,
            name,
            question=about.question,
            facts={about.counted: str(len(ended)), "The last one": _describe_end(last)},
            task_type=about.task_type,
            timeout=about.timeout,
            due=URGENT,  # the worker may have died, or lost the row, during a call
        )
    except Suspend as suspend:
        return Held(last.died_in, suspend, Attempt.Outcome.HELD)
    except StepError as error:
        if about.fails_unanswered or not isinstance(error, ApprovalExpired):
            return _failed(definition, last.died_in, error)
        withdraw(workflow, name)  # so that a person is asked again after the next losses
    return None


def _failed(definition: WorkflowDefinition, died_in: str, error: StepError) -> Failed:
    return failed_by_engine(definition.find_or_removed_step(died_in), error)


def _describe_end(past: PastAttempt) -> str:
    return f"in {past.died_in or UNKNOWN_STEP} by {past.died_how or 'an unknown cause'}"
