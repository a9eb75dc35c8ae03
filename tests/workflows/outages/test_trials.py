"""Who tries a service whose circuit is open, and what becomes of a trial whose outcome is not known at once."""

from __future__ import annotations

from datetime import timedelta
from threading import Timer
from typing import Any

import pytest
from django.utils import timezone

from tests import engine
from tests.engine import another_connection, define, do_chores, work, worker
from tests.workflows.outages.services import Downstream, circuit, open_circuit, story, submit_and_work, trial_is_due
from workflows.models import Service, Workflow

pytestmark = engine.ENGINE


@pytest.fixture
def programs() -> Downstream:
    return Downstream()


def ends_at_once(*, workflow: Workflow, context: Any) -> None: ...


def due() -> int:
    return Workflow.objects.due().count()


def test_the_outcome_of_a_trial_is_written_though_the_row_is_locked_just_then(programs: Downstream) -> None:
    """By a worker that votes, or the chores. Forgotten, it would be a trial without a call, and close the circuit."""
    define([programs.step])
    open_circuit()
    submit_and_work(2)
    programs.state = "down"
    trial_is_due()
    do_chores()
    with another_connection() as other:
        other.execute("BEGIN")
        other.execute("SELECT FROM workflows_service FOR UPDATE")
        release = Timer(0.06, other.execute, ["COMMIT"])
        release.start()
        assert worker().process_next()
        release.join()
    assert len(programs.calls) == 1
    assert circuit().cool_off == 10, "the next trial comes later"
    do_chores()
    assert (story(), due()) == ([], 0)


def test_a_trial_that_no_worker_takes_up_says_nothing_and_another_one_is_made(programs: Downstream) -> None:
    """Its queue has no workers, or all of them have been at long steps for a minute."""
    define([programs.step])
    open_circuit()
    elsewhere, here, last = submit_and_work(3)
    Workflow.objects.filter(pk=elsewhere.pk).update(queue="nobody's")
    trial_is_due()
    do_chores()
    assert due() == 1
    minute_ago = timezone.now() - timedelta(seconds=61)
    Workflow.objects.filter(pk=elsewhere.pk).update(invisible_until=minute_ago)
    retry_at = minute_ago - timedelta(seconds=5)
    Service.objects.update(released_at=minute_ago - timedelta(milliseconds=1), retry_at=retry_at)
    do_chores()
    assert story() == [], "nobody has called it"
    assert set(Workflow.objects.due().values_list("pk", flat=True)) == {elsewhere.pk, here.pk}
    define([ends_at_once])  # the one that is here calls it no more
    assert work(here).status == "COMPLETE"
    do_chores()
    assert story() == ["closed"]
    assert Workflow.objects.get(pk=last.pk).invisible_until <= timezone.now()
