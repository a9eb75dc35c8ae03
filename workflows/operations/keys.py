"""What people may do with API keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workflows.errors import NotAllowed
from workflows.ingress import api_keys
from workflows.models import ApiKey
from workflows.operations.guards import REVOKE, record_for, require, short_transaction

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def revoke(api_key_id: int, *, user: User, reason: str = "") -> None:
    """Revoke an API key for good. Submissions that were sent with it stay."""
    require(user, REVOKE)
    with short_transaction():
        key = ApiKey.objects.filter(pk=api_key_id).first()
        if key is None:
            raise NotAllowed("There is no such API key.")
        if not api_keys.revoke(key):
            raise NotAllowed("It is revoked already.")
        record_for(key, user, "Revoked", reason)
