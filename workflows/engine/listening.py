"""LISTENING: an idle worker wakes up when something new is announced, or else for its next look.

It listens on its attempt log connection, and only while it is idle: the server delivers each NOTIFY to every session
that listens.
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

# Seconds between looks that find nothing, doubling: what becomes due is acted on within a second, announced or not.
IDLE_DELAY, MAX_IDLE_DELAY = 0.02, 0.5
# Seconds for each live worker of the queue between two looks of a worker that are due to announcements. With 200 idle
# ones a submission wakes those that may look, and not all of them each time: so they make some 500 looks a second.
LOOK_EVERY = 0.002


class Listener:
    """What a worker rests with after a look that has found nothing.

    It listens for `queue`, to nothing if that is empty. `stopping` ends each rest.
    """

    def __init__(self, queue: str, stopping: Flag) -> None:
        self._queue, self._stopping = queue, stopping
        self._delay = Delay(IDLE_DELAY, MAX_IDLE_DELAY)
        self._session: Any = None  # the one that listens
        self._heard = False
        self._deaf_until = float("-inf")

    def rest(self, *, live_workers: int, at_most: float | None = None) -> None:
        """Wait until the next look is due, or until something is announced, after which looks are more frequent again.

        `live_workers` is how many look for the same, this one included. It takes `at_most` so many seconds. Raises
        ClaimLost when the session has ended.
        """
        delay = self._delay.next()
        delay = delay if at_most is None else min(delay, at_most)
        if not self._queue:
            self._stopping.wait(delay)
        elif self._session is None or self._session is not connections[attempt_log.ALIAS].connection:
            self._begin()  # and look once more: what came before was not announced to this session
        elif self._hears_within(delay):
            self._deaf_until = monotonic() + live_workers * LOOK_EVERY * random.uniform(0.5, 1.5)  # noqa: S311
            self._heard = False
            self._delay.reset()

    def _begin(self) -> None:
        attempt_log.execute(f"LISTEN {CHANNEL}", ())
        self._session, self._heard = connections[attempt_log.ALIAS].connection, False
        self._session.add_notify_handler(self._hear)

    def _hears_within(self, seconds: float) -> bool:
        """Whether something is announced by then, or was, that this worker may look for."""
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
        """The worker is busy: listen no more, and look soon when that is over. Raises ClaimLost."""
        self._delay.reset()
        if self._session is not None:
            listened, self._session = self._session, None
            listened.remove_notify_handler(self._hear)
            if listened is connections[attempt_log.ALIAS].connection:
                attempt_log.execute(f"UNLISTEN {CHANNEL}", ())

    def _take_in(self) -> None:
        """Read what the session was sent, or that it has ended. Raises ClaimLost."""
        session = self._session.pgconn
        with attempt_log.errors_lose_the_claim(), djangos_errors(connections[attempt_log.ALIAS]):
            session.consume_input()
        while notify := session.notifies():
            self._heard |= notify.extra.decode() == self._queue

    def _hear(self, notify: psycopg.Notify) -> None:
        """One that came with the answer to a statement, such as a heartbeat's."""
        self._heard |= notify.payload == self._queue
