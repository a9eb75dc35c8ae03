"""A worker that dies while it releases what was parked leaves everything as it was: the next one does the same."""

from __future__ import annotations

import pytest
from django.utils import timezone

from tests import engine
from tests.engine import do_maintenance
from tests.workflows.features.outages.services import (
    SECOND,
    Downstream,
    circuit,
    parked,
    story,
    trial_is_due,
)
from workflows import failpoints
from workflows.failpoints import OF_MAINTENANCE
from workflows.models import Service, Workflow

pytestmark = [*engine.ENGINE, pytest.mark.slow, pytest.mark.usefixtures("cohorts_at_once")]


class Died(BaseException):
    pass


def die() -> None:
    raise Died


def let_a_trial_have_made_no_call() -> None:
    trial_is_due()
    do_maintenance()
    Workflow.objects.due().update(status="COMPLETE", completed_at=timezone.now(), parked_on="")


def let_the_circuit_be_closed() -> None:
    then = timezone.now() - 2 * SECOND
    Service.objects.update(
        opened_at=None, retry_at=None, since=None, closed_at=then, failed_at=None, released_at=then, cohort=2
    )


# What is due then, and the story.
STATES = {
    "trial": (trial_is_due, 1, []),
    "probation": (let_a_trial_have_made_no_call, 1, ["closed"]),
    "cohort": (let_the_circuit_be_closed, 4, []),
}


# Where a worker dies does not depend on what is due, but for the release itself.
BOTH = [(state, at) for state in STATES for at in OF_MAINTENANCE if state == "trial" or at == "after_release"]


@pytest.mark.parametrize(("state", "boundary"), BOTH)
def test_the_next_one_releases_as_many_and_no_more(state: str, boundary: str) -> None:
    bring_about, due, told = STATES[state]
    parked(Downstream(), 8)
    bring_about()
    before = (Workflow.objects.due().count(), story(), circuit().cohort)
    with failpoints.armed(boundary, die), pytest.raises(Died):
        do_maintenance()
    after = (Workflow.objects.due().count(), story(), circuit().cohort)
    assert after == ((due, told, due) if boundary == "after_chore" else before)
    for _ in range(2):
        do_maintenance()
        assert (Workflow.objects.due().count(), story(), circuit().cohort) == (due, told, due)
