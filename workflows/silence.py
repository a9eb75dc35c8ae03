"""SILENCE: when the database last gave this process no answer, and which of several servers it tries last.

The older sessions of a silent database are as silent, each on its own. Of the servers in DATABASE_URL it tries a late
one last: one that is frozen costs each connection seconds, and one on which COMMITs wait for standbys that follow
another primary stores nothing. A server that answers keeps its place, however slow a statement is: where standbys are
asynchronous, another one that takes writes may be an old primary, and what it stores is lost.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

Server = tuple[str, str]  # host and port

# Seconds: a connection that took longer met a silent server first (`connect_timeout` is two seconds or more for each).
SLOW = 1.5

_last = float("-inf")
_late: set[Server] = set()


def note() -> None:
    """Let each session that is open now be replaced before its next use."""
    global _last
    _last = monotonic()


def is_since(moment: float) -> bool:
    """Whether the database was silent after that monotonic time."""
    return moment <= _last


def note_late(raw: Any) -> None:
    """On the server of this psycopg connection a COMMIT waits in vain: it is tried last from now on."""
    _late.add(_server_of(raw))


def note_connected(raw: Any, hosts: str, ports: str, seconds: float) -> None:
    """A connection that tried these servers took so long: those before the one that took it are tried last."""
    servers = _servers(hosts, ports)
    if len(servers) == 1:
        return
    server = _server_of(raw)
    if seconds > SLOW and server in servers:
        _late.update(servers[: servers.index(server)])
    _late.discard(server)


def arrange(wrapper: Any) -> None:
    """Let a connection of Django's, when it is opened next, try late servers last."""
    settings = wrapper.settings_dict
    servers = _servers(settings.get("HOST", ""), settings.get("PORT", ""))
    if len(servers) > 1 and _late:
        hosts, ports = zip(*sorted(servers, key=lambda each: each in _late), strict=True)
        wrapper.settings_dict = {**settings, "HOST": ",".join(hosts), "PORT": ",".join(ports)}


def connect(wrapper: Any) -> None:
    """Open a connection of Django's, unless it is open."""
    if wrapper.connection is None:
        arrange(wrapper)
        began, settings = monotonic(), wrapper.settings_dict
        wrapper.ensure_connection()
        note_connected(wrapper.connection, settings.get("HOST", ""), settings.get("PORT", ""), monotonic() - began)


def _servers(hosts: str, ports: str | int) -> list[Server]:
    names, numbers = hosts.split(","), str(ports).split(",")
    numbers = numbers * len(names) if len(numbers) == 1 else numbers
    return [(name, number or "5432") for name, number in zip(names, numbers, strict=False)]


def _server_of(raw: Any) -> Server:
    return raw.info.host, str(raw.info.port)
