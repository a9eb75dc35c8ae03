"""OUTSIDE: whatever leaves this process is refused while a stored case is replayed (`doctor.replay`).

Calls that go through `call_to` are refused by the service's name. Below that Python's own audit hook refuses whatever
else leaves: a connection, a name to be resolved, a process, a file that is written. It cannot see C code that talks to
the network by itself, as libpq does.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# By process, and not by context: threads that a step starts are refused, too.
_is_refused = False
_is_hooked = False
_refused: list[str] = []

_EVENTS = {
    **{f"socket.{call}": "the network" for call in ("connect", "sendto", "sendmsg", "bind")},
    **{f"socket.{call}": "the network" for call in ("getaddrinfo", "gethostbyname", "gethostbyaddr")},
    **{f"os.{call}": "a process" for call in ("system", "fork", "forkpty", "exec", "posix_spawn", "spawn", "kill")},
    "subprocess.Popen": "a process",
    **{f"os.{call}": "a file" for call in ("remove", "rename", "truncate", "mkdir", "rmdir", "link", "symlink")},
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC


class Refused(BaseException):
    """A call was not made. A BaseException, so that a step's own `except Exception` does not take it for an outage."""


def require_allowed(what: str) -> None:
    """Raise Refused, and remember it, in case a step swallows it."""
    if _is_refused:
        _refused.append(what)
        raise Refused(what)


def taken() -> list[str]:
    """What was refused since this was asked last, each once."""
    found = list(dict.fromkeys(_refused))
    _refused.clear()
    return found


@contextmanager
def refused() -> Iterator[None]:
    """Let nothing out. It stays so for as long as this process lives if a step has left a thread behind."""
    global _is_refused, _is_hooked
    if not _is_hooked:
        sys.addaudithook(_audit)  # which cannot be taken away again
        _is_hooked = True
    before, threads, bytecode = _is_refused, {*threading.enumerate()}, sys.dont_write_bytecode
    _is_refused = sys.dont_write_bytecode = True
    _refused.clear()
    try:
        yield
    finally:
        if not {*threading.enumerate()} - threads:
            _is_refused, sys.dont_write_bytecode = before, bytecode


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _is_refused:
        return
    if what := _EVENTS.get(event):
        require_allowed(what)
    elif event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING:
        require_allowed("a file")
