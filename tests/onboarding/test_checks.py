from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings as project
from django.core.management import call_command
from django.core.management.base import SystemCheckError

from onboarding.checks import check_services, check_timeout
from onboarding.sandbox.services import OPERATIONS
from tests.config.test_settings import PRODUCTION, settings_of


def test_every_service_has_an_address_below_one_root_or_its_own() -> None:
    services = settings_of(
        DEBUG="1", SERVICES_URL="https://services.example/", TOKENS_URL="https://tokens.example/v2/"
    )["SERVICES"]
    assert services["accounts"] == "https://services.example/accounts"
    assert services["tokens"] == "https://tokens.example/v2"


def test_debug_assumes_the_sandbox_and_production_assumes_nothing() -> None:
    assert settings_of(DEBUG="1")["SERVICES"]["visits"] == "http://127.0.0.1:8100/visits"
    assert settings_of(**{**PRODUCTION, "SERVICES_URL": ""})["SERVICES"]["visits"] == ""


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


def test_only_a_worker_refuses_to_start_without_the_services(settings: Any) -> None:
    """Whoever migrates, makes an API key or serves the intake calls none of them."""
    settings.SERVICES = {"accounts": ""}
    with pytest.raises(SystemCheckError, match="Set SERVICES_URL"):
        call_command("runworker")
    call_command("check")
