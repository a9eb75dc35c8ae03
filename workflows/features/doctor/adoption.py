"""ADOPTION: write calls that the ledger has lost back on it, so that the next attempt looks them up first."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from datetime import datetime

from workflows.definition import definitions
from workflows.features.doctor.comparison import Difference
from workflows.models import Effect, Workflow

LOST = "The ledger had lost this call, and the service has performed it."


def adopt(calls: Collection[Difference]) -> set[str]:
    """Write each of these NOT_ON_LEDGER calls as UNKNOWN, with the service's time; return their keys.

    Calls whose reversal is lost, too, are left to people: the workflow would rely on what was given back. No worker may
    run meanwhile. A worker that begins the same call loses its claim (`effect_unique_call`) and starts again.
    """
    lost = {each.key: each for each in calls}
    undone = {key.removesuffix(":undo") for key in lost if key.endswith(":undo")}
    adopted = set()
    for key, call in lost.items():
        if key not in undone and not key.endswith(":undo") and _is_adopted(call):
            adopted.add(key)
    return adopted


def _is_adopted(call: Difference) -> bool:
    name, _, generation = call.key.removeprefix(f"{call.submission}:").partition(":")
    workflow = Workflow.objects.only("created_at").get(idempotency_key=call.submission)
    at = workflow.created_at
    with suppress(ValueError):
        at = max(at, datetime.fromisoformat(call.at))
    effect = Effect(
        workflow=workflow,
        step=name,
        generation=int(generation or 1),
        state=Effect.State.UNKNOWN,
        idempotency_key=call.key,
        attempt=0,  # none that the database knows
        first_begun_at=at,
        begun_at=at,
        has_undo=definitions()[call.workflow_type].find_or_removed_step(name).undo is not None,
        error_message=LOST,
    )
    return bool(Effect.objects.bulk_create([effect], ignore_conflicts=True))
