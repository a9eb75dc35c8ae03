"""The peers' virtual environment, var/bench-venv: their versions need not fit the project's, and change nothing here.

What goes into it is the dependency group `bench` of pyproject.toml, with the versions of constraints.txt beside this
file: what all of them need, and then each peer by itself, so that one that cannot be had keeps none of the others out.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.benchmark.peers import PEERS
from tests.servers import ROOT

VENV = ROOT / "var" / "bench-venv"
PYTHON = VENV / "bin" / "python"
CONSTRAINTS = Path(__file__).with_name("constraints.txt")

# Seconds to install one of them.
PATIENCE = 300
PIP = (str(PYTHON), "-m", "pip", "--quiet", "--disable-pip-version-check")


def install(peer: str) -> str:
    """Install it unless it is there; empty, or why it cannot be had."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        group: list[str] = tomllib.load(file)["dependency-groups"]["bench"]
    of_others = _prefixes(*(PEERS.keys() - {peer}))
    requirements = [each for each in group if each.startswith(_prefixes(peer)) or not each.startswith(of_others)]
    versions = "\n".join([*requirements, CONSTRAINTS.read_text()])
    done = VENV / f".{peer}-{hashlib.sha256(versions.encode()).hexdigest()[:16]}"
    if done.exists():
        return ""
    made = "" if PYTHON.exists() else _run(sys.executable, "-m", "venv", str(VENV))
    options = ("--no-input", "--retries", "1", "--constraint", str(CONSTRAINTS))
    why_not = made or _run(*PIP, "install", *options, *requirements)
    if not why_not:
        done.touch()
    return why_not


def versions() -> dict[str, str]:
    """Of all that is there."""
    if not PYTHON.exists():
        return {}
    printed = subprocess.run([*PIP, "freeze"], capture_output=True, text=True, check=True).stdout
    return dict(line.split("==", 1) for line in printed.splitlines() if "==" in line)


def _prefixes(*peers: str) -> tuple[str, ...]:
    """How the requirements start that are these peers' own."""
    return tuple(peer.replace("_", "-") for peer in peers)


def _run(*command: str) -> str:
    """Empty, or why it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return f"not within {PATIENCE} s"
    if not done.returncode:
        return ""
    errors = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
    return (errors or done.stderr.splitlines() or [f"exit code {done.returncode}"])[-1]
