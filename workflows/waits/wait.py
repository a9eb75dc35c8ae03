"""The common parts of all waits: find or make the row, record the outcome, suspend. Fenced, on the attempt log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from workflows.errors import ClaimLost, StepError, Suspend, error_chain
from workflows.models import Wait
from workflows.postgres.jsonb import Unstorable, ensure_storable
from workflows.state import attempt_log
from workflows.state.attempt_log import FENCE, OpenAttempt

# The first look. The next comes after as long again as the wait has lasted: 5 s, 10 s, 20 s ...
FIRST_LOOK = timedelta(seconds=5)
# Longer than any wait, and well before the year 10000, which Python cannot read.
LONGEST_TIMEOUT = timedelta(days=36_500)


def ensure_text(what: str, text: str, *, longest: int | None = None, empty: bool = True) -> None:
    """Raise WaitError for a text that no column can store. The database's own error would not count as the step's."""
    if not isinstance(text, str):
        raise WaitError(f"{what} is text, and not of type {type(text).__name__}.")
    if (longest is not None and len(text) > longest) or (not text and not empty):
        raise WaitError(f"{what} has {0 if empty else 1} to {longest} characters.")
    ensure_value(what, text)


def ensure_value(what: str, value: Any) -> None:
    """Raise WaitError unless jsonb can store the value."""
    try:
        ensure_storable(value)
    except Unstorable as refused:
        raise WaitError(f"{what} cannot be stored: {refused}") from None


def ensure_time(what: str, time: timedelta) -> None:
    """Raise WaitError for a time span that leads outside what the database can store, or Python can read."""
    if not isinstance(time, timedelta):
        raise WaitError(f"{what} is a timedelta, and not of type {type(time).__name__}.")
    if abs(time) > LONGEST_TIMEOUT:
        raise WaitError(f"{what} is within {LONGEST_TIMEOUT.days} days: a wait has an end.")


class WaitError(StepError):
    """A wait cannot be made as requested, or has failed. If a step lets this pass, the workflow is FAILED.

    In a `once` step it does not show whether the step's call was already made.
    """


class WaitFailed(WaitError):
    """A wait has failed. If a step lets this pass, the workflow is FAILED; a retry waits again."""

    wait_id = 0  # for an error class of a step that does not call this __init__

    def __init__(self, message: str, *, code: str = "", wait_id: int = 0) -> None:
        super().__init__(message, code=code)
        self.wait_id = wait_id


class WaitExpired(WaitFailed):
    """The event did not come in time. If a step lets this pass, the workflow is FAILED."""


def supersede_failed(workflow_id: int, error: BaseException | None) -> None:
    """After a failure with `error`, supersede the waits that caused it, so that a retry makes them again.

    These are the waits that raised it, or an error in its chain or group. Any other wait that has expired, or got a
    "no", keeps its answer.
    """
    if failed := [each.wait_id for each in error_chain(error) if isinstance(each, WaitFailed)]:
        Wait.objects.filter(workflow=workflow_id, pk__in=failed).update(superseded=True)


@dataclass(frozen=True, slots=True)
class WaitRow:
    """A wait's current state. `outcome` is empty while it is open. `overdue`: its deadline has passed.

    `look_at` is when to run again if nothing wakes the workflow: the deadline, or sooner.
    """

    id: int
    deadline: datetime
    overdue: bool
    look_at: datetime
    outcome: str = ""
    result: dict[str, Any] = field(default_factory=dict)


# When to look again. The parameter `look_every` is the longest time between two looks, or None.
_LOOK_AT = f"""
    CASE WHEN %(look_every)s::interval IS NULL THEN deadline
         ELSE least(deadline, clock_timestamp() + least(%(look_every)s::interval, greatest(
                interval '{FIRST_LOOK.total_seconds()} s', clock_timestamp() - created_at))) END"""


def find(attempt: OpenAttempt, kind: Wait.Kind, name: str, *, look_every: timedelta | None = None) -> WaitRow | None:
    """The wait of that name; None if it is new. Raises WaitError for an invalid name or that of another kind."""
    ensure_text("A wait's name", name, longest=200, empty=False)
    rows = attempt_log.execute(
        f"""SELECT kind, id, deadline, deadline <= clock_timestamp(), {_LOOK_AT}, outcome, result::text
              FROM workflows_wait
             WHERE workflow_id = %(workflow_id)s AND name = %(name)s AND NOT superseded""",  # noqa: S608 (ours)
        {"workflow_id": attempt.workflow_id, "name": name, "look_every": look_every},
    )
    for found, wait_id, deadline, overdue, look_at, outcome, result in rows:
        if found != kind:
            raise WaitError(f"Two waits are named {name!r}, one for {found} and one for {kind}: rename one of them.")
        return WaitRow(wait_id, deadline, overdue, look_at, outcome, json.loads(result))
    return None


# Makes the wait if the row is still ours, with `insert_parameters`. If a worker that lost the row is writing the same
# wait, this statement waits for it, and the next attempt finds the wait.
INSERT_WAIT = f"""
    INSERT INTO workflows_wait (workflow_id, kind, name, generation, waiting_for, deadline, due_at, team)
    SELECT %(workflow_id)s, %(kind)s, %(name)s::text, 1 + (
           SELECT count(*) FROM workflows_wait WHERE workflow_id = %(workflow_id)s AND name = %(name)s),
           %(waiting_for)s, clock_timestamp() + %(timeout)s, clock_timestamp() + %(wait_due)s::interval, %(wait_team)s
     WHERE {FENCE}
    ON CONFLICT (workflow_id, name, generation) DO NOTHING"""  # noqa: S608 (FENCE is ours)


def insert_parameters(
    attempt: OpenAttempt,
    kind: Wait.Kind,
    name: str,
    waiting_for: str,
    timeout: timedelta,
    due: timedelta | None = None,
    team: str = "",
) -> dict[str, Any]:
    """The parameters of INSERT_WAIT. Raises WaitError for what no row can store, and for a `due` past the timeout.

    Raises Suspend where waiting is not allowed: no question is asked for nobody, and no children are started.
    """
    ensure_text("What a wait is for", waiting_for)
    if not attempt.may_wait:
        attempt.suspended = Suspend(waiting_for, wake_on=(), until=timezone.now())
        raise attempt.suspended
    ensure_time("A wait's timeout", timeout)
    if due is not None:
        ensure_time("The time until a wait is due", due)
        if not timedelta(0) < due < timeout:
            raise WaitError(f"A wait of {timeout} is due before that, and not after {due}.")
    when_due = {"wait_due": due, "wait_team": team}
    return {"kind": kind, "name": name, "waiting_for": waiting_for, "timeout": timeout, **when_due}


def begin(
    attempt: OpenAttempt,
    kind: Wait.Kind,
    name: str,
    *,
    waiting_for: str,
    timeout: timedelta,
    look_every: timedelta | None = None,
    due: timedelta | None = None,
    team: str = "",
) -> WaitRow:
    """Make the wait. Its deadline is the database's clock plus `timeout`; it is overdue after `due`."""
    rows = write(
        attempt,
        f"{INSERT_WAIT} RETURNING id, deadline, deadline <= clock_timestamp(), {_LOOK_AT}",
        look_every=look_every,
        **insert_parameters(attempt, kind, name, waiting_for, timeout, due, team),
    )
    return WaitRow(*row_or_claim_lost(rows))


def write(attempt: OpenAttempt, sql: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
    """Run a fenced statement; return its rows, or none if the workflow is no longer ours."""
    ours = {"workflow_id": attempt.workflow_id, "claim_xid": attempt.claim_xid}
    return attempt_log.execute(sql, {**ours, **parameters})


def row_or_claim_lost(rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The row of a fenced statement. Raises ClaimLost if there is none: another worker holds the workflow, or did."""
    if not rows:
        raise ClaimLost("the claim ended before the wait was written, or another worker has written it")
    return rows[0]


def with_outcome(wait: WaitRow, rows: list[tuple[Any, ...]]) -> WaitRow | None:
    """The wait with the outcome and the result (JSON text) that a statement has recorded; None if it recorded none."""
    for outcome, result in rows:
        return replace(wait, outcome=outcome, result=json.loads(result))
    return None


def expire(attempt: OpenAttempt, wait: WaitRow, outcome: str = "expired") -> WaitRow:
    """Record that the deadline has passed, if it has."""
    if wait.outcome or not wait.overdue:
        return wait
    rows = write(
        attempt,
        f"""UPDATE workflows_wait SET outcome = %(outcome)s, resolved_at = clock_timestamp()
             WHERE id = %(wait_id)s AND outcome = '' AND {FENCE} RETURNING outcome""",  # noqa: S608 (FENCE is ours)
        wait_id=wait.id,
        outcome=outcome,
    )
    return replace(wait, outcome=row_or_claim_lost(rows)[0])


def suspension(
    attempt: OpenAttempt,
    wait: WaitRow,
    waiting_for: str,
    wake_on: Sequence[str] = (),
    matching: Mapping[str, Any] | None = None,
) -> Suspend:
    """The Suspend to raise: the workflow waits for a signal with those names and that payload, or for `wait.look_at`.

    The attempt remembers it, in case a step swallows it. Raises ClaimLost if another worker that had lost the row has
    answered the wait in the meantime. Raises WaitError for a text that no row can store.
    """
    ensure_text("What a wait is for", waiting_for)
    if attempt_log.execute("SELECT 1 FROM workflows_wait WHERE id = %s AND outcome <> ''", [wait.id]):
        raise ClaimLost("a worker that has lost the row has answered the wait just now")
    attempt.suspended = Suspend(waiting_for, wake_on=wake_on, until=wait.look_at, matching=matching)
    return attempt.suspended
