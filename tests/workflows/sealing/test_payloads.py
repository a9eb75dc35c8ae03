"""What is stored of secret fields, and who can read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest

from tests.workflows.operations.correcting import Sent
from workflows.correctable import Correctable
from workflows.definition import WorkflowDefinition
from workflows.postgres.jsonb import Document, parse
from workflows.sealing import payloads
from workflows.sealing.envelopes import EMPTIED, EMPTIED_LENGTH, Unreadable, is_same, seal, unseal

ROW = uuid4()


def definition(*fields: str, **arguments: Any) -> WorkflowDefinition:
    return WorkflowDefinition(name="sealed", steps=[], context_class=Any, secret_fields=fields, **arguments)  # type: ignore[arg-type]


DEFINITION = definition("patient.password", "token")


def sealed(text: str) -> Document:
    return payloads.seal_document(DEFINITION, parse(text.encode()), ROW)


@pytest.mark.parametrize(
    "text",
    [
        '{"patient": {"password": "s3cr3t", "weight": 80.10}, "token": "t0ken"}',
        '{ "note": "password", "patient" : {\n"password"\t:\t"s3cr3t" , "weight":80.10}, "token":"t0ken" }',
        '{"password": "s3cr3t", "patient": {"pass\\u0077ord": "s3cr3t", "a\\"b": "\\u00e9"}}',
        '{"patient": {"password": {"is": ["s3cr3t", "token"]}}, "list": [{"token": 12.50}], "token": 12.50}',
        '{"patient": "s3cr3t", "token": null}',
        '{"patient": {"weight": 1e2}}',
    ],
)
def test_only_the_secrets_of_a_text_change_and_open_to_what_they_were(text: str) -> None:
    sent, stored = json.loads(text), json.loads(sealed(text).text)
    assert payloads.unseal(DEFINITION, stored, ROW) == sent
    for field in DEFINITION.secret_fields:
        kept = at(stored, field)
        assert kept is None or kept.startswith("sealed:")
    assert payloads.without_secrets(DEFINITION, stored) == payloads.without_secrets(DEFINITION, sent)
    assert payloads.seal(DEFINITION, sent, ROW) == stored


def at(payload: Any, field: str) -> Any:
    for name in field.split("."):
        payload = payload.get(name) if isinstance(payload, Mapping) else None
    return payload


def test_the_rest_of_a_text_keeps_its_digits() -> None:
    assert '"weight": 80.10}' in sealed('{"patient": {"password": "x", "weight": 80.10}}').text


def test_an_envelope_opens_in_its_own_row_and_field_only() -> None:
    envelope = seal("s3cr3t", row=ROW, field="token")
    assert unseal(envelope, row=ROW, field="token") == "s3cr3t"
    changed = envelope[:-6] + ("AAAA" if envelope[-6:-2] != "AAAA" else "BBBB") + envelope[-2:]
    for stored, row, field in (
        (envelope, uuid4(), "token"),
        (envelope, ROW, "patient.password"),
        (changed, ROW, "token"),
        (f"{envelope[:40]}", ROW, "token"),
        (envelope[:16] + "!" * 40, ROW, "token"),
        ("sealed:nokey:" + "A" * 40, ROW, "token"),
    ):
        with pytest.raises(Unreadable) as refused:
            unseal(stored, row=row, field=field)
        assert "s3cr3t" not in str(refused.value)


def test_the_same_value_is_known_again_when_its_envelope_is_emptied_or_under_an_old_key(settings: Any) -> None:
    settings.DATA_KEYS = ["the-old-one"]
    envelope = seal("s3cr3t", row=ROW, field="token")
    settings.DATA_KEYS = ["the-new-one", "the-old-one"]
    for stored in (envelope, envelope[:EMPTIED_LENGTH], "s3cr3t"):
        assert is_same(stored, "s3cr3t", row=ROW, field="token")
        assert not is_same(stored, "another", row=ROW, field="token")
    assert unseal(envelope[:EMPTIED_LENGTH], row=ROW, field="token") == EMPTIED
    settings.DATA_KEYS = ["the-new-one"]
    assert is_same(envelope[:EMPTIED_LENGTH], "whatever", row=ROW, field="token")  # nobody can tell any more
    with pytest.raises(Unreadable):
        unseal(envelope, row=ROW, field="token")


def test_a_nonce_is_used_for_one_value_of_one_field_of_one_row() -> None:
    places = [(ROW, "token"), (ROW, "patient.password"), (uuid4(), "token")]
    assert len({seal("s3cr3t", row=row, field=field)[:EMPTIED_LENGTH] for row, field in places}) == 3
    assert is_same(seal({"a": 1, "b": 2}, row=ROW, field="token"), {"b": 2, "a": 1}, row=ROW, field="token")


def test_what_is_found_compared_or_shown_cannot_be_secret() -> None:
    for fields, arguments in (
        (["token"], {"public_fields": ["token"]}),
        (["patient.password"], {"business_key": "patient"}),
        (["patient"], {"linking_id": "patient.id"}),
        (["a b"], {}),
        (["patient.phone"], {"correctable": Correctable(Sent, {"patient.phone": ()})}),
    ):
        with pytest.raises(ValueError, match="secret"):
            definition(*fields, **arguments)
