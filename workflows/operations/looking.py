"""Looking: pages about a workflow, revealed values and exports are recorded before a user sees them."""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg.errors
from django.db import InternalError
from django.db.models.functions import Now

from workflows.definition import definitions, value_at
from workflows.errors import NotAllowed
from workflows.models import Access, Workflow
from workflows.operations.guards import (
    EXPORT,
    REVEAL,
    VIEW_AUDIT,
    require,
    require_reason,
    short_transaction,
    stated,
    why_emptied,
)

if TYPE_CHECKING:
    from django.contrib.auth.models import User

logger = logging.getLogger(__name__)

Kind = Access.Kind

# A page that stays open and updates itself gets a line of the audit so often.
STILL_OPEN = timedelta(minutes=15)


def record_view(workflow_id: int, *, actor: str, in_background: bool = False, api_key: str = "") -> None:
    """Record that a user, by name, is shown a page about a workflow.

    `api_key`: the name of their key, if a program has asked. `in_background`: the page updates itself. Both leave a
    record only so often. If the server is read-only during a failover, the log has the record instead, because the page
    shows no value in clear.
    """
    detail = {"key": api_key} if api_key else {}
    views = Access.objects.filter(workflow=workflow_id, kind=Kind.VIEWED, actor=actor)
    views = views.filter(detail=detail) if api_key else views
    if (in_background or api_key) and views.filter(at__gt=Now() - STILL_OPEN).exists():
        return
    try:
        Access.objects.create(actor=actor, kind=Kind.VIEWED, workflow_id=workflow_id, detail=detail)
    except InternalError as error:
        if not isinstance(error.__cause__, psycopg.errors.ReadOnlySqlTransaction):
            raise
        logger.warning("workflow %s: %s has opened its page, while the database is read-only", workflow_id, actor)


def record_export(user: User, *, chosen: str, workflow_id: int | None = None) -> None:
    """Record which part of the audit a user exports, and of which workflow, before they get it."""
    require(user, VIEW_AUDIT)
    Access.objects.create(
        actor=user.get_username(), kind=Kind.EXPORTED, workflow_id=workflow_id, detail={"chosen": chosen}
    )


def record_list(user: User, *, chosen: str) -> None:
    """Record which list of workflows a user exports, before they get it."""
    require(user, EXPORT)
    Access.objects.create(actor=user.get_username(), kind=Kind.LISTED, detail={"chosen": chosen})


def revealable(workflow: Workflow) -> tuple[str, ...]:
    """The fields of its payload that can be revealed."""
    definition = definitions().get(workflow.workflow_type)
    return definition.revealable if definition else ()


def reveal(workflow_id: int, *, user: User, fields: Collection[str], reason: str) -> dict[str, Any]:
    """The values of these fields of a workflow's payload, in clear. The record is committed before they are read.

    `reason` is the purpose. Raises NotAllowed for a field that the definition does not call revealable.
    """
    require_reveal(user, reason)
    workflow = Workflow.objects.only("workflow_type", "emptied_at").filter(pk=workflow_id).first()
    if workflow and (refusal := why_emptied(workflow)):
        raise NotAllowed(refusal)
    known = revealable(workflow) if workflow else ()
    if not fields or not {*fields} <= {*known}:
        raise NotAllowed("These values are not revealed to anybody.")
    asked = [field for field in known if field in fields]
    record_reveal(workflow_id, user=user, fields=asked, reason=reason)
    payload = Workflow.objects.values_list("payload", flat=True).get(pk=workflow_id)
    return {field: value_at(payload, field) for field in asked}


def require_reveal(user: User, reason: str) -> None:
    """Raise PermissionDenied or NotAllowed unless the user may see values in clear, and gives a purpose."""
    require(user, REVEAL)
    require_reason(reason, "what is revealed")


def record_reveal(workflow_id: int, *, user: User, fields: Collection[str], reason: str) -> None:
    """Record that these fields of a workflow are shown to a user, before they are. Call `require_reveal` first."""
    detail = {"fields": [*fields], "purpose": stated(reason)}
    with short_transaction():
        Access.objects.create(actor=user.get_username(), kind=Kind.REVEALED, workflow_id=workflow_id, detail=detail)
