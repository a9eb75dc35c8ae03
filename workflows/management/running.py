"""What the commands have in common that run on until they are stopped."""

from __future__ import annotations

import logging
import signal
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from django.core.management.base import CommandError

from workflows.management.arguments import HelpInLines, seconds
from workflows.management.database import refuse_lacking_keys, refuse_unmigrated
from workflows.postgres import server_log, session_settings
from workflows.postgres.wire import give_up_in
from workflows.stop_flag import Flag

logger = logging.getLogger(__name__)

# Seconds that one that is told to stop waits for an answer, if no new connection to PostgreSQL can be had.
LAST_WAIT = 5.0


class RunningCommand(HelpInLines):
    """A command that ends when it is told to, after --max-runtime, or with --drain when there is nothing left."""

    drain = ""  # what --drain does

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--drain", action="store_true", help=self.drain)
        parser.add_argument(
            "--max-runtime", type=seconds, metavar="SECONDS", help="Stop after this long, as on SIGTERM."
        )


def prepare() -> None:
    """Refuse to run without the tables or the keys of this release; a database that is away is waited for later."""
    session_settings.limit_idle_transactions()
    refuse_unmigrated()
    refuse_lacking_keys()
    server_log.warn()


def stop_flag() -> Flag:
    """A flag that SIGTERM and Ctrl-C set from now on."""
    stopping = Flag()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()
        give_up_in(LAST_WAIT)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return stopping


@contextmanager
def reported(command: str, expected: type[Exception]) -> Iterator[None]:
    """End the command with the message of an `expected` error; of any other only the log says where it came from."""
    try:
        yield
    except expected as error:
        raise CommandError(str(error)) from None
    except Exception as error:  # its message may quote a message of the queue
        logger.error("%s failed", command, exc_info=error)
        raise CommandError("It failed, and the error is ours: the log says where.") from None
