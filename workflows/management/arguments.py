"""What several commands have in common: types of arguments, and help that keeps its lines."""

from __future__ import annotations

from argparse import ArgumentTypeError, RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import BaseCommand


class HelpInLines(BaseCommand):
    """A command whose help is shown with the lines that it is written in; `examples` follow the options."""

    examples = ""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        return super().create_parser(
            prog_name, subcommand, epilog=self.examples, formatter_class=RawDescriptionHelpFormatter, **kwargs
        )


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e9:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds: give 0 or more")
    return number
