"""The peers' virtual environment, var/bench-venv: their versions need not fit the project's, and change nothing here.

What goes into it is the dependency group `bench` of pyproject.toml, with the versions of constraints.txt beside this
file: what all of them need, and then each peer by itself, so that one that cannot be had keeps none of the others out.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.benchmark.peers import PEERS, Peer
from tests.servers import ROOT

VENV = ROOT / "var" / "bench-venv"
PYTHON = VENV / "bin" / "python"
CONSTRAINTS = Path(__file__).with_name("constraints.txt")
GROUP = "bench"

# Seconds to install one of them.
PATIENCE = 300


def install(peer: Peer) -> str:
    """Install it unless it is there; empty, or why it cannot be had."""
    for requirements in (_for_all(), _of(peer)):
        if why_not := _install(requirements):
            return why_not
    return ""


def group() -> list[str]:
    """The requirements of all, as pyproject.toml has them."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        requirements: list[str] = tomllib.load(file)["dependency-groups"][GROUP]
    return requirements


def versions() -> dict[str, str]:
    """Of all that is there."""
    if not PYTHON.exists():
        return {}
    freeze = [str(PYTHON), "-m", "pip", "freeze", "--disable-pip-version-check"]
    printed = subprocess.run(freeze, capture_output=True, text=True, check=True).stdout
    return dict(line.split("==", 1) for line in printed.splitlines() if "==" in line)


def _of(peer: Peer) -> list[str]:
    return [each for each in group() if name_of(each) in peer.requirements]


def _for_all() -> list[str]:
    named = {name for peer in PEERS.values() for name in peer.requirements}
    return [each for each in group() if name_of(each) not in named]


def name_of(requirement: str) -> str:
    """Of the package."""
    found = re.match(r"[\w.-]+", requirement)
    assert found, requirement
    return found[0]


def _install(requirements: list[str]) -> str:
    done = _marker(requirements)
    if not requirements or (done.exists() and PYTHON.exists()):
        return ""
    if not PYTHON.exists() and (why_not := run(sys.executable, "-m", "venv", str(VENV))):
        return why_not
    pip = (
        str(PYTHON),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
        "--retries",
        "1",
    )
    why_not = run(*pip, "--constraint", str(CONSTRAINTS), *requirements)
    if not why_not:
        done.touch()
    return why_not


def _marker(requirements: list[str]) -> Path:
    """The file that says that they are installed, in these versions."""
    text = "\n".join([*requirements, CONSTRAINTS.read_text()])
    return VENV / f".installed-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def run(*command: str) -> str:
    """Empty, or why it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return f"not within {PATIENCE} s"
    if not done.returncode:
        return ""
    errors = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
    return (errors or done.stderr.splitlines() or [f"exit code {done.returncode}"])[-1]
