"""The worker that releases what was parked is killed at each of its steps, and another goes on."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from tests.acceptance.faults.harness import System, assert_each_key_once
from tests.acceptance.faults.test_outages import WORKERS, is_open
from workflows.failpoints import OF_MAINTENANCE
from workflows.models import CircuitEvent, Workflow

pytestmark = pytest.mark.django_db(transaction=True)

PARKED = 60

OF_TRIAL, OF_BATCH = ([f"{boundary}:{what}" for boundary in OF_MAINTENANCE[:2]] for what in ("trial", "cohort"))
OF_COMMIT = [f"{boundary}:release parked" for boundary in OF_MAINTENANCE[2:]]
ALL = [*OF_TRIAL, *OF_BATCH, *OF_COMMIT]


class Boundaries:
    """Where the first worker of all to come by is killed, once they are armed. A file says that one was there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for name in ALL:
            (folder / name).touch()

    def arm(self, names: Collection[str]) -> None:
        for name in names:
            (self.folder / name).unlink()

    def were_reached(self) -> bool:
        return {each.name for each in self.folder.iterdir()} == set(ALL)


def test_a_leader_killed_at_any_step_of_a_release_leaves_it_to_the_next(system: System, tmp_path: Path) -> None:
    boundaries = Boundaries(tmp_path / "reached")
    system.sandbox.fault("messages", None, "status", status=503)
    given = system.notes(PARKED)
    # Several supervisors: each forks again the later, the more of its children die young.
    for _ in range(WORKERS):
        system.work("NOTE", ONRAMP_FAILPOINT=",".join(ALL), ONRAMP_FAILPOINT_ONCE=str(boundaries.folder))
    rows = Workflow.objects.filter(pk__in=given)
    system.wait_until(lambda: rows.filter(parked_on="messages").count() == PARKED)

    boundaries.arm([*OF_TRIAL, *OF_COMMIT])
    system.wait_until(boundaries.were_reached)
    assert is_open("messages"), "a trial of which the next leader knows nothing is none"
    assert rows.filter(parked_on="messages").count() == PARKED

    system.sandbox.clear_faults()
    system.wait_until(lambda: not is_open("messages"))
    boundaries.arm([*OF_BATCH, *OF_COMMIT])
    system.wait_until(boundaries.were_reached)
    system.wait_until(lambda: not rows.filter(status="PENDING").exists())
    system.stop()
    assert system.output.count("ended by SIGKILL") == len([*OF_TRIAL, *OF_BATCH]) + 2 * len(OF_COMMIT)
    assert set(rows.values_list("status", "parked_on")) == {("COMPLETE", "")}
    assert_each_key_once(system.sandbox.effects())
    story = CircuitEvent.objects.order_by("id").values_list("kind", "reason")
    assert [kind for kind, _ in story] == ["opened", "closed"]
    assert story[1][1] == "A call was answered."
