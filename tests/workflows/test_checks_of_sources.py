from dataclasses import replace

import pytest
from django.core.checks import WARNING
from pytest_django import Settings

from workflows.checks import check_signal_sources, check_sources_have_secrets
from workflows.ingress import webhooks
from workflows.ingress.signal_sources import SignalSource
from workflows.ingress.verifying import Bearer
from workflows.models import WebhookSecret

SOURCE = SignalSource("vendor", verify=Bearer(), id=str, signal="paid", linking_id=str)
TOPIC = replace(SOURCE, verify=None, topic="vendors.v1")
OF_SAME_TOPIC = replace(TOPIC, name="other")
NAME = "a string"
NO_DOOR = replace(SOURCE, verify=None)
TWO_DOORS = replace(SOURCE, topic="vendors.v1")
RESERVED = replace(SOURCE, name="console")
FOR_NOBODY = replace(SOURCE, linking_id=None)
FOR_TWO = replace(SOURCE, workflow=str)
FOR_UNKNOWN = replace(SOURCE, linking_id=None, business_key=str, workflow_type="unknown")
CANCELS = replace(SOURCE, signal="cancel")


@pytest.mark.parametrize(
    ("names", "expected", "words"),
    [
        (["SOURCE", "TOPIC"], "", ""),
        (["MISSING"], "E020", "does not define"),
        (["NAME"], "E020", "is a str"),
        (["NO_DOOR"], "E021", "a verifier and a topic, or neither"),
        (["TWO_DOORS"], "E021", "a verifier and a topic, or neither"),
        (["RESERVED"], "E021", "a name that no source may have"),
        (["FOR_NOBODY"], "E021", "whom it is for"),
        (["FOR_TWO"], "E021", "whom it is for"),
        (["FOR_UNKNOWN"], "E021", "workflows of 'unknown'"),
        (["CANCELS"], "E021", "sends 'cancel'"),
        (["SOURCE", "SOURCE"], "E022", "webhooks of 'vendor'"),
        (["TOPIC", "OF_SAME_TOPIC"], "E022", "the topic 'vendors.v1'"),
    ],
)
def test_a_source_of_signals_that_can_take_no_event_is_named(
    settings: Settings, names: list[str], expected: str, words: str
) -> None:
    settings.SIGNAL_SOURCES = [f"{__name__}.{name}" for name in names]
    messages = list(check_signal_sources())
    assert [message.id for message in messages] == [f"workflows.{expected}"] * bool(expected)
    assert all(words in message.msg and message.hint for message in messages)


@pytest.mark.django_db
def test_a_declared_source_without_a_secret_is_named(settings: Settings) -> None:
    settings.SIGNAL_SOURCES = [f"{__name__}.SOURCE", f"{__name__}.TOPIC"]
    assert list(check_sources_have_secrets()) == []
    (message,) = check_sources_have_secrets(databases=["default"])
    assert (message.id, message.level) == ("workflows.W024", WARNING)
    assert message.hint
    assert "createwebhooksecret vendor --from-stdin" in message.hint
    webhooks.create("vendor")
    assert list(check_sources_have_secrets(databases=["default"])) == []
    webhooks.revoke(WebhookSecret.objects.get())
    assert len(list(check_sources_have_secrets(databases=["default"]))) == 1
