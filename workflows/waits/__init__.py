"""Waiting, from inside a step: for a time, a signal, a person, or other workflows.

A wait is a row (`Wait`), identified by its name. The database's clock fixes its deadline when a step first meets it,
and its outcome is recorded once, before a step sees it. Every attempt reaches it again, because a retry restarts at the
first step. The wait returns its answer, or raises Suspend: the attempt is rolled back, and the workflow is suspended
until it is woken or the deadline passes. A `once` step may not wait.
"""

from workflows.waits.approval import (
    URGENT,
    Answer,
    Approval,
    ApprovalExpired,
    ApprovalRejected,
    ask,
    is_answered,
    is_asked,
    require_approval,
    require_go_ahead,
    was_withdrawn,
    withdraw,
    withdraw_unanswered,
)
from workflows.waits.children import Child, ChildOutcome, wait_for_children
from workflows.waits.signal import Received, wait_for_signal
from workflows.waits.time import wait_for_time
from workflows.waits.wait import WaitError, WaitExpired, WaitFailed, supersede_failed

__all__ = [
    "URGENT",
    "Answer",
    "Approval",
    "ApprovalExpired",
    "ApprovalRejected",
    "Child",
    "ChildOutcome",
    "Received",
    "WaitError",
    "WaitExpired",
    "WaitFailed",
    "ask",
    "is_answered",
    "is_asked",
    "require_approval",
    "require_go_ahead",
    "supersede_failed",
    "wait_for_children",
    "wait_for_signal",
    "wait_for_time",
    "was_withdrawn",
    "withdraw",
    "withdraw_unanswered",
]
