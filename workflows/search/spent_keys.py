"""SPENT KEYS: they replace the business key of an emptied workflow (`features.retention`)."""

from __future__ import annotations

from uuid import UUID

from workflows.search import search_keys


def spent_key(workflow_type: str, tenant: str, business_key: str) -> str:
    """Replaces the business key of an emptied workflow: a sender who knows the key finds it, but nobody can read it."""
    return _spent(search_keys.keys()[0], workflow_type, tenant, business_key)


def spent_keys(workflow_type: str, tenant: str, business_key: str) -> list[str]:
    """The spent keys under each of SEARCH_KEYS, for a lookup."""
    return [_spent(key, workflow_type, tenant, business_key) for key in search_keys.keys()]  # noqa: SIM118 (a function)


def _spent(key: search_keys.Key, workflow_type: str, tenant: str, business_key: str) -> str:
    return str(UUID(bytes=key.hash("spent", "\0".join([workflow_type, tenant, business_key]))))
