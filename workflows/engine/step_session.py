"""STEP SESSION: undo what a step did to the claim's session, before the decision and the next workflow.

If a step ends the claim's transaction, that cannot be undone: the row is free by then. The attempt is lost. The attempt
log keeps the reason, so that the next attempt fails at that step instead of running it again (`find_broken`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import takewhile

from django.db import DEFAULT_DB_ALIAS, connection, connections
from psycopg.pq import TransactionStatus

from workflows.errors import ClaimLost, StepError
from workflows.models import Attempt
from workflows.postgres import session_settings, sqlstates
from workflows.postgres.django_connection import was_closed
from workflows.postgres.round_trips import Session, session_of
from workflows.state import attempt_log
from workflows.state.attempt_log import OpenAttempt, PastAttempt
from workflows.timeouts import StepTimeout

# How a step can break the claim's session, as the attempt log records it; and the messages for the step's author.
ENDED, ENDED_UNSEEN = "the step ended the transaction", "a step ended the transaction"
LEFT_BUSY, CLOSED = "the step left the connection busy", "the step closed the connection"
_MUST_NOT = "A step must not commit or roll back: what it writes is committed with the outcome."
_TOLD = {
    ENDED: f"{{step}} ended the worker's transaction. {_MUST_NOT}",
    ENDED_UNSEEN: f"{{step}}, or a step before it, ended the worker's transaction. {_MUST_NOT}",
    LEFT_BUSY: "{step} left a COPY, a stream or a pipeline open on the worker's connection. A step must end it.",
    CLOSED: "{step} closed the worker's connection, and with it the transaction. A step must leave it open.",
}


def check_deferred_constraints(attempt: OpenAttempt, also: str = "") -> None:
    """Check the deferred constraints now: a failure at the COMMIT would undo the decision as well, for ever.

    A failed constraint is the step's error. Later steps find the constraints deferred again. `also` is SQL to send
    along.
    """
    with attempt_log.attribute_to_step(attempt), connection.cursor() as cursor:
        cursor.execute(f"SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED; {also}")


# What survives a rollback: prepared statements, and the session's advisory locks.
_LET_GO = "DEALLOCATE ALL; SELECT pg_advisory_unlock_all()"
# What RESET ALL leaves: cursors WITH HOLD, the session's role, temporary tables, and LISTEN channels.
_RESET = f"CLOSE ALL; RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; DISCARD TEMP; UNLISTEN *; {_LET_GO}"


def reset(attempt: OpenAttempt) -> None:
    """After the last step, undo what steps did to the session, because it would outlive the attempt."""
    session = attempt.session or session_of()
    if not session.is_used:
        return  # nothing was sent, so there is nothing to check or undo
    check_deferred_constraints(attempt, also=_RESET + session_settings.again_sql(connection))
    session.forget_prepared()


def reset_after_hooks() -> None:
    """After the commit, undo what on_commit hooks of steps did to the session, because the next workflow uses it.

    A session that a hook left in a transaction, or that fails now, is closed; the worker opens another.
    """
    claim = connections[DEFAULT_DB_ALIAS]
    if claim.connection is None:
        return
    try:
        if not claim.autocommit or claim.connection.info.transaction_status != TransactionStatus.IDLE:
            claim.close()
            return
        with claim.cursor() as cursor:
            cursor.execute(_RESET + session_settings.again_sql(claim))
        session_of().forget_prepared()
    except sqlstates.DATABASE_ERRORS:
        claim.close()


def let_go() -> None:
    """Free what a rollback of steps has left in the session."""
    with connection.cursor() as cursor:
        cursor.execute(_LET_GO)
    session_of().forget_prepared()


def is_broken(attempt: OpenAttempt) -> bool:
    """Whether the claim's transaction has ended or must be rolled back: see `Session.is_broken`."""
    return (attempt.session or session_of()).is_broken()


# --- A session that a step has broken -----------------------------------------------------------------


class SessionBroken(ClaimLost):
    """A step has broken the claim's session: `how`, and at which step."""

    def __init__(self, how: str, step: str) -> None:
        super().__init__(_TOLD[how].format(step=step))
        self.how = how


class guarded(AbstractContextManager[None]):  # noqa: N801 (see `attempt_log.attribute_to_step`)
    """Wraps all calls of a step author's code: if that code loses the claim, raises SessionBroken."""

    __slots__ = ("_attempt",)

    def __init__(self, attempt: OpenAttempt) -> None:
        self._attempt = attempt

    def __enter__(self) -> None:
        self._attempt.session = session = session_of()
        session.has_ended = False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception | ClaimLost) and (how := _how_broken(self._attempt)):
            raise SessionBroken(how, attempt_log.last_step(self._attempt)) from None


def _how_broken(attempt: OpenAttempt) -> str:
    """How code of a step's author has broken the claim's session; empty if it has not."""
    session = attempt.session
    assert session is not None
    known = LEFT_BUSY if attempt.left_busy else ENDED if session.has_ended else ""
    if not isinstance(attempt.step_error, StepTimeout) and was_closed(connections[DEFAULT_DB_ALIAS]):
        known = known or CLOSED  # and not by `attribute_to_step`, after a timeout in the midst of a statement
    # Without a step or a step's error, a failed statement of the engine's own has ended it.
    is_from_author = bool(attempt.steps or attempt.step_error)
    return known or (_how_ended_unseen(session, attempt) if is_from_author else "")


def _how_ended_unseen(session: Session, attempt: OpenAttempt) -> str:
    """ENDED_UNSEEN if the transaction has ended but the session lives: a server that ends a session ends both."""
    try:
        attempt_log.require_claim(attempt)
    except ClaimLost:
        return ENDED_UNSEEN if not attempt.lost and session.roll_back() else ""
    return ""


def find_broken(past: Sequence[PastAttempt], at: str = "") -> PastAttempt | None:
    """The last attempt that its step lost, at that step or any; not before a deferred step was last decided."""
    undecided = takewhile(lambda each: each.outcome != Attempt.Outcome.FOLLOW_UP_FAILED, past)
    return next((each for each in undecided if each.died_how in _TOLD and at in ("", each.died_in)), None)


def failure_of(broken: PastAttempt) -> StepError:
    """The error of the step that broke its session, for the next attempt."""
    return StepError(_TOLD[broken.died_how].format(step=broken.died_in), code="broken_session")
