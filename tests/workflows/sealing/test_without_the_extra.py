"""Without the package that seals, what is secret is refused, and never stored in clear."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command

from tests import engine
from tests.asgi import served
from workflows import checks_of_settings, extras
from workflows.definition import definitions
from workflows.ingress import api_keys
from workflows.intake.submissions import enter
from workflows.models import Workflow
from workflows.postgres.jsonb import parse
from workflows.sealing import envelopes, key_register, unavailable

pytestmark = engine.ENGINE

INSTALL = "pip install 'django-onramp[sealing]'"


def nothing(*, workflow: Workflow, context: Any) -> None: ...


@pytest.fixture(autouse=True)
def without_cryptography(engine: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def find(name: str) -> Any:
        return None if name == "cryptography" else find_spec(name)

    monkeypatch.setattr(key_register, "find_spec", find)
    monkeypatch.setattr(envelopes, "AESGCM", unavailable.AESGCM)
    envelopes._keys.cache_clear()
    yield
    envelopes._keys.cache_clear()


@pytest.fixture
def secretive() -> None:
    engine.define([nothing], secret_fields=["token"])


def test_the_intake_refuses_a_secret_and_stores_nothing(secretive: None, caplog: pytest.LogCaptureFixture) -> None:
    key = api_keys.create("shop")
    with served(definitions()["test"]) as intake:
        answer = intake.post(
            "/v1/submissions",
            '{"token": "s3cr3t"}',
            content_type="application/json",
            headers={"Authorization": f"Bearer {key}", "Idempotency-Key": str(uuid4())},
        )
    assert (answer.status_code, answer.json()["code"]) == (503, "key_missing")
    assert not Workflow.objects.exists()
    assert INSTALL in caplog.text
    assert "s3cr3t" not in caplog.text


def test_an_entry_in_code_is_refused(secretive: None) -> None:
    with pytest.raises(extras.ExtraMissing, match="sealing"):
        enter(definitions()["test"], idempotency_key=uuid4(), payload=parse(b'{"token": 1}'), submitted_by="")
    assert not Workflow.objects.exists()


def test_the_check_names_what_has_secrets_and_no_process_starts(secretive: None) -> None:
    (error,) = checks_of_settings.check_sealing()
    assert (error.id, error.hint) == ("workflows.E037", INSTALL)
    assert error.msg.startswith("secret_fields of 'test':")
    with pytest.raises(CommandError, match="cryptography is not installed"):
        call_command("runworker", drain=True)


def test_what_has_no_secrets_runs(settings: Any) -> None:
    engine.define([nothing])
    assert not [*checks_of_settings.check_sealing()]
    key_register.require_keys()
    settings.SQS_QUEUE_URL = "https://sqs.example.com/1/submissions"
    assert [each.id for each in checks_of_settings.check_sealing()] == ["workflows.E037"]
