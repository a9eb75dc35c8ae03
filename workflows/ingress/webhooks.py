"""Webhooks from outside: which sources may send them, and whether a delivery is theirs.

A source signs each delivery with a secret that it shares with us (https://www.standardwebhooks.com). Several secrets of
a source are valid at a time, so that one can be replaced without losing a delivery.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from time import time

from django.db.models import QuerySet
from django.db.models.functions import Now

from workflows.models import WebhookSecret
from workflows.postgres.deadlines import query_in_time
from workflows.postgres.statements import fetch_one

PREFIX = "whsec_"  # so that a secret found in a log or a repository shows what it is
PREFIX_LENGTH = len(PREFIX) + 6  # shown to tell secrets apart; the 37 characters left are 220 random bits

# Sources of the engine's own signals. No webhook may use them, nor a name with a colon (api:shop).
RESERVED_SOURCES = frozenset({"console", "engine", "look"})
SOURCE = re.compile(r"[a-z0-9][a-z0-9\-_.]{0,99}")

# From the specification: longer than clocks differ and deliveries take, too short to replay a delivery later.
TOLERANCE_SECONDS = 5 * 60

# From the specification: a shorter key can be guessed, a longer one is no better.
_MIN_KEY_BYTES, _MAX_KEY_BYTES = 24, 64

# The key for a source without secrets, so that refusing it takes as long as refusing any other.
_DECOY_KEY = secrets.token_bytes(32)

_SECONDS = re.compile(r"[0-9]{1,12}")
_ID = re.compile(r"[!-~]{1,200}")


@dataclass(frozen=True, slots=True)
class Delivery:
    """The three headers of a delivery, as they came: `webhook-id`, `webhook-timestamp`, `webhook-signature`."""

    id: str
    timestamp: str
    signatures: str

    @property
    def has_valid_id(self) -> bool:
        """Whether signals can be told apart by it: 1 to 200 visible ASCII characters."""
        return bool(_ID.fullmatch(self.id))

    @property
    def is_current(self) -> bool:
        """Whether its timestamp is current: whole seconds only, because their text is what is signed."""
        return bool(_SECONDS.fullmatch(self.timestamp)) and abs(time() - int(self.timestamp)) <= TOLERANCE_SECONDS

    def is_signed(self, keys: Collection[bytes], body: bytes) -> bool:
        """Whether one of its signatures was made with one of these keys, of the body as it came.

        All are compared with all, each in constant time: the time taken shows neither which was right nor how much of
        it.
        """
        content = f"{self.id}.{self.timestamp}.".encode("latin-1", "replace") + body  # headers are Latin-1 in WSGI
        offered = [signature.encode("latin-1", "replace") for signature in self.signatures.split(" ")]
        signed = False
        for key in keys or [_DECOY_KEY]:
            expected = sign(key, content)
            for signature in offered:
                signed |= hmac.compare_digest(expected, signature)
        return signed


def is_source(text: str) -> bool:
    """Whether a source of webhooks may have this name."""
    return bool(SOURCE.fullmatch(text)) and text not in RESERVED_SOURCES


def keys_of(source: str) -> list[bytes]:
    """The keys that deliveries of a source may be signed with now; none when there is no such source.

    They are read for each delivery, so a revoked secret is invalid at once. Raises DatabaseUnavailable.
    """
    if not is_source(source):
        return []
    valid = WebhookSecret.objects.filter(source=source, revoked_at=None)
    return [key_of(secret) for secret in query_in_time(lambda: list(valid.values_list("secret", flat=True)))]


def key_of(secret: str) -> bytes:
    """The key that a secret encodes. Raises ValueError when it encodes none."""
    encoded = secret.removeprefix(PREFIX)
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):  # ValueError: not ASCII
        key = b""
    if not secret.startswith(PREFIX) or not _MIN_KEY_BYTES <= len(key) <= _MAX_KEY_BYTES:
        raise ValueError(f"A secret is {PREFIX} and the base64 of {_MIN_KEY_BYTES} to {_MAX_KEY_BYTES} bytes.")
    return key


def sign(key: bytes, content: bytes) -> bytes:
    """The signature of `id.timestamp.body`, as the header has it."""
    return b"v1," + base64.b64encode(hmac.digest(key, content, "sha256"))


def create(source: str, secret: str | None = None) -> str:
    """Let a source sign with a secret, its own choice or a new one; return it. Raises ValueError if it is not valid."""
    if not is_source(source):
        raise ValueError(
            "A source's name is 1 to 100 lowercase letters, digits and -_. with a letter or digit first, "
            f"and none of {', '.join(sorted(RESERVED_SOURCES))}."
        )
    if secret is None:
        secret = PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
    key_of(secret)
    # Not through the model: the secret would then be in the text of the statement.
    made = fetch_one(
        """INSERT INTO workflows_webhooksecret (source, secret)
           SELECT %s, %s WHERE NOT EXISTS (SELECT FROM workflows_webhooksecret WHERE source = %s AND secret = %s)
           RETURNING id""",
        (source, secret, source, secret),
    )
    if made is None:
        # A source that had the same secret twice would keep one when the other is revoked.
        raise ValueError(f"{source} has this very secret already, or had it until it was revoked: choose another.")
    return secret


def find(secret_id: str) -> QuerySet[WebhookSecret]:
    """The secrets with this number, these first characters, or this whole text."""
    if secret_id.isascii() and secret_id.isdigit():
        return WebhookSecret.objects.filter(pk=int(secret_id)) if len(secret_id) < 19 else WebhookSecret.objects.none()
    if not secret_id.startswith(PREFIX):
        return WebhookSecret.objects.none()
    # Compared here, and few: a statement's text would hold the whole secret.
    meant = [pk for pk, secret in WebhookSecret.objects.values_list("pk", "secret") if secret.startswith(secret_id)]
    return WebhookSecret.objects.filter(pk__in=meant)


def revoke(secret: WebhookSecret) -> bool:
    """Refuse a secret from now on. False when it was revoked before."""
    return WebhookSecret.objects.filter(pk=secret.pk, revoked_at=None).update(revoked_at=Now()) == 1
