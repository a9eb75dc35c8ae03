"""How long the on_commit hooks of steps may take: nothing in the process ends one that hangs."""

from __future__ import annotations

import time
from typing import Any

from django.db import transaction

from tests import engine
from tests.engine import define, submit, worker
from tests.workflows.cancelling import nothing
from workflows.engine import loop, process_status
from workflows.engine.process_status import WorkerStatus
from workflows.models import Workflow

pytestmark = engine.ENGINE


def test_the_supervisor_knows_how_long_a_hook_may_take() -> None:
    """Nothing in the process ends one that hangs: the attempt is over, and with it the time of its steps."""
    (slot,) = process_status.allocate(1)
    seen: list[WorkerStatus | None] = []

    def hook(*, workflow: Workflow, context: Any) -> None:
        transaction.on_commit(lambda: seen.append(slot.read()))

    define([hook])
    workflow, began = submit(), time.monotonic()
    assert worker(slot=slot).process_next()
    (during,) = seen
    assert during is not None
    assert (during.workflow_id, during.step) == (workflow.pk, "an on_commit hook, after hook")
    assert began + loop.HOOKS_TIMEOUT <= during.deadline <= time.monotonic() + loop.HOOKS_TIMEOUT
    after = slot.read()
    assert after is not None
    assert (after.workflow_id, after.deadline) == (0, process_status.NEVER)


def test_where_there_is_nothing_to_do_no_deadline_is_left_behind() -> None:
    (slot,) = process_status.allocate(1)
    define([nothing])
    assert not worker(slot=slot).process_next()
    assert (slot.read() or WorkerStatus(deadline=0)).deadline == process_status.NEVER
