"""STEP SESSION: what a step does to the claim's session is undone, before the decision and the next workflow."""

from __future__ import annotations

from django.db import DEFAULT_DB_ALIAS, connection, connections
from psycopg.pq import TransactionStatus

from workflows.postgres import session_settings, sqlstates
from workflows.postgres.django_connection import must_roll_back
from workflows.postgres.round_trips import session_of
from workflows.state import attempt_log
from workflows.state.attempt_log import OpenAttempt


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
    connection.ensure_timezone()  # Django's own setting; it queries the server only if the server's setting differs


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
        claim.ensure_timezone()
    except sqlstates.DATABASE_ERRORS:
        claim.close()


def let_go() -> None:
    """After steps that were rolled back, let go of what the rollback has left in the session."""
    with connection.cursor() as cursor:
        cursor.execute(_LET_GO)
    session_of().forget_prepared()


def is_broken() -> bool:
    """Whether the claim's transaction can only be rolled back: a failed statement, or a closed connection."""
    claim = connections[DEFAULT_DB_ALIAS]
    if must_roll_back(claim) or claim.connection is None:
        return True
    return bool(claim.connection.pgconn.transaction_status != TransactionStatus.INTRANS)
