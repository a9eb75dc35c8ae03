"""How calls in doubt ended: which of the ways to find out what had become of a call were gone."""

from __future__ import annotations

from collections import Counter

from tests.acceptance.faults import definitions
from tests.acceptance.faults.harness import System
from workflows.definition import WorkflowDefinition
from workflows.models import Attempt, Effect

# The definition and the step of each call that is looked up, and never repeated while it is in doubt.
LOOKED_UP = {
    (each.name, step.identity)
    for each in vars(definitions).values()
    if isinstance(each, WorkflowDefinition)
    for step in each.steps
    if step.lookup
}


def how_doubts_ended(system: System) -> Counter[tuple[str, str]]:
    """Of each effect that an attempt told to be in doubt: the step, and how it was found out what had become of it."""
    ways: Counter[tuple[str, str]] = Counter()
    for effect in Effect.objects.filter(workflow__in=system.given, state="done").select_related("workflow"):
        told = [
            entry
            for attempt in Attempt.objects.filter(workflow=effect.workflow_id)
            for entry in attempt.steps
            if entry["step"] == effect.step and entry["outcome"] == "failed"
        ]
        if not [entry for entry in told if entry.get("error_class", "").endswith("UnknownOutcome")]:
            continue
        if effect.settled_by == "lookup":
            ways[effect.step, "looked up, found"] += 1
        elif effect.settled_by != "call":
            ways[effect.step, "a person's yes"] += 1
        elif effect.generation > 1:
            ways[effect.step, "a person's no, called again under a new key"] += 1
        elif (effect.workflow.workflow_type, effect.step) in LOOKED_UP:
            ways[effect.step, "looked up, not found, called again"] += 1
        else:
            ways[effect.step, "repeated under its key"] += 1
    return ways
