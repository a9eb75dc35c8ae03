"""Plays the scenes: sets the sandbox's faults, sends the submissions, and acts for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic, sleep
from uuid import UUID

import httpx

from onboarding.demo import report, traffic
from onboarding.demo.report import Result
from onboarding.demo.scenes import OUTAGE, Act, Scene, Who
from workflows.errors import NotAllowed

# Much longer than the usual ten seconds.
PATIENCE = 90.0


def play(
    scenes: Sequence[Scene],
    *,
    intake: str,
    api_key: str,
    sandbox: str,
    who: Who,
    check: Callable[[], None],
) -> dict[UUID, Result]:
    """Play the scenes to their ends; return the result of each. The insurance service stays down.

    `check` is called repeatedly, and raises if a process has ended by itself.
    """
    patience = monotonic() + PATIENCE
    with httpx.Client(base_url=sandbox, timeout=30) as client:
        for fault in (OUTAGE, *(fault for scene in scenes for fault in scene.faults)):
            client.post("/_faults", json=fault).raise_for_status()
    samples = [scene.sample for scene in scenes]
    traffic.send_all(intake, api_key, samples, connections=1)  # in their order
    to_do = {scene.key: scene.act for scene in scenes if scene.act}
    while True:
        check()
        found = report.results(samples)
        for key, act in list(to_do.items()):
            if found[key].state == act.when and _act(act, found[key].id, who):
                del to_do[key]
        all_done = not to_do and all(_has_come_to_rest(found[scene.key], scene) for scene in scenes)
        if all_done or monotonic() > patience:
            return found
        sleep(0.1)


def _has_come_to_rest(result: Result, scene: Scene) -> bool:
    planned = (result.state, result.code) == (scene.expected.state, scene.expected.code)
    return planned and report.is_at_rest(result, scene.expected)


def _act(act: Act, workflow: int, who: Who) -> bool:
    """Carry out an act. False if a worker has locked the workflow, or somebody at the console was faster."""
    with suppress(NotAllowed):
        act.do(workflow, who)
        return True
    return False
