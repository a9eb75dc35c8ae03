"""Waiting for a time to pass."""

from __future__ import annotations

from datetime import timedelta

from workflows.models import Wait, Workflow
from workflows.state import attempt_log
from workflows.waits.wait import begin, expire, find, suspension


def wait_for_time(
    workflow: Workflow, name: str, delay: timedelta, *, look_every: timedelta | None = None, waiting_for: str = ""
) -> None:
    """Go on only when `delay` has passed since the first call, by the database's clock.

    `name` is the wait's identity in this workflow; `waiting_for` is shown to people. "Run now" does not shorten the
    wait. With `look_every` the workflow also runs that often, for a step that checks whether it still has to wait.
    """
    attempt = attempt_log.attempt_of(workflow)
    waiting_for = waiting_for or f"a time that was set ({name})"
    wait = find(attempt, Wait.Kind.TIME, name, look_every=look_every) or begin(
        attempt, Wait.Kind.TIME, name, waiting_for=waiting_for, timeout=delay, look_every=look_every
    )
    if not expire(attempt, wait, "elapsed").outcome:
        raise suspension(attempt, wait, waiting_for)
