"""SUBCOMMAND: the operation of one of the console's verbs, from a shell."""

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
    """`run` gets the actor and the parsed arguments, and returns the results by name.

    It raises NotAllowed and PermissionDenied, as operations do. --dry-run rolls back its transaction; a subcommand with
    other effects checks `dry_run` itself. `say` in the arguments reports progress. A result `exit_code` becomes the
    command's. --help shows `examples`.
    """

    help: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[User, dict[str, Any]], dict[str, Any]]
    examples: Sequence[str] = ()
    changes: bool = True


def number(text: str, what: str) -> int:
    """The id of a row. Raises NotAllowed if the text is no id."""
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise NotAllowed(f"There is no {what} {text!r}: give its number.")
