"""CLOUDEVENTS 1.0.2 by HTTP or Kafka, in binary or structured mode, as one JSON object: their JSON format.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md; batches may be sent only
on request, and are refused.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from workflows.ingress.signal_bodies import UnsupportedMediaType
from workflows.postgres import jsonb
from workflows.postgres.jsonb import Document, Malformed

if TYPE_CHECKING:
    from workflows.ingress.signal_sources import Event, Received

_REQUIRED = ("id", "source", "specversion", "type")
_NAME = re.compile(r"[a-z0-9]{1,50}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_JSON = re.compile(r"[a-z0-9.+-]+/(?:[a-z0-9.+-]+\+)?json")
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_QUOTED = re.compile(r'"((?:[^"\\]++|\\.)*+)("?)')  # possessive, and to the end if unclosed: linear on any text


def read(received: Received) -> Document:
    """The event as one object: its attributes, and `data` or `data_base64`. Raises InputRefused."""
    media_type = received.media_type
    if media_type == "application/cloudevents+json":
        document = jsonb.parse(received.body)
    elif media_type.startswith("application/cloudevents"):
        raise UnsupportedMediaType("Send application/cloudevents+json, one event at a time: no batch, no other format.")
    elif not received.headers_are_covered:
        raise UnsupportedMediaType("Send application/cloudevents+json: the signature does not cover headers.")
    else:
        document = _binary(received, media_type)
    _refuse_invalid(document.value)
    return document


def id_of(event: Event) -> str:
    """Identifies an event by its source and id together. A digest, because both may be long."""
    return sha256(f"{event.body['source']}\n{event.body['id']}".encode()).hexdigest()


def _binary(received: Received, media_type: str) -> Document:
    """The event as JSON; `data` keeps its text, with all digits."""
    attributes = {
        name[3:]: _decoded(value) if received.is_percent_encoded else value
        for name, value in received.headers.items()
        if name.startswith(("ce-", "ce_"))
    }
    if "datacontenttype" in attributes or "data" in attributes or not all(map(_NAME.fullmatch, attributes)):
        raise Malformed("attribute_invalid", "A ce- header is not that of an attribute, or has no place there.")
    if media_type:
        attributes["datacontenttype"] = received.headers["content-type"]
    data = ""
    if received.body and (not media_type or _JSON.fullmatch(media_type)):
        data = f', "data": {_text(received.body)}'
    elif received.body:
        data = f', "data_base64": "{b64encode(received.body).decode()}"'
    return jsonb.parse(f"{json.dumps(attributes)[:-1]}{data}}}".encode())


def _text(body: bytes) -> str:
    """JSON that is safe inside other JSON: one value, so that no data adds an attribute."""
    try:
        text = body.decode()
        json.loads(text, parse_constant=float, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        raise Malformed("malformed_json", "The body is not JSON in UTF-8.") from None
    return text


def _decoded(value: str) -> str:
    """A header's value: without double quotes (RFC 7230, 3.2.6), then percent-decoded once."""
    value = _QUOTED.sub(lambda quoted: re.sub(r"\\(.)", r"\1", quoted[1]) if quoted[2] else quoted[0], value.strip())
    raw = value.encode("latin-1", "replace")
    try:
        if _BAD_ESCAPE.search(raw):
            raise ValueError
        return unquote_to_bytes(raw).decode("utf-8")
    except ValueError:
        raise Malformed("attribute_invalid", "The value of a ce- header is not percent-encoded UTF-8.") from None


def _refuse_invalid(event: dict[str, Any]) -> None:
    for name in _REQUIRED:
        value = event.get(name)
        if not isinstance(value, str) or not value:
            raise Malformed("attribute_missing", f"The attribute {name} is a text that is not empty.")
        if _CONTROL.search(value):
            raise Malformed("attribute_invalid", f"The attribute {name} has a control character.")
    if event["specversion"] != "1.0":
        raise Malformed("specversion_unknown", "The specversion is 1.0.")
    if "data" in event and "data_base64" in event:
        raise Malformed("data_twice", "An event has data or data_base64, not both.")
