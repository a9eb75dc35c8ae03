"""`manage.py datakeys rotate` under load, killed in the midst, beside a worker that knows the old key only."""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings as django_settings
from django.db import connection

from tests.acceptance.conftest import Start
from tests.acceptance.definitions import SEALED
from tests.acceptance.outside import done, open_gate
from tests.processes import environment, meanwhile, until
from workflows.models import DataKey, ManualTask, Workflow
from workflows.sealing import envelopes, key_register, payloads

pytestmark = pytest.mark.django_db(transaction=True)

OLD, NEW = "the-old-key-of-which-nobody-knows", "the-new-key-of-which-nobody-knows"
WORKFLOWS = 1_200


def submit(effects: Path, numbers: range) -> None:
    """Store workflows as an intake does that has the keys of these settings."""
    rows = []
    for n in numbers:
        key, sent = (
            uuid4(),
            {"token": f"secret-of-{n}", "n": n, "log": str(effects), "gate": str(effects.with_name("gate"))},
        )
        sealed = payloads.seal(SEALED, sent, key)
        rows.append(Workflow(workflow_type=SEALED.name, idempotency_key=key, payload=sealed))
    Workflow.objects.bulk_create(rows)


def datakeys(action: str, keys: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "manage.py", "datakeys", action],
        cwd=django_settings.BASE_DIR,
        env={**environment("SEALED"), "DATA_KEYS": keys},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def under(key: str) -> int:
    id_ = envelopes.DataKey.of(key.encode()).id
    return Workflow.objects.filter(status="PENDING", payload__token__startswith=f"sealed:{id_}:").count()


def test_no_row_becomes_unreadable_and_no_step_lacks_its_secret(runworker: Start, effects: Path, settings: Any) -> None:
    settings.DATA_KEYS = [OLD]
    key_register.register()
    submit(effects, range(WORKFLOWS))
    of_old_release = runworker("SEALED", DATA_KEYS=OLD)
    until(lambda: done(effects, "right"))  # later it would not start without the new key
    worker = runworker("SEALED", DATA_KEYS=f"{NEW},{OLD}")
    until(lambda: len({line.split()[-1] for line in effects.read_text().splitlines()}) == 2)

    settings.DATA_KEYS = [NEW, OLD]
    numbers = iter(range(WORKFLOWS, WORKFLOWS * 2))

    def submit_one() -> None:
        n = next(numbers)
        submit(effects, range(n, n + 1))
        connection.close()  # this thread's own

    with meanwhile(submit_one, every=0.05, times=100):
        with datakeys("rotate", f"{NEW},{OLD}") as killed:
            until(lambda: under(NEW) > 100)
            killed.kill()
        assert under(OLD) > 100, "killed too late: choose more workflows"
        with datakeys("rotate", f"{NEW},{OLD}") as again:
            said, _ = again.communicate(timeout=120)
            assert again.returncode == 0, said
    until(lambda: "which DATA_KEYS lacks here" in of_old_release.output, what=lambda: of_old_release.output[-1500:])
    of_old_release.signal(signal.SIGTERM)
    of_old_release.wait()
    open_gate(effects)
    pending = Workflow.objects.filter(status="PENDING")
    until(lambda: not pending.exists(), seconds=120, what=lambda: (pending.count(), worker.output[-2000:]))

    number = Workflow.objects.count()
    assert Counter(done(effects, "right")).most_common(1)[0][1] == 1
    assert len(done(effects, "right")) == number
    assert not done(effects, "wrong")
    assert not ManualTask.objects.exists()
    assert DataKey.objects.count() == 1
    with datakeys("check", NEW) as check:
        said, _ = check.communicate(timeout=60)
        assert check.returncode == 0, said
