"""THE ATTEMPT LOG: a second connection, in autocommit, for facts that must survive a rollback or a crash.

**Losing the attempt log is losing the claim** (docs/internals/claim.md): it is opened before the claim, and never again
during an attempt. A restarted server may have given the claim's transaction id to another transaction.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from os import urandom
from time import monotonic
from typing import Any, NamedTuple

from django.db import Error, connections, transaction

from workflows import failpoints
from workflows.defaults import ATTEMPT_LOG
from workflows.definition import undo_of
from workflows.errors import ClaimLost, Suspend
from workflows.models import Attempt, Event, Workflow
from workflows.models.steps_on_record import as_recorded
from workflows.postgres import sqlstates
from workflows.postgres.round_trips import Session, session_of
from workflows.postgres.statements import Parameters, literals
from workflows.state.boundary import Boundary
from workflows.timeouts import StepTimeout
from workflows.trace_context import Trace

logger = logging.getLogger(__name__)

ALIAS = ATTEMPT_LOG

# A condition for a statement's WHERE; its parameter is the attempt's `claim_xid`.
FENCE = "pg_xact_status(%(claim_xid)s::text::xid8) = 'in progress'"


# How many attempts since the last decision are read. Each death takes at most two rows: itself and a back-off.
PAST_LIMIT = 200


class PastAttempt(NamedTuple):
    """An attempt that ended without a decision. `died_in` and `died_how` say how its worker ended, if known.

    `still_due`: since the attempt started, nothing has rescheduled or woken the workflow.
    """

    number: int
    outcome: str
    died_in: str
    died_how: str
    still_due: bool
    release: str


class Made(NamedTuple):
    """A call to a service that an attempt made; times are of the monotonic clock."""

    service: str
    began: float
    ended: float
    unavailable: bool
    span_id: int  # 0 where nothing is traced


@dataclass(slots=True)
class OpenAttempt:
    """An attempt in progress: its row's id, number and worker, and the transaction that holds the row lock."""

    id: int
    number: int
    workflow_id: int
    claim_xid: str
    # Written with the attempt's effects; no other process knows it. After a failover, ids may be used again.
    token: str = field(default_factory=lambda: urandom(16).hex())
    worker: str = ""
    steps: list[dict[str, Any]] = field(default_factory=list)
    opened_at: float = field(default_factory=monotonic)
    steps_started_at: list[float] = field(default_factory=list)  # one for each of `steps`, by the monotonic clock
    held_back: tuple[str, Mapping[str, Any]] | None = None  # a statement to send with the next one: see hold_back
    held_back_for: str = ""  # the step of the held-back statement
    boundary: Boundary = field(default_factory=Boundary)  # what the worker does around its steps
    suspended: Suspend | None = None  # by a wait
    may_wait: bool = True  # a deferred step may not: its workflow is COMPLETE
    lost: ClaimLost | None = None  # the attempt log has failed
    step_error: BaseException | None = None  # the last error from a step author's code
    session: Session | None = None  # of the claim, while step authors' code is called
    log: Session | None = None  # of the attempt log, while the attempt is bound to it
    left_busy: bool = False  # a step has left a COPY, a stream or a pipeline open
    past: list[PastAttempt] = field(default_factory=list)  # since the last decision, newest first
    snapshot: str = ""  # pg_snapshot: shows which signals were committed when the attempt was opened
    trace: Trace | None = None  # if it is traced
    made: list[Made] = field(default_factory=list)  # its calls to services, for its spans
    joined: list[str] = field(default_factory=list)  # the waits for children that its steps have met
    told: list[Any] = field(default_factory=list)  # payloads of signals, and people's answers, that its steps have got


class _Bound(threading.local):
    attempt: OpenAttempt | None = None


_bound = _Bound()


def connect() -> None:
    """Open the connection unless it is open. Called before the claim starts, never after."""
    session_of(ALIAS)


def execute(sql: str, parameters: Parameters) -> list[tuple[Any, ...]]:
    """Run one statement on the attempt log, with its parameters sent separately, and return its rows.

    Raises ClaimLost on any database error. After that nothing more is sent during the attempt, because a step, or its
    lookup, may have swallowed the error and opened a new connection.
    """
    attempt = _bound.attempt
    if attempt and attempt.lost:
        raise attempt.lost
    try:
        session = (attempt and attempt.log) or session_of(ALIAS)
        return session.run(sql, parameters)
    except Error as error:
        raise _lost(attempt, error) from error


@contextmanager
def errors_lose_the_claim() -> Iterator[None]:
    """Wraps other statements on the attempt log: any database error becomes ClaimLost, as in `execute`."""
    attempt = _bound.attempt
    if attempt and attempt.lost:
        raise attempt.lost
    try:
        yield
    except Error as error:
        raise _lost(attempt, error) from error


def _lost(attempt: OpenAttempt | None, error: Error) -> ClaimLost:
    lost = ClaimLost(f"the attempt log failed with {sqlstates.loggable(error)}")
    if attempt:
        attempt.lost = lost  # in case a step swallows even that
    return lost


def hold_back(attempt: OpenAttempt, sql: str, parameters: Mapping[str, Any]) -> None:
    """Keep a statement back, to send it with the attempt's next one, as one statement and one commit.

    A caller that does anything else next calls `flush` first. The statement is written even when the claim is lost, so
    only a fact that stays true whichever worker has the row may be held back.
    """
    if attempt.held_back:
        flush(attempt)
    attempt.held_back = (sql, parameters)
    attempt.held_back_for = last_step(attempt)


def flush(attempt: OpenAttempt) -> None:
    """Write the held-back statement. If the attempt log is lost now, it stays held back for `close_as_lost`."""
    if attempt.held_back:
        execute(*attempt.held_back)
        attempt.held_back = None
        failpoints.held_back_written()


def execute_with_held_back(attempt: OpenAttempt, sql: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Run a statement with the held-back one, an UPDATE of other rows. A parameter that both use has one value."""
    if attempt.held_back:
        before, before_parameters = attempt.held_back
        sql, parameters = f"WITH before AS ({before}) {sql}", {**before_parameters, **parameters}
    rows = execute(sql, parameters)
    attempt.held_back = None
    failpoints.held_back_written()
    return rows


def open_attempt(workflow: Workflow, *, claim_xid: str, worker: str, release: str) -> OpenAttempt:
    """Record that an attempt starts, and close an earlier one that is still open, without a worker, as vanished.

    Returns the new attempt, with the attempts since the last decision, or since the run started (`Event.STARTS_RUN`).
    """
    opened = {"workflow_id": workflow.id, "due_since": workflow.invisible_until, "claim_xid": claim_xid}
    opened |= {"worker": worker, "release": release}
    # A workflow that has not started has attempts only if a worker died. Then the first statement writes nothing.
    rows = (not workflow.begun and execute(_OPEN_FIRST, opened)) or execute(_OPEN, opened)
    if not rows:
        raise ClaimLost(
            "the claim ended before its attempt was opened, or another worker, which had lost the row, was opening one"
        )
    (attempt_id, number, past, snapshot), *_ = rows
    past_attempts = [PastAttempt(*each) for each in json.loads(past)] if past else []
    return OpenAttempt(attempt_id, number, workflow.id, claim_xid, worker=worker, past=past_attempts, snapshot=snapshot)


def closing_as_vanished(condition: str) -> str:
    """The beginning of a statement that closes a workflow's open attempts as vanished, and adds that to the history.

    `condition` is SQL: they are closed only if it holds. The parameters are `workflow_id`, and those of the condition.
    """
    return f"""
        WITH vanished AS (
            UPDATE workflows_attempt
               SET outcome = 'vanished', closed_at = clock_timestamp(), closed_xid = pg_current_xact_id()
             WHERE workflow_id = %(workflow_id)s AND closed_at IS NULL AND {condition} RETURNING workflow_id, number),
        event AS (
            INSERT INTO workflows_event (workflow_id, kind, attempt)
            SELECT workflow_id, 'vanished', number FROM vanished)"""  # noqa: S608 (the condition is the engine's)


# This query runs in the statement's snapshot, so an attempt that the statement has just closed as vanished still looks
# open. Events are read only if there is an attempt since the last decision. Attempts and events are compared by id,
# because the clock may have been set back.
_PAST = f"""
    SELECT json_agg(json_build_array(
               number, CASE WHEN closed_at IS NULL THEN 'vanished' ELSE outcome END, died_in, died_how,
               opened_at >= %(due_since)s, release))
      FROM (SELECT * FROM workflows_attempt
             WHERE workflow_id = %(workflow_id)s AND number > coalesce((
                SELECT number FROM workflows_attempt
                 WHERE workflow_id = %(workflow_id)s AND outcome IN {literals(Attempt.DECIDED)}
                 ORDER BY number DESC LIMIT 1), 0)
               AND number > coalesce((
                SELECT max(attempt) FROM (
                    SELECT attempt,
                           id < max(id) FILTER (WHERE kind IN {literals(Event.STARTS_RUN)}) OVER () AS is_before
                      FROM workflows_event WHERE workflow_id = %(workflow_id)s) told
                 WHERE is_before), 0)
             ORDER BY number DESC LIMIT {PAST_LIMIT}) past
"""  # noqa: S608 (the limit is ours)

_OPEN = f"""
        {closing_as_vanished(FENCE)}
        INSERT INTO workflows_attempt (workflow_id, number, worker, release, due_since)
        SELECT %(workflow_id)s, (
               SELECT coalesce(max(number), 0) + 1 FROM workflows_attempt WHERE workflow_id = %(workflow_id)s),
               %(worker)s, %(release)s, %(due_since)s
         WHERE {FENCE}
        ON CONFLICT (workflow_id, number) DO NOTHING
        RETURNING id, number, ({_PAST})::text, pg_current_snapshot()"""  # noqa: S608 (all are ours)

_OPEN_FIRST = f"""
        INSERT INTO workflows_attempt (workflow_id, number, worker, release, due_since)
        SELECT %(workflow_id)s, 1, %(worker)s, %(release)s, %(due_since)s WHERE {FENCE}
        ON CONFLICT (workflow_id, number) DO NOTHING
        RETURNING id, number, NULL, pg_current_snapshot()"""


class attribute_to_step(AbstractContextManager[None]):  # noqa: N801 (`contextmanager` takes three times as long)
    """Wraps a step author's code: a database error raised there is the step's. Any other is the engine's."""

    __slots__ = ("_attempt",)

    def __init__(self, attempt: OpenAttempt) -> None:
        self._attempt = attempt

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        step_code_ended(self._attempt, error)


def step_code_ended(attempt: OpenAttempt, error: BaseException | None) -> None:
    """What `attribute_to_step` does at its end."""
    if error is not None:
        attempt.step_error = error
    if attempt.session and attempt.session.close_if_busy():
        attempt.left_busy = not isinstance(error, StepTimeout)  # a timeout may leave an answer unread


def ensure_from_step(attempt: OpenAttempt, error: BaseException) -> None:
    """Raise ClaimLost when `error` comes from a statement of the engine, on either connection, and not from the step.

    Also raises it when a step has swallowed the loss of the attempt log and then raised another error.
    """
    if attempt.lost:
        raise attempt.lost
    if isinstance(error, sqlstates.DATABASE_ERRORS) and error is not attempt.step_error:
        raise ClaimLost(f"a statement of the engine failed with {sqlstates.loggable(error)}") from error


def require_claim(attempt: OpenAttempt) -> None:
    """Raise ClaimLost unless the claim's transaction is still in progress, and the attempt log can confirm it."""
    if execute(f"SELECT {FENCE}", {"claim_xid": attempt.claim_xid}) != [(True,)]:
        raise ClaimLost("the claim's transaction has ended")


def close_as_lost(attempt: OpenAttempt, how: str = "") -> None:
    """Close an attempt whose claim was lost, on a newly opened connection. `how` names the error.

    An attempt whose claim did commit, and lost only the answer, is already closed. During that commit this waits for
    the row that the commit has locked.

    If the database refuses a call's result for good, the result is dropped: the ledger has the INTENT, so the next
    attempt finds out whether the call happened. If the result cannot be written now (a read-only server, a full disk, a
    locked table), it is kept, and ClaimLost is raised.
    """
    refused = None
    try:
        flush(attempt)
    except ClaimLost as lost:
        if not (connections[ALIAS].is_usable() and sqlstates.is_statement_error(lost)):
            raise
        refused = lost
    step, steps = last_step(attempt), attempt.steps
    with transaction.atomic(using=ALIAS):
        for sql, parameters in closing_statements(
            attempt.id, attempt.worker, Attempt.Outcome.LOST, step=step, how=how[:50], steps=steps
        ):
            execute(sql, parameters)
    if refused:
        logger.error("workflow %s: what came of its last call cannot be written: %s", attempt.workflow_id, str(refused))


def last_step(attempt: OpenAttempt) -> str:
    """The step, or undo, that was entered last."""
    last = attempt.steps[-1] if attempt.steps else {"step": ""}
    return undo_of(last["step"]) if last.get("undo") else str(last["step"])


def closing_statements(
    attempt_id: int, worker: str, outcome: Attempt.Outcome, *, step: str, how: str = "", steps: Sequence[Any] = ()
) -> list[tuple[str, Mapping[str, Any]]]:
    """The statements that close an attempt without a decision, for a caller that knows what became of its worker.

    They replace *vanished*, in the history too; a decided attempt stays as it is. They are two statements in one
    transaction: the first may wait for the next worker's statement, whose event only a later snapshot shows. Both may
    be sent again.

    A server that took over, and lacks the last moments, may have given the id to an attempt of another `worker`: that
    attempt is left alone.
    """
    recorded = as_recorded(steps)
    parameters = {
        "attempt_id": attempt_id,
        "worker": worker,
        "outcome": outcome,
        "step": step,
        "how": how,
        "detail": json.dumps({"how": how} if how else {}),
        "steps_in_short": recorded.in_short,
        "steps_in_full": json.dumps(recorded.in_full),
    }
    return [(_CLOSE, parameters), (_CORRECT_EVENT, parameters)]


_CLOSE = """
    UPDATE workflows_attempt
       SET outcome = %(outcome)s, closed_at = coalesce(closed_at, clock_timestamp()),
           closed_xid = coalesce(closed_xid, pg_current_xact_id()),
           corrected_xid = CASE outcome WHEN 'vanished' THEN pg_current_xact_id() END,
           died_in = %(step)s, died_how = %(how)s,
           steps_in_short = %(steps_in_short)s, steps = %(steps_in_full)s
     WHERE id = %(attempt_id)s AND worker = %(worker)s AND outcome IN ('', 'vanished')"""


_CORRECT_EVENT = """
    WITH ended AS (
        SELECT workflow_id, number FROM workflows_attempt WHERE id = %(attempt_id)s AND outcome = %(outcome)s),
    corrected AS (
        UPDATE workflows_event e SET kind = %(outcome)s, step = %(step)s, detail = %(detail)s FROM ended
         WHERE e.workflow_id = ended.workflow_id AND e.attempt = ended.number AND e.kind = 'vanished'
        RETURNING e.id)
    INSERT INTO workflows_event (workflow_id, kind, attempt, step, detail)
    SELECT workflow_id, %(outcome)s, number, %(step)s, %(detail)s FROM ended
     WHERE NOT EXISTS (SELECT FROM corrected)
       AND NOT EXISTS (SELECT FROM workflows_event e
                        WHERE e.workflow_id = ended.workflow_id AND e.attempt = ended.number
                          AND e.kind = %(outcome)s)"""


class bound_to(AbstractContextManager[None]):  # noqa: N801 (see `attribute_to_step`)
    """Let this thread write the log of `attempt` until it is decided. A step's own threads have other connections."""

    __slots__ = ("_attempt",)

    def __init__(self, attempt: OpenAttempt) -> None:
        self._attempt = attempt

    def __enter__(self) -> None:
        self._attempt.log, _bound.attempt = session_of(ALIAS), self._attempt

    def __exit__(self, *_: object) -> None:
        self._attempt.log = _bound.attempt = None


def running_attempt() -> OpenAttempt:
    """The attempt that this thread runs. RuntimeError when it runs none."""
    attempt = _bound.attempt
    if attempt is None:
        raise RuntimeError("This works inside a step that a worker runs, in its own thread; here no worker runs one.")
    return attempt


def attempt_of(workflow: Workflow) -> OpenAttempt:
    """The attempt that is running `workflow` in this process. RuntimeError when there is none."""
    attempt = _bound.attempt
    if attempt is None or attempt.workflow_id != workflow.pk:
        raise RuntimeError("Waits work inside a step that a worker runs; here no worker runs this workflow.")
    return attempt
