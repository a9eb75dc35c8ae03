"""What the API reads from every request: the client, the idempotency key, the body.

Headers are a mapping by lower-case name, Django's or a plain dict, so the intake's ASGI application shares these rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from uuid import UUID

from django.http import HttpRequest, UnreadablePostError
from django.utils.http import parse_header_parameters

from workflows.api.problems import Problem
from workflows.definition import WorkflowDefinition
from workflows.ingress import api_keys
from workflows.ingress.bounds import Key
from workflows.ingress.signal_bodies import MAX_BYTES, uuid_of
from workflows.postgres import jsonb

Headers = Mapping[str, str]


def key_of(headers: Headers, verb: str) -> Key:
    """The API key of the request, which may do this; may need a query. Raises Problem."""
    key = api_keys.table.key_of(api_key_of(headers))
    if key is not None and api_keys.table.claim_note(key):
        api_keys.table.note_use(key)
    return permitted(key, verb)


def api_key_of(headers: Headers) -> str:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise Problem(
            401, "api_key_missing", "Send an API key: Authorization: Bearer <key>.", WWW_Authenticate="Bearer"
        )
    return key.strip()


def permitted(key: Key | None, verb: str) -> Key:
    """The key, if it is valid, within its limit, and may do this. Raises Problem, before any of the body is read.

    A revoked key gets 401 like an unknown one: RFC 6750, 3.1 counts it as `invalid_token`. 403 would show that the
    client is known.
    """
    invalid = 'Bearer error="invalid_token"'
    if key is None:
        raise Problem(401, "api_key_invalid", "The API key is unknown or was revoked.", WWW_Authenticate=invalid)
    if key.is_expired:
        text = "The API key has expired: ask for a new one."
        raise Problem(401, "api_key_expired", text, WWW_Authenticate=invalid)
    if key.limit and (seconds := key.limit.seconds_to_wait()):
        text = "Your API key sends more than its limit, and nothing of this was stored. Send it again later."
        raise Problem(429, "rate_limited", text, Retry_After=str(seconds))
    if verb not in key.verbs:
        raise Problem(403, "not_permitted", f"Your API key may not do this: it was made without the right to {verb}.")
    return key


def ensure_may_start(key: Key, definition: WorkflowDefinition) -> None:
    if not key.may_start(definition):
        text = "Your API key may not do this: it is for other types of workflows, or other queues."
        raise Problem(403, "out_of_bounds", text)


def idempotency_key_of(headers: Headers) -> UUID:
    text = headers.get("idempotency-key", "")
    if not text:
        raise Problem(400, "idempotency_key_missing", "Send a UUID of your own: Idempotency-Key: <uuid>.")
    key = uuid_of(text)
    if key is None:
        raise Problem(400, "idempotency_key_invalid", "The Idempotency-Key is not a UUID.")
    return key


def json_object_of(request: HttpRequest) -> jsonb.Document:
    """The body. A request that its headers rule out is refused before any of the body is read."""
    ensure_json(request.headers)
    return jsonb.parse(body_of(request))


def ensure_json(headers: Headers) -> None:
    if not _is_json_in_utf8(headers.get("content-type", "")):
        raise Problem(415, "unsupported_media_type", "Send the body as Content-Type: application/json, in UTF-8.")
    if headers.get("content-encoding", "identity") != "identity":
        raise Problem(
            415, "unsupported_content_encoding", "Send the body as it is, not compressed.", Accept_Encoding="identity"
        )


def body_of(request: HttpRequest) -> bytes:
    length = length_of(request.headers)
    try:
        body = request.read(length)
    except UnreadablePostError:
        body = b""
    return whole(body, length)


def length_of(headers: Headers) -> int:
    """The Content-Length. Without one the answer is 411: a body of unknown length is never read."""
    text = headers.get("content-length", "")
    if not text or "transfer-encoding" in headers:
        raise Problem(411, "length_required", "Send a Content-Length; a chunked body is not taken.")
    if not (text.isascii() and text.isdigit()):
        raise Problem(400, "content_length_invalid", "The Content-Length is not a number.")
    if len(text) > 15 or int(text) > MAX_BYTES:
        raise Problem(413, "too_large", f"A body has at most {MAX_BYTES} bytes.")
    return int(text)


def whole(body: bytes, length: int) -> bytes:
    """The body, which must have the length of its Content-Length."""
    if len(body) != length:
        raise Problem(400, "body_incomplete", "The body ended before its Content-Length.")
    return body


@lru_cache(maxsize=64)
def _is_json_in_utf8(content_type: str) -> bool:
    try:
        name, parameters = parse_header_parameters(content_type)
    except ValueError:
        return False
    return name == "application/json" and parameters.get("charset", "utf-8").lower() in ("utf-8", "utf8")
