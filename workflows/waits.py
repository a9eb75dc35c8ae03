"""Waiting, from inside a step. A wait is a row; its answer, once recorded, is the answer of every later attempt.

Each wait is met again on every attempt (a retry restarts at step 1). It returns its recorded answer; or looks for the
signal that answers it, records that, and returns; or raises Suspend: the attempt is rolled back, and the workflow
sleeps until the signal or the deadline.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from workflows import journal
from workflows.errors import ClaimLost, StepError, Suspend
from workflows.journal import FENCE, OpenAttempt
from workflows.models import Workflow


@dataclass(frozen=True, slots=True)
class Approval:
    """A person's yes: the name of who decided, and what they said."""

    decided_by: str
    reason: str


class ApprovalRejected(StepError):
    """A person said no; the message says who and why. Let it pass, and the workflow is FAILED."""


class ApprovalExpired(StepError):
    """Nobody decided in time. Let it pass, and the workflow is FAILED."""


def require_approval(
    workflow: Workflow,
    name: str,
    *,
    question: str,
    facts: Mapping[str, str] | None = None,
    task_type: str = "approval",
    timeout: timedelta,
) -> Approval:
    """Go on only when a person has approved: the first call makes a manual task and suspends the workflow.

    `name` is the wait's identity in this workflow; `question` and `facts` (label -> value) are what the person is
    shown; `timeout` runs from the first call and never moves. Raises ApprovalRejected or ApprovalExpired.
    """
    answer = ask(workflow, name, question=question, facts=facts or {}, task_type=task_type, timeout=timeout)
    match answer.outcome:
        case "approved":
            return Approval(decided_by=answer.result["by"], reason=answer.result["reason"])
        case "rejected":
            by, reason = answer.result["by"], answer.result["reason"]
            raise ApprovalRejected(f"{question} Rejected by {by}: {reason}", code="approval_rejected")
    raise ApprovalExpired(f"{question} Nobody decided in time.", code="approval_expired")


def ask(
    workflow: Workflow,
    name: str,
    *,
    question: str,
    facts: Mapping[str, str],
    task_type: str,
    timeout: timedelta,
) -> Answer:
    """Put a question to a person and return the answer, "approved", "rejected" or "expired"; until then suspend."""
    attempt = journal.attempt_of(workflow)
    wait = _find(attempt, name) or _ask(attempt, name, question, facts, task_type, timeout)
    if not wait.outcome:
        wait = _answer(attempt, wait) or _expire(attempt, wait) or wait
    if not wait.outcome:
        attempt.suspended = Suspend(question, wake_on=[wait.signal_name], until=wait.deadline)
        raise attempt.suspended
    return wait


@dataclass(frozen=True, slots=True)
class Answer:
    """A wait for a person, and what came of it: `outcome` is empty while it is open, `result` what the person said."""

    id: int
    task_id: int
    deadline: datetime
    overdue: bool
    outcome: str
    result: dict[str, Any]

    @property
    def signal_name(self) -> str:
        return f"decision:{self.task_id}"


def _find(attempt: OpenAttempt, name: str) -> Answer | None:
    rows = journal.execute(
        """SELECT w.id, t.id, w.deadline, w.deadline <= clock_timestamp(), w.outcome, w.result::text
             FROM workflows_wait w JOIN workflows_manualtask t ON t.wait_id = w.id
            WHERE w.workflow_id = %s AND w.name = %s AND NOT w.superseded""",
        [attempt.workflow_id, name],
    )
    for wait_id, task_id, deadline, overdue, outcome, result in rows:
        return Answer(wait_id, task_id, deadline, overdue, outcome, json.loads(result))
    return None


def _ask(
    attempt: OpenAttempt,
    name: str,
    question: str,
    facts: Mapping[str, str],
    task_type: str,
    timeout: timedelta,
) -> Answer:
    """Make the wait and its manual task in one statement. The deadline is the database's clock plus `timeout`."""
    rows = journal.execute(
        f"""
        WITH wait AS (
            INSERT INTO workflows_wait (workflow_id, name, generation, waiting_for, deadline)
            SELECT %s, %s, 1 + (SELECT count(*) FROM workflows_wait WHERE workflow_id = %s AND name = %s), %s,
                   clock_timestamp() + %s
             WHERE {FENCE} RETURNING id, deadline)
        INSERT INTO workflows_manualtask (workflow_id, wait_id, task_type, question, facts, expires_at)
        SELECT %s, wait.id, %s, %s, %s, wait.deadline FROM wait
        RETURNING wait_id, id, expires_at
        """,  # noqa: S608 (FENCE is ours)
        [
            *(attempt.workflow_id, name, attempt.workflow_id, name, question, timeout, attempt.claim_xid),
            *(attempt.workflow_id, task_type, question, json.dumps(list(facts.items()))),
        ],
    )
    for wait_id, task_id, deadline in rows:
        return Answer(wait_id, task_id, deadline, overdue=False, outcome="", result={})
    raise ClaimLost("the claim ended before the wait was written")


def _answer(attempt: OpenAttempt, wait: Answer) -> Answer | None:
    """Record the decision, if it has come, as the wait's outcome, before any step sees it."""
    rows = journal.execute(
        f"""
        WITH decision AS (
            SELECT id, payload, CASE WHEN (payload->>'approved')::boolean THEN 'approved' ELSE 'rejected' END AS outcome
              FROM workflows_signal
             WHERE workflow_id = %s AND name = %s AND closed_at IS NULL ORDER BY id LIMIT 1),
        answered AS (
            UPDATE workflows_wait w
               SET outcome = decision.outcome, result = decision.payload, resolved_at = clock_timestamp()
              FROM decision WHERE w.id = %s AND w.outcome = '' AND {FENCE}
            RETURNING w.id, w.outcome, w.result)
        UPDATE workflows_signal s SET answered_id = answered.id, closed_at = clock_timestamp()
          FROM answered, decision WHERE s.id = decision.id
        RETURNING answered.outcome, answered.result::text
        """,  # noqa: S608 (FENCE is ours)
        [attempt.workflow_id, wait.signal_name, wait.id, attempt.claim_xid],
    )
    for outcome, result in rows:
        return replace(wait, outcome=outcome, result=json.loads(result))
    return None


def _expire(attempt: OpenAttempt, wait: Answer) -> Answer | None:
    """Past the deadline, close the task and record that nobody decided.

    The task's row is the arbiter of an expiry that races a decision: whoever changes it from open has won. If that was
    the person, their signal was committed with it, and is found by looking again.
    """
    if not wait.overdue:
        return None
    rows = journal.execute(
        f"""
        WITH task AS (
            UPDATE workflows_manualtask SET state = 'expired' WHERE id = %s AND state = 'open' AND {FENCE}
            RETURNING wait_id)
        UPDATE workflows_wait w SET outcome = 'expired', resolved_at = clock_timestamp()
          FROM task WHERE w.id = task.wait_id RETURNING w.id
        """,  # noqa: S608 (FENCE is ours)
        [wait.task_id, attempt.claim_xid],
    )
    if rows:
        return replace(wait, outcome="expired")
    journal.prove(attempt)
    return _answer(attempt, wait)


def withdraw(workflow: Workflow, name: str) -> None:
    """Ask no longer: what has been answered is forgotten, and the next `ask` of this name is a new question."""
    attempt = journal.attempt_of(workflow)
    journal.execute(
        f"""
        WITH asked AS (
            UPDATE workflows_wait SET superseded = true
             WHERE workflow_id = %s AND name = %s AND NOT superseded AND {FENCE} RETURNING id)
        UPDATE workflows_manualtask SET state = 'closed' FROM asked WHERE wait_id = asked.id AND state = 'open'
        """,  # noqa: S608 (FENCE is ours)
        [attempt.workflow_id, name, attempt.claim_xid],
    )
