"""What the commands of the tests share (`python -m tests.benchmark`, `python -m tests.mutants`): how they end."""

from __future__ import annotations

import sys
from types import FrameType
from typing import NoReturn


def complain(message: str, code: int = 1) -> int:
    """Say on stderr what is wrong; return the exit code."""
    sys.stderr.write(f"{message.strip()}\n")
    return code


def exit_in_order(number: int, frame: FrameType | None) -> NoReturn:
    """A handler of signals that ends by an exception, so that what was started is cleaned up."""
    sys.exit(128 + number)
