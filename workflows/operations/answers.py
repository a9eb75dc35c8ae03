"""ANSWERS: what a yes must say besides yes, and what the history tells of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from workflows import compensation
from workflows.definition import Step, WorkflowDefinition, definitions
from workflows.doubts import DOUBT_TASK_TYPE, effect_in_question
from workflows.errors import NotAllowed
from workflows.models import Event, ManualTask, Workflow
from workflows.operations import answer_models
from workflows.postgres.jsonb import Unstorable
from workflows.redaction import faults, private_part, reference


def answer_model(task: ManualTask) -> type[BaseModel] | None:
    """What a yes to this question fills in; None where yes is enough, or where the step does not say what it returns.

    Raises NotAllowed when this release cannot tell.
    """
    if task.task_type == DOUBT_TASK_TYPE:
        definition, step = _in_doubt(task)
        return None if step.returns is None else answer_models.result_model(definition.context_class, step.returns)
    if task.task_type == compensation.UNDO_TASK_TYPE:
        return answer_models.DealtWith
    if not task.answer_model:
        return None
    try:
        return answer_models.model_at(task.answer_model)
    except answer_models.NoSuchModel:
        raise NotAllowed(
            f"This release does not have what the answer is checked by ({task.answer_model}): try again with the "
            "release that asked."
        ) from None


def _in_doubt(task: ManualTask) -> tuple[WorkflowDefinition, Step]:
    """The step whose call is in doubt; of one that has left the list no more than the name."""
    if (definition := definitions().get(task.workflow.workflow_type)) is None:
        raise NotAllowed(
            f"This release does not know the type {task.workflow.workflow_type}, nor what its calls return: try again "
            "with the release that asked."
        )
    return definition, definition.find_or_removed_step(effect_in_question(task.wait.name)[0])


def checked(task: ManualTask, answer: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What an approval says besides yes, as the question asks for it."""
    model = answer_model(task)
    if task.task_type == DOUBT_TASK_TYPE:
        return _require_a_result(task, model, answer)
    if model is None:
        return dict(answer) if answer else None
    if answer is None:
        raise NotAllowed(f"A yes is not enough: the answer has fields ({', '.join(model.model_fields)}).")
    return _fitting(model, answer)


def _fitting(model: type[BaseModel], answer: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return answer_models.validated(model, answer)
    except ValidationError as error:
        raise NotAllowed(f"That is no answer to this question: {faults(error)}.") from None
    except Unstorable as error:
        raise NotAllowed(f"That answer cannot be kept: {error}") from None
    except answer_models.CheckFailed as error:
        raise NotAllowed(str(error)) from None


def _require_a_result(
    task: ManualTask, model: type[BaseModel] | None, answer: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What a person says of a call must be what its step returns, in full: else no run, and no undo, could use it.

    Whoever asks for it, the console or a script: nothing else checks what is recorded of a call.
    """
    definition, step = _in_doubt(task)
    known = (model or definition.context_class).model_fields
    if not isinstance(answer, Mapping):
        fields = ", ".join(known) if model and known else "an object, {} if that was nothing"
        raise NotAllowed(f"A yes is not enough: say what {step.name} returned ({fields}).")
    if unknown := ", ".join(sorted(answer.keys() - known.keys())):
        raise NotAllowed(
            f"{step.name} does not return {unknown}." if model else f"No step of {definition.name} returns {unknown}."
        )
    if model and (empty := ", ".join(name for name in known if _is_empty(answer.get(name)))):
        raise NotAllowed(f"If it happened, {step.name} returned these too: {empty}.")
    try:
        result = answer_models.in_json(answer) if model is None else _fitting(model, answer)
        definition.context_class.model_validate_json(to_json(result))
    except Unstorable as error:
        raise NotAllowed(f"That answer cannot be kept: {error}") from None
    except ValidationError as error:
        raise NotAllowed(f"No step of {definition.name} could have returned this: {faults(error)}.") from None
    return result


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def said(task: ManualTask, answer: Mapping[str, Any] | None) -> dict[str, Any]:
    """What was said of a call, or of an undo, for the history; `answer` is None when it was a no.

    Of the values only what is nobody's data: the choices that a model offers, and what reads like a reference.
    """
    if task.task_type not in compensation.KEPT_ON_CANCEL:
        return {}
    of_undo, (step, _) = task.task_type == compensation.UNDO_TASK_TYPE, effect_in_question(task.wait.name)
    if answer is None:
        return {"step": step, "said": "try_again" if of_undo else "did_not_happen"}
    definition = definitions().get(task.workflow.workflow_type)
    payload = Workflow.objects.values_list("payload", flat=True).get(pk=task.workflow_id)
    private = private_part(payload, definition.public_fields if definition else ())
    if of_undo and answer["kept"]:
        return {"step": step, "said": "left_as_it_is"}
    if of_undo:
        return {"step": step, "said": "undone_by_hand", "reference": reference(answer["reference"], private)}
    known = definition.context_class.model_fields if definition else {}
    fields = {
        name: str(value) if answer_models.is_choice(known[name]) else reference(value, private)
        for name, value in answer.items()
    }
    return {"step": step, "said": "happened", "fields": fields}


def was_said(task: ManualTask) -> dict[str, Any]:
    """In the words of the history, which has them from the answer."""
    decided = Event.objects.filter(workflow=task.workflow_id, detail__task=task.pk, detail__has_key="said")
    event = decided.order_by("id").last()
    return {"said": event.detail["said"]} if event else {}
