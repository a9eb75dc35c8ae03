"""TURNS: where a pace limits starts in a second, a worker takes a turn before it starts a workflow.

The pace's row holds the turns, in the database's time: `next_at` is the first free one. A worker takes a turn up to a
second ahead, when something is due, and then waits in memory without a row lock. At a fast pace it takes its share of a
quarter of a second at once; otherwise the row would be written for each workflow. A worker that dies leaves its turns
unused: that many fewer workflows start in that second.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from time import monotonic

from workflows.state import attempt_log

# Seconds. A turn is taken at most this far ahead, and lost when it is this late: the pace may have changed.
AHEAD = 1.0
# The share of a second's turns that all workers together take at a time.
SHARE = 0.25

# No worker waits for the row. A turn further ahead than possible comes from a clock that was set back. Turns that were
# just missed, because no worker came by, are made up for.
_TAKE = """
    WITH pace AS (
        SELECT key, per_second, clock_timestamp() AS now, next_at FROM workflows_pace
         WHERE key = %(key)s AND per_second > 0 FOR NO KEY UPDATE SKIP LOCKED),
    turn AS (
        SELECT *, CASE WHEN next_at < now + make_interval(secs => 2 * %(ahead)s + 1 / per_second + %(share)s)
                       THEN greatest(next_at, now - make_interval(secs => %(share)s)) ELSE now END AS at FROM pace),
    taken AS (
        UPDATE workflows_pace SET next_at = turn.at + make_interval(secs => %(number)s / turn.per_second)
          FROM turn WHERE workflows_pace.key = turn.key AND turn.at <= turn.now + make_interval(secs => %(ahead)s)
        RETURNING set_config('synchronous_commit', 'off', true))
    SELECT extract(epoch FROM at - now)::float8, EXISTS (SELECT FROM taken) FROM turn"""


@dataclass(slots=True)
class _Taken:
    ready_at: float
    left: int


class Turns:
    """The turns of one worker, by the key of their pace. `live_workers` share the same paces."""

    def __init__(self) -> None:
        self.live_workers = 1
        self._taken: dict[str, _Taken] = {}
        self._ask_at: dict[str, float] = {}

    def has(self, key: str, per_second: float) -> bool:
        """Whether the time of a turn that this worker has taken has come; takes a turn if it has none."""
        taken, now = self._taken.get(key), monotonic()
        if taken is None or not taken.left or now > taken.ready_at + AHEAD:
            taken = self._take(key, per_second) if now >= self._ask_at.get(key, 0.0) else None
        return taken is not None and monotonic() >= taken.ready_at

    def use(self, key: str) -> None:
        self._taken[key].left -= 1

    def next_in(self) -> float | None:
        """Seconds until this worker's first future turn; None if there is none."""
        waits = [each.ready_at - monotonic() for each in self._taken.values() if each.left]
        return min((wait for wait in waits if wait > 0), default=None)

    def _take(self, key: str, per_second: float) -> _Taken | None:
        number = max(1, int(per_second * SHARE / self.live_workers))
        parameters = {"key": key, "number": number, "ahead": AHEAD, "share": SHARE}
        for seconds, is_taken in attempt_log.execute(_TAKE, parameters):
            if is_taken:
                self._taken[key] = _Taken(monotonic() + seconds, number)
                return self._taken[key]
            self._ask_at[key] = monotonic() + (seconds - AHEAD) * random.uniform(1, 1.1)  # noqa: S311 (no secret)
        return None
