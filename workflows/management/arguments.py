"""What several commands share: arguments, settings as their defaults, extras, and help texts with line breaks."""

from __future__ import annotations

from argparse import ArgumentTypeError, RawDescriptionHelpFormatter
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from workflows import extras

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class HelpInLines(BaseCommand):
    """A command whose help keeps its line breaks. `examples` follow the options."""

    examples = ""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        return super().create_parser(
            prog_name, subcommand, epilog=self.examples, formatter_class=RawDescriptionHelpFormatter, **kwargs
        )


def given(argument: str | None, setting: str, example: str) -> str:
    """The argument, or else the setting. Raises CommandError without both."""
    value = argument or str(getattr(settings, setting))
    if not value:
        raise CommandError(f"{setting} is not set. Set it, or give {example}.")
    return value


def extra(module: str) -> ModuleType:
    """One of our modules that needs an extra. Raises CommandError if the extra is not installed."""
    try:
        return extras.load(module)
    except extras.ExtraMissing as missing:
        raise CommandError(str(missing)) from None


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e9:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds: give 0 or more")
    return number


def duration(text: str) -> timedelta:
    try:
        return timedelta(**{UNITS[text[-1:]]: float(text[:-1])})
    except (KeyError, ValueError, OverflowError):
        raise ArgumentTypeError(f"{text!r} is not a time: give 30m, 2h or 1d") from None


def time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a time: give 2026-03-02T09:40Z, or a date (UTC)") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def time_or_ago(text: str) -> datetime:
    try:
        return timezone.now() - duration(text)
    except (ArgumentTypeError, OverflowError):
        return time(text)


def time_or_in(text: str) -> datetime:
    try:
        return timezone.now() + duration(text)
    except (ArgumentTypeError, OverflowError):
        return time(text)
