"""What the commands of the tests share (`tests.benchmark`, `tests.mutants`): how they are called, and end."""

from __future__ import annotations

import argparse
import sys
from types import FrameType
from typing import NoReturn


def parser(command: str, description: str, *examples: str) -> argparse.ArgumentParser:
    """Of `python -m command`. The examples are of its target in the Makefile, each with what it does."""
    return argparse.ArgumentParser(
        prog=f"python -m {command}",
        description=description,
        epilog="\n  ".join(["examples:", *examples]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def complain(message: str, code: int = 1) -> int:
    """Say on stderr what is wrong; return the exit code."""
    sys.stderr.write(f"{message.strip()}\n")
    return code


def exit_in_order(number: int, frame: FrameType | None) -> NoReturn:
    """A handler of signals that ends by an exception, so that what was started is cleaned up."""
    sys.exit(128 + number)
