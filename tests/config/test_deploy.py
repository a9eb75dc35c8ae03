"""The systemd units of docs/deployment.md."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

UNITS = sorted((settings.BASE_DIR / "deploy").glob("*.service"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    """With the folder and the account of this machine, since systemd looks whether what it is to start is there."""
    text = unit.read_text().replace("/opt/onramp/.venv", sys.prefix).replace("/opt/onramp", str(settings.BASE_DIR))
    copy = tmp_path / unit.name
    copy.write_text(text.replace("=onramp", "=daemon"))
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    # It reads all units of the machine, and complains about those too.
    ours = [line for line in done.stderr.splitlines() if unit.stem in line]
    assert not ours
    assert done.returncode == 0, done.stderr


def test_every_process_has_a_unit() -> None:
    processes = ["console", "intake", "kafka", "outbox", "sqs", "worker"]
    assert [unit.stem for unit in UNITS] == [f"onramp-{each}" for each in processes]
