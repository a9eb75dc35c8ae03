"""The systemd units of docs/deployment.md, and what else starts processes: compose.yaml, docs/containers.md."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from django.conf import settings
from django.core.management import get_commands, load_command_class
from django.urls import resolve

from workflows.api import urls

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


CONTAINERS = (settings.BASE_DIR / "docs" / "containers.md").read_text()


def commands() -> list[list[str]]:
    """What the units, compose.yaml and docs/containers.md start."""
    of_units = [re.findall(r"ExecStart=/opt/onramp/.venv/bin/(.*)", unit.read_text())[0] for unit in UNITS]
    documented = re.findall(r"`((?:python manage|gunicorn).+?)`", CONTAINERS)
    composed = yaml.safe_load((settings.BASE_DIR / "compose.yaml").read_text())["services"].values()
    ours = [service["command"] for service in composed if service["image"].startswith("onramp")]
    return ours + [shlex.split(each) for each in of_units + documented]


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_what_a_deployment_starts_is_there_and_takes_its_flags(command: list[str]) -> None:
    if command[0] == "gunicorn":
        assert command[1].split(":")[0] in ("config.intake", "config.wsgi")
        return
    name = command[2]
    parser = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
    parser.parse_args([flag.replace("%t", "/run") for flag in command[3:]])


@pytest.mark.parametrize("path", sorted({*re.findall(r"`GET (/\w+)`", CONTAINERS)}))
def test_what_a_probe_asks_is_there(path: str) -> None:
    assert resolve(path, urls).func
