"""RESULTS: what the steps of an attempt returned, and how their errors may be shown."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from django.conf import settings
from pydantic import ValidationError
from pydantic_core import to_json

from workflows.definition import Step, WorkflowDefinition, removed_step
from workflows.errors import StepError
from workflows.models import Workflow
from workflows.postgres import sqlstates
from workflows.postgres.jsonb import InputRefused, ensure_dump_storable
from workflows.redaction import class_name, field_errors, place, private_part, scrub
from workflows.spelling import did_you_mean
from workflows.state.attempt_log import OpenAttempt
from workflows.timeouts import StepTimeout


class Results:
    """What the steps of this attempt returned, as JSON, and the context that is built from it.

    Results pass through JSON in the first attempt too, so that every attempt sees the same types: a UUID that a step
    returns as a string is a UUID where the context declares one.

    `workflow_copy` is the workflow as the steps see it; changes to the copy do not affect the decision. Errors are
    masked by the payload that was sent, and by the values from waits (`told`). `context_json` is a copy of the context
    for people.
    """

    def __init__(self, definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt) -> None:
        self.workflow_copy = workflow.copy()
        self.payload, self.public_fields, self.told = workflow.payload, definition.public_fields, attempt.told
        self.are_watched = settings.DEBUG  # see `authors.ensure_unchanged`
        self.recorded: dict[str, Any] = {}
        self.context = definition.context_class()
        self._fields = definition.context_class.model_fields.keys()
        self.context_json: dict[str, Any] = self.context.model_dump(mode="json")

    def resume(self, recorded: Mapping[str, Any]) -> None:
        """Start with the recorded context. Raises StepError if this release cannot read it.

        A field that still has its default is left out, because its declared type need not allow the default.
        """
        known = {
            name: value
            for name, value in recorded.items()
            if name in self._fields and value != self.context_json.get(name)
        }
        self.merge(removed_step("the recorded context"), known)

    def merge(self, step: Step, result: Mapping[str, Any], *, recorded_before: bool = False) -> None:
        """Add a step's result, in its JSON form, whole or not at all. Raises StepError naming the step and its faults.

        A field that another release recorded, and this one does not declare, is left out.
        """
        context_class = type(self.context)
        if undeclared := sorted(result.keys() - self._fields):
            if not recorded_before:
                names, meant = ", ".join(undeclared), did_you_mean(undeclared[0], context_class.model_fields)
                raise StepError(f"{step.name} returned {names}: not declared in {context_class.__name__}.{meant}")
            result = {name: value for name, value in result.items() if name not in undeclared}
        recorded = {**self.recorded, **result}
        try:
            context = context_class.model_validate_json(to_json(recorded))
        except ValidationError as error:
            raise StepError(
                f"{step.name} returned what {context_class.__name__} refuses: {field_errors(error, context_class)}"
            ) from None
        copy = context.model_dump(mode="json")
        ensure_dump_storable(copy)  # again, because the context's types may change a value: "nan" becomes a NaN
        self.recorded, self.context, self.context_json = recorded, context, copy


def last_error(description: Mapping[str, str]) -> dict[str, str]:
    """The row's columns for a described error."""
    return {f"last_{name}": value for name, value in description.items()}


def describe_engine_error(error: StepError) -> dict[str, str]:
    """Describe an error of the engine, which contains no personal data."""
    return {"error_class": class_name(error), "error_code": error.code, "error_message": scrub(str(error))}


def describe(error: BaseException, results: Results) -> dict[str, str]:
    """Describe an error as it may be shown: class, code, and message without personal data.

    The message of a foreign error is replaced by its file and line, because it may quote anything.
    """
    code, message = "", _whereabouts(error)
    if type(error) is StepTimeout:
        message = f"{error} At {message}." if message else str(error)  # our text with our number
    elif isinstance(error, StepError | InputRefused):
        known = (private_part(results.payload, results.public_fields), results.recorded, results.told)
        try:
            code, message = scrub(str(getattr(error, "code", ""))), scrub(str(error), *known)
        except Exception:
            message = f"An error that cannot be printed, at {message}"
    # Cut to fit the columns: a decision that cannot be written would be tried again for ever.
    return {"error_class": class_name(error)[:200], "error_code": code[:100], "error_message": message[:500]}


def _whereabouts(error: BaseException) -> str:
    """The file and line that raised an error, with its SQLSTATE or status: "onboarding/steps/visit.py:41, HTTP 409"."""
    status = None
    with suppress(Exception):  # the attribute of a foreign class may raise
        status = int(error.response.status_code)  # type: ignore[attr-defined]
    state = sqlstates.sqlstate(error)
    parts = [place(error), f"SQLSTATE {state}" if state else "", f"HTTP {status}" if status else ""]
    return ", ".join(filter(None, parts))
