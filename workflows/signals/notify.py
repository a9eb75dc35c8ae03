"""ANNOUNCE: wake idle workers when something new is due, so that they need not wait for their next look.

An announcement is a NOTIFY after the commit. If it is lost, the workers' own looks find the row. So a thread sends it,
on its own connection, and no answer to a client waits for it. A NOTIFY locks the whole server until it is committed:
the thread sends one for everything that came within a few milliseconds, and does not wait for the disk.
https://www.postgresql.org/docs/current/sql-notify.html
"""

from __future__ import annotations

import logging
import os
import threading
from time import sleep
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from workflows.postgres import sqlstates

logger = logging.getLogger(__name__)

CHANNEL = "onramp_due"
# Seconds between two announcements of a process, and after a failed one.
EVERY, AFTER_A_FAILURE = 0.005, 5.0

# With this setting the commit does not wait for the disk: an announcement need not last.
_NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, queue) FROM unnest(%s::text[]) queue"


class Announcer:
    """One thread. It announces the queues that were given to `announce` since its last announcement."""

    def __init__(self) -> None:
        self._queues: set[str] = set()
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="announcer", daemon=True)
        self._thread.start()

    def announce(self, queue: str) -> None:
        """Return at once; safe in any thread."""
        with self._changed:
            if queue not in self._queues:
                self._queues.add(queue)
                self._changed.notify()

    def end(self) -> None:
        """Close the connection, and wait until that is done. Pending announcements are dropped."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        connection: Any = connections.create_connection(DEFAULT_DB_ALIAS)
        while queues := self._next():
            pause = EVERY
            try:
                with connection.cursor() as cursor:
                    cursor.execute(_NOTIFY, [CHANNEL, queues])
            except sqlstates.DATABASE_ERRORS as error:
                logger.warning("not announced, workers find it by themselves: %s", sqlstates.loggable(error))
                connection.close()
                pause = AFTER_A_FAILURE
            sleep(pause)
        connection.close()

    def _next(self) -> list[str]:
        """Wait for queues to announce, and return them; an empty list at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queues or self._ended)
            queues, self._queues = list(self._queues), set()
            return [] if self._ended else queues


_begun = False
_lock = threading.Lock()
_announcer: Announcer | None = None
_process = 0


def begin() -> None:
    """Let this process, and its forks, announce what they store. Without this, `announce` does nothing."""
    global _begun
    _begun = True


def announce(queue: str) -> None:
    """Announce that new, committed work is due in a queue. Returns at once, and never fails."""
    global _announcer, _process
    if not _begun:
        return
    if _announcer is None or _process != os.getpid():  # a thread does not survive a fork
        with _lock:
            if _announcer is None or _process != os.getpid():
                try:
                    _announcer, _process = Announcer(), os.getpid()
                except RuntimeError:
                    logger.warning("not announced, workers find it by themselves: there is no room for a thread")
                    return
    _announcer.announce(queue)
