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


class TestCommands:
    """In a copy of the project, which has a server of its own."""

    @pytest.fixture
    def project(self, open_folder: Path) -> Iterator[Path]:
        for name in ["config", "workflows", "onboarding", "staff", "manage.py"]:
            source = settings.BASE_DIR / name
            if source.is_dir():
                shutil.copytree(source, open_folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, open_folder)
        yield open_folder
        Server(open_folder / "var" / "postgres").remove()

    def run(self, project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=project,
            env={**os.environ, "DEBUG": "1", "DATABASE_URL": ""},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def test_what_needs_no_database_does_not_start_it(self, project: Path) -> None:
        assert self.run(project, "manage.py", "check").returncode == 0
        assert not (project / "var").exists()

    def test_what_needs_one_starts_it_and_leaves_it_running(self, project: Path) -> None:
        shell = self.run(project, "manage.py", "dbshell", "--", "-Atc", "SELECT current_database()")
        assert (shell.returncode, shell.stdout) == (0, "onramp\n"), shell.stderr
        assert Server(project / "var" / "postgres").pid() is not None

    def test_people_can_look_at_it_crash_it_and_stop_it(self, project: Path, prepared: Prepare) -> None:
        prepared(project / "var" / "postgres")
        assert "Started." in self.run(project, "-m", "config.embedded", "start").stdout
        assert "It was running already." in self.run(project, "-m", "config.embedded", "start").stdout
        assert "Running, pid " in self.run(project, "-m", "config.embedded", "status").stdout
        assert "Restarted." in self.run(project, "-m", "config.embedded", "restart", "-m", "immediate").stdout
        assert "Stopped." in self.run(project, "-m", "config.embedded", "stop").stdout
        status = self.run(project, "-m", "config.embedded", "status")
        assert (status.returncode, "Not running." in status.stdout) == (3, True)
        assert "restart -m immediate" in self.run(project, "-m", "config.embedded", "--help").stdout
