"""SIDE HEARTBEAT: which consumers and relays run, where, and what they take: one row for each process, for people."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from contextlib import suppress
from secrets import token_hex
from time import monotonic
from typing import Any

from django.conf import settings
from django.db import DataError, IntegrityError

from workflows.postgres.deadlines import DatabaseUnavailable, query_in_time
from workflows.postgres.statements import fetch_one

EVERY = 1.0
# Seconds after the last beat at which a process counts as silent. Writing dead letters, the longest pause, takes 20.
SILENT_AFTER = 60.0
# Seconds for a beat, and until the next one while the database is away: a beat delays the process's real work.
WITHIN, AFTER_FAILURE = 1.0, 10.0

_UPDATE = """
    UPDATE workflows_sideprocess
       SET last_seen = clock_timestamp(), takes = %(takes)s::varchar[],
           last_message_at = coalesce(clock_timestamp() - %(since)s * interval '1 second', last_message_at)
     WHERE id = %(id)s AND name = %(name)s RETURNING id"""
_INSERT = """
    INSERT INTO workflows_sideprocess (name, host, pid, release, kind, takes, last_message_at)
    VALUES (%(name)s, %(host)s, %(pid)s, %(release)s, %(kind)s, %(takes)s::varchar[],
            clock_timestamp() - %(since)s * interval '1 second') RETURNING id"""
_STOP = """
    UPDATE workflows_sideprocess SET stopped_at = clock_timestamp(), last_seen = clock_timestamp(), ended_how = %(how)s
     WHERE id = %(id)s AND name = %(name)s RETURNING id"""


class SideHeartbeat:
    """This process's row. The first beat makes it; a later one does if the row is gone or, after a failover, another's.

    It never raises: a process whose beat fails goes on working, and looks silent meanwhile.
    """

    def __init__(self, kind: str, takes: Collection[str]) -> None:
        # Containers may share a host name, and each has a process 1.
        host = socket.gethostname()[:150]
        self.name = f"{host}/{token_hex(4)}:{os.getpid()}"
        self._row: dict[str, Any] = {"name": self.name, "host": host, "pid": os.getpid(), "kind": kind}
        self._row |= {"release": settings.RELEASE[:100], "takes": [each[:249] for each in takes], "id": 0}
        self._next = float("-inf")
        self._message_at: float | None = None

    def message(self) -> None:
        """Note that a message or event was handled just now."""
        self._message_at = monotonic()

    def beat(self, takes: Collection[str] | None = None) -> None:
        """Record that this process lives and what it takes; at most once a second."""
        if takes is not None:
            self._row["takes"] = [*takes]
        if monotonic() < self._next:
            return
        self._next = monotonic() + AFTER_FAILURE
        since = None if self._message_at is None else monotonic() - self._message_at
        row = {**self._row, "since": since}
        with suppress(DatabaseUnavailable, DataError, IntegrityError):
            (self._row["id"],) = query_in_time(
                lambda: fetch_one(_UPDATE, row) or fetch_one(_INSERT, row) or (0,), seconds=WITHIN
            )
            self._next = monotonic() + EVERY

    def stop(self, how: str = "") -> None:
        """Record that the process has stopped: in good order, unless `how` says otherwise."""
        if self._row["id"]:
            with suppress(DatabaseUnavailable, DataError, IntegrityError):
                query_in_time(lambda: fetch_one(_STOP, {**self._row, "how": how[:50]}), seconds=WITHIN)
