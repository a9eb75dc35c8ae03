"""What a subcommand is: the operation of a verb of the console, from a shell."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workflows.errors import NotAllowed

if TYPE_CHECKING:
    from django.contrib.auth.models import User

DONE, REFUSED, NOT_ALL = 0, 1, 3


@dataclass(frozen=True, slots=True)
class Subcommand:
    """`run` gets the actor and the parsed arguments, does it, and says what came of it, by name.

    It raises NotAllowed and PermissionDenied, as operations do. For --dry-run its transaction is taken back; where it
    does more than operations do, it looks at `dry_run` itself. `say` in the arguments tells of progress. A value
    `exit_code` of what it returns is that of the command. `examples` are shown by --help.
    """

    help: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[User, dict[str, Any]], dict[str, Any]]
    examples: Sequence[str] = ()
    changes: bool = True


def number(text: str, what: str) -> int:
    """The number of a row. Raises NotAllowed for what can be none."""
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise NotAllowed(f"There is no {what} {text!r}: give its number.")
