"""SIGKILL at every boundary of every once step of onboarding, and on both sides of the claim's commit."""

from pathlib import Path

import pytest

from onboarding.samples import Kind
from onboarding.workflow import ONBOARDING
from tests.acceptance.faults.harness import System, assert_nothing_twice, outcomes
from tests.processes import until
from workflows.failpoints import BOUNDARIES
from workflows.models import Effect

pytestmark = pytest.mark.django_db(transaction=True)

CALL, COMMIT = BOUNDARIES[:4], BOUNDARIES[4:]
ONCE = [step for step in ONBOARDING.steps if step.once]
OF_CALLS = [f"{boundary}:{step.name}" for step in ONCE for boundary in CALL]
# Of an attempt that completes, one that fails, and one that waits.
OF_COMMITS = [f"{boundary}:{decided}" for decided in ("complete", "failed", "waiting") for boundary in COMMIT]

WORKERS = 4

# Whose charge, or enrolment, is refused: whoever dies right after that leaves nothing to be found.
REFUSED = frozenset({Kind.CARD_INVALID, Kind.CARD_DECLINED, Kind.PROGRAM_FULL})


def test_a_worker_killed_at_any_boundary_does_nothing_twice(system: System, tmp_path: Path) -> None:
    (reached := tmp_path / "reached").mkdir()
    armed = [*OF_CALLS, *OF_COMMITS]

    def of_calls_are_reached() -> bool:
        system.answer()
        return {each.name for each in reached.iterdir()} >= set(OF_CALLS)

    system.submit(50, kinds=frozenset(Kind) - REFUSED)
    # Several supervisors: each forks again the later, the more of its children die young.
    for _ in range(WORKERS):
        system.work(ONRAMP_FAILPOINT=",".join(armed), ONRAMP_FAILPOINT_ONCE=str(reached))
    system.wait_until(of_calls_are_reached)
    system.submit(10, kinds=REFUSED)
    system.wait_until_at_rest()
    assert {each.name for each in reached.iterdir()} == set(armed), "each boundary was reached"
    # After its commit an attempt is decided, and a death says nothing of it.
    deaths = len(armed) - len([each for each in armed if each.startswith("after_commit")])
    until(lambda: outcomes(system)["killed"] == deaths, what=lambda: outcomes(system))
    system.stop()
    assert_nothing_twice(system)
    looked_up = Effect.objects.filter(settled_by="lookup").values_list("step", flat=True)
    # An account that is looked up leaves nothing to be found: that is done again.
    assert set(looked_up) == {step.name for step in ONCE if step.lookup} - {"look_up_account"}
