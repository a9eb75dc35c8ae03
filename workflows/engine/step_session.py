"""STEP SESSION: what a step does to the claim's session is undone, before the decision and the next workflow.

What cannot be undone is the end of the claim's transaction, for the row is free by then. The attempt is lost, and the
attempt log keeps how, so that the next one fails at that step instead of running it again (`find_broken`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile

from django.db import DEFAULT_DB_ALIAS, connection, connections
from psycopg.pq import TransactionStatus

from workflows.errors import ClaimLost, StepError
from workflows.models import Attempt
from workflows.postgres import session_settings, sqlstates
from workflows.postgres.django_connection import must_roll_back
from workflows.postgres.round_trips import Session, session_of
from workflows.state import attempt_log
from workflows.state.attempt_log import OpenAttempt, PastAttempt

# How a step can break the claim's session, as the attempt log keeps it; and what the step's author is told.
ENDED, ENDED_UNSEEN = "the step ended the transaction", "a step ended the transaction"
LEFT_BUSY = "the step left the connection busy"
_MUST_NOT = "A step must not commit or roll back: what it writes is committed with the outcome."
_TOLD = {
    ENDED: f"{{step}} ended the worker's transaction. {_MUST_NOT}",
    ENDED_UNSEEN: f"{{step}}, or a step before it, ended the worker's transaction. {_MUST_NOT}",
    LEFT_BUSY: "{step} left a COPY, a stream or a pipeline open on the worker's connection. A step must end it.",
}


def check_deferred_constraints(attempt: OpenAttempt, also: str = "") -> None:
    """Check the deferred constraints now: one that failed at the COMMIT would undo the decision too, for ever.

    They are deferred again at once, for the steps that follow. A constraint that fails is the step's error. `also`: SQL
    to send along.
    """
    with attempt_log.attribute_to_step(attempt), connection.cursor() as cursor:
        cursor.execute(f"SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED; {also}")


# What survives a rollback too: prepared statements, and advisory locks of the session.
_LET_GO = "DEALLOCATE ALL; SELECT pg_advisory_unlock_all()"
# What RESET ALL leaves: cursors WITH HOLD, who we are, temporary tables, and channels that are listened to.
_RESET = f"CLOSE ALL; RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; DISCARD TEMP; UNLISTEN *; {_LET_GO}"


def reset(attempt: OpenAttempt) -> None:
    """After the last step, undo what a step did to the session: it would outlive the attempt."""
    if not session_of().is_used:
        return  # where nothing was sent, there is nothing to check or to undo
    check_deferred_constraints(attempt, also=_RESET + session_settings.again_sql(connection))
    session_of().forget_prepared()


def reset_after_hooks() -> None:
    """After the commit, undo what the on_commit hooks of steps did to the session: the next workflow would run with it.

    A session that they have left in a transaction, or that fails just then, is closed: the worker opens another one.
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
    """After steps that were rolled back, let go of what the rollback has left in the session."""
    with connection.cursor() as cursor:
        cursor.execute(_LET_GO)
    session_of().forget_prepared()


def is_broken(attempt: OpenAttempt) -> bool:
    """Whether the claim's transaction is over, or can only be rolled back: a failed statement, a closed connection."""
    claim = connections[DEFAULT_DB_ALIAS]
    if must_roll_back(claim) or claim.connection is None or (attempt.session and attempt.session.has_ended):
        return True
    return bool(claim.connection.pgconn.transaction_status != TransactionStatus.INTRANS)


# --- A session that a step has broken -----------------------------------------------------------------


class SessionBroken(ClaimLost):
    """The claim is lost by what a step did to its session; `how`, and at which step."""

    def __init__(self, how: str, step: str) -> None:
        super().__init__(_TOLD[how].format(step=step))
        self.how = how


@contextmanager
def guarded(attempt: OpenAttempt) -> Iterator[None]:
    """Around everything that calls a step author's code: a claim that is lost by that code raises SessionBroken."""
    attempt.session = session = session_of()
    session.has_ended = False
    try:
        yield
    except (Exception, ClaimLost):
        known = LEFT_BUSY if attempt.left_busy else ENDED if session.has_ended else ""
        # Before that a statement of the engine's own, which has failed, has ended it.
        is_from_author = bool(attempt.steps or attempt.step_error)
        if how := known or (_how_ended_unseen(session, attempt) if is_from_author else ""):
            raise SessionBroken(how, attempt_log.last_step(attempt)) from None
        raise


def _how_ended_unseen(session: Session, attempt: OpenAttempt) -> str:
    """Whether the transaction has ended, and the session lives: a server that ends the session ends both."""
    try:
        attempt_log.require_claim(attempt)
    except ClaimLost:
        return ENDED_UNSEEN if not attempt.lost and session.roll_back() else ""
    return ""


def find_broken(past: Sequence[PastAttempt], at: str = "") -> PastAttempt | None:
    """The last attempt that was lost by its step, at that step or any, since a deferred step was decided."""
    undecided = takewhile(lambda each: each.outcome != Attempt.Outcome.FOLLOW_UP_FAILED, past)
    return next((each for each in undecided if each.died_how in _TOLD and at in ("", each.died_in)), None)


def failure_of(broken: PastAttempt) -> StepError:
    """The error of the step that broke its session, for the attempt after that."""
    return StepError(_TOLD[broken.died_how].format(step=broken.died_in), code="broken_session")
