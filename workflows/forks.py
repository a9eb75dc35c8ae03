"""FORKS: a process that a step has forked ends where the step's code does.

It would go on as a second worker, which no supervisor knows, and decide what its parent is about to decide. What it
sends or closes before its end, by an `atomic()` around the fork for example, goes nowhere: the sessions are its
parent's.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from django.db import connections

T = TypeVar("T")
logger = logging.getLogger(__name__)


def call_in_this_process(function: Callable[[], T]) -> T:
    """Call code of a step author's. A process that it has forked ends here, whether it returns or raises.

    No exit handler of the parent's runs there, and no buffer of the parent's is written.
    """
    process = os.getpid()
    try:
        return function()
    finally:
        if os.getpid() != process:
            logger.error("%s has forked: its child %s ends here", _name(function), os.getpid())
            os._exit(1)


def _name(function: Callable[..., object]) -> str:
    code = function.func if isinstance(function, partial) else function
    return f"{code.__module__}.{getattr(code, '__qualname__', type(code).__qualname__)}"


def keep_sessions_from_forks() -> None:
    """From now on, no process that this one forks has its database sessions. Called once in a worker process."""
    os.register_at_fork(after_in_child=_let_go_of_sessions)


def _let_go_of_sessions() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for wrapper in connections.all(initialized_only=True):
        if wrapper.connection is not None and not wrapper.connection.closed:
            os.dup2(nowhere, wrapper.connection.fileno())
