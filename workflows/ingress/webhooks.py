"""Webhooks from outside: which sources may send them, and the secrets that prove it.

Several secrets of a source are valid at a time, so that one can be replaced without losing an event.
"""

from __future__ import annotations

import base64
import logging
import re
import secrets
from contextlib import suppress

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from workflows.ingress import signal_sources
from workflows.ingress.verifying import PREFIX, Signed, StandardWebhooks, Verifier
from workflows.ingress.verifying import sign as sign
from workflows.models import WebhookSecret
from workflows.postgres.deadlines import query_in_time
from workflows.sealing import key_register, whole
from workflows.sealing.envelopes import Unreadable
from workflows.signals.store import RESERVED_SOURCES

logger = logging.getLogger(__name__)

PREFIX_LENGTH = len(PREFIX) + 6  # shown so that people recognise a secret; the other 37 characters are 220 random bits

# Without a colon: those are of API keys (api:shop).
SOURCE = re.compile(r"[a-z0-9][a-z0-9\-_.]{0,99}")

# How an undeclared source signs, and how we sign what we send to others.
STANDARD = StandardWebhooks()
key_of = STANDARD.key_of

# An id of Standard Webhooks, which distinguishes signals.
_ID = re.compile(r"[!-~]{1,200}")


def is_source(text: str) -> bool:
    """Whether a source of webhooks may have this name."""
    return bool(SOURCE.fullmatch(text)) and text not in RESERVED_SOURCES


def is_id(text: str) -> bool:
    """Whether a webhook-id is valid: 1 to 200 visible ASCII characters."""
    return bool(_ID.fullmatch(text))


def verifier_of(source: str) -> Verifier:
    """The verifier of a source's events: the declared one, or Standard Webhooks."""
    declared = signal_sources.of_name(source)
    return declared.verify if declared and declared.verify else STANDARD


def is_signed(source: str, signed: Signed, body: bytes) -> bool:
    """Whether a valid secret of the source has signed the body.

    Raises DatabaseUnavailable; and Unreadable if a secret that does not open may have signed it, which is not the
    source's fault.
    """
    keys = keys_of(source)
    if signed.is_by([key for key in keys if key], body):
        return True
    if None in keys:
        raise Unreadable(f"A secret of {source} does not open.")
    return False


def keys_of(source: str) -> list[bytes | None]:
    """The keys with which events of a source may now be signed; none if there is no such source.

    They are read for each event, so a revoked secret is invalid at once. A secret that the verifier does not accept is
    skipped. None stands for each secret that does not open.
    """
    if not is_source(source):
        return []
    verifier, keys = verifier_of(source), list[bytes | None]()
    valid = WebhookSecret.objects.filter(source=source, revoked_at=None).order_by("pk")
    for secret in map(opened_secret, query_in_time(lambda: list(valid))):
        with suppress(ValueError):
            keys.append(None if secret is None else verifier.key_of(secret))
    return keys


def opened_secret(row: WebhookSecret) -> str | None:
    """The secret in clear; None, with a log message, if no key of DATA_KEYS opens it."""
    try:
        return str(whole.unseal(row, row.secret))
    except Unreadable as unreadable:
        logger.error("%s: %s", row, str(unreadable))
        return None


def shown(secret: str | None) -> str:
    """The start of a secret, to recognise it: less of one that its source has chosen; "?" if it does not open."""
    return "?" if secret is None else secret[: PREFIX_LENGTH if secret.startswith(PREFIX) else 4]


def create(source: str, secret: str | None = None) -> str:
    """Let a source sign with a given secret or a new one; return it. Raises ValueError if it is not valid."""
    if not is_source(source):
        raise ValueError(
            "A source's name is 1 to 100 lowercase letters, digits and -_. with a letter or digit first, "
            f"and none of {', '.join(sorted(RESERVED_SOURCES))}."
        )
    if secret is None:
        secret = PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
    verifier_of(source).key_of(secret)
    if any(opened_secret(row) == secret for row in WebhookSecret.objects.filter(source=source)):
        # If a source had the same secret twice, revoking one would leave the other valid.
        raise ValueError(f"{source} has this very secret already, or had it until it was revoked: choose another.")
    key_register.register()
    with transaction.atomic():
        row = WebhookSecret.objects.create(source=source, secret="")
        row.secret = whole.seal(row, secret)  # it is sealed for the row's id
        row.save(update_fields=["secret"])
    return secret


def find(secret_id: str) -> QuerySet[WebhookSecret]:
    """The secrets with this id, these first characters, or this whole text."""
    if secret_id.isascii() and secret_id.isdigit():
        return WebhookSecret.objects.filter(pk=int(secret_id)) if len(secret_id) < 19 else WebhookSecret.objects.none()
    by_start = secret_id.startswith(PREFIX)
    meant = []
    for row in WebhookSecret.objects.all():
        secret = opened_secret(row)
        if secret is not None and (secret == secret_id or (by_start and secret.startswith(secret_id))):
            meant.append(row.pk)
    return WebhookSecret.objects.filter(pk__in=meant)


def revoke(secret: WebhookSecret) -> bool:
    """Refuse a secret from now on. Returns False if it was already revoked."""
    return WebhookSecret.objects.filter(pk=secret.pk, revoked_at=None).update(revoked_at=Now()) == 1
