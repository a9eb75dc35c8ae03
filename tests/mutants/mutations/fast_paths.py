"""What makes a workflow cheap, and must leave nothing out for it: prepared statements, fewer trips, quick checks."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import JSONB, TIMEOUTS

MUTANTS: list[Mutant] = [
    *in_(
        "timeouts.py",
        (
            "a timer's signal that comes late ends the worker",
            "if _seconds is not None and not _held_off:",
            "if not _held_off:",
            f"{TIMEOUTS}test_a_signal_that_comes_late_is_nobodys",
        ),
        (
            "a step that takes the timer's signal for itself ends the time limits of the others",
            "    if signal.getsignal(signal.SIGALRM) is not _expire:\n",
            "    if signal.getsignal(signal.SIGALRM) is signal.SIG_DFL:\n",
            f"{TIMEOUTS}test_a_step_that_takes_the_signal_for_itself_takes_it_for_no_other",
        ),
    ),
    *in_(
        "postgres/jsonb.py",
        (
            "what has a NUL in it is taken for plain",
            'b"\\\\u", b"NaN"',
            'b"NaN"',
            f"{JSONB}test_a_result_that_cannot_be_kept_is_refused",
        ),
        (
            "what is deep is taken for plain",
            "len(text) > MAX_DIGITS or is_deep or any(",
            "len(text) > MAX_DIGITS or any(",
            f"{JSONB}test_a_result_that_cannot_be_kept_is_refused",
        ),
        (
            "a number that is too long is taken for plain",
            "len(text) > MAX_DIGITS or is_deep",
            "is_deep",
            f"{JSONB}test_a_result_that_cannot_be_kept_is_refused",
        ),
        (
            "what is no number is taken for plain",
            ', b"NaN", b"Infinity")',
            ",)",
            f"{JSONB}test_a_result_that_cannot_be_kept_is_refused",
        ),
    ),
]
