"""Plays the scenes: arms the sandbox's faults, sends the submissions, and does what people and broken libraries do."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from time import monotonic, sleep
from uuid import UUID

import httpx

from onboarding.demo import report, traffic
from onboarding.demo.report import Result
from onboarding.demo.scenes import OUTAGE, Act, Scene, Who
from workflows.errors import NotAllowed
from workflows.models import Attempt, WorkerProcess

# Far longer than it takes, about ten seconds.
PATIENCE = 90.0


def play(
    scenes: Sequence[Scene],
    *,
    intake: str,
    api_key: str,
    sandbox: str,
    who: Who,
    workers: Collection[int],
    check: Callable[[], None],
) -> dict[UUID, Result]:
    """Play the scenes to their ends; return the state of each. The insurance service stays down.

    `workers` are the process ids of the supervisors whose workers may be
    crashed. `check` is called again and again: it raises when a process has ended by itself.
    """
    patience = monotonic() + PATIENCE
    samples = [scene.sample for scene in scenes]
    with httpx.Client(base_url=sandbox, timeout=30) as client:
        client.post("/_faults", json=OUTAGE).raise_for_status()
        for fault in (fault for scene in scenes for fault in scene.faults):
            client.post("/_faults", json=fault).raise_for_status()
        traffic.send_all(intake, api_key, samples, connections=1)  # in their order
        to_do = {scene.key: scene.act for scene in scenes if scene.act}
        crashed = dict.fromkeys((scene.key for scene in scenes if scene.crashes), 0)
        while True:
            check()
            found = report.results(samples)
            for key, act in list(to_do.items()):
                if found[key].state == act.when and _act(act, found[key].id, who):
                    del to_do[key]
            for key, times in crashed.items():
                if _struck(client, key) > times and _crash_worker_of(found[key].id, workers):
                    crashed[key] += 1
            all_done = not to_do and all(_has_come_to_rest(found[scene.key], scene) for scene in scenes)
            if all_done or monotonic() > patience:
                return found
            sleep(0.1)


def _has_come_to_rest(result: Result, scene: Scene) -> bool:
    planned = (result.state, result.code) == (scene.expected.state, scene.expected.code)
    return planned and report.is_at_rest(result, scene.expected)


def _act(act: Act, workflow: int, who: Who) -> bool:
    """Do it; False if a worker holds the workflow just now, or somebody at the console was quicker."""
    with suppress(NotAllowed):
        act.do(workflow, who)
        return True
    return False


def _struck(client: httpx.Client, key: UUID) -> int:
    """How often the faults of a submission have struck."""
    faults = client.get("/_faults").raise_for_status().json()["faults"]
    return sum(fault["fired"] for fault in faults if fault["idempotency_key"] == str(key))


def _crash_worker_of(workflow: int, workers: Collection[int]) -> bool:
    """End the worker that runs the workflow as a fault in a library would; only one of our own `workers`."""
    attempt = Attempt.objects.filter(workflow=workflow, closed_at=None).first()
    process = attempt and WorkerProcess.objects.filter(name=attempt.worker, host=socket.gethostname()).first()
    if not process:
        return False
    with suppress(ProcessLookupError):
        if os.getsid(process.pid) in workers:  # a supervisor leads a session, and its workers are in it
            os.kill(process.pid, signal.SIGSEGV)
            return True
    return False
