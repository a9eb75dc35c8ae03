"""CloudEvents as their specification has them, with its own examples."""

import json
from typing import Any

import pytest

from workflows.ingress import cloudevents
from workflows.ingress.signal_sources import Event, Received
from workflows.postgres.jsonb import Document, InputRefused

# https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md#32-examples
ATTRIBUTES: dict[str, Any] = {
    "specversion": "1.0",
    "type": "com.example.someevent",
    "source": "/mycontext",
    "id": "C234-1234-1234",
    "time": "2018-04-05T17:31:00Z",
    "comexampleextension1": "value",
    "comexampleothervalue": "5",
}
HEADERS = {f"ce-{name}": value for name, value in ATTRIBUTES.items()}
DATA = {"appinfoA": "abc", "appinfoB": 123, "appinfoC": True}


def read(body: bytes, content_type: str = "", headers: dict[str, str] | None = None, **how: bool) -> dict[str, Any]:
    typed = {"content-type": content_type} if content_type else {}
    return cloudevents.read(Received({**typed, **(headers or {})}, body, **{"headers_are_covered": True, **how})).value


def structured(**fields: Any) -> bytes:
    return json.dumps({**ATTRIBUTES, **fields}).encode()


@pytest.mark.parametrize(
    ("content_type", "body", "data"),
    [
        ("application/json", json.dumps(DATA).encode(), {"data": DATA}),
        ("application/json", b'"I\'m just a string"', {"data": "I'm just a string"}),
        ("application/vnd.example+json; charset=utf-8", b"[1]", {"data": [1]}),
        ("application/xml", b'<much wow="xml"/>', {"data_base64": "PG11Y2ggd293PSJ4bWwiLz4="}),
        ("application/json", b"", {}),
    ],
)
def test_binary_mode_is_the_same_event_as_structured_mode(content_type: str, body: bytes, data: dict[str, Any]) -> None:
    expected = {**ATTRIBUTES, "datacontenttype": content_type, **data}
    assert read(body, content_type, HEADERS) == expected
    assert read(json.dumps(expected).encode(), "application/cloudevents+json; charset=UTF-8") == expected


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ("Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € 😀"),  # the specification's example
        ("%e2%82%ac%41", "€A"),  # lower case, and what needs no encoding
        ("%2541", "%41"),  # one round
        ('"a \\"b\\" c"', 'a "b" c'),  # as older versions have it
        ('"%20"', " "),
        ('"a\\"b" "c', 'a"b "c'),  # a quote without its end is itself
        ('"' + '\\"' * 500_000, '"' + '\\"' * 500_000),  # in time, though each might be where one begins
    ],
    ids=range(7),
)
def test_a_headers_value_is_unquoted_and_then_percent_decoded_once(sent: str, meant: str) -> None:
    assert read(b"", "", {**HEADERS, "ce-subject": sent})["subject"] == meant


@pytest.mark.parametrize("value", ["%C0%A0", "%", "%4", "%zz", "%FF", "é"])
def test_what_is_no_percent_encoded_utf8_is_refused(value: str) -> None:
    with pytest.raises(InputRefused) as refused:
        read(b"", "", {**HEADERS, "ce-subject": value})
    assert refused.value.code == "attribute_invalid"


def test_kafkas_headers_are_utf8_and_have_their_own_prefix() -> None:
    headers = {f"ce_{name}": value for name, value in ATTRIBUTES.items()} | {"ce_subject": "50% é"}
    assert read(b"1", "application/json", headers, is_percent_encoded=False)["subject"] == "50% é"


@pytest.mark.parametrize("content_type", ["application/cloudevents-batch+json", "application/cloudevents+avro"])
def test_a_batch_and_another_format_are_refused(content_type: str) -> None:
    with pytest.raises(InputRefused, match="one event at a time"):
        read(b"[]", content_type, HEADERS)


def test_attributes_that_nobody_has_signed_are_not_read() -> None:
    with pytest.raises(InputRefused, match="does not cover headers"):
        read(b"{}", "application/json", HEADERS, headers_are_covered=False)
    assert read(structured(), "application/cloudevents+json", headers_are_covered=False) == ATTRIBUTES


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        *(({name: value}, "attribute_missing") for name in ("id", "source", "type") for value in (None, "", 5)),
        ({"specversion": None}, "attribute_missing"),
        ({"specversion": "0.3"}, "specversion_unknown"),
        ({"id": "a\u0007"}, "attribute_invalid"),
        ({"data": 1, "data_base64": "MQ=="}, "data_twice"),
    ],
)
def test_an_event_has_what_each_event_has(fields: dict[str, Any], code: str) -> None:
    with pytest.raises(InputRefused) as refused:
        read(structured(**fields), "application/cloudevents+json")
    assert refused.value.code == code


@pytest.mark.parametrize("body", [b'1, "id": "other"', b"1}", b'{"a": 1}, {"b": 2}', b"\xff", b"", b"nul"])
def test_data_adds_no_attribute(body: bytes) -> None:
    headers = {name: value for name, value in HEADERS.items() if name != "ce-id"}
    with pytest.raises(InputRefused):
        read(body, "application/json", headers)


@pytest.mark.parametrize("name", ["ce-data", "ce-datacontenttype", "ce-", "ce-a_b"])
def test_a_header_that_is_no_attribute_is_refused(name: str) -> None:
    with pytest.raises(InputRefused) as refused:
        read(b"{}", "application/json", {**HEADERS, name: "x"})
    assert refused.value.code == "attribute_invalid"


def test_data_without_a_type_is_json_and_its_digits_are_kept() -> None:
    assert read(b"[1]", "", HEADERS) == {**ATTRIBUTES, "data": [1]}
    document = cloudevents.read(Received({**HEADERS, "content-type": "a/json"}, b"1.10000000000000000001", True))
    assert "1.10000000000000000001" in document.text


def test_an_event_is_known_by_its_source_and_id() -> None:
    def id_of(source: str, event_id: str) -> str:
        return cloudevents.id_of(Event({}, Document("", {"source": source, "id": event_id})))

    assert len({id_of("a", "b"), id_of("a", "c"), id_of("b", "b"), id_of("a\nb", "c")}) == 4
    assert len(id_of("x" * 999, "y" * 999)) == 64
