"""DEATHS: the supervisor writes to the database how a worker ended, and keeps this while the database is away."""

from __future__ import annotations

import logging
import signal
from collections import deque
from contextlib import closing
from time import monotonic
from typing import Any, NamedTuple

from django.db import Error, connections

from workflows.engine.backoff import Delay
from workflows.engine.process_status import WorkerStatus
from workflows.models import Attempt
from workflows.postgres.statements import Parameters
from workflows.state import attempt_log

logger = logging.getLogger(__name__)

# Signals that come from outside: a person, an init system, or the kernel when memory runs out. Any other signal, and
# any exit, is the process's own fault.
SENT_BY_OTHERS = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP}
# Seconds for connecting, and for each statement; meanwhile the supervisor reaps no child.
TIMEOUT = 2
RETRY_DELAY, MAX_RETRY_DELAY = 0.5, 30.0
# Enough for people. A child that dies every five seconds while the database is away for a day would make more.
MOST_KEPT = 1000

_SESSION = f"-c statement_timeout={TIMEOUT * 1000}"
_CONNECTION = {"connect_timeout": TIMEOUT, "tcp_user_timeout": TIMEOUT * 1000, "keepalives_idle": 1}


class Death(NamedTuple):
    """The end of the process `worker` (host:process): what it was doing, and how it ended."""

    worker: str
    status: WorkerStatus
    outcome: Attempt.Outcome
    how: str


def death(worker: str, status: WorkerStatus, exit_code: int, *, ended_by_us: str = "") -> Death:
    """Distinguish a crash from a kill. `ended_by_us` says why the supervisor killed the process."""
    if status.lost:
        return Death(worker, status, Attempt.Outcome.LOST, "")
    if exit_code >= 0:
        return Death(worker, status, Attempt.Outcome.CRASHED, f"exit code {exit_code}")
    if exit_code == -signal.SIGKILL and ended_by_us:
        return Death(worker, status, Attempt.Outcome.INTERRUPTED, ended_by_us)
    outcome = Attempt.Outcome.KILLED if -exit_code in SENT_BY_OTHERS else Attempt.Outcome.CRASHED
    return Death(worker, status, outcome, signal_name(-exit_code))


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


class DeathRegister:
    """The deaths that the supervisor has yet to write, oldest first."""

    def __init__(self, name: str) -> None:
        self.name = name  # the supervisor's connection in pg_stat_activity
        self._unwritten: deque[Death] = deque(maxlen=MOST_KEPT)
        self._try_again_at = float("-inf")
        self._delay = Delay(RETRY_DELAY, MAX_RETRY_DELAY)

    def __len__(self) -> int:
        return len(self._unwritten)

    def add(self, death: Death) -> None:
        self._unwritten.append(death)

    def write(self, death: Death) -> bool:
        """Write a death that the supervisor is about to cause; if it cannot, forget the death and return False."""
        self.add(death)
        self.flush()
        if death in self._unwritten:
            self._unwritten.remove(death)
            return False
        return True

    def flush(self, *, at_once: bool = False) -> None:
        """Write the pending deaths; on failure keep them, and wait a while before the next try."""
        if not self._unwritten or (monotonic() < self._try_again_at and not at_once):
            return
        try:
            with closing(self._connect()) as connection, connection.cursor() as cursor:
                connection.set_autocommit(False)
                while self._unwritten:
                    for sql, parameters in _statements(self._unwritten[0]):
                        cursor.execute(sql, parameters)
                    connection.commit()
                    self._unwritten.popleft()
        except Error as error:
            logger.warning("cannot record how a worker ended, and will try again: %s", type(error).__name__)
            self._try_again_at = monotonic() + self._delay.next()
        else:
            self._delay.reset()

    def _connect(self) -> Any:
        """Open a separate connection: children must inherit neither the connection nor its settings."""
        connection = connections.create_connection(attempt_log.ALIAS)
        given = connection.settings_dict.get("OPTIONS", {})
        options = {
            **given,
            **_CONNECTION,
            "application_name": f"onramp supervisor {self.name}",
            "options": f"{given.get('options', '')} {_SESSION}".strip(),
        }
        connection.settings_dict = {**connection.settings_dict, "OPTIONS": options}
        return connection


def _statements(death: Death) -> list[tuple[str, Parameters]]:
    """The statements that record a death. Each may be sent twice, because the answer to the first may be lost.

    The ids are 0 for a worker that had no open attempt, or no row yet: no such row exists.
    """
    status = death.status
    return [
        *attempt_log.closing_statements(
            status.attempt_id, death.worker, death.outcome, step=status.step[:100], how=death.how
        ),
        (
            """UPDATE workflows_workerprocess SET stopped_at = clock_timestamp(), ended_how = %s
                WHERE id = %s AND name = %s AND stopped_at IS NULL""",
            [death.how, status.worker_id, death.worker],
        ),
    ]
