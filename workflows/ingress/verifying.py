"""VERIFYING: whether an event comes from the source that it names, by a secret that the source and we share.

A verifier reads the signature from the headers, before the body is read. It accepts several secrets at a time, so that
one can be replaced without losing an event.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from time import time
from typing import ClassVar, Literal, Protocol

Headers = Mapping[str, str]  # Django's, or by lower-case name

PREFIX = "whsec_"  # shows what a secret is if it is found in a log or a repository

# From Standard Webhooks, and Stripe's default: longer than clock differences and deliveries, too short for a replay.
TOLERANCE_SECONDS = 5 * 60

# From Standard Webhooks: a shorter key can be guessed, a longer one is no better.
_MIN_KEY_BYTES, _MAX_KEY_BYTES = 24, 64
# The length of a secret that is a text, as with GitHub and Stripe.
_SHORTEST, _LONGEST = 16, 200

# The key for a source without secrets, so that its refusal takes as long as any other.
_DECOY_KEY = secrets.token_bytes(32)

_SECONDS = re.compile(r"[0-9]{1,12}")
# Signatures of one event: more than any rotation needs, and few enough to compare.
_MOST_OFFERED = 16


class Unverified(Exception):
    """The event is not proven to be from its source. `code` is stable; the message says nothing about the event."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Signed:
    """The signature of an event, from its headers: `sign` makes one with a key, over `before` and the body."""

    before: bytes
    offered: Sequence[bytes]
    sign: Callable[[bytes, bytes], bytes]

    def is_by(self, keys: Collection[bytes], body: bytes) -> bool:
        """Whether one of the signatures was made with one of these keys, over the body as it came.

        All are compared with all, each in constant time, so that the time shows neither which one was right nor how
        much of it.
        """
        signed = False
        for key in keys or [_DECOY_KEY]:
            expected = self.sign(key, self.before + body)
            for signature in self.offered:
                signed |= hmac.compare_digest(expected, signature)
        return signed


class Verifier(Protocol):
    """`scheme`: for WWW-Authenticate. `secret_headers`: lower-case names of headers that are not stored with an event.

    `covers_headers`: whether the headers are as surely the source's as the body is.
    """

    scheme: ClassVar[str]
    covers_headers: ClassVar[bool]

    @property
    def secret_headers(self) -> Collection[str]: ...

    def key_of(self, secret: str) -> bytes:
        """The key that a secret is or encodes. Raises ValueError if it is invalid."""

    def read(self, headers: Headers) -> Signed:
        """Read the signature from the headers. Raises Unverified."""


@dataclass(frozen=True, slots=True)
class StandardWebhooks:
    """https://www.standardwebhooks.com: HMAC-SHA256 of `id.timestamp.body`, in base64."""

    scheme: ClassVar[str] = "StandardWebhooks"
    covers_headers: ClassVar[bool] = False
    secret_headers: ClassVar[Collection[str]] = ("webhook-signature",)

    def key_of(self, secret: str) -> bytes:
        encoded = secret.removeprefix(PREFIX)
        try:
            key = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):  # ValueError: not ASCII
            key = b""
        if not secret.startswith(PREFIX) or not _MIN_KEY_BYTES <= len(key) <= _MAX_KEY_BYTES:
            raise ValueError(f"A secret is {PREFIX} and the base64 of {_MIN_KEY_BYTES} to {_MAX_KEY_BYTES} bytes.")
        return key

    def read(self, headers: Headers) -> Signed:
        names = ("webhook-id", "webhook-timestamp", "webhook-signature")
        given = [headers.get(name, "") for name in names]
        if not all(given):
            raise Unverified("webhook_signature_missing", f"Send {', '.join(names[:2])} and {names[2]}.")
        refuse_stale(given[1], "webhook-timestamp")
        return Signed(_latin(f"{given[0]}.{given[1]}."), _latin(given[2]).split(b" ")[:_MOST_OFFERED], sign)


@dataclass(frozen=True, slots=True)
class Stripe:
    """https://docs.stripe.com/webhooks#verify-manually: `Stripe-Signature: t=<seconds>,v1=<hex>[,v1=<hex>]`."""

    scheme: ClassVar[str] = "Stripe"
    covers_headers: ClassVar[bool] = False
    secret_headers: ClassVar[Collection[str]] = ("stripe-signature",)

    def key_of(self, secret: str) -> bytes:
        return _text_key(secret)  # including whsec_: Stripe decodes nothing

    def read(self, headers: Headers) -> Signed:
        parts = [part.strip().partition("=") for part in headers.get("stripe-signature", "").split(",")]
        times = [value for name, _, value in parts if name == "t"]
        offered = [_latin(value) for name, _, value in parts if name == "v1"][:_MOST_OFFERED]
        if len(times) != 1 or not offered:  # two joined headers have two times
            raise Unverified("webhook_signature_missing", "Send Stripe-Signature: t=<seconds>,v1=<hex>.")
        refuse_stale(times[0], "t of Stripe-Signature")
        return Signed(_latin(f"{times[0]}."), offered, _hmac("sha256", "hex"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hmac:
    """An HMAC of the body, preceded by `before`, in a header after a prefix.

    GitHub: Hmac(header="X-Hub-Signature-256", prefix="sha256="). Slack: Hmac(header="X-Slack-Signature", prefix="v0=",
    timestamp="X-Slack-Request-Timestamp", before="v0:{timestamp}:"). Without a timestamp an event can be replayed for
    ever, and only its id shows that it came before: take the id from the body, which is signed.
    """

    header: str
    prefix: str = ""
    encoding: Literal["hex", "base64"] = "hex"
    algorithm: Literal["sha256", "sha384", "sha512"] = "sha256"
    timestamp: str = ""
    before: str = ""

    scheme: ClassVar[str] = "HMAC"
    covers_headers: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if bool(self.timestamp) != ("{timestamp}" in self.before):
            raise ValueError("A timestamp is signed: name its header, and its place in `before` as {timestamp}.")

    @property
    def secret_headers(self) -> Collection[str]:
        return (self.header.lower(),)

    def key_of(self, secret: str) -> bytes:
        return _text_key(secret)

    def read(self, headers: Headers) -> Signed:
        text = headers.get(self.header.lower(), "")
        if not text.startswith(self.prefix) or text == self.prefix:
            raise Unverified("webhook_signature_missing", f"Send {self.header}: {self.prefix}<{self.encoding}>.")
        before = self.before
        if self.timestamp:
            at = headers.get(self.timestamp.lower(), "")
            refuse_stale(at, self.timestamp)
            before = before.replace("{timestamp}", at)
        return Signed(_latin(before), [_latin(text.removeprefix(self.prefix))], _hmac(self.algorithm, self.encoding))


@dataclass(frozen=True, slots=True)
class Bearer:
    """`Authorization: Bearer <secret>`, as https://github.com/cloudevents/spec defines it for web hooks, 3.1.

    It covers the whole request, and is only as safe as the connection: HTTPS only.
    """

    scheme: ClassVar[str] = "Bearer"
    covers_headers: ClassVar[bool] = True
    secret_headers: ClassVar[Collection[str]] = ()

    def key_of(self, secret: str) -> bytes:
        return _text_key(secret)

    def read(self, headers: Headers) -> Signed:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unverified("webhook_token_missing", "Send Authorization: Bearer <secret>.")
        # Digests, because a comparison reveals the length of its values.
        digest = _hmac("sha256", "hex")
        return Signed(b"", [digest(_latin(token.strip()), b"")], lambda key, _: digest(key, b""))


def sign(key: bytes, content: bytes) -> bytes:
    """The signature of `id.timestamp.body` by Standard Webhooks, in the header's form."""
    return b"v1," + _hmac("sha256", "base64")(key, content)


def refuse_stale(seconds: str, what: str) -> None:
    """Refuse a time that is not recent. Whole seconds only, because their text is signed. Raises Unverified."""
    if not _SECONDS.fullmatch(seconds) or abs(time() - int(seconds)) > TOLERANCE_SECONDS:
        raise Unverified(
            "webhook_timestamp_stale",
            f"The {what} is in seconds since 1970, whole, within {TOLERANCE_SECONDS} of our clock.",
        )


def _text_key(secret: str) -> bytes:
    if not _SHORTEST <= len(secret) <= _LONGEST or not (secret.isascii() and secret.isprintable()):
        raise ValueError(f"A secret of this source is {_SHORTEST} to {_LONGEST} printable ASCII characters.")
    return secret.encode()


def _hmac(algorithm: str, encoding: str) -> Callable[[bytes, bytes], bytes]:
    encode = base64.b64encode if encoding == "base64" else binascii.hexlify
    return lambda key, content: encode(hmac.digest(key, content, algorithm))


def _latin(text: str) -> bytes:
    return text.encode("latin-1", "replace")  # headers are Latin-1 in WSGI
