"""Commands that start the embedded server when they need it, and those for people."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

from config.embedded.server import Server
from tests.config.embedded.servers import Prepare


@pytest.fixture
def project(open_folder: Path) -> Iterator[Path]:
    """A copy of the project, which has a server of its own."""
    for name in ["config", "workflows", "onboarding", "staff"]:
        shutil.copytree(settings.BASE_DIR / name, open_folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(settings.BASE_DIR / "manage.py", open_folder)
    yield open_folder
    Server(open_folder / "var" / "postgres").remove()


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DEBUG": "1", "DATABASE_URL": ""}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_only_what_needs_a_database_starts_it_and_leaves_it_running(project: Path) -> None:
    assert run(project, "manage.py", "check").returncode == 0
    assert not (project / "var").exists()
    shell = run(project, "manage.py", "dbshell", "--", "-Atc", "SELECT current_database()")
    assert (shell.returncode, shell.stdout) == (0, "onramp\n"), shell.stderr
    assert Server(project / "var" / "postgres").pid() is not None


def test_people_can_look_at_it_crash_it_and_stop_it(project: Path, prepared: Prepare) -> None:
    prepared(project / "var" / "postgres")
    for command, said in (
        ("start", "Started."),
        ("start", "It was running already."),
        ("status", "Running, pid "),
        ("restart -m immediate", "Restarted."),
        ("stop", "Stopped."),
    ):
        assert said in run(project, "-m", "config.embedded", *command.split()).stdout
    status = run(project, "-m", "config.embedded", "status")
    assert (status.returncode, "Not running." in status.stdout) == (3, True)
