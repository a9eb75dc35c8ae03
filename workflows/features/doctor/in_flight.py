"""IN FLIGHT: what this checkout's definitions would do to the workflows that are under way. It changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import groupby
from typing import Any

from django.db.models import QuerySet
from pydantic import ValidationError

from workflows.definition import WorkflowDefinition, definitions
from workflows.effects import DONE, MAY_HAVE_HAPPENED
from workflows.engine.results import Results
from workflows.errors import StepError
from workflows.models import Effect, FollowUp, Workflow
from workflows.redaction import class_name, field_errors
from workflows.sealing import payloads
from workflows.state.attempt_log import OpenAttempt

# Rows in memory at a time, with their payloads.
BATCH = 200


class Kind(StrEnum):
    """What is wrong, for machines."""

    UNKNOWN_TYPE = "unknown_type"
    UNDECLARED_STEP = "undeclared_step"
    RESULT_UNREADABLE = "result_unreadable"
    INPUT_REFUSED = "input_refused"
    CONTEXT_UNREADABLE = "context_unreadable"
    STEP_GONE = "step_gone"


@dataclass(slots=True)
class Found:
    """The number of workflows of a type with the same problem, at `what` (a step or field). `example` is the first."""

    kind: Kind
    workflow_type: str
    what: str
    example: int
    number: int = 0


Wrong = tuple[Kind, str]


def examine(progress: Callable[[int], object]) -> tuple[int, int, list[Found]]:
    """Check each workflow that is under way or has a deferred step; return how many, how many have a problem, and the
    problems.

    Reads batches by primary key without a transaction, so changes during the check may be seen or not.
    """
    found: dict[tuple[Kind, str, str], Found] = {}
    looked_at = broken = 0
    for rows, wrong_with in (
        (Workflow.objects.filter(status=Workflow.Status.PENDING), _wrong_with_steps),
        (
            Workflow.objects.filter(pk__in=FollowUp.objects.exclude(due_at=None).values("workflow")),
            _wrong_with_deferred,
        ),
    ):
        for batch in _in_batches(rows):
            for row, wrong in wrong_with(batch):
                broken += bool(wrong)
                for kind, what in sorted({*wrong}):
                    one = found.setdefault(
                        (kind, row.workflow_type, what), Found(kind, row.workflow_type, what, example=row.pk)
                    )
                    one.number += 1
            looked_at += len(batch)
            progress(looked_at)
    return looked_at, broken, sorted(found.values(), key=lambda each: (each.kind, each.workflow_type, each.what))


def _in_batches(rows: QuerySet[Workflow]) -> Iterator[list[Workflow]]:
    after = 0
    while batch := list(rows.filter(pk__gt=after).order_by("pk")[:BATCH]):
        yield batch
        after = batch[-1].pk


def _wrong_with_steps(batch: list[Workflow]) -> Iterator[tuple[Workflow, list[Wrong]]]:
    """The problems of each workflow's next attempt, which starts from step 1 with the calls on the ledger."""
    calls = Effect.objects.filter(workflow__in=batch, undo=False, state__in=MAY_HAVE_HAPPENED).order_by(
        "workflow", "id"
    )
    ledger = {pk: [*each] for pk, each in groupby(calls, key=lambda effect: effect.workflow_id)}
    for row in batch:
        definition = definitions().get(row.workflow_type)
        if definition is None:
            yield row, [(Kind.UNKNOWN_TYPE, "")]
            continue
        yield row, [*_wrong_with_input(row, definition), *_wrong_with_calls(row, definition, ledger.get(row.pk, []))]


def _wrong_with_input(row: Workflow, definition: WorkflowDefinition) -> Iterator[Wrong]:
    if definition.input_class is None or row.compensating:
        return
    try:
        definition.input_class.model_validate_json(json.dumps(payloads.without_secrets(definition, row.payload)))
    except ValidationError as error:
        yield Kind.INPUT_REFUSED, field_errors(error)


def _wrong_with_calls(row: Workflow, definition: WorkflowDefinition, calls: list[Effect]) -> Iterator[Wrong]:
    results = _results(row, definition)
    for call in calls:
        if not definition.declares(call.step):
            yield Kind.UNDECLARED_STEP, call.step
        elif call.state == DONE:
            step = definition.find_or_removed_step(call.step)
            if why := _refusal(partial(results.merge, step, call.result or {}, recorded_before=True)):
                yield Kind.RESULT_UNREADABLE, why


def _wrong_with_deferred(batch: list[Workflow]) -> Iterator[tuple[Workflow, list[Wrong]]]:
    """The problems of each workflow's deferred steps, which read its context."""
    due = FollowUp.objects.filter(workflow__in=batch).exclude(due_at=None).order_by("workflow", "id")
    steps = {pk: [each.step for each in its] for pk, its in groupby(due, key=lambda each: each.workflow_id)}
    for row in batch:
        definition = definitions().get(row.workflow_type)
        if definition is None:
            yield row, [(Kind.UNKNOWN_TYPE, "")]
            continue
        why = _refusal(partial(_results(row, definition).resume, row.context))
        gone = [step for step in steps.get(row.pk, []) if definition.find_step(step) is None]
        wrong = [(Kind.CONTEXT_UNREADABLE, why)] if why else []
        yield row, [*wrong, *((Kind.STEP_GONE, step) for step in gone)]


def _results(row: Workflow, definition: WorkflowDefinition) -> Results:
    return Results(definition, row, OpenAttempt(0, 0, row.pk, ""))


def _refusal(read: Callable[[], Any]) -> str:
    """Why this release cannot read it; empty if it can. An author's model may raise any error."""
    try:
        read()
    except StepError as error:
        return str(error)
    except Exception as error:
        return class_name(error)
    return ""
