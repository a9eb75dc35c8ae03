"""A message of a topic that a source is declared for; tests/acceptance/test_consumekafka.py has the others."""

import sys
from dataclasses import replace
from typing import Any

import pytest
from django.db import OperationalError

from workflows.ingress import cloudevents, messages, signal_sources
from workflows.ingress.messages import Arrived
from workflows.ingress.signal_sources import Event, SignalSource
from workflows.models import Signal, UndeliveredMessage
from workflows.postgres.jsonb import InputRefused

pytestmark = pytest.mark.django_db(transaction=True)

PLAIN = SignalSource(
    "accounts",
    topic="accounts.v1",
    id=lambda event: event.body["uuid"],
    signal="account.created",
    linking_id=lambda event: event.body["link"],
)
CLOUD = SignalSource(
    "profiles",
    topic="profiles.v1",
    read=cloudevents.read,
    id=cloudevents.id_of,
    signal=lambda event: None if event.body["type"] == "noise" else "profile.created",
    linking_id=lambda event: event.body["subject"],
    payload=lambda event: event.body["data"],
)


@pytest.fixture(autouse=True)
def declared(settings: Any) -> None:
    settings.SIGNAL_SOURCES = [f"{__name__}.PLAIN", f"{__name__}.CLOUD"]


def message(topic: str, value: bytes, offset: int = 7, **headers: bytes | None) -> Arrived:
    return Arrived(topic, 0, offset, 1, [(name.replace("__", "-"), each) for name, each in headers.items()], value)


def told() -> list[tuple[str, str, str | None, Any]]:
    return list(Signal.objects.order_by("id").values_list("source", "name", "linking_id", "payload"))


def test_plain_json_of_a_topic_becomes_a_signal_once_wherever_it_stands() -> None:
    body = b'{"uuid": "u-1", "link": "L-1"}'
    assert [messages.deliver(message("accounts.v1", body, offset)) for offset in (7, 8)] == [True, False]
    assert told() == [("kafka:accounts.v1", "account.created", "L-1", {"uuid": "u-1", "link": "L-1"})]


def test_cloudevents_of_a_topic_are_read_by_their_headers() -> None:
    headers = {"ce_id": b"1", "ce_source": b"/a", "ce_specversion": b"1.0", "ce_subject": "L-é%20".encode()}
    typed = {**headers, "content__type": b"application/json", "ce_data": None}  # a header without a value is none
    assert messages.deliver(message("profiles.v1", b'{"a": 1}', ce_type=b"created", **typed))
    assert messages.deliver(message("profiles.v1", b"{}", ce_type=b"noise", **typed)) is None
    assert told() == [("kafka:profiles.v1", "profile.created", "L-é%20", {"a": 1})]


@pytest.mark.parametrize(
    ("order", "code"),
    [
        (7, "business_key_invalid"),
        ("", "business_key_invalid"),
        ("x" * 201, "business_key_invalid"),
        ("x" * 200, "workflow_not_found"),
    ],
)
def test_a_business_key_is_a_text_of_1_to_200_characters(
    order: Any, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_order = replace(PLAIN, linking_id=None, business_key=lambda event: order, workflow_type="order")
    monkeypatch.setattr(sys.modules[__name__], "PLAIN", by_order)
    with pytest.raises(InputRefused) as refused:
        messages.deliver(message("accounts.v1", b'{"uuid": "u-1"}'))
    assert refused.value.code == code


def test_what_is_too_large_or_no_json_is_refused() -> None:
    body = b'{"uuid": "u-1", "link": "L-1"}'
    for told, code in (
        (message("accounts.v1", body + b" " * 256 * 1024), "too_large"),
        (message("accounts.v1", body, content__type=b"text/plain"), "unsupported_media_type"),
    ):
        with pytest.raises(InputRefused) as refused:
            messages.deliver(told)
        assert refused.value.code == code


def test_an_event_is_not_at_fault_when_the_database_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(_: Event) -> str:
        raise OperationalError

    monkeypatch.setattr(sys.modules[__name__], "PLAIN", replace(PLAIN, linking_id=ask))
    with pytest.raises(OperationalError):
        messages.deliver(message("accounts.v1", b'{"uuid": "u-1"}'))


def test_a_source_of_a_topic_is_no_source_of_webhooks() -> None:
    assert signal_sources.of_name("accounts") is None


def test_a_header_that_is_empty_or_null_is_kept_as_it_was() -> None:
    poison = Arrived("accounts.v1", 0, 7, 1, [("empty", b""), ("null", None)], b"{", b"key")
    messages.keep_undelivered(poison, InputRefused("malformed_json", "It is not JSON."))
    assert Arrived.kept(UndeliveredMessage.objects.get()) == poison
