"""HALF-OPEN: a connection that stays open but passes nothing on, as a proxy before PostgreSQL may leave it.

TCP does not notice it, because the proxy acknowledges what it gets. So a session whose answer is slow asks, through a
new connection, what its backend does. If the backend waits for its client as well, no answer will come: the backend is
ended, with its transaction and its locks. Nobody then carries out what the proxy still has.

A slow statement goes on. Nothing is ended while the server accepts no new connection; a process that has to stop then
gives its session up (`wire.give_up_in`).
"""

from __future__ import annotations

import logging
import select
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import psycopg
from django.db import Error, connections

from workflows import silence
from workflows.postgres import sqlstates
from workflows.postgres.wire import gives_up, wire_of

logger = logging.getLogger(__name__)

# Seconds for connecting, for a backend to end, and for a whole look.
CONNECT_TIMEOUT, END_TIMEOUT, LOOK_TIMEOUT = 2, 1, 5
# Seconds for an answer to arrive that was on its way during the look.
ON_ITS_WAY = 1.0


class Backend(NamedTuple):
    """A server process and its start time, because its number may later belong to another."""

    pid: int
    since: Decimal


OUR_BACKEND = "SELECT pid, extract(epoch FROM backend_start) FROM pg_stat_get_activity(pg_backend_pid())"

_THIS = "FROM pg_stat_get_activity(%s) WHERE extract(epoch FROM backend_start) = %s"
# What it waits for, empty for nothing; NULL if it waits for its client, or is not on this server.
_IS_BUSY = f"SELECT (SELECT coalesce(wait_event, '') {_THIS} AND wait_event_type IS DISTINCT FROM 'Client')"  # noqa: S608
_END = f"SELECT pg_terminate_backend(pid, {END_TIMEOUT * 1000}) {_THIS}"
# Behind a pooler, which lends one backend after another: whether any session of this role in this database may run
# our statement.
_IS_ANY_BUSY = """
    SELECT EXISTS (
        SELECT FROM pg_stat_activity
         WHERE datname = current_database() AND usename = session_user AND pid <> pg_backend_pid()
           AND wait_event_type IS DISTINCT FROM 'Client'
           AND query_start < clock_timestamp() - %s * interval '1 second')"""


def watch(wrapper: Any, backend: Backend) -> None:
    """Let a newly opened session find out whether it is half-open, whenever an answer is slow."""
    raw = wrapper.connection
    raw.onramp_backend = backend if backend.pid == raw.pgconn.backend_pid else None  # a pooler invents the number
    wire_of(raw).close_if_half_open = partial(_close_if_half_open, wrapper, raw)


def _close_if_half_open(wrapper: Any, raw: Any, waited: float) -> bool | None:
    """Close this session, which has waited this many seconds, if the server does nothing for it; return whether it did,
    None without a server. One that refuses the new connection, as it has too many, is there.

    The backend is ended, and this thread's other sessions too, because they use the same route. If the server cannot be
    asked, nothing is closed until this process has to end; then all are closed, and the leases end the server's side.
    """
    sessions = {raw, *_of_this_thread()}
    silence.arrange(wrapper)
    try:
        parameters = {**wrapper.get_connection_params(), "connect_timeout": CONNECT_TIMEOUT, "autocommit": True}
        with closing(psycopg.connect(**parameters)) as other, wire_of(other).answers_until(monotonic() + LOOK_TIMEOUT):
            look = (_IS_BUSY, raw.onramp_backend) if raw.onramp_backend else (_IS_ANY_BUSY, [waited])
            ((busy,),) = other.execute(*look).fetchall()
            if busy == "SyncRep":  # the next look tries another server first: its standbys may follow that
                silence.note_late(raw)
            if busy not in (None, False) or _hears(raw):
                return False
            for session in sessions:
                if backend := getattr(session, "onramp_backend", None):
                    other.execute(_END, backend)
                session.pgconn.finish()  # otherwise a ROLLBACK would wait as long
    except (psycopg.Error, Error) as error:
        if not gives_up():
            return False if sqlstates.is_refusal(error) else None
        for session in sessions:
            session.pgconn.finish()
    logger.warning("A connection to the database at %s passed nothing on: given up", sqlstates.host_port(wrapper.alias))
    return True


def _hears(raw: Any) -> bool:
    """Whether data arrives."""
    poll = select.poll()
    poll.register(raw.pgconn.socket, select.POLLIN)
    return bool(poll.poll(ON_ITS_WAY * 1000))


def _of_this_thread() -> Iterator[Any]:
    return (each.connection for each in connections.all(initialized_only=True) if each.connection is not None)
