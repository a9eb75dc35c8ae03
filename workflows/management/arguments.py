"""Types of arguments that several commands have in common."""

from __future__ import annotations

from argparse import ArgumentTypeError


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e9:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds: give 0 or more")
    return number
