"""What becomes of submissions from a queue, whichever it is."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from pytest_django import Settings

from tests import engine
from workflows.api.problems import Problem
from workflows.features.queues.submissions import Door, Sent
from workflows.ingress import api_keys
from workflows.ingress.signal_bodies import MAX_BYTES
from workflows.models import Workflow
from workflows.postgres.statements import execute

pytestmark = engine.ENGINE


@pytest.fixture
def door(settings: Settings) -> Iterator[Door]:
    engine.define([])
    settings.SUBMISSION_WORKFLOW = "test"
    api_keys.create("shop")
    door = Door()
    yield door
    door.close()


def sent(body: bytes, *, client: str = "shop", **headers: str) -> Sent:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Sent(client, {"idempotency-key": str(uuid4()), **named}, body)


def codes(door: Door, *group: Sent) -> list[str]:
    return [each.code if isinstance(each, Problem) else each.name for each in door.enter(group)]


def test_a_type_that_is_said_is_json_and_a_body_has_a_limit(door: Door) -> None:
    longest = b"{}".ljust(MAX_BYTES)
    group = [
        sent(b"{}", content_type="text/plain"),
        sent(b"{}", content_type="application/json"),
        sent(longest),
        sent(longest + b" "),
    ]
    assert codes(door, *group) == ["unsupported_media_type", "STORED", "STORED", "too_large"]


def test_the_trace_that_a_message_is_in_is_kept(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert codes(door, sent(b"{}", traceparent=traceparent), sent(b"{}", traceparent="00")) == ["STORED"] * 2
    assert sorted(Workflow.objects.values_list("traceparent", flat=True)) == ["", traceparent]


def test_of_a_client_without_a_key_they_wait_and_those_of_others_do_not(door: Door) -> None:
    first = sent(b"{}")
    assert codes(door, sent(b"{}", client="nobody"), first, first) == ["LATER", "STORED", "REPLAYED"]


def test_what_a_rule_of_the_database_refuses_is_refused_and_the_others_are_stored(door: Door) -> None:
    execute("ALTER TABLE workflows_workflow ADD CONSTRAINT no_seven CHECK (payload ->> 'n' <> '7')", ())
    try:
        assert codes(door, *(sent(b'{"n": %d}' % n) for n in (6, 7, 8))) == ["STORED", "not_storable", "STORED"]
    finally:
        execute("ALTER TABLE workflows_workflow DROP CONSTRAINT no_seven", ())
