"""What a subcommand is: the operation of a verb of the console, from a shell."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django.contrib.auth.models import User


@dataclass(frozen=True, slots=True)
class Subcommand:
    """`foretell` says what would happen, for --dry-run; `run` does it, and says what came of it, for JSON, too.

    Both get the actor and the parsed arguments. They raise NotAllowed and PermissionDenied, as operations do.
    """

    help: str
    add_arguments: Callable[[ArgumentParser], None]
    foretell: Callable[[User, dict[str, Any]], dict[str, Any]]
    run: Callable[[User, dict[str, Any]], dict[str, Any]]
