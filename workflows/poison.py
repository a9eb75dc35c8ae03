"""POISON: what becomes of a workflow whose workers die on it.

Judged by the next worker that claims it, before any step runs, by how the attempts since the last decision ended. They
are rows written by those who knew; nothing is counted in an `except`, which no crash ever reaches.

- Three crashes in a row: the payload is poison, and FAILED like any other failure for good.
- Killed or vanished for the second time in a row, and from then on: that may be anybody's fault (a host without memory,
  an operator), so it is tried again, later each time; after every tenth death in a row a person is asked.
- Ended because a step was overdue: a failure of that step, retried and limited by its own policy.

Attempts that were lost (the database went, or refused a statement of the engine's own), interrupted past the grace (a
deploy) or put back say nothing about a payload: they are passed over, and condemn nobody. But a workflow that is lost
ten times without a decision in between would be tried for ever, with nobody told: a person is asked whether it may be
tried again. Only their no fails it. Without an answer it is tried once more, and if it is lost again, they are asked
again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from workflows import journal
from workflows.definition import UNKNOWN_STEP, WorkflowDefinition
from workflows.errors import RetryableStepError, StepError, Suspend
from workflows.executor import Failed, describe_engine_error
from workflows.journal import OpenAttempt, PastAttempt
from workflows.models import Attempt, Workflow
from workflows.waits import ApprovalExpired, require_approval, withdraw

CRASHES_OF_POISON = 3
DEATHS_BEFORE_A_PERSON = 10
# A whole weekend. Nobody is waiting for the answer but this one row.
TIME_TO_ANSWER = timedelta(hours=72)
# 2 s after the second death, doubling: with ten of them about nine minutes, in which a host may come to itself.
FIRST_DELAY, MAX_DELAY, JITTER = 2.0, 300.0, 0.2

DEATHS_TASK_TYPE = "keeps_dying"

# They are put off from the second one on (see workflows.worker.loop): these take more than an hour.
LOSSES_BEFORE_A_PERSON = 10
# It is tried again after a day without an answer: the database may have come to itself long before.
TIME_TO_ANSWER_ABOUT_LOSSES = timedelta(hours=24)

LOSSES_TASK_TYPE = "keeps_being_lost"

_CRASHED = Attempt.Outcome.CRASHED
_DEATHS = (_CRASHED, Attempt.Outcome.KILLED, Attempt.Outcome.VANISHED)


@dataclass(frozen=True, slots=True)
class Postponed:
    """Its workers keep dying: some time passes before the next one tries. After the `deaths`-th in a row."""

    deaths: int
    step: str


@dataclass(frozen=True, slots=True)
class Held:
    """Its workers keep dying, or losing it: a person is asked whether it may be tried again."""

    suspend: Suspend
    step: str


Verdict = Failed | Postponed | Held


def judge(definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt) -> Verdict | None:
    """What to do instead of running `workflow`; None to run it."""
    if not attempt.past:
        return None
    if overdue := _overdue(attempt.past):
        return _failed_as_overdue(definition, overdue)
    deaths = [past for past in attempt.past if past.outcome in _DEATHS]
    recent = deaths[: len(deaths) % DEATHS_BEFORE_A_PERSON]  # since a person last said that it may be tried again
    if len(recent) >= CRASHES_OF_POISON and all(past.outcome == _CRASHED for past in recent[:CRASHES_OF_POISON]):
        return _poisoned(definition, recent[:CRASHES_OF_POISON])
    if len(deaths) >= DEATHS_BEFORE_A_PERSON and (verdict := _ask(definition, workflow, attempt, deaths)):
        return verdict
    if len(losses(attempt)) >= LOSSES_BEFORE_A_PERSON and (verdict := _ask_about_losses(definition, workflow, attempt)):
        return verdict
    # The very last attempt: after a back-off there is another one, which was put back. What was found open and turns
    # out to have crashed is known by then.
    if len(recent) > 1 and recent[0] is attempt.past[0] and recent[0].outcome != _CRASHED:
        return Postponed(len(recent), recent[0].died_in)
    return None


def losses(attempt: OpenAttempt) -> list[PastAttempt]:
    """The attempts before this one that were lost, newest first, since the last decision."""
    return [past for past in attempt.past if past.outcome == Attempt.Outcome.LOST]


def judge_compensation(attempt: OpenAttempt) -> Postponed | StepError | None:
    """What to do instead of calling the next undo: wait, or ask a person for the reason that is returned.

    Nothing fails here, for it has failed already: whatever keeps killing its workers, a person is asked in the end.
    """
    deaths = [past for past in attempt.past if past.outcome in _DEATHS or _is_overdue(past)]
    crashes = [past for past in deaths if past.outcome == _CRASHED or _is_overdue(past)]
    if len(crashes) >= CRASHES_OF_POISON or len(deaths) >= DEATHS_BEFORE_A_PERSON:
        return StepError(
            f"Its workers died {len(deaths)} times in a row, last {_describe_end(deaths[0])}.", code=DEATHS_TASK_TYPE
        )
    if len(lost := losses(attempt)) >= LOSSES_BEFORE_A_PERSON:
        told = f"Its claim was lost {len(lost)} times in a row, last {_describe_end(lost[0])}."
        return StepError(told, code=LOSSES_TASK_TYPE)
    if len(deaths) > 1 and deaths[0] is attempt.past[0] and deaths[0] not in crashes:
        return Postponed(len(deaths), deaths[0].died_in)
    return None


def _is_overdue(past: PastAttempt) -> bool:
    return past.outcome == Attempt.Outcome.INTERRUPTED and past.died_how == "overdue"


def _poisoned(definition: WorkflowDefinition, crashes: list[PastAttempt]) -> Failed:
    ends = list(dict.fromkeys(_describe_end(past) for past in reversed(crashes)))
    error = StepError(f"It crashed its worker {len(crashes)} times in a row: {', '.join(ends)}.", code="poison")
    return _failed(definition, crashes[0].died_in, error)


def _overdue(past: list[PastAttempt]) -> PastAttempt | None:
    """The last attempt that says something, if it was ended because a step was overdue.

    That is found once: what is decided now is a retry, and the attempts before a decision are of the past.
    """
    for each in past:
        if _is_overdue(each):
            return each
        if each.outcome in _DEATHS:
            return None
    return None


def _failed_as_overdue(definition: WorkflowDefinition, past: PastAttempt) -> Failed:
    error = RetryableStepError(f"{past.died_in} did not come to an end, and its worker was ended.", code="overdue")
    return _failed(definition, past.died_in, error, retryable=True)


def _ask(
    definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt, deaths: list[PastAttempt]
) -> Held | Failed | None:
    """Ask a person whether it may be tried again; None when somebody has said yes.

    One question for each ten deaths: it is known by the tenth, the twentieth, ...
    """
    last, tenth = deaths[0], deaths[len(deaths) % DEATHS_BEFORE_A_PERSON]
    try:
        with journal.bind_attempt(attempt):
            require_approval(
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


def _ask_about_losses(definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt) -> Held | Failed | None:
    """Ask a person whether it may be tried again; None when somebody has said yes, or nobody anything for a day."""
    lost = losses(attempt)
    last, tenth = lost[0], lost[len(lost) % LOSSES_BEFORE_A_PERSON]
    name = f"{LOSSES_TASK_TYPE}:{tenth.number}"
    try:
        with journal.bind_attempt(attempt):
            try:
                require_approval(
                    workflow,
                    name,
                    question="Its workers keep losing the database. May it be tried again?",
                    facts={"Attempts lost in a row": str(len(lost)), "The last one": _describe_end(last)},
                    task_type=LOSSES_TASK_TYPE,
                    timeout=TIME_TO_ANSWER_ABOUT_LOSSES,
                )
            except ApprovalExpired:
                withdraw(workflow, name)  # so that it is asked again should it be lost again
    except Suspend as suspend:
        return Held(suspend, last.died_in)
    except StepError as error:
        return _failed(definition, last.died_in, error)
    return None


def _failed(definition: WorkflowDefinition, died_in: str, error: StepError, *, retryable: bool = False) -> Failed:
    return Failed(None, definition.find_or_removed_step(died_in), error, retryable, describe_engine_error(error))


def _describe_end(past: PastAttempt) -> str:
    return f"in {past.died_in or UNKNOWN_STEP} by {past.died_how or 'nobody knows what'}"
