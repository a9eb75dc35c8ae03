"""What the API reads of every request: the client, the idempotency key, the body."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, UnreadablePostError

from workflows.api.problems import Problem
from workflows.ingress import api_keys
from workflows.ingress.signal_bodies import MAX_BYTES, uuid_of
from workflows.postgres import jsonb


def client_of(request: HttpRequest) -> str:
    """The API client whose key the request carries.

    A revoked key is answered like an unknown one, 401: RFC 6750, 3.1 counts it as `invalid_token`, and a new key is
    what helps. 403 would say that this client is known and may not.
    """
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise Problem(
            401, "api_key_missing", "Send an API key: Authorization: Bearer <key>.", WWW_Authenticate="Bearer"
        )
    client = api_keys.table.client_of(key.strip())
    if client is None:
        raise Problem(
            401,
            "api_key_invalid",
            "The API key is unknown or was revoked.",
            WWW_Authenticate='Bearer error="invalid_token"',
        )
    return client


def idempotency_key_of(request: HttpRequest) -> UUID:
    text = request.headers.get("Idempotency-Key", "")
    if not text:
        raise Problem(400, "idempotency_key_missing", "Send a UUID of your own: Idempotency-Key: <uuid>.")
    key = uuid_of(text)
    if key is None:
        raise Problem(400, "idempotency_key_invalid", "The Idempotency-Key is not a UUID.")
    return key


def optional_idempotency_key_of(request: HttpRequest) -> UUID | None:
    return idempotency_key_of(request) if request.headers.get("Idempotency-Key") else None


def json_object_of(request: HttpRequest) -> jsonb.Document:
    """The body. A request that can be refused by its headers is refused before any of the body is read."""
    ensure_json(request)
    return jsonb.parse(body_of(request))


def ensure_json(request: HttpRequest) -> None:
    if request.content_type != "application/json" or _is_not_utf8(request):
        raise Problem(415, "unsupported_media_type", "Send the body as Content-Type: application/json, in UTF-8.")
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise Problem(
            415, "unsupported_content_encoding", "Send the body as it is, not compressed.", Accept_Encoding="identity"
        )


def body_of(request: HttpRequest) -> bytes:
    """The bytes of the body, unchecked."""
    return _read(request, _length_of(request))


def _is_not_utf8(request: HttpRequest) -> bool:
    charset = (request.content_params or {}).get("charset", "utf-8")
    return charset.lower() not in ("utf-8", "utf8")


def _length_of(request: HttpRequest) -> int:
    """The Content-Length. Without one the answer is 411: a body of unknown length is not read at all."""
    text = request.META.get("CONTENT_LENGTH") or ""
    if not text or "HTTP_TRANSFER_ENCODING" in request.META:
        raise Problem(411, "length_required", "Send a Content-Length; a chunked body is not taken.")
    if not (text.isascii() and text.isdigit()):
        raise Problem(400, "content_length_invalid", "The Content-Length is not a number.")
    if len(text) > 15 or int(text) > MAX_BYTES:
        raise Problem(413, "too_large", f"A body has at most {MAX_BYTES} bytes.")
    return int(text)


def _read(request: HttpRequest, length: int) -> bytes:
    try:
        body = request.read(length)
    except UnreadablePostError:
        body = b""
    if len(body) != length:
        raise Problem(400, "body_incomplete", "The body ended before its Content-Length.")
    return body
