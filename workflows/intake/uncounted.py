"""Stands in for the metrics of `prometheus_client` if the extra `metrics` is not installed."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any


class Uncounted:
    """A metric that counts nothing."""

    def __init__(self, *args: Any, **options: Any) -> None: ...

    def labels(self, *values: str) -> Uncounted:
        return self

    def inc(self) -> None: ...

    def observe(self, value: float) -> None: ...

    def track_inprogress(self) -> AbstractContextManager[None]:
        return nullcontext()
