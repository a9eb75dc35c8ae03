"""What the steps of an attempt did, as its row stores it: in short if a step simply ran, otherwise in full.

steps_in_short   validate_payload 1.2, create_account recorded 0.1, review skipped 0.0, execute_checkout steps
[{"step": "execute_checkout", "outcome": "failed", "ms": 240.3, "error_class": ...}]

The text has every step in order: its name, its outcome unless that is `ran`, and milliseconds. A bare name has its
entry in the JSON, in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Entry = Mapping[str, Any]

# A list of 21 steps takes 500 bytes; in full it would take 1,700. Failed and waiting steps stay in full.
_WORDS = {"ran": "", "recorded": " recorded", "skipped": " skipped"}
_SEPARATOR = ", "
_UNNAMEABLE = "?"  # a step whose name has a space or a comma; its entry is in full


class StepsOnRecord(NamedTuple):
    """The two columns of an attempt."""

    in_short: str
    in_full: list[Entry]


def as_recorded(steps: Sequence[Entry]) -> StepsOnRecord:
    """Entries of `Attempt.steps` in the form in which they are stored."""
    in_full: list[Entry] = []
    return StepsOnRecord(_SEPARATOR.join([_in_short(step, in_full) for step in steps]), in_full)


def _in_short(step: Entry, in_full: list[Entry]) -> str:
    """The step's part of the text; if that does not say everything, its entry is added to `in_full`."""
    name, outcome = step["step"], step["outcome"]
    nameable = " " not in name and "," not in name
    if nameable and len(step) == 3 and "ms" in step and outcome in _WORDS:
        return f"{name}{_WORDS[outcome]} {step['ms']}"
    in_full.append(step)
    return name if nameable else _UNNAMEABLE


def as_told(in_short: str, in_full: Sequence[Entry]) -> list[Entry]:
    """The entries of an attempt, in the order in which its steps ran, from the two columns.

    If this release cannot read the text (from a later release, or edited), only the entries in the JSON: the page still
    shows what failed or waits.
    """
    left_in_full = iter(in_full)
    try:
        steps = [_entry(word.split(" "), left_in_full) for word in in_short.split(_SEPARATOR)] if in_short else []
    except (ValueError, StopIteration):
        return list(in_full)
    return [*steps, *left_in_full]


def _entry(word: Sequence[str], left_in_full: Iterator[Entry]) -> Entry:
    match word:
        case [name, ms]:
            return {"step": name, "outcome": "ran", "ms": json.loads(ms)}
        case [name, outcome, ms]:
            return {"step": name, "outcome": outcome, "ms": json.loads(ms)}
        case [_]:
            return next(left_in_full)
    raise ValueError(f"no step's word: {' '.join(word)}")
