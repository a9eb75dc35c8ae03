"""COMMIT: either the claim's transaction was committed, or nothing is decided."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import DEFAULT_DB_ALIAS, transaction

from workflows.engine import step_session
from workflows.errors import ClaimLost
from workflows.forks import call_in_this_process
from workflows.postgres.django_connection import wrap_hooks, wrapper_of
from workflows.postgres.round_trips import session_of

logger = logging.getLogger(__name__)


@contextmanager
def transaction_or_claim_lost(announce_hooks: Callable[[], None]) -> Iterator[None]:
    """Open a transaction. Raises ClaimLost when it ended without a commit.

    Calls `announce_hooks` right after the commit, before the on_commit hooks of steps.

    `atomic()` alone is not enough. It raises nothing when its connection was closed inside it; and an error in a step's
    on_commit hook would escape although the outcome is committed.
    """
    committed = has_hooks = False
    try:
        with transaction.atomic(durable=True):
            yield
            has_hooks = wrap_hooks(wrapper_of(DEFAULT_DB_ALIAS), call_in_this_process) > 0
            committed = session_of().commit()  # sent with the decision; Django then finds nothing to commit
            if has_hooks and committed:
                announce_hooks()
    except Exception as error:
        if not committed:
            raise
        logger.error("an on_commit hook of a step failed, the outcome stands", exc_info=error)
    if not committed:
        raise ClaimLost("the claim's transaction ended without a commit")
    if has_hooks:
        step_session.reset_after_hooks()
