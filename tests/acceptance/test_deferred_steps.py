"""Deferred steps that harm their workers: the patient stays enrolled; the others are done, each once."""

from functools import partial
from pathlib import Path

import pytest

from tests import engine
from tests.acceptance.conftest import Start
from tests.acceptance.outside import attempts, done, now, submit
from tests.processes import until
from workflows.features.deferred_steps.source import MAX_TRIES
from workflows.models import FollowUp, Workflow
from workflows.models.clock import ClockTimestamp

pytestmark = pytest.mark.django_db(transaction=True)


def let_go(runworker: Start, effects: Path, harm: str) -> Workflow:
    """A workflow that is COMPLETE, and whose last step is due now to be followed up."""
    workflow = submit("followed", effects, {"harm": harm})
    runworker("FOLLOWED", arguments=("--drain",)).wait(60)
    assert now(workflow).status == "COMPLETE"
    make_due()
    return workflow


def make_due() -> None:
    FollowUp.objects.filter(due_at__isnull=False).update(due_at=ClockTimestamp())


def is_given_up() -> bool:
    return FollowUp.objects.filter(due_at=None).exists()


@pytest.mark.parametrize(("harm", "ended"), [("kill", "killed"), ("exit", "crashed")])
def test_one_that_ends_its_workers_over_and_over_is_given_up_and_its_neighbours_are_done_once(
    runworker: Start, effects: Path, harm: str, ended: str
) -> None:
    neighbours = [submit("followed", effects, {"harm": "none"}) for _ in range(10)]
    poison = let_go(runworker, effects, harm)
    before = Workflow.objects.filter(pk=poison.pk).values().get()
    FollowUp.objects.filter(workflow=poison.pk).update(tries=MAX_TRIES - 3)
    worker = runworker("FOLLOWED", arguments=("--processes", "2"))

    def ends(times: int) -> bool:
        return attempts(poison).count(ended) == times or is_given_up()

    for times in range(1, 5):
        until(partial(ends, times), seconds=30, what=lambda: worker.output)
        make_due()
    until(lambda: FollowUp.objects.count() == 1, what=lambda: worker.output)
    assert Workflow.objects.filter(pk=poison.pk).values().get() == before
    assert attempts(poison) == ["complete", ended, ended, ended, "follow_up_failed"]
    assert engine.kinds(poison)[-1] == "follow_up_given_up"
    assert done(effects, "begin").count(poison.pk) == 3
    for each in neighbours:
        assert done(effects, "begin").count(each.pk) == 1
        assert now(each).status == "COMPLETE"


def test_one_that_does_not_return_is_ended_by_the_supervisor_and_rescheduled(runworker: Start, effects: Path) -> None:
    workflow = let_go(runworker, effects, "loop")
    worker = runworker("FOLLOWED")
    until(lambda: "interrupted" in attempts(workflow), seconds=60, what=lambda: worker.output)
    assert now(workflow).status == "COMPLETE"
    assert FollowUp.objects.filter(workflow=workflow.pk, tries=1, due_at__gt=ClockTimestamp()).exists()
    neighbour = submit("followed", effects, {"harm": "none"})
    until(lambda: FollowUp.objects.filter(workflow=neighbour.pk).exists(), what=lambda: worker.output)
    FollowUp.objects.filter(workflow=neighbour.pk).update(due_at=ClockTimestamp())
    until(lambda: done(effects, "begin").count(neighbour.pk) == 1, seconds=30, what=lambda: worker.output)
