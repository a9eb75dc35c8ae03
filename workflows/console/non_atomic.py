"""NON-ATOMIC pages: each manages its own transactions, also in a project with ATOMIC_REQUESTS.

An operation commits before its page says that it is done, and each read of a page has its own time limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import wraps
from typing import Any

from django.db import transaction
from django.urls import URLPattern, URLResolver


def non_atomic(patterns: Iterable[URLPattern | URLResolver]) -> Iterator[URLPattern | URLResolver]:
    """Exempt these addresses from ATOMIC_REQUESTS. Of included addresses, only those below `workflows/`."""
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
    def non_atomic_view(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return non_atomic_view
