"""A migration while workers are in the midst of long steps and submissions come in: nobody waits but the migration."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from threading import Event as Flag
from threading import Thread

import pytest
from django.db import connections

from tests.acceptance.conftest import Start
from tests.acceptance.outside import now, submit
from tests.acceptance.test_intake import post
from tests.migrating.traces import columns, taken_back
from tests.processes import environment, until
from tests.servers import ROOT, Gunicorn, gunicorn
from workflows.ingress import api_keys
from workflows.models import Attempt, Workflow

pytestmark = pytest.mark.django_db(transaction=True)

STEP = 10.0
WORKERS = 4


class Sender(Thread):
    """Sends one submission after the other, and notes when each was sent and how long its answer took."""

    def __init__(self, server: Gunicorn, effects: Path) -> None:
        super().__init__()
        self.took: list[tuple[float, float]] = []
        self.stopping = Flag()
        self._server, self._key = server, api_keys.create("shop")
        self._body = json.dumps({"log": str(effects), "seconds": 0})

    def run(self) -> None:
        while not self.stopping.wait(0.02):
            sent_at = time.monotonic()
            assert post(self._server, self._key, self._body).status == 202
            self.took.append((sent_at, time.monotonic() - sent_at))
        connections.close_all()


def at_work() -> set[int]:
    """The workflows that are in the midst of a long step."""
    open_attempts = Attempt.objects.filter(closed_at=None, workflow__payload__seconds=STEP)
    return set(open_attempts.values_list("workflow_id", flat=True))


def test_an_upgrade_under_load(runworker: Start, effects: Path, tmp_path: Path) -> None:
    # More than are started until the migration, however long it takes to start everything.
    slow = [submit("slow", effects, {"seconds": STEP}) for _ in range(6 * WORKERS)]
    workers = [runworker("SLOW")]
    while len(workers) < WORKERS:  # one after the other: never all of them at the end of a claim
        until(lambda: len(at_work()) == len(workers), what=lambda: workers[-1].output)
        time.sleep(STEP / WORKERS)
        workers.append(runworker("SLOW"))
    until(lambda: len(at_work()) == WORKERS, what=lambda: workers[-1].output)

    release = {**environment("SLOW"), "SUBMISSION_WORKFLOW": "slow"}
    names = ("WORKFLOWS", "SUBMISSION_WORKFLOW")
    with gunicorn("config.intake", tmp_path, **{name: release[name] for name in names}) as server, taken_back():
        sender = Sender(server, effects)
        sender.start()
        try:
            until(lambda: len(sender.took) > 10)
            running = until(lambda: len(now_at_work := at_work()) == WORKERS and now_at_work)
            began = time.monotonic()
            migrated = subprocess.run(
                [sys.executable, "manage.py", "migrate", "migrating", "0002"],
                cwd=ROOT,
                env={**release, "DJANGO_SETTINGS_MODULE": "tests.migrating.settings"},
                capture_output=True,
                text=True,
                timeout=180,
                check=False,
            )
            ended = time.monotonic()
            assert migrated.returncode == 0, migrated.stdout + migrated.stderr
            assert columns() == {"ahead"}
            not_begun = Workflow.objects.filter(pk__in=[each.pk for each in slow], attempts=None)
            not_begun.update(payload={**slow[0].payload, "seconds": 0})
            sent = len(sender.took)
            until(lambda: len(sender.took) > sent + 10)
        finally:
            sender.stopping.set()
            sender.join()
    during = [took for sent_at, took in sender.took if began < sent_at < ended]
    print(f"migrated in {ended - began:.1f} s; the longest of {len(during)} submissions took {max(during):.2f} s")  # noqa: T201
    assert max(during) < (ended - began) / 2, "behind a migration that waits for the claims: nearly all"
    assert " in use, tried again in 1 s; workers take up nothing new" in migrated.stdout
    waited = [worker for worker in workers if "a migration waits: nothing new is taken up" in worker.output]
    assert waited, "all but the last to end its claim, which finds the migration done"
    assert all(now(each).status == "COMPLETE" for each in slow if each.pk in running), "it waited for their steps"
    until(lambda: not Workflow.objects.filter(status="PENDING", payload__seconds=0).exists(), seconds=180)
    assert set(Attempt.objects.values_list("outcome", flat=True)) <= {"complete", ""}, "no claim was lost"
