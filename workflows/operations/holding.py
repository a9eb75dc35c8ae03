"""HOLDING a service, a queue or a type until a time."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils.text import capfirst

# A longer outage needs another hold, because a forgotten hold would stop the work, too.
LONGEST_HOLD = timedelta(days=7)


def why_not_hold_until(until: datetime, *, now: datetime, what: str = "a service", done: str = "held") -> str:
    """Why `what` cannot be held, or `done` otherwise, until then, in a sentence; empty if it can."""
    if until <= now:
        return f"That time is over: {what} is {done} until a time to come."
    if until > now + LONGEST_HOLD:
        return f"{capfirst(what)} is {done} for {LONGEST_HOLD.days} days at the most. It can be {done} again."
    return ""
