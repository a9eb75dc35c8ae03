"""BEFORE UNDO: the team that decides before a failed workflow is undone (`workflows.engine.undo_question`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from workflows.errors import DUPLICATES

# A person who waits for their money back waits a day at most.
LONGEST = timedelta(hours=24)
# After these codes nothing is asked: a person has already decided, or the time is up. The calls are undone at once.
NEVER_ASKED = frozenset(
    {"approval_expired", "approval_rejected", "cancelled", *DUPLICATES, "expired", "let_fail", "wait_expired"}
)


@dataclass(frozen=True, slots=True)
class BeforeUndo:
    """When a workflow fails with a code in `when`, the group `team` is asked; without an answer it is undone."""

    team: str
    when: tuple[str, ...]
    timeout: timedelta


def ask(team: str, *, when: Sequence[str] = (), timeout: timedelta = LONGEST) -> BeforeUndo:
    """Declare that a member of the group `team` is asked before a failed workflow is undone.

    It is an option of a definition: `before_undo=ask("billing")`. `when` holds the error codes after which the team is
    asked; if it is empty, after any failure but those of `NEVER_ASKED`. After `timeout` the workflow is undone without
    an answer. Raises ValueError if `team` is empty or over 150 characters, if `when` holds anything but codes, or if
    `timeout` is not above 0 and at most 24 hours.
    """
    if not team or len(team) > 150:
        raise ValueError("A question before a reversal is for a team: a group's name, of up to 150 characters.")
    if isinstance(when, str) or not all(isinstance(code, str) and code for code in when):
        raise ValueError("When to ask is a tuple of error codes, with a comma: when=('program_full',).")
    if not timedelta(0) < timeout <= LONGEST:
        raise ValueError("A question before a reversal has a time of up to 24 hours: then it is reversed.")
    return BeforeUndo(team, tuple(when), timeout)
