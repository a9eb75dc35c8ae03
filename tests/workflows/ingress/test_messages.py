"""A message of a topic that a source is declared for; tests/acceptance/test_consumekafka.py has the others."""

from typing import Any

import pytest

from workflows.ingress import cloudevents, messages
from workflows.ingress.messages import Arrived
from workflows.ingress.signal_sources import SignalSource
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


def message(topic: str, value: bytes, offset: int = 7, **headers: bytes) -> Arrived:
    return Arrived(topic, 0, offset, 1, [(name.replace("__", "-"), each) for name, each in headers.items()], value)


def told() -> list[tuple[str, str, str | None, Any]]:
    return list(Signal.objects.order_by("id").values_list("source", "name", "linking_id", "payload"))


def test_plain_json_of_a_topic_becomes_a_signal_once_wherever_it_stands() -> None:
    body = b'{"uuid": "u-1", "link": "L-1"}'
    assert [messages.deliver(message("accounts.v1", body, offset)) for offset in (7, 8)] == [True, False]
    assert told() == [("kafka:accounts.v1", "account.created", "L-1", {"uuid": "u-1", "link": "L-1"})]


def test_cloudevents_of_a_topic_are_read_by_their_headers() -> None:
    headers = {"ce_id": b"1", "ce_source": b"/a", "ce_specversion": b"1.0", "ce_subject": "L-é%20".encode()}
    typed = {**headers, "content__type": b"application/json"}
    assert messages.deliver(message("profiles.v1", b'{"a": 1}', ce_type=b"created", **typed))
    assert messages.deliver(message("profiles.v1", b"{}", ce_type=b"noise", **typed)) is None
    assert told() == [("kafka:profiles.v1", "profile.created", "L-é%20", {"a": 1})]


def test_a_topic_that_is_not_declared_has_our_own_form() -> None:
    assert messages.deliver(message("others.v1", b'{"name": "a", "linking_id": "L-1"}'))
    with pytest.raises(InputRefused) as refused:
        messages.deliver(message("others.v1", b'{"uuid": "u-1"}'))
    assert refused.value.code == "field_unknown"


def test_what_is_too_large_is_not_read() -> None:
    with pytest.raises(InputRefused) as refused:
        messages.deliver(message("accounts.v1", b'{"uuid": "u-1", "link": "L-1"}' + b" " * 256 * 1024))
    assert refused.value.code == "too_large"


def test_a_header_that_is_empty_or_null_is_kept_as_it_was() -> None:
    poison = Arrived("accounts.v1", 0, 7, 1, [("empty", b""), ("null", None)], b"{", b"key")
    messages.keep_undelivered(poison, InputRefused("malformed_json", "It is not JSON."))
    row = UndeliveredMessage.objects.get()
    assert Arrived.kept(row).headers == poison.headers
    assert bytes(row.key or b"") == b"key"
