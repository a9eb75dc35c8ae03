"""How the commands of the benchmark run, and how they end."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db import Error

from tests.benchmark.database import BenchmarkError
from tests.commands import complain, exit_in_order


def run_to_the_end(run: Callable[[], None]) -> int:
    """Run it, and return the exit code. Whatever stops it is said in a line on stderr."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    signal.signal(signal.SIGTERM, exit_in_order)
    try:
        run()
    except KeyboardInterrupt:
        return complain("Interrupted. The database is dropped.", 130)
    except BenchmarkError as error:
        return complain(str(error))
    except (ImproperlyConfigured, psycopg.Error, Error) as error:
        return complain(f"The database cannot be used. {error}")
    except AssertionError as error:
        return complain(f"The workers do not do what they should: {error}")
    return 0


def at_least(least: int) -> Callable[[str], int]:
    """The type of an argument that is a whole number, `least` or more."""

    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} will not do: give a whole number, {least} or more")
        return int(text)

    return number
