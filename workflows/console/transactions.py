"""TRANSACTIONS of pages: each page manages its own, also in a project with ATOMIC_REQUESTS.

An operation commits before its page says that it is done, and each read of a page has its own time limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import wraps
from typing import Any

from django.db import transaction
from django.urls import URLPattern, URLResolver


def non_atomic(patterns: Iterable[URLPattern | URLResolver]) -> Iterator[URLPattern | URLResolver]:
    """The same addresses without a transaction for each request. Of an included app, only its own addresses."""
    for each in patterns:
        if isinstance(each, URLPattern):
            each.callback = _non_atomic(each.callback)
        elif str(each.pattern).startswith("workflows/"):
            each.url_patterns[:] = non_atomic(each.url_patterns)
        yield each


def _non_atomic(view: Any) -> Any:
    """A wrapped view. The original stays as it is, because other sites may share it."""

    @transaction.non_atomic_requests
    @wraps(view)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return wrapper
