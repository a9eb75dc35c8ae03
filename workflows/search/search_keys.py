"""SEARCH KEYS: by what people find the workflow of a patient whom they know, and whose number they do not.

A definition names fields of its payload. The statement that stores the row stores a hash of each beside it: HMAC-SHA256
of the kind and the normalised value, under a key that the database does not have (docs/adr/0014). It is cut to 16
bytes: two of ten billion values are equal with a chance of one in 10^19, which would show a workflow too many in a
list.
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

from workflows.definition import WorkflowDefinition, definitions, value_at
from workflows.sealing.envelopes import FROM_SECRET_KEY
from workflows.search import normalise

logger = logging.getLogger(__name__)

HASH_BYTES = 16
# Characters. An e-mail address has 254 at most; what is longer is not a search key, and is not even looked at.
LONGEST_TEXT = 320

# What the hashes of business keys are of, beside the kinds of search keys: no kind has a blank in it.
BUSINESS_KEY = "business key"


@dataclass(frozen=True, slots=True)
class SearchKey:
    """A field of the payload by which people find a workflow; its kind is its name in the definition.

    `field` is dotted for a nested one. `normalise` returns what a text may mean, the likeliest first, and nothing for
    what is not of this kind (see `search.normalise`): the first is stored, each is looked for. A kind means the same in
    each definition. `label` is for people ("e-mail address"). `only_as_hash`: what reads as one is looked up by its
    hash alone, and not as a business key, so that the database, which may log parameters, never gets it.
    """

    field: str
    normalise: Callable[[str], Sequence[str]]
    label: str = ""
    only_as_hash: bool = False

    @property
    def path(self) -> list[str]:
        return self.field.split(".")

    def read(self, value: Any) -> Sequence[str]:
        """What a value may mean. Nothing for what is not text, or where its author's code fails: no row is refused."""
        if not isinstance(value, str) or len(value) > LONGEST_TEXT:
            return []
        try:
            return self.normalise(value)
        except Exception as error:  # its message may hold the value
            logger.warning("The search key %s cannot be normalised: %s", self.field, type(error).__name__)
            return []


class Key(NamedTuple):
    """A secret that hashes are made with. `id` is stored with each hash, and only tells the keys apart."""

    secret: bytes
    id: int

    def hash(self, kind: str, normalised: str) -> bytes:
        message = f"{kind}\0{normalised}".encode("utf-8", "surrogatepass")
        return hmac.digest(self.secret, message, "sha256")[:HASH_BYTES]


def keys() -> list[Key]:
    """The keys of the setting SEARCH_KEYS: the first one writes, all are searched."""
    return _keys(tuple(settings.SEARCH_KEYS) or (FROM_SECRET_KEY,), settings.SECRET_KEY)


@lru_cache
def _keys(texts: tuple[str, ...], secret_key: str) -> list[Key]:
    made = hmac.digest(secret_key.encode(), b"workflows.search_keys", "sha256")
    secrets = [made if text == FROM_SECRET_KEY else text.encode() for text in texts]
    return [Key(each, int.from_bytes(hmac.digest(each, b"id", "sha256")[:4], signed=True)) for each in secrets]


def hashes_to_store(search_keys: Mapping[str, SearchKey], values: Mapping[str, Any]) -> list[bytes]:
    """The hashes, under the key that writes, of a workflow's values by kind. In one order, to avoid deadlocks."""
    if not search_keys:
        return []
    key = keys()[0]
    readings = {kind: each.read(values.get(kind)) for kind, each in search_keys.items()}
    return sorted({key.hash(kind, found[0]) for kind, found in readings.items() if found})


def hashes_of(definition: WorkflowDefinition, payload: Mapping[str, Any]) -> list[bytes]:
    """The hashes of the fields that a definition names; none of what is missing, or is not of its kind."""
    values = {kind: value_at(payload, key.field) for kind, key in definition.search_keys.items()}
    return hashes_to_store(definition.search_keys, values)


def hashes_under_each_key(definition: WorkflowDefinition, payload: Mapping[str, Any]) -> list[bytes]:
    """The same under each of SEARCH_KEYS."""
    known = definition.search_keys.items()
    return list(_hashes((kind, found) for kind, key in known for found in key.read(value_at(payload, key.field))[:1]))


def business_key_of(definition: WorkflowDefinition, tenant: str, values: Mapping[str, Any]) -> str | None:
    """What makes two workflows the same business: type, tenant, and the fields of `business_key`, normalised.

    `values` are by field. None without a business key, or where one of the fields is missing, empty or not of its kind:
    such a workflow is compared with no other.
    """
    readings = [key_of(definition, field).read(values.get(field)) for field in definition.business_key]
    if not readings or not all(readings):
        return None
    return "\0".join([definition.name, tenant, *(found[0] for found in readings)])  # no text has a NUL


def key_of(definition: WorkflowDefinition, field: str) -> SearchKey:
    """How a field is read: as the search key of that field, else as plain text."""
    found = (key for key in definition.search_keys.values() if key.field == field)
    return next(found, SearchKey(field, normalise.plain))


def business_hashes(business_key: str) -> list[tuple[bytes, int]]:
    """The hashes of a business key under each key, with that key's id; first the one that writes."""
    return [(key.hash(BUSINESS_KEY, business_key), key.id) for key in keys()]


def hashes_to_find(kind: str, readings: Iterable[str]) -> list[bytes]:
    """The hashes under each key of what a text may mean."""
    return [key.hash(kind, each) for key in keys() for each in readings]


@sensitive_variables("text", "readings")
def hashes_of_address(text: str) -> dict[bytes, int]:
    """The hashes, each with its key's id, of what is looked up by its hash alone; none if the text is nothing of that.

    The first one is under the key that writes.
    """
    return _hashes(
        (kind, reading)
        for definition in definitions().values()
        for kind, each in definition.search_keys.items()
        if each.only_as_hash
        for reading in each.read(text)
    )


def hashes_of_addresses_in(definition: WorkflowDefinition, payload: Mapping[str, Any]) -> dict[bytes, int]:
    """The same of what a payload has of that kind."""
    return _hashes(
        (kind, reading)
        for kind, each in definition.search_keys.items()
        if each.only_as_hash
        for reading in each.read(value_at(payload, each.field))[:1]
    )


def _hashes(readings: Iterable[tuple[str, str]]) -> dict[bytes, int]:
    once = dict.fromkeys(readings)
    return {key.hash(kind, reading): key.id for key in keys() for kind, reading in once}
