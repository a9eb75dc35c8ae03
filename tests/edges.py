"""EDGES: a tenth of the tests with the oldest Python and Django that are supported, and with the newest ones here.

`make test-edges`, and those between with `make test-edges ARGS=--each`. What is the project's own environment is left
out, for all tests run there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import which

import django

ROOT = Path(__file__).resolve().parent.parent

# By the Python that one has, the oldest first: the Django to take.
EDGES = {"3.11": "5.2", "3.12": "6.0", "3.13": "6.1", "3.14": "6.1"}

TENTH = [
    "tests/workflows/test_checks.py",
    "tests/workflows/test_checks_of_settings.py",
    "tests/workflows/test_submissions.py",
    "tests/workflows/features/bulk",
    "tests/workflows/features/tasks",
    "tests/workflows/admin/test_home.py",
    "tests/workflows/admin/test_lists.py",
    "tests/workflows/admin/test_paging.py",
    "tests/workflows/admin/test_zone.py",
    "tests/workflows/api/test_metrics.py",
    "tests/workflows/api/test_submissions.py",
    "tests/workflows/engine/test_claim.py",
    "tests/workflows/effects/test_ledger.py",
    "tests/workflows/waits/test_signal.py",
    "tests/workflows/management/test_migrations.py",
    "tests/workflows/sealing",
    "tests/config/test_foreign_parts.py",
    "tests/config/test_settings.py",
    "tests/onboarding/test_end_to_end.py",
    "tests/test_wheel.py",
    "tests/test_tutorial.py",
]

# Beside the extras that these tests need.
TOOLS = ["pytest", "pytest-django", "pytest-xdist", "moto", "flask", "flask-cors", "hypothesis", "graphql-core"]
TOOLS += ["playwright"]


def pythons() -> dict[str, Path]:
    """Those that are installed here, by their version, the oldest first."""
    places = [Path(found) for version in EDGES if (found := which(f"python{version}"))]
    places += sorted(Path.home().glob(".pyenv/versions/3.*/bin/python"))
    found: dict[str, Path] = {}
    for place in places:
        asked = [place, "-c", "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"]
        version = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        if version in EDGES:
            found.setdefault(version, place)
    return {version: found[version] for version in EDGES if version in found}


def environment(version: str, python: Path) -> Path:
    """Its Python, with all that the tests need; what is there already is kept."""
    folder = ROOT / "var" / "edges" / version
    made = folder / "bin" / "python"
    pinned = [
        line for line in (ROOT / "constraints.txt").read_text().splitlines() if not re.match("(?i)django==", line)
    ]
    if not made.exists():
        subprocess.run([python, "-m", "venv", folder], check=True)
    (folder / "constraints.txt").write_text("\n".join(pinned))
    django_only(folder).write_text(f"django=={EDGES[version]}.*\n")
    command = [made, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-input"]
    command += ["-c", folder / "constraints.txt", "-e", f"{ROOT}[project,debug,kafka,sqs,traces,tasks]"]
    subprocess.run([*command, f"django=={EDGES[version]}.*", *TOOLS], check=True)
    return made


def django_only(folder: Path) -> Path:
    """What the environments that tests make for themselves are held to (pip's PIP_CONSTRAINT)."""
    return folder / "django.txt"


def main() -> int:
    own = "{}.{}".format(*sys.version_info)
    here = pythons()
    newest = max(EDGES.values(), key=float)
    chosen = set(here)
    if here and "--each" not in sys.argv:
        chosen = {min(here, key=[*EDGES].index), max(here, key=[*EDGES].index)}
    if own in chosen and django.__version__.startswith(EDGES[own]):
        chosen.remove(own)
    if not chosen:
        print(
            f"Skipped: no Python but {own} is here, and all tests run with that. Django {newest} needs 3.12 or newer."
        )
        return 0
    for version in sorted(chosen, key=[*EDGES].index):
        print(f"Python {version} with Django {EDGES[version]}", flush=True)
        made = environment(version, here[version])
        command = [made, "-m", "pytest", "-q", "-m", "", "-n", "2", *TENTH]
        command += [argument for argument in sys.argv[1:] if argument != "--each"]
        held = {"DEBUG": "1", "PIP_CONSTRAINT": str(django_only(made.parent.parent))}
        if failed := subprocess.run(command, cwd=ROOT, env=os.environ | held, check=False).returncode:
            return failed
    return 0


if __name__ == "__main__":
    sys.exit(main())
