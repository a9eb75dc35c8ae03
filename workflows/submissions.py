"""SUBMIT: start a workflow from Django code, in the caller's own transaction."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from django.core.exceptions import ImproperlyConfigured
from pydantic_core import to_json

from workflows import request_ids, trace_context
from workflows.definition import WorkflowDefinition, definitions
from workflows.intake.submissions import BusinessKeyTaken, InputInvalid, KeyReused, KeyTaken, new_key, start_here
from workflows.models import Workflow
from workflows.postgres.jsonb import as_json, document_of

__all__ = ["InputInvalid", "KeyConflict", "submit"]


class KeyConflict(ValueError):
    """The key already identifies other work. The message does not quote it, because it may name a person."""


def submit(
    definition: WorkflowDefinition,
    payload: Mapping[str, Any],
    *,
    key: str | UUID | None = None,
    tenant: str = "",
    run_after: datetime | None = None,
    headers: Mapping[str, str] | None = None,
) -> Workflow:
    """Store a workflow in the caller's transaction, and return its row: it starts when that commits, or not at all.

    - `payload` becomes JSON as pydantic writes it (a UUID or a date becomes a string). The definition's `input_class`
      checks it, and its `secret_fields` are sealed, as in `POST /v1/workflows`.
    - `key` identifies this piece of work among those of this definition and tenant: 1 to 200 characters, or a UUID. It
      is stored as the row's `business_key`. The same key and payload again return the row that is there; another
      payload raises KeyConflict. Without a key each call starts a workflow. The idempotency key is derived from `key`,
      so that work which is submitted again after a restore makes its calls under the same keys.
    - `run_after`: an aware time before which no worker starts it; a past one means now.
    - `headers`: those of the request (`request.headers`): the row keeps its request id and trace.

    The row belongs to no client of the API: no API key may read it or send it signals.

    Raises ImproperlyConfigured unless WORKFLOWS names the definition; KeyConflict; InputInvalid, which names fields but
    no values; and ValueError for what cannot be stored, and for a linking id, a search key or part of a business key
    that is an object or a list. None of them aborts the transaction. If another transaction has just stored the same
    key, the call waits for its end. Raises database errors as Django does.
    """
    if not isinstance(definition, WorkflowDefinition):
        raise TypeError(f"submit takes the definition itself, and not of type {type(definition).__name__}.")
    if definition.name not in definitions():
        raise ImproperlyConfigured(
            f"No worker knows {definition.name!r}: name its dotted path in the setting WORKFLOWS."
        )
    if key is not None and not (isinstance(key, str | UUID) and 0 < len(str(key)) <= 200):
        raise ValueError("A key is a text of 1 to 200 characters, or a UUID.")
    if not isinstance(tenant, str) or len(tenant) > 100:
        raise ValueError("A tenant is a text of up to 100 characters.")
    if run_after is not None and not (isinstance(run_after, datetime) and run_after.tzinfo):
        raise ValueError("run_after is a time with a time zone: see django.utils.timezone.")
    # Refuse what PostgreSQL cannot keep, in these as in the payload: its own refusal would abort the transaction.
    named = as_json({"key": key, "tenant": tenant})
    sent = headers or {}
    document = document_of(as_json(payload))
    if unfit := definition.unfit_fields(document.value):
        raise ValueError(
            f"A {definition.name} is found or compared by {', '.join(unfit)}: that is a text or a number, and not long."
        )
    try:
        entry = start_here(
            definition,
            tenant=tenant,
            business_key=named["key"],
            payload=document,
            idempotency_key=new_key() if key is None else _key_of(definition, tenant, named["key"]),
            request_id=request_ids.of(sent) if sent else request_ids.current.get(),
            traceparent=trace_context.to_store(sent),
            due=run_after,
        )
    except (BusinessKeyTaken, KeyReused, KeyTaken):
        raise KeyConflict(
            f"This key already identifies a {definition.name} with another payload, or one that a client of the API "
            "started. Use another key."
        ) from None
    row = Workflow.objects.with_state().filter(pk=entry.id).first()
    if row is None:
        raise KeyConflict(f"The {definition.name} with this key has ended and was deleted since. Use another key.")
    return row


def _key_of(definition: WorkflowDefinition, tenant: str, key: str) -> UUID:
    return uuid5(NAMESPACE_OID, to_json(["onramp", definition.name, tenant, key]).decode())
