"""What commands share that run until they are stopped."""

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

# Seconds that a stopping process waits for an answer if it gets no new connection to PostgreSQL.
LAST_WAIT = 5.0


class RunningCommand(HelpInLines):
    """A command that ends on a signal, after --max-runtime, or with --drain when nothing is left."""

    drain = ""  # what --drain does

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--drain", action="store_true", help=self.drain)
        parser.add_argument(
            "--max-runtime", type=seconds, metavar="SECONDS", help="Stop after this long, as on SIGTERM."
        )


def prepare() -> None:
    """Refuse to start without this release's tables and keys. Later code waits for a database that is away."""
    session_settings.limit_idle_transactions()
    refuse_unmigrated()
    refuse_lacking_keys()
    server_log.warn()


def stop_flag() -> Flag:
    """Return a flag that SIGTERM and Ctrl-C set from now on."""
    stopping = Flag()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()
        give_up_in(LAST_WAIT)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return stopping


@contextmanager
def reported(command: str, expected: type[Exception]) -> Iterator[None]:
    """End the command with the message of an `expected` error. Any other error is only logged, with its location."""
    try:
        yield
    except expected as error:
        raise CommandError(str(error)) from None
    except Exception as error:  # its message may quote a message of the queue
        logger.error("%s failed", command, exc_info=error)
        raise CommandError("It failed, and the error is ours: the log says where.") from None
