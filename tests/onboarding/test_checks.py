from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings as project
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import SystemCheckError

from onboarding.checks import check_services, check_timeout
from onboarding.sandbox.services import OPERATIONS
from tests.config.test_settings import PRODUCTION, settings_of


def test_every_service_has_an_address_below_one_root_or_its_own() -> None:
    """With DEBUG the root is the sandbox's; production assumes none."""
    roots = {"SERVICES_URL": "https://services.example/", "SERVICE_ADDRESSES": "tokens=https://tokens.example/v2/"}
    services = settings_of(DEBUG="1", **roots)["SERVICES"]
    assert (services["accounts"], services["tokens"]) == (
        "https://services.example/accounts",
        "https://tokens.example/v2",
    )
    with pytest.raises(ImproperlyConfigured, match="no service of ours: token"):
        settings_of(DEBUG="1", SERVICE_ADDRESSES="token=https://tokens.example/")
    assert settings_of(DEBUG="1")["SERVICES"]["visits"] == "http://127.0.0.1:8100/visits"
    assert settings_of(**{**PRODUCTION, "SERVICES_URL": ""})["SERVICES"]["visits"] == ""


def test_the_sandbox_serves_every_service_there_is() -> None:
    assert list(OPERATIONS) == list(project.SERVICES)


@pytest.mark.parametrize("url", ["", "accounts.example", "ftp://accounts.example", "https://"])
def test_a_service_without_a_usable_address_is_named(settings: Any, url: str) -> None:
    settings.SERVICES = {"accounts": "https://accounts.example", "tokens": "http://127.0.0.1:8100/tokens"}
    assert list(check_services()) == []
    settings.SERVICES["accounts"] = url
    [error] = check_services()
    assert (error.id, error.msg) == ("onboarding.E001", "No usable address for: accounts.")


def test_a_timeout_that_never_lets_an_answer_through_is_refused(settings: Any) -> None:
    for settings.SERVICES_TIMEOUT, ids in [(0.5, []), (0, ["onboarding.E002"]), (-1, ["onboarding.E002"])]:
        assert [error.id for error in check_timeout()] == ids


def test_only_a_worker_refuses_to_start_without_the_services(settings: Any) -> None:
    """Whoever migrates, makes an API key or serves the intake calls none of them."""
    settings.SERVICES = {"accounts": ""}
    with pytest.raises(SystemCheckError, match="Set SERVICES_URL"):
        call_command("runworker")
    call_command("check")
