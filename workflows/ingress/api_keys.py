"""API keys: create, revoke, and look them up without a query for each request."""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime, timedelta
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any

from django.db import Error, transaction
from django.db.models import BooleanField, DurationField, ExpressionWrapper, Q, QuerySet, Value
from django.db.models.functions import Least, Now
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.utils import timezone

from workflows.definition import WorkflowDefinition, definitions
from workflows.ingress.bounds import BEYOND, OPERATOR, SUBMIT, USUAL, Key, Limit
from workflows.models import ApiKey
from workflows.postgres.deadlines import DatabaseUnavailable, query_in_time
from workflows.postgres.statements import execute

if TYPE_CHECKING:
    from django.contrib.auth.models import User

logger = logging.getLogger(__name__)

PREFIX = "onramp_"  # shows what a key is for if it is found in a log or a repository
PREFIX_LENGTH = len(PREFIX) + 8  # shown so that people recognise a key; the other 35 characters are 210 random bits

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 ._@-]{0,98}[A-Za-z0-9])?")

# A table older than this lets no request in, so a revoked key is refused after this time at the latest.
MAX_AGE_SECONDS = 4.0

# An unknown key may be new, so the table is read again at once. A flood of junk keys may cause only so many reads in a
# row; then each process makes four small queries a second, and calls other new keys unknown.
REREADS_IN_A_ROW = 20
REREADS_PER_SECOND = 4.0

# While the database is away, two requests a second try it; the others do not wait for its timeout.
RETRY_SECONDS = 0.5

# A process writes the last use of a key so often, and leaves out what another has written since.
NOTED_EVERY_SECONDS = 3600.0
_NOTE = """
    UPDATE workflows_apikey SET last_used_at = statement_timestamp()
     WHERE id IN (SELECT id FROM workflows_apikey
                   WHERE id = %s AND coalesce(last_used_at < statement_timestamp() - interval '1 hour', true)
                     FOR NO KEY UPDATE SKIP LOCKED)"""

# What a process reads of each key: the intake's role in the database may read no other column.
_BOUNDS = ("name", "digest", "tenant", "tenant_only", "types", "queues", "verbs", "may", "per_second")

# How long the old key stays valid beside its successor. A leaked one is revoked instead.
KEPT_BESIDE = timedelta(days=7)

# PostgreSQL stores times that Python cannot read: with one of them no list of keys works any more.
CENTURY = timedelta(days=36_525)
# How long the key of a person is valid, and its limit, unless they are given.
PERSONS_KEY = timedelta(days=90)
PERSONS_PER_SECOND = 5.0
LEAST_PER_SECOND = 0.001  # with much less the seconds to wait are no number any more


def create(
    name: str,
    *,
    tenant: str = "",
    verbs: Collection[str] = (),
    may: Collection[str] = (),
    types: Collection[str] = (),
    queues: Collection[str] = (),
    per_second: float | None = None,
    expires_at: datetime | None = None,
) -> str:
    """Make a key for the client `name`, and return it; it cannot be shown again. Raises ValueError.

    `verbs` are all that it may do, some of VERBS (USUAL if none is given); `may` adds to them. It starts, reads and
    reaches only workflows of these types, queues and this tenant, if they are given. `per_second`: see `Limit`.
    """
    _require_name_and_limit(name, per_second)
    if tenant and not NAME.fullmatch(tenant):
        raise ValueError("A tenant's name is written like a client's.")
    _require_known("type", types, {*definitions()})
    _require_known("queue", queues, {each.queue for each in definitions().values()})
    if unknown := {*verbs, *may} & {*OPERATOR}:
        raise ValueError(f"Only the key of a person may {sorted(unknown)[0]}: name the person.")
    rights = {*(verbs or USUAL), *may}
    return _made(
        name=name,
        tenant=tenant,
        tenant_only=bool(tenant),
        verbs=[each for each in USUAL if each in rights],
        may=[each for each in BEYOND if each in rights],
        types=sorted({*types}),
        queues=sorted({*queues}),
        per_second=per_second,
        expires_at=expires_at,
    )


def create_for(
    person: User,
    name: str,
    *,
    verbs: Collection[str] = (),
    per_second: float | None = None,
    expires_at: datetime | None = None,
) -> str:
    """Make a key for the operator's API, and return it. It sees what `person` may see. Raises ValueError.

    `verbs`: some of OPERATOR, all of them if none is given. It is valid for PERSONS_KEY unless `expires_at` is given.
    """
    if not (person.is_active and person.is_staff):
        raise ValueError(f"{person.get_username()} may not sign in to the console: the key would do nothing.")
    if other := sorted({*verbs} - {*OPERATOR}):
        raise ValueError(f"The key of a person may {' and '.join(OPERATOR)}, and not {other[0]}.")
    _require_name_and_limit(name, per_second)
    return _made(
        name=name,
        person=person,
        verbs=[],
        may=[each for each in OPERATOR if each in (verbs or OPERATOR)],
        per_second=per_second or PERSONS_PER_SECOND,
        expires_at=expires_at or timezone.now() + PERSONS_KEY,
    )


def _made(*, expires_at: datetime | None, **columns: Any) -> str:
    if expires_at is not None and not timedelta(0) < expires_at - timezone.now() <= CENTURY:
        raise ValueError("A key expires in the future and within a hundred years; without a time, never.")
    key = PREFIX + secrets.token_urlsafe(32)
    ApiKey.objects.create(prefix=key[:PREFIX_LENGTH], digest=digest_of(key), expires_at=expires_at, **columns)
    return key


def _require_name_and_limit(name: str, per_second: float | None) -> None:
    if not NAME.fullmatch(name):
        raise ValueError(
            "A client's name is 1 to 100 letters, digits, spaces, dots, hyphens, underscores or @, "
            "with a letter or digit at both ends."
        )
    if per_second is not None and not LEAST_PER_SECOND <= per_second < float("inf"):
        raise ValueError(f"A limit is a number of requests a second, at least {LEAST_PER_SECOND}.")


def _require_known(noun: str, given: Collection[str], known: Collection[str]) -> None:
    if unknown := sorted({*given} - {*known}):
        raise ValueError(f"No definition has the {noun} {unknown[0]}. There are: {', '.join(sorted(known))}.")


def rotate(old: ApiKey, *, keep: timedelta = KEPT_BESIDE, expires_at: datetime | None = None) -> str:
    """Make a key of the same client with the same bounds, and return it. The old one expires after `keep`, or before.

    The new one expires at `expires_at`; without it, it is valid for as long as the old one was meant to be. Raises
    ValueError for a revoked key.
    """
    if old.revoked_at:
        raise ValueError(f"{old} is revoked. Make a new key: manage.py createapikey.")
    if not timedelta(0) <= keep <= CENTURY:
        raise ValueError("An old key is kept for at least no time, and at most a hundred years.")
    if expires_at is None and old.expires_at:
        expires_at = timezone.now() + min(old.expires_at - old.created_at, CENTURY)
    copied = ("name", "person", "tenant", "tenant_only", "verbs", "may", "types", "queues", "per_second")
    until = Now() + Value(keep, DurationField())
    with transaction.atomic():
        key = _made(expires_at=expires_at, **{each: getattr(old, each) for each in copied})
        ApiKey.objects.filter(pk=old.pk).update(expires_at=Least("expires_at", until))  # LEAST passes over NULL
    table.invalidate()
    return key


def find(key_id: str) -> QuerySet[ApiKey]:
    """The keys with this id, these first characters, or (for a leaked key) this whole text."""
    if key_id.isascii() and key_id.isdigit():
        return ApiKey.objects.filter(pk=int(key_id)) if len(key_id) < 19 else ApiKey.objects.none()
    if len(key_id) > PREFIX_LENGTH:
        return ApiKey.objects.filter(digest=digest_of(key_id))
    return ApiKey.objects.filter(prefix__startswith=key_id) if key_id.startswith(PREFIX) else ApiKey.objects.none()


def find_one(key_id: str) -> ApiKey:
    """The one key that `find` finds. Raises ValueError."""
    found = list(find(key_id)[:2])
    if not found:
        raise ValueError("There is no such key. See manage.py listapikeys.")
    if len(found) > 1:
        raise ValueError("More than one key starts like that. Give its number: see manage.py listapikeys.")
    return found[0]


def revoke(key: ApiKey) -> bool:
    """Refuse a key from now on (within MAX_AGE_SECONDS). Returns False if it was already revoked."""
    revoked = ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=Now()) == 1
    table.invalidate()
    return revoked


def digest_of(key: str) -> bytes:
    """A plain SHA-256 is enough: nobody guesses 256 random bits, so a slow hash would protect nothing."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


class KeyTable:
    """The keys of this process, by their digests, read from the database every few seconds.

    A key is found by a dictionary lookup. Its timing reveals something only about the digest, which a sender cannot
    choose.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._keys: dict[bytes, Key] = {}
        self._limits: dict[int, Limit] = {}
        self._noted: dict[int, float] = {}
        self._read_at = self._failed_at = -float("inf")
        self._rereads = Limit(REREADS_PER_SECOND, at_once=REREADS_IN_A_ROW)

    def key_of(self, key: str) -> Key | None:
        """What this key may do; None if it does not exist or was revoked.

        Raises DatabaseUnavailable if only the database could decide: while it is away, a known or possibly new key is
        never called unknown.
        """
        now = monotonic()
        digest = digest_of(key)
        self._read_unless_newer_than(now - MAX_AGE_SECONDS)
        if digest not in self._keys and not self._rereads.seconds_to_wait():
            self._read_unless_newer_than(now)
        return self._keys.get(digest)

    def read(self) -> None:
        """Read the table, unless that was done recently. Raises DatabaseUnavailable."""
        self._read_unless_newer_than(monotonic() - MAX_AGE_SECONDS)

    def key_for(self, client: str, definition: WorkflowDefinition) -> Key | None:
        """The newest key of this client that may start the definition; an expired one only if there is no other.

        A message of a queue brings none. Raises DatabaseUnavailable.
        """
        self.read()
        able = (
            each
            for each in self._keys.values()
            if each.client == client and SUBMIT in each.verbs and each.may_start(definition)
        )
        return max(able, key=lambda each: (not each.is_expired, each.id), default=None)

    def key_at_once(self, key: str) -> Key | None:
        """What this key may do, if the table can tell without a query, a lock or any other wait; else None."""
        if self._read_at <= monotonic() - MAX_AGE_SECONDS:
            return None
        return self._keys.get(digest_of(key))

    def claim_note(self, key: Key) -> bool:
        """Whether the caller has to call `note_use`: its first use in this process for an hour."""
        now = monotonic()
        if now - self._noted.get(key.id, -float("inf")) < NOTED_EVERY_SECONDS:
            return False
        self._noted[key.id] = now
        return True

    def note_use(self, key: Key) -> None:
        """Write that the key is used. If that fails, it is tried again in an hour, and nothing else."""
        try:
            query_in_time(lambda: execute(_NOTE, (key.id,)), seconds=2.0)
        except (DatabaseUnavailable, Error) as error:
            logger.warning("The last use of the API key %d is not written: %s", key.id, type(error).__name__)

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
                self._keys = query_in_time(self._read_keys, seconds=2.0)
            except DatabaseUnavailable:
                self._failed_at = monotonic()
                raise
            self._read_at = now  # the start of the read: rows that were committed since may be missing

    def _read_keys(self) -> dict[bytes, Key]:
        expired = ExpressionWrapper(Q(expires_at__lte=Now()), BooleanField())  # by the database's clock
        rows = ApiKey.objects.only(*_BOUNDS).filter(revoked_at=None).annotate(expired=expired).order_by("id")
        return {bytes(row.digest): self._known(row, is_expired=bool(row.expired)) for row in rows}

    def _known(self, row: Any, *, is_expired: bool) -> Key:
        limit = self._limits.get(row.pk)
        if row.per_second and (limit is None or limit.per_second != row.per_second):  # else it goes on counting
            limit = self._limits[row.pk] = Limit(row.per_second)
        return Key(
            id=row.pk,
            client=row.name,
            tenant=row.tenant,
            tenant_only=row.tenant_only,
            verbs=frozenset((*row.verbs, *row.may)),
            types=tuple(row.types),
            queues=tuple(row.queues),
            is_expired=is_expired,
            limit=limit if row.per_second else None,
        )


table = KeyTable()


@receiver(post_save, sender=ApiKey)
def _invalidate_table(**kwargs: Any) -> None:
    table.invalidate()  # this process sees its own changes at once
