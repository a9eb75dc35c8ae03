"""Counts the calls to each service in each second."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

# An hour if calls come in every second; otherwise longer.
SECONDS_KEPT = 3600

SECOND = "%Y-%m-%dT%H:%M:%SZ"


class CallLog:
    """Counts calls by second and service, in memory, for the last SECONDS_KEPT seconds that had any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[int, dict[str, list[int]]] = {}  # second -> service -> calls, those answered 5xx

    def add(self, service: str, *, answered_5xx: bool) -> None:
        """Count a call. `answered_5xx`: a fault answers it with a status of 500 or above."""
        second = int(datetime.now(UTC).timestamp())
        with self._lock:
            counts = self._seconds.setdefault(second, {}).setdefault(service, [0, 0])
            counts[0] += 1
            counts[1] += answered_5xx
            # By their order, not their time: after a clock is set back nothing stays longer.
            while len(self._seconds) > SECONDS_KEPT:
                del self._seconds[next(iter(self._seconds))]

    def all(self, *, service: str | None = None, since: datetime | None = None) -> list[dict[str, Any]]:
        """The counts of each second with calls to a service, oldest first, since the second of `since`."""
        with self._lock:
            return list(self._counts(service, int(since.timestamp()) if since else 0))

    def _counts(self, wanted: str | None, first: int) -> Iterator[dict[str, Any]]:
        for second, services in sorted(self._seconds.items()):
            if second < first:
                continue
            at = datetime.fromtimestamp(second, UTC).strftime(SECOND)
            for service, (calls, answered_5xx) in sorted(services.items()):
                if wanted in (None, service):
                    yield {"second": at, "service": service, "calls": calls, "answered_5xx": answered_5xx}
