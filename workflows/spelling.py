"""SPELLING: names that an author writes. An unknown one is reported with the known one that was probably meant."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar

T = TypeVar("T")

# Names that differ by a letter or two of ten. Names of other tools are further from ours than this: KAFKA_OPTS is
# Kafka's own, and 0.87 from KAFKA_OPTIONS.
CLOSE = 0.9


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: " Did you mean 'charge_card'?"; empty if nothing is like it."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


def misspelt(names: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """The names that are almost a known one, each with that one."""
    known = set(known)
    close = {name: get_close_matches(name, known, n=1, cutoff=CLOSE) for name in sorted(set(names) - known)}
    return {name: near[0] for name, near in close.items() if near}


def explain_options(cls: type[T]) -> type[T]:
    """A class decorator: a TypeError for an unknown option names the object, and the option that was probably meant."""
    takes: Any = cls.__init__
    known = list(inspect.signature(takes).parameters)[1:]

    @wraps(takes)
    def __init__(self: T, *arguments: Any, **options: Any) -> None:  # noqa: N807 (it is the class's)
        for option in options.keys() - set(known):
            named = options.get("name") or getattr(next(iter(arguments), None), "__name__", "")
            raise TypeError(
                f"{cls.__name__}{f' {named!r}' if named else ''} has no option {option!r}.{did_you_mean(option, known)}"
            )
        takes(self, *arguments, **options)

    cls.__init__ = __init__  # type: ignore[method-assign, assignment]
    return cls


def own_name(function: Any) -> str:
    """The name of a step's function. Raises TypeError for a value that is no function, or has no name of its own."""
    kind = type(function).__name__
    if not callable(function):
        raise TypeError(f"A step is a function, and not of type {kind}. List the function itself, without ().")
    if not hasattr(function, "__name__"):  # a functools.partial, or an object with __call__
        raise TypeError(f"A step that is of type {kind} has no name of its own: write Step(..., name='charge_card').")
    return str(function.__name__)
