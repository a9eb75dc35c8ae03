"""API keys: create, revoke, and look them up without a query for each request."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Collection
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import Any

from django.db.models import F, QuerySet
from django.db.models.functions import Now
from django.db.models.signals import post_save
from django.dispatch import receiver

from workflows.models import ApiKey
from workflows.postgres.deadlines import DatabaseUnavailable, query_in_time

PREFIX = "onramp_"  # shows what a key is for if it is found in a log or a repository
PREFIX_LENGTH = len(PREFIX) + 8  # shown so that people recognise a key; the other 35 characters are 210 random bits

CANCEL, READ_HISTORY = RIGHTS = ("cancel", "read-history")

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 ._@-]{0,98}[A-Za-z0-9])?")

# A table older than this lets no request in, so a revoked key is refused after this time at the latest.
MAX_AGE_SECONDS = 4.0

# An unknown key may be new, so the table is read again at once. A flood of junk keys may cause only so many reads in a
# row; then each process makes four small queries a second, and calls other new keys unknown.
REREADS_IN_A_ROW = 20
REREADS_PER_SECOND = 4.0

# While the database is away, one request a second tries it; the others do not wait for its timeout.
RETRY_SECONDS = 1.0


def create(name: str, *, tenant: str = "", may: Collection[str] = ()) -> str:
    """Make a key for the client `name`, and return it; it cannot be shown again. `may` are some of RIGHTS."""
    if not NAME.fullmatch(name):
        raise ValueError(
            "A client's name is 1 to 100 letters, digits, spaces, dots, hyphens, underscores or @, "
            "with a letter or digit at both ends."
        )
    if tenant and not NAME.fullmatch(tenant):
        raise ValueError("A tenant's name is written like a client's.")
    key = PREFIX + secrets.token_urlsafe(32)
    prefix, digest = key[:PREFIX_LENGTH], digest_of(key)
    ApiKey.objects.create(name=name, prefix=prefix, digest=digest, tenant=tenant, may=sorted({*may}))
    return key


def find(key_id: str) -> QuerySet[ApiKey]:
    """The keys with this id, these first characters, or (for a leaked key) this whole text."""
    if key_id.isascii() and key_id.isdigit():
        return ApiKey.objects.filter(pk=int(key_id)) if len(key_id) < 19 else ApiKey.objects.none()
    if len(key_id) > PREFIX_LENGTH:
        return ApiKey.objects.filter(digest=digest_of(key_id))
    return ApiKey.objects.filter(prefix__startswith=key_id) if key_id.startswith(PREFIX) else ApiKey.objects.none()


def revoke(key: ApiKey) -> bool:
    """Refuse a key from now on (within MAX_AGE_SECONDS). Returns False if it was already revoked."""
    revoked = ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=Now()) == 1
    table.invalidate()
    return revoked


def digest_of(key: str) -> bytes:
    """A plain SHA-256 is enough: nobody guesses 256 random bits, so a slow hash would protect nothing."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


class KeyTable:
    """The keys of this process: digest to client, read from the database every few seconds.

    A key is found by a dictionary lookup. Its timing reveals something only about the digest, which a sender cannot
    choose.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._clients: dict[bytes, str] = {}
        self._tenants: dict[str, str] = {}
        self._rights: dict[bytes, frozenset[str]] = {}
        self._read_at = self._failed_at = -float("inf")
        self._rereads = float(REREADS_IN_A_ROW)
        self._counted_at = monotonic()

    def client_of(self, key: str) -> str | None:
        """The client of this key; None if the key does not exist or was revoked.

        Raises DatabaseUnavailable if only the database could decide: while it is away, a known or possibly new key is
        never called unknown.
        """
        now = monotonic()
        digest = digest_of(key)
        self._read_unless_newer_than(now - MAX_AGE_SECONDS)
        if digest not in self._clients and self._may_reread(now):
            self._read_unless_newer_than(now)
        return self._clients.get(digest)

    def read(self) -> None:
        """Read the table, unless that was done recently. Raises DatabaseUnavailable."""
        self._read_unless_newer_than(monotonic() - MAX_AGE_SECONDS)

    def knows(self, client: str) -> bool:
        """Whether this client has a valid key. Raises DatabaseUnavailable."""
        self.read()
        return client in self._tenants

    def tenant_of(self, client: str) -> str:
        """The tenant of a client that `client_of` has just returned; empty if it has none."""
        return self._tenants.get(client, "")

    def may(self, key: str, right: str) -> bool:
        """Whether a key that `client_of` has just found has this right; the client's other keys do not count."""
        return right in self._rights.get(digest_of(key), ())

    def client_at_once(self, key: str) -> str | None:
        """The client of this key, if the table can tell without a query, a lock or any other wait; else None."""
        if self._read_at <= monotonic() - MAX_AGE_SECONDS:
            return None
        return self._clients.get(digest_of(key))

    @property
    def wants_refresh(self) -> bool:
        """Whether half of the table's lifetime is over."""
        return self._read_at <= monotonic() - MAX_AGE_SECONDS / 2

    def refresh(self) -> None:
        """Read the table early, so that no request waits for it. Without the database it stays as it is."""
        with suppress(DatabaseUnavailable):
            self._read_unless_newer_than(monotonic() - MAX_AGE_SECONDS / 2)

    def invalidate(self) -> None:
        """Make the next use read the table again."""
        self._read_at = self._failed_at = -float("inf")

    def _may_reread(self, now: float) -> bool:
        with self._lock:
            earned = max(0.0, now - self._counted_at) * REREADS_PER_SECOND
            self._rereads = min(float(REREADS_IN_A_ROW), self._rereads + earned)
            self._counted_at = now
            if self._rereads < 1:
                return False
            self._rereads -= 1
            return True

    def _read_unless_newer_than(self, moment: float) -> None:
        if self._read_at > moment:
            return
        with self._lock:
            now = monotonic()
            if self._read_at > moment:  # another thread has read it while this one waited
                return
            if now - self._failed_at < RETRY_SECONDS:
                raise DatabaseUnavailable
            try:
                self._clients, self._tenants, self._rights = query_in_time(_read_keys, seconds=2.0)
            except DatabaseUnavailable:
                self._failed_at = monotonic()
                raise
            self._read_at = now  # the start of the read: rows that were committed since may be missing


def _read_keys() -> tuple[dict[bytes, str], dict[str, str], dict[bytes, frozenset[str]]]:
    valid = ApiKey.objects.filter(revoked_at=None).order_by("id")
    keys = list(valid.values_list("digest", F("name"), "tenant", "may"))
    return (
        {bytes(digest): name for digest, name, _, _ in keys},
        {name: tenant for _, name, tenant, _ in keys},
        {bytes(digest): frozenset(may) for digest, _, _, may in keys if may},
    )


table = KeyTable()


@receiver(post_save, sender=ApiKey)
def _invalidate_table(**kwargs: Any) -> None:
    table.invalidate()  # this process sees its own changes at once
