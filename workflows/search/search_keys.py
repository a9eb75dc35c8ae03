"""SEARCH KEYS: how people find the workflow of a patient without its number.

A definition names fields of its payload. The statement that stores the row also stores a hash of each: HMAC-SHA256 of
the kind and the normalised value, under a key that the database does not have (docs/adr/0014). It is cut to 16 bytes.
Among ten billion values two are equal with a chance of one in 10^19; a list would then show one workflow too many.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from django.conf import settings
from django.views.decorators.debug import sensitive_variables

from workflows.definition import WorkflowDefinition, definitions, text_of, value_at
from workflows.sealing.envelopes import FROM_SECRET_KEY
from workflows.search import normalise

logger = logging.getLogger(__name__)

HASH_BYTES = 16
# Characters. An e-mail address has at most 254; a longer text is no search key, and is not examined.
LONGEST_TEXT = 320

# The kind of a business key's hash. No kind of search key contains a space.
BUSINESS_KEY = "business key"


@dataclass(frozen=True, slots=True)
class SearchKey:
    """A field of the payload by which people find a workflow. Its kind is its name in the definition.

    `field` is dotted if nested. `normalise` returns the readings of a text, likeliest first, or none for another kind
    of text (see `search.normalise`): the first is stored, all are searched. A kind means the same in every definition.
    `label` is for people ("e-mail address"). `only_as_hash`: a text with a reading of this kind is looked up only by
    its hash, and not as a business key: the database, which may log parameters, never gets it.
    """

    field: str
    normalise: Callable[[str], Sequence[str]]
    label: str = ""
    only_as_hash: bool = False

    @property
    def path(self) -> list[str]:
        return self.field.split(".")

    def read(self, value: Any) -> Sequence[str]:
        """The readings of a text or number; none of another value, or if the author's code fails: no row is refused."""
        text = text_of(value)
        if text is None or len(text) > LONGEST_TEXT:
            return []
        try:
            return self.normalise(text)
        except Exception as error:  # its message may hold the value
            logger.warning("The search key %s cannot be normalised: %s", self.field, type(error).__name__)
            return []


class Key(NamedTuple):
    """A secret that makes hashes. Its `id` is stored with each hash, and only identifies it."""

    secret: bytes
    id: int

    def hash(self, kind: str, normalised: str) -> bytes:
        message = f"{kind}\0{normalised}".encode("utf-8", "surrogatepass")
        return hmac.digest(self.secret, message, "sha256")[:HASH_BYTES]


def keys() -> list[Key]:
    """The keys of the setting SEARCH_KEYS: the first one makes new hashes, all are searched."""
    return _keys(tuple(settings.SEARCH_KEYS) or (FROM_SECRET_KEY,), settings.SECRET_KEY)


@lru_cache
def _keys(texts: tuple[str, ...], secret_key: str) -> list[Key]:
    made = hmac.digest(secret_key.encode(), b"workflows.search_keys", "sha256")
    secrets = [made if text == FROM_SECRET_KEY else text.encode() for text in texts]
    return [Key(each, int.from_bytes(hmac.digest(each, b"id", "sha256")[:4], signed=True)) for each in secrets]


def hashes_to_store(search_keys: Mapping[str, SearchKey], values: Mapping[str, Any]) -> list[bytes]:
    """The hashes of a workflow's values by kind, under the first of SEARCH_KEYS. Sorted, to avoid deadlocks."""
    if not search_keys:
        return []
    key = keys()[0]
    readings = {kind: each.read(values.get(kind)) for kind, each in search_keys.items()}
    return sorted({key.hash(kind, found[0]) for kind, found in readings.items() if found})


def hashes_of(definition: WorkflowDefinition, payload: Mapping[str, Any]) -> list[bytes]:
    """The hashes of the fields that a definition names, without missing values and those of another kind."""
    values = {kind: value_at(payload, key.field) for kind, key in definition.search_keys.items()}
    return hashes_to_store(definition.search_keys, values)


def hashes_under_each_key(definition: WorkflowDefinition, payload: Mapping[str, Any]) -> list[bytes]:
    """Like `hashes_of`, but under each of SEARCH_KEYS."""
    known = definition.search_keys.items()
    return list(_hashes((kind, found) for kind, key in known for found in key.read(value_at(payload, key.field))[:1]))


def business_key_of(definition: WorkflowDefinition, tenant: str, values: Mapping[str, Any]) -> str | None:
    """The text that two workflows of the same business share: type, tenant, and the normalised fields of
    `business_key`.

    `values` are by field. None without a business key, or if a field is missing, empty or of another kind; such a
    workflow is compared with no other.
    """
    readings = [key_of(definition, field).read(values.get(field)) for field in definition.business_key]
    if not readings or not all(readings):
        return None
    return "\0".join([definition.name, tenant, *(found[0] for found in readings)])  # no text contains NUL


def key_of(definition: WorkflowDefinition, field: str) -> SearchKey:
    """The search key of a field, or else one that reads it as plain text."""
    found = (key for key in definition.search_keys.values() if key.field == field)
    return next(found, SearchKey(field, normalise.plain))


def business_hashes(business_key: str) -> list[tuple[bytes, int]]:
    """The hashes of a business key under each of SEARCH_KEYS, with that key's id; the first one is for new rows."""
    return [(key.hash(BUSINESS_KEY, business_key), key.id) for key in keys()]


def hashes_to_find(kind: str, readings: Iterable[str]) -> list[bytes]:
    """The hashes of a text's readings under each of SEARCH_KEYS."""
    return [key.hash(kind, each) for key in keys() for each in readings]


@sensitive_variables("text", "readings")
def hashes_of_address(text: str) -> dict[bytes, int]:
    """The hashes of a text, with their keys' ids, as kinds that are looked up only by hash; none if it is no such kind.

    The first one is under the first of SEARCH_KEYS.
    """
    return _hashes(
        (kind, reading)
        for definition in definitions().values()
        for kind, each in definition.search_keys.items()
        if each.only_as_hash
        for reading in each.read(text)
    )


def hashes_of_addresses_in(definition: WorkflowDefinition, payload: Mapping[str, Any]) -> dict[bytes, int]:
    """Like `hashes_of_address`, for the fields of a payload."""
    return _hashes(
        (kind, reading)
        for kind, each in definition.search_keys.items()
        if each.only_as_hash
        for reading in each.read(value_at(payload, each.field))[:1]
    )


def _hashes(readings: Iterable[tuple[str, str]]) -> dict[bytes, int]:
    once = dict.fromkeys(readings)
    return {key.hash(kind, reading): key.id for key in keys() for kind, reading in once}
