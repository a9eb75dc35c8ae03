"""FIND: the workflows that a person means by an e-mail address, a number or a key, typed in full.

The text is read in every possible way, and each reading is looked up by its own index. The text never appears in a
statement's text, a log message or an error; for an e-mail address the server gets only the hash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.views.decorators.debug import sensitive_variables

from workflows.definition import WorkflowDefinition, definitions, value_at
from workflows.models import Search
from workflows.postgres.statements import fetch_all
from workflows.search.search_keys import hashes_to_find

# Nobody reads further; and an e-mail address of our own tests may have a million submissions.
SHOWN = 50
# How many other submissions of the same patient the page of one shows.
OTHERS_SHOWN = 5
# Characters. No key of any kind is longer.
LONGEST = 500

NUMBER, IDEMPOTENCY_KEY, BUSINESS_KEY, LINKING_ID = "number", "idempotency key", "business key", "linking id"
REQUEST_ID = "request id"

_NUMBER = re.compile(r"#?\s*([0-9]{1,18})")
_PAGE = re.compile(r".*/workflows/workflow/([0-9]{1,18})(?:/.*)?")

# The newest workflows for each hash, from the end of its index entries, without reading the others.
_BY_HASH = """
    SELECT workflow_id, wanted.hash FROM unnest(%(hashes)s::bytea[]) AS wanted (hash) CROSS JOIN LATERAL (
           SELECT workflow_id FROM workflows_searchkey
            WHERE workflows_searchkey.hash = wanted.hash ORDER BY workflow_id DESC LIMIT %(limit)s) AS found
"""
# Refused submissions; settled ones only by their idempotency key.
_REFUSED = """
    SELECT id FROM (SELECT id FROM workflows_undeliveredmessage WHERE hashes && %(hashes)s::bytea[]
                     UNION SELECT id FROM workflows_undeliveredmessage WHERE idempotency_key = %(key)s::uuid) AS found
     ORDER BY id DESC LIMIT %(limit)s
"""
# OFFSET 0 keeps the planner from reading the whole table backwards for a missing value.
_BY = """
    SELECT id FROM (SELECT id FROM workflows_workflow WHERE {column} = %(value)s OFFSET 0) AS found
     ORDER BY id DESC LIMIT %(limit)s
"""
_THESE = """
    SELECT id FROM workflows_workflow WHERE id = ANY (%(found)s::bigint[]) ORDER BY id DESC LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class Found:
    """The ids of the workflows found, newest first; whether there are `more`; `tried`: the readings, in words.

    `by`: the readings that found each; a family may share a phone. `refused`: the ids of refused submissions that
    match, newest first.
    """

    ids: Sequence[int]
    tried: Sequence[str]
    more: bool = False
    by: Mapping[int, Sequence[str]] = field(default_factory=dict)
    refused: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a text may be: its kind, the kind's name for people, and the query that looks it up."""

    kind: str
    label: str
    sql: str
    parameters: Mapping[str, Any]


@sensitive_variables()
def find(text: str, *, actor: str, api_key: str = "") -> Found:
    """The workflows that a text means. The search is recorded before anybody sees the result.

    `actor` is a user's name; `api_key` the name of their key, if a program has asked.
    """
    readings = list(_readings(text.strip()))
    by: dict[int, list[str]] = {}
    for each in readings:  # of each definition: several have an e-mail address
        for pk in {pk for pk, *_ in fetch_all(each.sql, {**each.parameters, "limit": SHOWN + 1})}:
            by.setdefault(pk, []).append(each.label)
    by = {pk: list(dict.fromkeys(labels)) for pk, labels in by.items()}
    found = [pk for (pk,) in fetch_all(_THESE, {"found": list(by), "limit": SHOWN + 1})] if by else []
    refused = _refused(readings)
    hits = len(found) + len(refused)
    tried = list(dict.fromkeys(each.kind for each in readings))
    Search.objects.create(actor=actor, api_key=api_key, tried=tried, hits=hits)
    labels = list(dict.fromkeys(each.label for each in readings))
    return Found(found[:SHOWN], labels, more=len(found) > SHOWN, by=by, refused=refused)


def _refused(readings: Sequence[_Reading]) -> list[int]:
    hashes = [each for reading in readings for each in reading.parameters.get("hashes", ())]
    key = next((reading.parameters["value"] for reading in readings if reading.kind == IDEMPOTENCY_KEY), None)
    if not hashes and key is None:
        return []
    return [pk for (pk,) in fetch_all(_REFUSED, {"hashes": hashes, "key": key, "limit": SHOWN})]


@sensitive_variables()
def others_of(
    workflow_id: int, definition: WorkflowDefinition | None, payload: Mapping[str, Any], *, shown: int = OTHERS_SHOWN
) -> Found:
    """The other workflows that share a search key with this one (usually of the same patient), newest first.

    `tried` are this workflow's keys. It is not recorded as a search, because people see it on the workflow's page.
    """
    known = definition.search_keys if definition else {}
    readings = {kind: key.read(value_at(payload, key.field)) for kind, key in known.items()}
    labels = {
        each: known[kind].label or kind for kind, found in readings.items() for each in hashes_to_find(kind, found[:1])
    }
    limit = shown + 2  # this workflow, and one more than is shown
    by: dict[int, list[str]] = {}
    for pk, hash_ in fetch_all(_BY_HASH, {"hashes": list(labels), "limit": limit}) if labels else ():
        by.setdefault(pk, []).append(labels[bytes(hash_)])
    by = {pk: list(dict.fromkeys(found_by)) for pk, found_by in by.items()}  # while a hash is by two keys
    newest = sorted(by.keys() - {workflow_id}, reverse=True)
    tried = [known[kind].label or kind for kind, found in readings.items() if found]
    return Found(newest[:shown], tried, more=len(newest) > shown, by=by)


def what_is_found() -> list[str]:
    """What people can search for besides a workflow's number, in words."""
    labels = {kind: key.label or kind for known in definitions().values() for kind, key in known.search_keys.items()}
    return [*labels.values(), IDEMPOTENCY_KEY, BUSINESS_KEY, LINKING_ID, REQUEST_ID]


@sensitive_variables()
def _readings(text: str) -> Iterator[_Reading]:
    if not text or len(text) > LONGEST or "\x00" in text:  # PostgreSQL stores no text with NUL
        return
    only_as_hash = False
    for known in definitions().values():
        for kind, key in known.search_keys.items():
            if readings := key.read(text):
                yield _Reading(kind, key.label or kind, _BY_HASH, {"hashes": hashes_to_find(kind, readings)})
                only_as_hash |= key.only_as_hash
    if only_as_hash:
        return
    by = partial(_by, text)
    if number := _NUMBER.fullmatch(text) or _PAGE.fullmatch(_path(text)):
        yield by(NUMBER, "id", int(number[1]))
    if uuid := _uuid(text) or _uuid(text.partition(":")[0]):  # of the workflow, or of one of its calls
        yield by(IDEMPOTENCY_KEY, "idempotency_key", uuid)
    if len(text) <= 200:
        yield by(BUSINESS_KEY, "business_key")
        yield by(LINKING_ID, "linking_id")
        yield by(REQUEST_ID, "given_request_id")


def _by(text: str, kind: str, column: str, value: Any = None) -> _Reading:
    return _Reading(kind, kind, _BY.format(column=column), {"value": text if value is None else value})


def _path(text: str) -> str:
    """The path of a pasted address; empty if the text is not an address."""
    try:
        return urlsplit(text).path
    except ValueError:
        return ""


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
