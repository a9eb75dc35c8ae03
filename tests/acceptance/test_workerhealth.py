"""`manage.py workerhealth`, asked of real workers: with a database, without one, and with a supervisor that hangs."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from django.conf import settings

from tests.acceptance.conftest import Start
from tests.acceptance.outside import begun, open_gate, submit, who_runs
from tests.processes import environment, is_alive, until

pytestmark = pytest.mark.django_db(transaction=True)

NOBODY_THERE = "postgres://onramp:hunter2@127.0.0.1:1/elsewhere"


def workerhealth(file: Path, *arguments: str) -> tuple[int, str]:
    """Its exit code and what it says. It has no database to ask."""
    asked = subprocess.run(
        [sys.executable, "manage.py", "workerhealth", "--health-file", str(file), *arguments],
        cwd=settings.BASE_DIR,
        env={**environment("COUNTED"), "DATABASE_URL": NOBODY_THERE},
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.returncode, asked.stdout + asked.stderr


def test_workers_are_well_until_their_supervisor_hangs_or_ends(runworker: Start, effects: Path, tmp_path: Path) -> None:
    file = tmp_path / "health"
    workflow = submit("held", effects)
    worker = runworker("HELD", arguments=("--processes", "2", "--health-file", str(file)))
    until(begun(workflow, effects), what=lambda: worker.output)
    begun_at = time.time()
    # Written since one of them has been in its step for longer than either may be silent.
    until(lambda: file.exists() and file.stat().st_mtime > begun_at + 2)
    # The other is silent for a moment at times.
    until(lambda: workerhealth(file, "--max-silence", "1.5") == (0, "The workers are well.\n"), what=file.read_text)
    worker.signal(signal.SIGSTOP)
    time.sleep(1.5)
    code, said = workerhealth(file, "--max-age", "1", "--liveness")
    assert code == 1
    assert re.match(r"CommandError: The workers are not well: the last word of the workers is \d+ s old", said)
    worker.signal(signal.SIGCONT)
    open_gate(effects)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert workerhealth(file)[0] == 1
    assert not file.exists()


def test_workers_without_a_database_are_not_well_and_alive(runworker: Start, tmp_path: Path) -> None:
    file = tmp_path / "health"
    worker = runworker("COUNTED", WORKER_HEALTH_FILE=str(file), DATABASE_URL=NOBODY_THERE)
    until(lambda: "connection refused" in file.read_text() if file.exists() else False, what=lambda: worker.output)
    until(lambda: workerhealth(file, "--max-silence", "1")[0] == 1, what=lambda: worker.output)
    _, said = workerhealth(file, "--max-silence", "1")
    assert re.fullmatch(
        r"CommandError: The workers are not well: no database for \d+ s: "
        r"OperationalError: connection refused, at 127\.0\.0\.1:1\.\n",
        said,
    ), said
    assert workerhealth(file, "--liveness") == (0, "The workers are well.\n")
    assert "hunter2" not in worker.output
    assert "onramp" not in worker.output.split("lost the database", 1)[1].splitlines()[0]


def test_a_second_runworker_with_the_same_file_does_not_start(runworker: Start, effects: Path, tmp_path: Path) -> None:
    """Each would keep the file young after the other's death."""
    file = tmp_path / "health"
    arguments = ("--health-file", str(file))
    workflow = submit("held", effects)
    first = runworker("HELD", arguments=arguments)
    until(begun(workflow, effects), what=lambda: first.output)
    second = runworker("HELD", arguments=arguments)
    assert second.wait() == 1
    assert second.output.splitlines()[-1] == (
        f"CommandError: Another runworker keeps the health file {file}: give each of them its own."
    )
    first.signal(signal.SIGKILL)
    first.process.wait()
    assert is_alive(who_runs(workflow)), "it finishes its workflow, and does not keep the lock"
    third = runworker("HELD", arguments=(*arguments, "--drain"))
    assert third.wait() == 0, third.output
    open_gate(effects)
