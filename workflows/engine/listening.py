"""LISTENING: an idle worker wakes up when something new is announced, or for its next look.

It listens on its attempt log connection, and only while it is idle, because the server sends each NOTIFY to every
session that listens.
"""

from __future__ import annotations

import random
from time import monotonic
from typing import Any

import psycopg
from django.db import connections

from workflows.engine.backoff import Delay
from workflows.postgres.django_connection import djangos_errors
from workflows.signals.notify import CHANNEL
from workflows.state import attempt_log
from workflows.stop_flag import Flag

# Seconds between looks that find nothing, doubling: due work is found within a second even without an announcement.
IDLE_DELAY, MAX_IDLE_DELAY = 0.02, 0.5
# Seconds, for each live worker of the queue, between two looks that announcements cause in one worker. So 200 idle
# workers look some 500 times a second, and a submission wakes only those that may look.
LOOK_EVERY = 0.002


class Listener:
    """How a worker rests after a look that found nothing.

    It listens for `queue`; for nothing if that is empty. `stopping` ends each rest.
    """

    def __init__(self, queue: str, stopping: Flag) -> None:
        self._queue, self._stopping = queue, stopping
        self._delay = Delay(IDLE_DELAY, MAX_IDLE_DELAY)
        self._session: Any = None  # the session that listens
        self._heard = False
        self._deaf_until = float("-inf")

    def rest(self, *, live_workers: int, at_most: float | None = None) -> None:
        """Rest until the next look is due, or something is announced; after an announcement looks are frequent again.

        `live_workers` counts the workers that look for the same, including this one. Rests no longer than `at_most`
        seconds. Raises ClaimLost when the session has ended.
        """
        delay = self._delay.next()
        delay = delay if at_most is None else min(delay, at_most)
        if not self._queue:
            self._stopping.wait(delay)
        elif self._session is None or self._session is not connections[attempt_log.ALIAS].connection:
            self._begin()  # and look once more: earlier announcements did not reach this session
        elif self._hears_within(delay):
            self._deaf_until = monotonic() + live_workers * LOOK_EVERY * random.uniform(0.5, 1.5)  # noqa: S311
            self._heard = False
            self._delay.reset()

    def _begin(self) -> None:
        attempt_log.execute(f"LISTEN {CHANNEL}", ())
        self._session, self._heard = connections[attempt_log.ALIAS].connection, False
        self._session.add_notify_handler(self._hear)

    def _hears_within(self, seconds: float) -> bool:
        """Whether, within this time, an announcement has come that this worker may act on."""
        until = monotonic() + seconds
        while (left := until - monotonic()) > 0 and not self._stopping.is_set():
            deaf = self._deaf_until - monotonic()
            if self._heard and deaf <= 0:
                return True
            if self._heard:
                self._stopping.wait(min(left, deaf))
            elif self._stopping.wait_or_readable(left, self._session.fileno()):
                self._take_in()
        return False

    def end(self) -> None:
        """The worker is busy: stop listening, and look soon after the work. Raises ClaimLost."""
        self._delay.reset()
        if self._session is not None:
            listened, self._session = self._session, None
            listened.remove_notify_handler(self._hear)
            if listened is connections[attempt_log.ALIAS].connection:
                attempt_log.execute(f"UNLISTEN {CHANNEL}", ())

    def _take_in(self) -> None:
        """Read notifications from the session. Raises ClaimLost if it has ended."""
        session = self._session.pgconn
        with attempt_log.errors_lose_the_claim(), djangos_errors(connections[attempt_log.ALIAS]):
            session.consume_input()
        while notify := session.notifies():
            self._heard |= notify.extra.decode() == self._queue

    def _hear(self, notify: psycopg.Notify) -> None:
        """Note an announcement that came with the answer to a statement, such as a heartbeat."""
        self._heard |= notify.payload == self._queue
