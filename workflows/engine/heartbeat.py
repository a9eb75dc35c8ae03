"""HEARTBEAT: which workers run, where, since when and on what: one row for each worker process, for people."""

from __future__ import annotations

import os
import socket
from time import monotonic

from django.conf import settings

from workflows.engine.process_status import WorkerStatus
from workflows.postgres.statements import execute
from workflows.signals.waking import Slice
from workflows.state import attempt_log
from workflows.state.attempt_log import OpenAttempt

EVERY = 1.0
# Seconds after its last beat in which a worker counts as looking at the queue. After that it is in a long step, or
# dead.
LOOKS_FOR = 5.0
# Long enough for a person to see in the morning which worker died in the night.
KEEP_FOR = "1 day"


# How many other workers look for the same. The heartbeat's statement returns it.
_OTHERS = f"""(
    SELECT count(*) FROM workflows_workerprocess
     WHERE queue = %(queue)s AND stopped_at IS NULL AND id <> %(row_id)s AND "only" = %(only)s
       AND last_seen > clock_timestamp() - interval '{LOOKS_FOR} s')"""  # noqa: S608 (ours)

# This also reopens the row, if the supervisor has closed it too early.
_UPDATE = f"""
    UPDATE workflows_workerprocess
       SET last_seen = clock_timestamp(), stopped_at = NULL, ended_how = '',
           workflow_id = %(workflow_id)s, attempt = %(attempt)s, step = %(step)s,
           since = clock_timestamp() - %(seconds)s * interval '1 second'
     WHERE id = %(row_id)s AND name = %(name)s RETURNING id, {_OTHERS}"""  # noqa: S608 (ours)

_INSERT = f"""
    INSERT INTO workflows_workerprocess
           (name, host, pid, release, queue, "only", workflow_id, attempt, step, since)
    VALUES (%(name)s, %(host)s, %(pid)s, %(release)s, %(queue)s, %(only)s, %(workflow_id)s, %(attempt)s, %(step)s,
            clock_timestamp() - %(seconds)s * interval '1 second') RETURNING id, {_OTHERS}"""  # noqa: S608 (ours)


class Heartbeat:
    """This process's row. The first beat makes the row; a later beat makes it again if maintenance has deleted it."""

    def __init__(self, name: str, queue: str, *, only: str = "") -> None:
        self.name = name
        self.queue, self.only = queue, only
        self.row_id = 0
        self.live_workers = 1  # workers with the same queue and `only` that beat, including this one, at the last beat
        self.due_at = float("-inf")

    def beat(self, status: WorkerStatus, attempt: OpenAttempt | None) -> None:
        """Record that this worker lives and what it does; at most once a second."""
        if monotonic() < self.due_at:
            return
        self.due_at = monotonic() + EVERY
        row = {
            "row_id": self.row_id,
            "name": self.name,
            "host": socket.gethostname()[:150],
            "pid": os.getpid(),
            "release": settings.RELEASE,
            "queue": self.queue,
            "only": self.only,
            "workflow_id": status.workflow_id or None,
            "attempt": attempt.number if attempt else None,
            "step": status.step[:100],
            "seconds": monotonic() - status.since if status.since else None,
        }
        ((self.row_id, others),) = attempt_log.execute(_UPDATE, row) or attempt_log.execute(_INSERT, row)
        self.live_workers = others + 1

    def stop(self) -> None:
        """Record that this worker has stopped in good order."""
        if not self.row_id:
            return  # this worker never reached the database
        attempt_log.execute(
            """UPDATE workflows_workerprocess
                  SET stopped_at = clock_timestamp(), last_seen = clock_timestamp(),
                      workflow_id = NULL, attempt = NULL, step = '', since = NULL
                WHERE id = %s AND name = %s""",
            [self.row_id, self.name],
        )
        self.row_id = 0


def delete_stale(after: int = 0) -> Slice:
    """Maintenance: delete the rows of workers, consumers and relays that have stopped or fallen silent long ago."""
    tables = ("workflows_workerprocess", "workflows_sideprocess")
    stale = "coalesce(stopped_at, last_seen) < now() - %s::interval"
    return Slice(sum(execute(f"DELETE FROM {each} WHERE {stale}", [KEEP_FOR]) for each in tables))  # noqa: S608 (ours)
