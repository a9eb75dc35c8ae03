"""The secret fields of a payload: sealed before it is stored, opened for the steps, never shown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from typing import Any
from uuid import UUID

from pydantic_core import to_json

from workflows.definition import WorkflowDefinition, value_at
from workflows.models import Workflow
from workflows.postgres.jsonb import Document
from workflows.sealing import envelopes
from workflows.sealing.envelopes import EMPTIED, EMPTIED_LENGTH, PREFIX, Unreadable, is_envelope

_ESCAPED_ASCII = re.compile(r"\\u00[2-7]")
_decode = json.JSONDecoder().raw_decode
_SEALED = f'"{PREFIX}'.encode()  # the beginning of an envelope, in JSON


def seal_document(definition: WorkflowDefinition, payload: Document, row: UUID) -> Document:
    """The document to store: its text as sent, with all digits, but with sealed secrets; its value stays in clear."""
    if not definition.secret_fields:
        return payload
    text, key = payload.text, envelopes.keys()[0]
    names_are_plain = "\\u00" not in text or not _ESCAPED_ASCII.search(text)
    for field in definition.secret_fields:
        value = value_at(payload.value, field)
        if value is not None:
            start, end = (names_are_plain and _by_name(text, field)) or _by_path(
                text, [*payload.path, *field.split(".")]
            )
            text = f'{text[:start]}"{envelopes.seal(value, row=row, field=field, key=key)}"{text[end:]}'
    return Document(text, payload.value, payload.path)


def seal(definition: WorkflowDefinition, payload: Mapping[str, Any], row: UUID) -> dict[str, Any]:
    return _changed(definition, payload, lambda field, value: envelopes.seal(value, row=row, field=field))


def unseal(
    definition: WorkflowDefinition, payload: Mapping[str, Any], row: UUID, *, strict: bool = True
) -> dict[str, Any]:
    """The payload as it was sent. Raises Unreadable; unless `strict`, a secret that does not open looks emptied.

    Another release may have sealed fields that this one does not name: these are opened as well.
    """

    def open_(field: str, stored: Any) -> Any:
        try:
            return envelopes.unseal(stored, row=row, field=field)
        except Unreadable:
            if strict:
                raise
            return EMPTIED

    opened = _changed(definition, payload, open_)
    if _SEALED in to_json(opened):  # rarely; to search its values takes ten times as long
        for field, stored in _sealed_elsewhere(definition, payload, row):
            opened = _with(opened, field.split("."), envelopes.unseal(stored, row=row, field=field))
    return opened


def secrets_of(
    definition: WorkflowDefinition | None, payload: Mapping[str, Any], row: UUID
) -> Iterator[tuple[str, Any]]:
    """The stored secrets, by field: those that the definition names, and other sealed values."""
    for field in definition.secret_fields if definition else ():
        if (stored := value_at(payload, field)) is not None:
            yield field, stored
    yield from _sealed_elsewhere(definition, payload, row)


def _sealed_elsewhere(
    definition: WorkflowDefinition | None, payload: Mapping[str, Any], row: UUID
) -> Iterator[tuple[str, str]]:
    """The envelopes in fields that the definition does not name. A text that only looks like one does not open."""
    named = definition.secret_fields if definition else ()
    for field, stored in _envelopes_in(payload):
        if field not in named and not envelopes.is_emptied(stored):
            with suppress(Unreadable):
                envelopes.unseal(stored, row=row, field=field)
                yield field, stored


def _envelopes_in(payload: Mapping[str, Any], inside: str = "") -> Iterator[tuple[str, str]]:
    for name, value in payload.items():
        if isinstance(value, dict):
            yield from _envelopes_in(value, f"{inside}{name}.")
        elif is_envelope(value):
            yield f"{inside}{name}", value


def open_for_steps(definition: WorkflowDefinition, workflow: Workflow, *, strict: bool = True) -> None:
    """Open a workflow's secrets, in memory only. Raises Unreadable as `unseal` does."""
    workflow.payload = unseal(definition, workflow.payload, workflow.idempotency_key, strict=strict)


def secrets_sent(definition: WorkflowDefinition, payload: Document, row: UUID) -> list[Any]:
    """The secrets of a document that `seal_document` has returned for this row, opened, in the definition's order."""
    if not definition.secret_fields:
        return []
    value = json.loads(payload.text)
    for name in payload.path:
        value = value[name]
    return [envelopes.unseal(value_at(value, field), row=row, field=field) for field in definition.secret_fields]


def digests(secrets: Sequence[Any]) -> str:
    """A JSON list of the secrets' SHA-256, each of the text that PostgreSQL's `#>>` gives: for `workflows_compare`."""
    texts = [secret if isinstance(secret, str) else json.dumps(secret, ensure_ascii=False) for secret in secrets]
    return json.dumps([sha256(text.encode()).hexdigest() for text in texts])


def are_same(definition: WorkflowDefinition, sealed: Sequence[Any] | None, row: UUID, secrets: Sequence[Any]) -> bool:
    """Whether a row's sealed secrets have these values. What is not sealed there is compared already. Raises
    Unreadable.
    """
    return sealed is None or all(
        envelopes.is_same(here, secret, row=row, field=field)
        for field, here, secret in zip(definition.secret_fields, sealed, secrets, strict=True)
        if here is not None
    )


def without_secrets(definition: WorkflowDefinition, payload: Mapping[str, Any]) -> dict[str, Any]:
    """The payload as a step sees it after its secrets are emptied."""
    return _changed(definition, payload, lambda field, value: EMPTIED)


@cache
def emptied_sql(fields: tuple[str, ...]) -> str:
    """SQL for the column `payload` once no step needs these secrets any more."""
    payload = "payload"
    for path in (f"'{{{field.replace('.', ',')}}}'::text[]" for field in fields):
        stored = f"payload #>> {path}"
        payload = f"""jsonb_set({payload}, {path}, coalesce(to_jsonb(
            CASE WHEN starts_with({stored}, '{PREFIX}') THEN left({stored}, {EMPTIED_LENGTH})
                 WHEN {stored} IS NOT NULL THEN '{PREFIX}' END), 'null'), false)"""
    return payload


def _changed(
    definition: WorkflowDefinition, payload: Mapping[str, Any], change: Callable[[str, Any], Any]
) -> dict[str, Any]:
    changed = dict(payload)
    for field in definition.secret_fields:
        if (value := value_at(changed, field)) is not None:
            changed = _with(changed, field.split("."), change(field, value))
    return changed


def _with(payload: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    name, *rest = path
    return {**payload, name: _with(payload[name], rest, value) if rest else value}


def _by_name(text: str, field: str) -> tuple[int, int] | None:
    """Start and end of a present field's value, in a text without escaped names; None unless its name is there once.

    Reading the text again (`_by_path`) takes five times as long as parsing it.
    """
    name = _name_of(field)
    if (found := name.search(text)) is None or name.search(text, start := found.end()):
        return None
    return start, _decode(text, start)[1]


@cache
def _name_of(field: str) -> re.Pattern[str]:
    return re.compile(rf'"{re.escape(field.rpartition(".")[2])}"[ \t\n\r]*:[ \t\n\r]*')


def _by_path(text: str, path: Sequence[str]) -> tuple[int, int]:
    """Start and end of the value at this path, which exists in valid JSON."""
    at = end = _after_blank(text, 0)
    for name in path:
        found, at = None, at + 1
        while found != name:
            found, at = _decode(text, _after_blank(text, at))
            at = _after_blank(text, _after_blank(text, at) + 1)
            _, end = _decode(text, at)
            if found != name:
                at = _after_blank(text, end) + 1
    return at, end


def _after_blank(text: str, at: int) -> int:
    while text[at] in " \t\n\r":
        at += 1
    return at
