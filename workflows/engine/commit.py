"""COMMIT: the claim's transaction either was committed, or has decided nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import connection, transaction

from workflows.engine import step_session
from workflows.errors import ClaimLost
from workflows.forks import call_in_this_process
from workflows.postgres.django_connection import wrap_hooks
from workflows.postgres.round_trips import session_of

logger = logging.getLogger(__name__)


@contextmanager
def transaction_or_claim_lost(announce_hooks: Callable[[], None]) -> Iterator[None]:
    """A transaction. Raises ClaimLost when it ended without a commit.

    `announce_hooks` is called right after the commit, before the on_commit hooks of steps.

    `atomic()` alone raises nothing when its connection was closed in its midst; and the error of a step's on_commit
    hook escapes from it although the outcome is stored.
    """
    committed = has_hooks = False

    def mark_committed() -> None:
        nonlocal committed
        committed = True
        announce_hooks()

    try:
        with transaction.atomic(durable=True):
            transaction.on_commit(mark_committed)  # the first hook: it runs before any of a step
            yield
            has_hooks = wrap_hooks(connection, call_in_this_process) > 1  # some of steps
            session_of().commit()  # with the decision; Django finds nothing to commit then
    except Exception as error:
        if not committed:
            raise
        logger.error("an on_commit hook of a step failed, the outcome stands", exc_info=error)
    if not committed:
        raise ClaimLost("the claim's transaction ended without a commit")
    if has_hooks:
        step_session.reset_after_hooks()
