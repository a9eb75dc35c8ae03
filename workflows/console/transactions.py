"""TRANSACTIONS of the pages: their own, also in a project with ATOMIC_REQUESTS.

An operation commits before its page says that it is done, and reads of a page each have a time limit of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import wraps
from typing import Any

from django.db import transaction
from django.urls import URLPattern, URLResolver


def non_atomic(patterns: Iterable[URLPattern | URLResolver]) -> Iterator[URLPattern | URLResolver]:
    """The same addresses; a request for one is not a transaction. Below an app's address, only those of this app."""
    for each in patterns:
        if isinstance(each, URLPattern):
            each.callback = _non_atomic(each.callback)
        elif str(each.pattern).startswith("workflows/"):
            each.url_patterns[:] = non_atomic(each.url_patterns)
        yield each


def _non_atomic(view: Any) -> Any:
    """A wrapper of its own: the view may be one that other sites share."""

    @transaction.non_atomic_requests
    @wraps(view)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return wrapper
