"""Waiting for a time to pass."""

from __future__ import annotations

from datetime import timedelta

from workflows import journal
from workflows.models import Workflow
from workflows.waits.wait import Kind, begin, expire, find, suspended


def wait_for_time(workflow: Workflow, name: str, delay: timedelta) -> None:
    """Go on only when `delay` has passed since this wait was first met, by the database's clock.

    `name` is the wait's identity in this workflow. "Run now" does not shorten it.
    """
    attempt = journal.attempt_of(workflow)
    waiting_for = f"a time that was set ({name})"
    wait = find(attempt, Kind.TIME, name) or begin(attempt, Kind.TIME, name, waiting_for=waiting_for, timeout=delay)
    if not expire(attempt, wait, "elapsed").outcome:
        raise suspended(attempt, wait, waiting_for)
