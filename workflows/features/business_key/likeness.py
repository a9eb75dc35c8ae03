"""LIKENESS of two submissions of one business key: the person, the key, and the fields that differ."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Set
from enum import Enum
from typing import Any

from workflows.definition import WorkflowDefinition, value_at
from workflows.search.search_keys import business_key_of, key_of
from workflows.wording import plain

Payload = Mapping[str, Any]

# At most so many fields are named to a person. The sender chooses the names, so only those like identifiers are shown.
_NAMED = 10
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]{0,39}")


class Person(Enum):
    """Whether two payloads are about one person, by the definition's `same_person`."""

    SAME = "the same person"
    UNSURE = "perhaps the same person"
    ANOTHER = "another person"


def compare_people(definition: WorkflowDefinition, own: Payload, other: Payload) -> Person:
    """ANOTHER only if every field is in both payloads and differs; UNSURE if one differs or is missing.

    A difference in a single field proves nothing: it may be a typo.
    """
    pairs = [(_read(definition, own, field), _read(definition, other, field)) for field in definition.same_person]
    if all(mine and mine == theirs for mine, theirs in pairs):
        return Person.SAME
    all_differ = len(pairs) > 1 and all(mine and theirs and mine != theirs for mine, theirs in pairs)
    return Person.ANOTHER if all_differ else Person.UNSURE


def has_key(definition: WorkflowDefinition, payload: Payload) -> bool:
    """Whether a payload can be compared at all: an emptied one cannot."""
    return _key(definition, payload) is not None


def has_other_key(definition: WorkflowDefinition, own: Payload, other: Payload) -> bool:
    """Whether the payloads have different business keys by now: one was corrected or emptied."""
    return _key(definition, own) != _key(definition, other)


def differing_fields(definition: WorkflowDefinition, own: Payload, other: Payload) -> list[str]:
    """The labels of the fields in which two payloads differ, without secret fields. Never returns a value."""
    secret = {tuple(field.split(".")) for field in definition.secret_fields}
    mine, theirs = (dict(_leaves(payload, secret)) for payload in (own, other))
    alike = {
        tuple(field.split("."))
        for field in (*definition.business_key, *definition.same_person)
        if _read(definition, own, field) == _read(definition, other, field) != ""
    }
    paths = [path for path in {**mine, **theirs} if mine.get(path) != theirs.get(path) and path not in alike]
    named = sorted({_label(definition, path) for path in paths})
    return [*named[:_NAMED], *["more"] * (len(named) > _NAMED)]


def _read(definition: WorkflowDefinition, payload: Payload, field: str) -> str:
    """A field's value as its search key reads it, or as plain text; empty if it is missing."""
    return next(iter(key_of(definition, field).read(value_at(payload, field))), "")


def _key(definition: WorkflowDefinition, payload: Payload) -> str | None:
    return business_key_of(definition, "", {field: value_at(payload, field) for field in definition.business_key})


Path = tuple[str, ...]


def _leaves(value: Any, left_out: Set[Path], path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Each value that is not an object, as JSON. So 1, 1.0 and true count as three different values."""
    if path in left_out:
        return
    if not isinstance(value, Mapping) or not value:
        yield path, json.dumps(value, sort_keys=True)
        return
    for name, inner in value.items():
        yield from _leaves(inner, left_out, (*path, name))


def _label(definition: WorkflowDefinition, path: Path) -> str:
    known = next((field.label for field in definition.wording.caller if field.path == ".".join(path)), "")
    if known or not all(map(_IDENTIFIER.fullmatch, path)):
        return known or "A field whose name is not shown"
    return plain(path[-1]) if path else "Everything"
