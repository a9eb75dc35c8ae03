"""Deploys between two attempts, and two releases side by side: steps renamed, moved and added. One charge in all."""

from itertools import permutations

import pytest

from tests import engine
from tests.acceptance.faults import definitions
from tests.acceptance.faults.harness import Requests, System, assert_nothing_twice
from tests.acceptance.outside import attempts, now
from workflows.models import Attempt, Effect

pytestmark = pytest.mark.django_db(transaction=True)

RELEASES = ("OLDER", "NEWER", "NEWEST")


@pytest.mark.parametrize("order", list(permutations(RELEASES)), ids="-".join)
def test_releases_take_turns_and_call_once(system: System, order: tuple[str, ...]) -> None:
    charges = Requests(system.sandbox, "payments", "charge")
    workflow = system.enter("released", attempts=len(order))
    for release in order:
        engine.make_due(workflow)
        worker = system.work(release, arguments=("--drain",), RELEASE=release, SERVICES_TIMEOUT="4.5")
        assert worker.wait() == 0
    assert now(workflow).status == "COMPLETE"
    assert attempts(workflow) == [*["retry"] * (len(order) - 1), "complete"]
    ran = Attempt.objects.filter(workflow=workflow).order_by("number").values_list("release", flat=True)
    assert tuple(ran) == order, "each release has had its turn"
    assert charges.count() == 1
    steps = Effect.objects.filter(workflow=workflow).values_list("step", flat=True)
    assert sorted(steps) == ["attach", "charge", "confirm"]
    assert_nothing_twice(system, getattr(definitions, order[-1]))
