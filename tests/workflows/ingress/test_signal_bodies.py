"""What a source outside may tell a workflow, in the one form that all doors take."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from workflows.ingress import signal_bodies
from workflows.postgres.jsonb import document_of

KEY = uuid.UUID("0190a0b0-7c3e-7d7e-9a3c-2f4f6a1b2c3d")


def parse(**told: Any) -> signal_bodies.SignalBody:
    return signal_bodies.parse(json.dumps(told).encode())


def test_it_reads_whom_a_signal_is_for_and_what_it_says() -> None:
    fact = parse(name="account.created", linking_id="L-1", payload={"a": 1})
    assert (fact.name, fact.linking_id, fact.workflow) == ("account.created", "L-1", None)
    assert fact.payload.value == {"a": 1}
    assert parse(name="sent", workflow=str(KEY).upper()) == signal_bodies.SignalBody("sent", None, KEY, document_of({}))


def test_what_is_null_is_left_out() -> None:
    assert parse(name="sent", linking_id="L-1", workflow=None, payload=None) == signal_bodies.SignalBody(
        "sent", "L-1", None, document_of({})
    )


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("signal_name_invalid", {"linking_id": "L-1"}),
        ("signal_name_invalid", {"linking_id": "L-1", "name": ["a"]}),
        ("signal_name_invalid", {"linking_id": "L-1", "name": ""}),
        ("signal_name_invalid", {"linking_id": "L-1", "name": "decision:1"}),
        ("signal_name_invalid", {"linking_id": "L-1", "name": "child:parcels"}),
        ("signal_name_invalid", {"linking_id": "L-1", "name": "cancel"}),
        ("signal_name_invalid", {"linking_id": "L-1", "name": "a" * 200}),
        ("signal_address_invalid", {"name": "sent"}),
        ("signal_address_invalid", {"name": "sent", "linking_id": "L-1", "workflow": str(KEY)}),
        ("linking_id_invalid", {"name": "sent", "linking_id": ""}),
        ("linking_id_invalid", {"name": "sent", "linking_id": "L" * 201}),
        ("linking_id_invalid", {"name": "sent", "linking_id": 1}),
        ("workflow_not_found", {"name": "sent", "workflow": KEY.hex}),
        ("signal_address_invalid", {"name": "sent", "workflow": 1}),
        ("field_unknown", {"name": "sent", "linkingid": "L-1"}),
        ("signal_payload_invalid", {"name": "sent", "linking_id": "L-1", "payload": ["a"]}),
        ("null_character", {"name": "sent", "linking_id": "L-1\0"}),
        ("too_large", {"name": "sent", "linking_id": "L-1", "payload": {"a": "b" * signal_bodies.MAX_BYTES}}),
    ],
)
def test_anything_else_is_refused_by_a_stable_code(code: str, told: dict[str, Any]) -> None:
    with pytest.raises(signal_bodies.InputRefused) as refused:
        parse(**told)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("code", "body"),
    [("malformed_json", b"{canary"), ("not_an_object", b'["canary"]'), ("not_utf8", b"canary\xff")],
)
def test_what_is_no_json_object_is_refused_and_nothing_of_it_quoted(code: str, body: bytes) -> None:
    with pytest.raises(signal_bodies.InputRefused) as refused:
        signal_bodies.parse(body)
    assert refused.value.code == code
    assert "canary" not in f"{refused.value} {refused.value!r}"
