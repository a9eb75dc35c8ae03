from __future__ import annotations

import ast
import os
import subprocess
import sys
from typing import Any

import pytest
from django.conf import settings as project

from onboarding.checks import check_services, check_timeout
from onboarding.sandbox.services import OPERATIONS
from tests.sandbox_process import PROJECT


def setting(name: str, **environment: str) -> str:
    """Print a setting in a process of its own, whose environment has nothing but what is given."""
    base = {"PATH": os.environ["PATH"], "DATABASE_URL": "postgres://nobody@localhost/nothing"}
    done = subprocess.run(
        [sys.executable, "-c", f"from config import settings; print(settings.{name})"],
        env=base | environment,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_every_service_has_an_address_below_one_root_or_its_own() -> None:
    environment = {
        "DEBUG": "1",
        "SERVICES_URL": "https://services.example/",
        "TOKENS_URL": "https://tokens.example/v2/",
    }
    services = ast.literal_eval(setting("SERVICES", **environment))
    assert services["accounts"] == "https://services.example/accounts"
    assert services["tokens"] == "https://tokens.example/v2"


def test_debug_assumes_the_sandbox_and_production_assumes_nothing() -> None:
    assert setting("SERVICES['visits']", DEBUG="1") == "http://127.0.0.1:8100/visits"
    assert setting("SERVICES['visits']", SECRET_KEY="long and random") == ""


def test_the_sandbox_serves_every_service_there_is() -> None:
    assert list(OPERATIONS) == list(project.SERVICES)


def test_good_settings_pass(settings: Any) -> None:
    settings.SERVICES = {"accounts": "https://accounts.example", "tokens": "http://127.0.0.1:8100/tokens"}
    settings.SERVICES_TIMEOUT = 0.5
    assert check_services(None) == check_timeout(None) == []


@pytest.mark.parametrize("url", ["", "accounts.example", "ftp://accounts.example", "https://"])
def test_a_service_without_a_usable_address_is_named(settings: Any, url: str) -> None:
    settings.SERVICES = {"accounts": url, "tokens": "https://tokens.example"}
    [error] = check_services(None)
    assert error.id == "onboarding.E001"
    assert error.msg == "No usable address for: accounts."
    assert "SERVICES_URL" in str(error.hint)


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_timeout_that_never_lets_an_answer_through_is_refused(settings: Any, seconds: float) -> None:
    settings.SERVICES_TIMEOUT = seconds
    [error] = check_timeout(None)
    assert error.id == "onboarding.E002"


def test_only_a_worker_refuses_to_start_without_the_services() -> None:
    """Whoever migrates, makes an API key or serves the intake calls none of them."""
    environment = {
        "PATH": os.environ["PATH"],
        "SECRET_KEY": "long and random",
        "DATABASE_URL": "postgres://nobody@localhost:1/nothing",
        "DEBUG": "",
        "SERVICES_URL": "",
    }

    def manage(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", command], env=environment, cwd=PROJECT, capture_output=True, text=True
        )

    worker = manage("runworker")
    assert worker.returncode == 1
    assert "Set SERVICES_URL" in worker.stderr
    assert manage("check").returncode == 0
