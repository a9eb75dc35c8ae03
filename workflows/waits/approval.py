"""Waiting for a person: a manual task, and the decision on it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, get_args

from pydantic import BaseModel, RootModel, ValidationError

from workflows.errors import RetryableStepError
from workflows.models import ManualTask, Wait, Workflow
from workflows.redaction import field_errors
from workflows.state import attempt_log
from workflows.state.attempt_log import FENCE, OpenAttempt
from workflows.users import named
from workflows.waits.team import is_group, team_for_the_engine
from workflows.waits.wait import (
    INSERT_WAIT,
    WaitError,
    WaitExpired,
    WaitFailed,
    WaitRow,
    ensure_text,
    ensure_time,
    ensure_value,
    find,
    insert_parameters,
    row_or_claim_lost,
    suspension,
    with_outcome,
    write,
)

# When a question of the engine is overdue: an hour where money may be in doubt, because a call may have been made, and
# nothing more happens to it until somebody answers.
URGENT = timedelta(hours=1)

OnExpiry = Literal["expired", "approved", "rejected"]


@dataclass(frozen=True, slots=True)
class Approval:
    """A person's "yes": the name of the user who decided, their reason, and the filled-in form, if there is one.

    `expired`: nobody decided in time, which counts as a "yes" because of `on_expiry`.
    """

    decided_by: str
    reason: str
    answer: Any = None
    expired: bool = False


class ApprovalRejected(WaitFailed):
    """A person said no; the message has their name and reason. If a step lets this pass, the workflow is FAILED."""


class ApprovalExpired(WaitExpired):
    """Nobody decided in time. If a step lets this pass, the workflow is FAILED."""


class NobodyToAsk(WaitError, RetryableStepError):
    """The user or team does not exist; it may be added later."""


def require_approval(
    workflow: Workflow,
    name: str,
    *,
    question: str,
    facts: Mapping[str, str] | None = None,
    task_type: str = "approval",
    form: type[BaseModel] | None = None,
    team: str = "",
    assignee: str = "",
    due: timedelta | None = None,
    timeout: timedelta,
    on_expiry: OnExpiry = "expired",
    requested_by: str = "",
    four_eyes: bool = False,
) -> Approval:
    """Go on only when a person has approved: the first call makes a manual task and suspends the workflow.

    `name` is the wait's identity in this workflow; people see `question` and `facts` (label -> value). A "yes" includes
    `form`, a Pydantic model at the top of its module. The members of the group `team` decide, or the user `assignee`,
    to whom the task is assigned. The task is overdue after `due` and expires after `timeout`, both from the first call;
    `on_expiry` is then the outcome. With `four_eyes` the user `requested_by`, of the database, may not decide.

    Raises ApprovalRejected or ApprovalExpired; NobodyToAsk while the user or team does not exist.
    """
    task = _Task(question, facts or {}, task_type, form, team, assignee, due, on_expiry, requested_by, four_eyes)
    return _approval(workflow, name, task, timeout)


def require_go_ahead(
    workflow: Workflow,
    name: str,
    *,
    question: str,
    facts: Mapping[str, str],
    task_type: str,
    timeout: timedelta,
    due: timedelta,
) -> None:
    """Go on only when the team `operations` has approved. The task is overdue after `due`.

    Raises ApprovalRejected or ApprovalExpired.
    """
    _approval(workflow, name, _Task(question, facts, task_type, due=due, of_engine=True), timeout)


def _approval(workflow: Workflow, name: str, task: _Task, timeout: timedelta) -> Approval:
    answer = _ask(workflow, name, task, timeout)
    match answer.outcome:
        case "approved":
            attempt_log.attempt_of(workflow).told.append(answer.result.get("answer"))
            return Approval(
                decided_by=answer.result["by"],
                reason=answer.result["reason"],
                answer=_filled_in(workflow, name, task.form, answer.result) if task.form else None,
                expired="expired" in answer.result,
            )
        case "rejected":
            by, reason = answer.result["by"] or "nobody", answer.result["reason"]
            raise ApprovalRejected(
                f"{task.question} Rejected by {by}: {reason}", code="approval_rejected", wait_id=answer.wait_id
            )
    raise ApprovalExpired(f"{task.question} Nobody decided in time.", code="approval_expired", wait_id=answer.wait_id)


def ask(
    workflow: Workflow,
    name: str,
    *,
    question: str,
    facts: Mapping[str, str],
    task_type: str,
    timeout: timedelta,
    due: timedelta,
    look_every: timedelta | None = None,
    team: str = "",
) -> Answer:
    """Ask a question of the engine and return the answer: "approved", "rejected" or "expired"; suspend until then.

    The question is overdue after `due`. With `look_every` the workflow also runs that often, because the question may
    have answered itself. The group `team` is asked, or `operations` if there is no such group.
    """
    task = _Task(question, facts, task_type, team=team, due=due, of_engine=True)
    return _ask(workflow, name, task, timeout, look_every)


@dataclass(frozen=True, slots=True)
class Answer:
    """The `outcome` of a question, and what the person said in `result`."""

    wait_id: int
    outcome: str
    result: dict[str, Any]


def withdraw(workflow: Workflow, *names: str) -> None:
    """Withdraw questions: their answers no longer count, and the next `ask` with such a name asks again."""
    attempt = attempt_log.attempt_of(workflow)
    write(
        attempt,
        f"""
        WITH asked AS (
            UPDATE workflows_wait SET superseded = true
             WHERE workflow_id = %(workflow_id)s AND name = ANY (%(names)s) AND NOT superseded AND {FENCE} RETURNING id)
        UPDATE workflows_manualtask SET state = 'closed' FROM asked WHERE wait_id = asked.id AND state = 'open'
        """,  # noqa: S608 (FENCE is ours)
        names=[*names],
    )


def withdraw_unanswered(workflow: Workflow, name: str, *, even_claimed: bool = True) -> bool:
    """Withdraw a question that has answered itself. Returns False if a person has just answered: that answer counts.

    Unless `even_claimed`, also False when somebody has claimed the task. The task's row decides, because a person's
    decision also changes its state from open.
    """
    attempt = attempt_log.attempt_of(workflow)
    rows = write(
        attempt,
        f"""
        WITH unanswered AS (
            UPDATE workflows_manualtask SET state = 'closed'
             WHERE state = 'open' AND {FENCE} AND (%(even_claimed)s OR assignee_id IS NULL) AND wait_id = (
                   SELECT id FROM workflows_wait
                    WHERE workflow_id = %(workflow_id)s AND name = %(name)s AND NOT superseded)
            RETURNING wait_id)
        UPDATE workflows_wait SET superseded = true FROM unanswered WHERE id = unanswered.wait_id RETURNING id
        """,  # noqa: S608 (FENCE is ours)
        name=name,
        even_claimed=even_claimed,
    )
    return bool(rows)


def is_answered(workflow: Workflow, name: str) -> bool:
    """Whether a person has answered the question, so that `ask` returns the answer."""
    workflow_id = attempt_log.attempt_of(workflow).workflow_id
    sql = """SELECT 1 FROM workflows_wait q JOIN workflows_manualtask t ON t.wait_id = q.id
              WHERE q.workflow_id = %s AND q.name = %s AND NOT q.superseded AND t.state IN ('approved', 'rejected')"""
    return bool(attempt_log.execute(sql, [workflow_id, name]))


def is_asked(workflow: Workflow, name: str) -> bool:
    """Whether the question stands: asked, and perhaps answered, and not withdrawn."""
    workflow_id = attempt_log.attempt_of(workflow).workflow_id
    sql = "SELECT 1 FROM workflows_wait WHERE workflow_id = %s AND name = %s AND NOT superseded"
    return bool(attempt_log.execute(sql, [workflow_id, name]))


def was_withdrawn(workflow: Workflow, name: str) -> bool:
    """Whether a question of this name was withdrawn before."""
    workflow_id = attempt_log.attempt_of(workflow).workflow_id
    sql = "SELECT 1 FROM workflows_wait WHERE workflow_id = %s AND name = %s AND superseded LIMIT 1"
    return bool(attempt_log.execute(sql, [workflow_id, name]))


@dataclass(frozen=True, slots=True)
class _Task:
    """A manual task to be made; the fields are those of `require_approval`.

    `of_engine`: somebody is asked whatever groups exist (`waits.team`).
    """

    question: str
    facts: Mapping[str, str]
    task_type: str
    form: type[BaseModel] | None = None
    team: str = ""
    assignee: str = ""
    due: timedelta | None = None
    on_expiry: OnExpiry = "expired"
    requested_by: str = ""
    four_eyes: bool = False
    of_engine: bool = False


def _ask(workflow: Workflow, name: str, task: _Task, timeout: timedelta, look_every: timedelta | None = None) -> Answer:
    attempt = attempt_log.attempt_of(workflow)
    wait = find(attempt, Wait.Kind.APPROVAL, name, look_every=look_every)
    if wait is None:
        wait = _begin(attempt, name, task, timeout)
        if look_every:  # a new row looks no sooner than its deadline
            wait = find(attempt, Wait.Kind.APPROVAL, name, look_every=look_every) or wait
    if not wait.outcome:
        asked = _task_of(wait)
        wait = _answer(attempt, wait, asked) or _expire(attempt, wait, asked) or wait
        if not wait.outcome and wait.overdue:  # decided in time; maintenance has still to store the signal
            wait = replace(wait, look_at=attempt_log.execute("SELECT clock_timestamp() + interval '1 s'", ())[0][0])
        if not wait.outcome:
            raise suspension(attempt, wait, task.question, [asked.signal_name])
    return Answer(wait.id, wait.outcome, wait.result)


def _begin(attempt: OpenAttempt, name: str, task: _Task, timeout: timedelta) -> WaitRow:
    """Make the wait and its manual task in one statement."""
    wait = insert_parameters(attempt, Wait.Kind.APPROVAL, name, task.question, timeout)
    _ensure_storable(task)
    assignee, requester = _user_id(task.assignee), _user_id(task.requested_by)
    if task.four_eyes and requester is None:
        raise NobodyToAsk(
            "Four eyes need a requester: requested_by names no user of this database.", code="requester_unknown"
        )
    if task.four_eyes and requester == assignee:
        raise WaitError("The assignee requested this, so they may not decide it.", code="requester_is_assignee")
    if task.assignee and assignee is None:
        raise NobodyToAsk("The assignee is no user of this database.", code="assignee_unknown")
    if task.team and not task.of_engine and not is_group(task.team):
        raise NobodyToAsk(f"It is for the team {task.team}, and there is no such group.", code="team_unknown")
    rows = write(
        attempt,
        f"""
        WITH wait AS ({INSERT_WAIT} RETURNING id, deadline)
        INSERT INTO workflows_manualtask (
               workflow_id, wait_id, task_type, question, facts, answer_model, team, assignee_id,
               due_at, expires_at, on_expiry, requested_by_id, four_eyes, undoable)
        SELECT %(workflow_id)s, wait.id, %(task_type)s, %(question)s, %(facts)s, %(answer_model)s, %(team)s,
               %(assignee_id)s::bigint, clock_timestamp() + %(due)s::interval, wait.deadline, %(on_expiry)s,
               %(requested_by_id)s::bigint, %(four_eyes)s, %(undoable)s FROM wait
        RETURNING wait_id, expires_at, expires_at <= clock_timestamp(), expires_at
        """,  # noqa: S608 (INSERT_WAIT is ours)
        **wait,
        task_type=task.task_type,
        question=task.question,
        facts=json.dumps(list(task.facts.items())),
        answer_model=_path_of(task.form),
        team=team_for_the_engine(task.team) if task.of_engine else task.team,
        assignee_id=assignee,
        due=task.due,
        on_expiry=task.on_expiry,
        requested_by_id=requester,
        four_eyes=bool(task.four_eyes),
        undoable=not task.of_engine,
    )
    return WaitRow(*row_or_claim_lost(rows))


def _ensure_storable(task: _Task) -> None:
    """Raise WaitError for what the task's row cannot store, or a name that no user or group can have."""
    ensure_text("A question's task_type", task.task_type, longest=100)
    for what in ("team", "assignee", "requested_by"):
        ensure_text(f"A question's {what}", getattr(task, what), longest=150)
    ensure_value("A question's facts", list(task.facts.items()))
    ensure_text("The path of a question's form", _path_of(task.form), longest=300)
    if task.due is not None:
        ensure_time("A question's due time", task.due)
    if task.on_expiry not in get_args(OnExpiry):
        raise WaitError(f"A question's on_expiry is one of {', '.join(get_args(OnExpiry))}.")


def _answer(attempt: OpenAttempt, wait: WaitRow, task: ManualTask) -> WaitRow | None:
    """Record the decision as the wait's outcome, if it has come, before any step sees it."""
    rows = write(
        attempt,
        f"""
        WITH decision AS (
            SELECT id, payload, CASE WHEN (payload->>'approved')::boolean THEN 'approved' ELSE 'rejected' END AS outcome
              FROM workflows_signal
             WHERE workflow_id = %(workflow_id)s AND name = %(name)s AND closed_at IS NULL ORDER BY id LIMIT 1),
        answered AS (
            UPDATE workflows_wait w
               SET outcome = decision.outcome, result = decision.payload, signal_id = decision.id,
                   resolved_at = clock_timestamp(), call_number = nextval('workflows_effect_call_number')
              FROM decision WHERE w.id = %(wait_id)s AND w.outcome = '' AND {FENCE}
            RETURNING w.id, w.outcome, w.result)
        UPDATE workflows_signal s SET closed_at = clock_timestamp()
          FROM answered, decision WHERE s.id = decision.id
        RETURNING answered.outcome, answered.result::text
        """,  # noqa: S608 (FENCE is ours)
        wait_id=wait.id,
        name=task.signal_name,
    )
    return with_outcome(wait, rows)


def _expire(attempt: OpenAttempt, wait: WaitRow, task: ManualTask) -> WaitRow | None:
    """Past the deadline, close the task and record the outcome of the expiry.

    The task's row decides between expiry and a person's decision: the first statement to change its state from open
    wins. A decision commits its signal together with that, so that another look finds it.
    """
    if not wait.overdue:
        return None
    rows = write(
        attempt,
        f"""
        WITH task AS (
            UPDATE workflows_manualtask SET state = 'expired' WHERE id = %(task_id)s AND state = 'open' AND {FENCE}
            RETURNING wait_id, on_expiry, task_type),
        event AS (
            INSERT INTO workflows_event (workflow_id, kind, attempt, detail)
            SELECT %(workflow_id)s, 'expired', %(attempt)s,
                   jsonb_build_object('task', %(task_id)s::bigint, 'type', task_type, 'counts_as', on_expiry) FROM task)
        UPDATE workflows_wait w SET outcome = task.on_expiry, result = %(result)s, resolved_at = clock_timestamp()
          FROM task WHERE w.id = task.wait_id RETURNING w.outcome, w.result::text
        """,  # noqa: S608 (FENCE is ours)
        attempt=attempt.number,
        task_id=task.pk,
        result=json.dumps(_EXPIRED),
    )
    if expired := with_outcome(wait, rows):
        return expired
    attempt_log.require_claim(attempt)
    return _answer(attempt, wait, task)


_EXPIRED = {"by": "", "reason": "Nobody decided in time.", "expired": True}


def _task_of(wait: WaitRow) -> ManualTask:
    """The task of the wait: its id, which is part of the name of the signal with its decision."""
    return ManualTask(pk=attempt_log.execute("SELECT id FROM workflows_manualtask WHERE wait_id = %s", [wait.id])[0][0])


def _user_id(username: str) -> int | None:
    """The id of the user of that name, read on the attempt log, which does not depend on the claim's locks."""
    if not username:
        return None
    rows = attempt_log.execute(*named(username).values("pk").query.sql_with_params())
    return rows[0][0] if rows else None


def _path_of(form: type[BaseModel] | None) -> str:
    """The form's dotted path, for the console. Raises WaitError if the console could not import it."""
    if form is None:
        return ""
    if issubclass(form, RootModel):
        raise WaitError(f"The form {form.__name__} has no fields that a person could fill in.")
    path = form.__qualname__
    if vars(sys.modules[form.__module__]).get(path) is not form:
        raise WaitError(f"The form {path} is not at the top of its module: the console could not find it.")
    return f"{form.__module__}.{path}"


def _filled_in(workflow: Workflow, name: str, form: type[BaseModel], result: Mapping[str, Any]) -> BaseModel | None:
    """The answer as the form's model; None when nobody gave one.

    Raises WaitError when this release's model refuses an answer that was given to another release. The question is then
    withdrawn: otherwise the answer would fail every retry, and nobody could give another.
    """
    if "expired" in result:
        return None
    try:
        return form.model_validate_json(json.dumps(result.get("answer") or {}))
    except ValidationError as error:
        withdraw(workflow, name)
        raise WaitError(
            f"The answer does not fit {form.__name__}: {field_errors(error)}.", code="answer_invalid"
        ) from None
