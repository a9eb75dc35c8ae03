"""BEFORE UNDO: whom a definition asks before its failed workflows are reversed (`workflows.engine.undo_question`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from workflows.errors import DUPLICATES

# Whoever waits for money waits a day at the most.
LONGEST = timedelta(hours=24)
# A person has decided already, or nobody has: what was done is reversed at once.
NEVER_ASKED = frozenset(
    {"approval_expired", "approval_rejected", "cancelled", *DUPLICATES, "expired", "let_fail", "wait_expired"}
)


@dataclass(frozen=True, slots=True)
class BeforeUndo:
    """The group `team` is asked when a workflow fails with a code of `when`; unanswered, it is reversed."""

    team: str
    when: tuple[str, ...]
    timeout: timedelta


def ask(team: str, *, when: Sequence[str] = (), timeout: timedelta = LONGEST) -> BeforeUndo:
    """Ask a member of the group `team` before a workflow that has failed is reversed: `before_undo=ask("billing")`.

    `when` are the error codes after which it is asked; empty, it is asked after every failure of the workflow's own.
    After `timeout` it is reversed without an answer. Raises ValueError for no team, what is no code, and a time that is
    not within a day.
    """
    if not team or len(team) > 150:
        raise ValueError("A question before a reversal is for a team: a group's name, of up to 150 characters.")
    if isinstance(when, str) or not all(isinstance(code, str) and code for code in when):
        raise ValueError("When to ask is a tuple of error codes, with a comma: when=('program_full',).")
    if not timedelta(0) < timeout <= LONGEST:
        raise ValueError("A question before a reversal has a time of up to 24 hours: then it is reversed.")
    return BeforeUndo(team, tuple(when), timeout)
