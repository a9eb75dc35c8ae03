"""IN HAND: the attempt that a worker is running, and what happens to it when the worker has lost its claim."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import sleep
from typing import Any

from django.conf import settings
from django.db import connections, transaction
from django.db.models import Exists, OuterRef
from django.db.models.functions import Now

from workflows import request_ids
from workflows.engine import poison, streams
from workflows.engine.backoff import Delay
from workflows.engine.claim import Claim
from workflows.engine.outcomes import Rescheduled
from workflows.engine.process_status import NEVER, PublishedStatus
from workflows.errors import ClaimLost
from workflows.models import Attempt, Event, Workflow
from workflows.postgres import sqlstates
from workflows.state import attempt_log, history, transitions
from workflows.state.attempt_log import OpenAttempt

logger = logging.getLogger(__name__)

# Seconds between attempts to reach a lost database, doubling.
LOST_DELAY = 0.1
# The longest of these while the worker stops with an unwritten result: its grace may be over before the next attempt.
MAX_LAST_DELAY = 1.0


class InHand:
    """The `attempt` of the worker `name`, from its opening until it is decided, or closed as lost."""

    def __init__(self, name: str, status: PublishedStatus, must_stop: Callable[[], bool]) -> None:
        self._name, self._status, self._must_stop = name, status, must_stop
        self.attempt: OpenAttempt | None = None
        self._why_unrecorded = ""  # why an attempt could not be closed as lost

    def make_ready(self) -> None:
        """Before a claim: close a lost attempt, and open the attempt log. Raises ClaimLost if that fails."""
        if self.attempt:  # if it were forgotten, it would look like a death
            self.close_lost()
        if self.attempt:  # claiming another workflow would forget it
            raise ClaimLost(f"what came of the last attempt cannot be written yet: {self._why_unrecorded}")
        attempt_log.connect()

    def open(self, claim: Claim) -> OpenAttempt:
        attempt = attempt_log.open_attempt(
            claim.workflow, claim_xid=claim.xid, worker=self._name, release=settings.RELEASE
        )
        self.attempt = attempt
        streams.reopen()
        request_ids.current.set(claim.workflow.request_id)
        self._status.update(attempt_id=attempt.id, workflow_id=attempt.workflow_id)
        return attempt

    def clear(self, **changes: Any) -> None:
        self.attempt = None
        request_ids.current.set("")
        self._status.update(attempt_id=0, workflow_id=0, since=0.0, deadline=NEVER, lost=False, step="", **changes)

    def close_lost(self, *, how: str = "", reschedule_reason: str = "") -> None:
        """Close both connections, and close the attempt as lost. If that fails, the worker tries again later.

        The row is rescheduled after a fault of the engine (`reschedule_reason`), and from its second loss in a row on:
        by then the workflow is a likelier cause than the database. Due at once, it would be the first row for every
        worker again. If another worker takes the row before this one is back, that worker reschedules it
        (`engine.poison`).
        """
        connections.close_all()
        try:
            if self.attempt:
                attempt_log.close_as_lost(self.attempt, how)
                losses = len(poison.losses(self.attempt)) + 1
                if reschedule_reason or losses > 1:
                    _back_off(self.attempt, poison.reschedule_as_lost(losses, reason=reschedule_reason))
            self.clear()
        except (ClaimLost, *sqlstates.DATABASE_ERRORS) as error:
            self._why_unrecorded = sqlstates.loggable(error).removeprefix("ClaimLost: ")
            connections.close_all()

    def write_what_is_left(self) -> None:
        """When the worker stops, try to write a result that only this process knows, until `must_stop` returns True.

        A result that cannot be written is lost with this process, and is logged.
        """
        delay = Delay(LOST_DELAY, MAX_LAST_DELAY)
        while self.attempt and self.attempt.held_back and not self._must_stop():
            sleep(delay.next())
            self.close_lost()
        if self.attempt and self.attempt.held_back:
            logger.error(
                "workflow %s: what came of the call of %s is lost, it could not be written before the end (%s); "
                "the next attempt asks whether it happened",
                self.attempt.workflow_id,
                self.attempt.held_back_for,
                self._why_unrecorded,
            )


def _back_off(attempt: OpenAttempt, to: Rescheduled) -> None:
    """Postpone the row, unless it is locked, or its id now belongs to another row. No signal ends the delay early."""
    ours = Attempt.objects.filter(pk=attempt.id, workflow=OuterRef("pk"), worker=attempt.worker)
    due = Workflow.objects.filter(Exists(ours), pk=attempt.workflow_id, status="PENDING", invisible_until__lte=Now())
    with transaction.atomic():
        if due.select_for_update(skip_locked=True, no_key=True).first():
            transitions.reschedule(attempt.workflow_id, to.due)
            history.record_in(attempt, Event.Kind.RESCHEDULED, reason=to.reason)
