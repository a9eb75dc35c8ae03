"""The body of a signal from outside, in the one form that webhooks, the API and Kafka share.

{"name": "account.created", "linking_id": "L-1", "payload": {...}} {"name": "account.created", "workflow": "<the
submission's idempotency key>", "payload": {...}}
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import UUID

from workflows.postgres import jsonb
from workflows.postgres.jsonb import Document, InputRefused, document_of
from workflows.postgres.statements import fetch_one
from workflows.signals.store import is_name

ADDRESS_FIELDS = ("linking_id", "workflow")
MAX_BYTES = 256 * 1024

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class UnsupportedMediaType(InputRefused):
    """The content has a type that is not accepted."""

    def __init__(self, message: str) -> None:
        super().__init__("unsupported_media_type", message)


class NoSuchWorkflow(InputRefused):
    """No workflow has the key that was sent."""

    def __init__(self) -> None:
        super().__init__("workflow_not_found", "There is no workflow with this key.")


@dataclass(frozen=True, slots=True)
class SignalBody:
    """A signal's name, its address (either a linking id or a workflow's idempotency key) and its payload."""

    name: str
    linking_id: str | None
    workflow: UUID | None
    payload: Document

    def __repr__(self) -> str:
        return "<SignalBody>"


def parse(body: bytes) -> SignalBody:
    """Read a signal's body from bytes. Raises InputRefused."""
    if len(body) > MAX_BYTES:
        raise InputRefused("too_large", f"A body has at most {MAX_BYTES} bytes.")
    return read(jsonb.parse(body))


def read(body: Document) -> SignalBody:
    """Read a signal's body from JSON. `payload` may be left out. Raises InputRefused."""
    refuse_other_fields(body, "name", *ADDRESS_FIELDS, "payload")
    return SignalBody(name_of(body), *address_of(body), payload_of(body))


def refuse_other_fields(body: Document, *names: str) -> None:
    """Refuse unknown fields: a misspelt one would go unnoticed."""
    if not body.value.keys() <= set(names):
        raise InputRefused("field_unknown", f"The body has no fields but {', '.join(names)}.")


def name_of(body: Document) -> str:
    """A name that others may use. One of the engine's own names, such as `decision:1`, would answer a task."""
    name = body.value.get("name")
    if not isinstance(name, str) or not is_name(name):
        raise InputRefused(
            "signal_name_invalid",
            "A signal's name is 1 to 199 letters, digits and _.-/ with a letter, digit or _ first, and not `cancel`.",
        )
    return name


def payload_of(body: Document) -> Document:
    match body.value.get("payload"):
        case None:
            return document_of({})
        case dict():
            return body.part("payload")
        case _:
            raise InputRefused("signal_payload_invalid", "A signal's payload is an object.")


def text_of(body: Document, name: str, longest: int) -> str | None:
    """A text of 1 to `longest` characters; None when it is missing or null. Raises InputRefused for anything else."""
    text = body.value.get(name)
    if text is None or (isinstance(text, str) and 0 < len(text) <= longest):
        return text
    raise InputRefused(f"{name}_invalid", f"The {name} is a text of 1 to {longest} characters.")


def address_of(body: Document) -> tuple[str | None, UUID | None]:
    """Either the linking id or the workflow's key."""
    linking_id, workflow = (body.value.get(name) for name in ADDRESS_FIELDS)
    if (linking_id is None) == (workflow is None):
        raise InputRefused("signal_address_invalid", "Send either linking_id or workflow.")
    if workflow is None:
        return text_of(body, "linking_id", 200), None
    if not isinstance(workflow, str):
        raise InputRefused("signal_address_invalid", "The workflow is its key, a UUID.")
    if (key := uuid_of(workflow)) is None:
        raise NoSuchWorkflow
    return None, key


def uuid_of(text: str) -> UUID | None:
    """A UUID in the one form of RFC 9562. Python accepts many forms, and so several texts for one key."""
    return UUID(text) if _UUID.fullmatch(text) else None


def workflow_id_of(key: UUID | None) -> int:
    """The id of the workflow with this key. Raises NoSuchWorkflow."""
    row = fetch_one("SELECT id FROM workflows_workflow WHERE idempotency_key = %s", (key,)) if key else None
    if row is None:
        raise NoSuchWorkflow
    return int(row[0])
