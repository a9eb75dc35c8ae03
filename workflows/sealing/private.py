"""PRIVATE: what a private workflow holds is sealed under a key of its own (ADR 34).

The key is a row of `workflows_contentkey`, wrapped by DATA_KEYS. Emptying and erasing delete it: what stands in
backups, replicas and WAL cannot be read from then on. A workflow is private if it was stored so, whatever its
definition says today. Signals, and messages that were not delivered, have keys of their own: nobody knows yet whose.

A sealed value is `{"(sealed)": "<row>:<place>:<nonce and ciphertext>"}`. Beside that stands, in clear, what is kept of
its money after it is emptied. Secret fields stay sealed within.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from uuid import UUID, uuid4

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.db import DEFAULT_DB_ALIAS

from workflows.definition import WorkflowDefinition, definitions, money_in, value_at
from workflows.models import ContentKey, Workflow
from workflows.models.content_key import Unopened, openers
from workflows.postgres.jsonb import SEALED, Document, are_equal, exact
from workflows.postgres.round_trips import session_of
from workflows.postgres.statements import fetch_one
from workflows.sealing import envelopes, payloads
from workflows.sealing.envelopes import KeyLacking, Unreadable

# What the key is called where a secret has its field.
FIELD = "(content key)"
_NONCE_BYTES = 12

PAYLOAD, CONTEXT, RESULT, FACTS, EVENT = "payload", "context", "result", "facts", "event"
SIGNAL, MESSAGE = "signal", "message"

# Of the rows `gone`, whose column is sealed under keys of their own, the keys.
DELETE_KEYS_OF_GONE = f"""
    DELETE FROM workflows_contentkey k USING gone
     WHERE k.idempotency_key = split_part(gone.{{column}} ->> '{SEALED}', ':', 1)::uuid"""  # noqa: S608 (ours)

# And the key of what a statement has `entered` under a key of its own: with `Key.parameters`.
KEY_OF_ENTERED = """,
        keyed AS (
            INSERT INTO workflows_contentkey (idempotency_key, wrapped)
            SELECT %(row)s::uuid, %(wrapped)s FROM entered)"""

_FIND = "SELECT wrapped FROM workflows_contentkey WHERE idempotency_key = %(row)s"


class KeyDeleted(Unreadable):
    """Its key is deleted, and so it is for good."""

    def __init__(self) -> None:
        super().__init__("The key of this workflow is deleted.")


@dataclass(frozen=True, slots=True)
class Key:
    """The key of one workflow, which has this idempotency key, or of one signal."""

    row: UUID
    wrapped: str = field(repr=False)
    _cipher: AESGCM = field(repr=False)

    @property
    def parameters(self) -> dict[str, Any]:
        return {"row": self.row, "wrapped": self.wrapped}

    @classmethod
    def new(cls, row: UUID) -> Key:
        secret = os.urandom(32)
        return cls(row, envelopes.seal(b64encode(secret).decode(), row=row, field=FIELD), AESGCM(secret))

    @classmethod
    def of(cls, row: UUID, wrapped: str | None) -> Key:
        """Raises Unreadable."""
        if wrapped is None:
            raise KeyDeleted
        try:
            return cls(row, wrapped, AESGCM(b64decode(envelopes.unseal(wrapped, row=row, field=FIELD))))
        except ValueError:
            raise Unreadable("What is stored as the key of this workflow is none.") from None

    def seal(self, place: str, text: str, beside: Mapping[str, Any] | None = None) -> str:
        """The JSON to store for this JSON. `beside` it stands in clear."""
        nonce, about = os.urandom(_NONCE_BYTES), _about(self.row, place)
        sealed = b64encode(nonce + self._cipher.encrypt(nonce, text.encode(), about)).decode()
        return json.dumps({**(beside or {}), SEALED: f"{self.row}:{place}:{sealed}"})

    def seal_payload(self, definition: WorkflowDefinition | None, text: str) -> str:
        return self.seal(PAYLOAD, text, money_in(definition, json.loads(text)))

    def seal_result(self, definition: WorkflowDefinition, result: Mapping[str, Any]) -> str:
        """What a call has returned, with what names its charge or refund in clear; null if it has none."""
        money = definition.wording.money
        named = {name: result.get(name) for name in (money.reference, money.refund)} if money else {}
        return self.seal(RESULT, json.dumps(result), named)

    def open(self, envelope: str, at: str = "") -> str:
        """The JSON in an envelope of this workflow, that was sealed for the place `at`. Raises Unreadable."""
        row, place, sealed = _parts(envelope)
        if at in ("", place):
            try:
                data = b64decode(sealed)
                return self._cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _about(row, place)).decode()
            except (InvalidTag, ValueError):
                pass
        raise Unreadable("What is stored was changed, or is another row's.")


def is_sealed(stored: Any) -> bool:
    return isinstance(stored, dict) and SEALED in stored


# --- The intake ---------------------------------------------------------------------------------------


def seal_document(definition: WorkflowDefinition, payload: Document, row: UUID) -> tuple[Document, Key | None]:
    """A submission as it is stored, and the key that is stored with it if it is private."""
    sealed = payloads.seal_document(definition, payload, row)
    if not definition.private:
        return sealed, None
    key = Key.new(row)
    text = key.seal(PAYLOAD, payloads.text_of(sealed), money_in(definition, payload.value))
    return Document(text, payload.value), key


def in_clear(payload: Document, key: Key | None) -> Document:
    """A document that `seal_document` has sealed, to be compared: its secrets stay sealed."""
    return Document(key.open(json.loads(payload.text)[SEALED]), payload.value) if key else payload


def is_same(
    definition: WorkflowDefinition, envelope: str, wrapped: str | None, row: UUID, sent: str, sent_as: UUID
) -> bool:
    """Whether the stored payload, and the one that is sent again, are equal. Raises Unreadable.

    One that nobody can open cannot be compared, as one that was emptied: to take it for the same charges nobody twice.
    """
    try:
        both = [Key.of(row, wrapped).open(envelope, PAYLOAD), sent]
    except KeyLacking:  # another process may have it
        raise
    except Unreadable:  # for good: an error would come again each time, and a queue would wait behind it for ever
        return True
    if not are_equal(*(payloads.without_secrets(definition, exact(text)) for text in both)):
        return False
    stored, again = ([value_at(json.loads(text), each) for each in definition.secret_fields] for text in both)
    return payloads.are_same(definition, stored, row, again, sent_as)


def is_on() -> bool:
    """Whether a definition of this release is private."""
    return any(definition.private for definition in definitions().values())


# --- Signals ------------------------------------------------------------------------------------------


def matched_fields() -> frozenset[str]:
    """The fields of signals that waits of any definition match."""
    return frozenset(name for definition in definitions().values() for name in definition.matched_fields)


def seal_signal(payload: Document, workflow_id: int | None, clear: Collection[str] = ()) -> tuple[Document, Key | None]:
    """A signal's payload as it is stored, and the key that is stored with it.

    Sealed is one to a private workflow, and of a linking id any, where a definition is private: but for what waits
    match, and the fields `clear`. With nothing else it needs no key.
    """
    if not is_on() or payload.value.keys() <= set(clear):
        return payload, None
    matched: Collection[str]
    if workflow_id is None:
        matched = matched_fields()
    else:
        sql = f"SELECT workflow_type, payload ? '{SEALED}' FROM workflows_workflow WHERE id = %s"  # noqa: S608 (ours)
        workflow_type, is_private = fetch_one(sql, [workflow_id]) or ("", False)
        if not is_private:
            return payload, None
        definition = definitions().get(workflow_type)
        matched = definition.matched_fields if definition else ()
    beside = {name: value for name, value in payload.value.items() if name in matched or name in clear}
    if len(beside) == len(payload.value):
        return payload, None
    key = Key.new(uuid4())
    return Document(key.seal(SIGNAL, payloads.text_of(payload), beside), payload.value), key


def says(envelope: str, payload: Document) -> bool:
    """Whether a signal, as it is stored, has this payload; so has one that nobody can open, as in `is_same`.

    Raises KeyLacking: another process may have the key.
    """
    try:
        text = find_key(_parts(envelope)[0]).open(envelope, SIGNAL)
    except KeyLacking:
        raise
    except Unreadable:
        return True
    return are_equal(exact(text), exact(payloads.text_of(payload)))


# --- Whoever reads it ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Content:
    """Of a private workflow that a worker has claimed: its key, and the payload as it was stored, opened."""

    key: Key
    payload: str = field(repr=False)

    def without_secrets(self, definition: WorkflowDefinition) -> str:
        """The payload to store when no step needs its secrets any more."""
        text = self.payload
        for name, stored in payloads.secrets_of(definition, json.loads(text), self.key.row):
            emptied = stored[: envelopes.EMPTIED_LENGTH] if envelopes.is_envelope(stored) else envelopes.PREFIX
            text = payloads.with_value(text, name, emptied)
        return self.key.seal_payload(definition, text)


def open_for_steps(workflow: Workflow) -> Content | None:
    """Put the payload and the context of a claimed workflow in clear, in memory; None if it is not private.

    Raises Unreadable, and leaves both as they are.
    """
    if not is_sealed(workflow.payload):
        return None
    rows = session_of().run(_FIND, {"row": workflow.idempotency_key})
    key = Key.of(workflow.idempotency_key, rows[0][0] if rows else None)
    payload = key.open(workflow.payload[SEALED], PAYLOAD)
    if is_sealed(workflow.context):  # one that has waited has the copy of its last attempt
        workflow.context = json.loads(key.open(workflow.context[SEALED], CONTEXT))
    workflow.payload = json.loads(payload)
    return Content(key, payload)


def opened(stored: dict[str, Any], using: str = DEFAULT_DB_ALIAS, *, key: Key | None = None) -> Any:
    """A sealed value in clear; `Unopened` if it does not open. Without the workflow's key it takes a statement."""
    try:
        return json.loads((key or find_key(_parts(stored[SEALED])[0], using)).open(stored[SEALED]))
    except Unreadable as unreadable:
        return Unopened(stored, unreadable)


def opened_or_deleted(stored: dict[str, Any]) -> dict[str, Any]:
    """The same; empty if its key is deleted. Raises Unreadable for another reason."""
    read: dict[str, Any] = opened(stored)
    if isinstance(read, Unopened) and not isinstance(read.why, KeyDeleted):
        raise read.why
    return read


# The keys that are read together, once one of them is needed.
_together: ContextVar[Callable[[], dict[UUID, str]]] = ContextVar("_together", default=dict)


def find_key(row: UUID, using: str = DEFAULT_DB_ALIAS) -> Key:
    """The key of a workflow. Raises Unreadable."""
    alone = ContentKey.objects.using(using).filter(pk=row).values_list("wrapped", flat=True)
    return Key.of(row, _together.get()().get(row) or alone.first())


@contextmanager
def keys_together(ids: Collection[int]) -> Iterator[None]:
    """For a page of several: the keys of these workflows are read by one statement, when the first is needed."""
    rows = Workflow.objects.filter(pk__in=ids).values("idempotency_key")
    keys = ContentKey.objects.filter(pk__in=rows).values_list("pk", "wrapped")
    token = _together.set(cache(lambda: dict(keys)))
    try:
        yield
    finally:
        _together.reset(token)


def _parts(envelope: Any) -> tuple[UUID, str, str]:
    row, _, rest = str(envelope).partition(":")
    place, _, sealed = rest.partition(":")
    try:
        return UUID(row), place, sealed
    except ValueError:
        raise Unreadable("What is stored is not an envelope.") from None


def _about(row: UUID, place: str) -> bytes:
    return row.bytes + place.encode()


openers[:] = [opened]
