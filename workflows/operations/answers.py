"""ANSWERS: the fields that an approval must give besides yes, and what the history stores of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from workflows.charges import moves_money
from workflows.definition import Step, WorkflowDefinition, definitions, titled_step, wording_of_type
from workflows.effects import IN_DOUBT
from workflows.effects.reconcile import DOUBT_TASK_TYPE, effect_in_question
from workflows.engine import compensation, undo_doubts, undo_question
from workflows.errors import NotAllowed
from workflows.models import Effect, Event, ManualTask, Workflow
from workflows.operations import answer_models
from workflows.postgres.jsonb import Unstorable, as_json
from workflows.redaction import field_errors, masked_reference, private_part, scrub
from workflows.wording import words_for_code


def answer_model(task: ManualTask) -> type[BaseModel] | None:
    """The model that an approval fills in; None if yes is enough, or no result is declared. Raises NotAllowed."""
    if task.task_type == DOUBT_TASK_TYPE:
        definition, step = _step_in_doubt(task)
        return result_model(definition, step)
    if task.task_type == undo_doubts.UNDO_TASK_TYPE:
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


def result_model(definition: WorkflowDefinition, step: Step) -> type[BaseModel] | None:
    """The model of what a step returns; None if that is not declared."""
    return None if step.returns is None else answer_models.result_model(definition.context_class, step.returns)


def _step_in_doubt(task: ManualTask) -> tuple[WorkflowDefinition, Step]:
    """The definition, and the step whose call is in doubt. A removed step has only its name."""
    if (definition := definitions().get(task.workflow.workflow_type)) is None:
        raise NotAllowed(
            f"This release does not know the type {task.workflow.workflow_type}, nor what its calls return: try again "
            "with the release that asked."
        )
    return definition, definition.find_or_removed_step(effect_in_question(task.wait.name)[0])


def checked(task: ManualTask, answer: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The fields of an approval besides yes, validated for its question. Raises NotAllowed."""
    if task.task_type == undo_question.TASK_TYPE:
        return _checked_decision(task, answer or {})
    model = answer_model(task)
    if task.task_type == DOUBT_TASK_TYPE:
        return checked_result(*_step_in_doubt(task), answer)
    if model is None:
        return dict(answer) if answer else None
    if answer is None:
        raise NotAllowed(f"A yes is not enough: the answer has fields ({', '.join(model.model_fields)}).")
    given = _validated(model, answer)
    if model is answer_models.DealtWith and given["never_happened"] and not said_of_never(task):
        step, _ = effect_in_question(task.wait.name)
        raise NotAllowed(f"It is known by now that {titled_step(task.workflow.workflow_type, step)} happened.")
    return given


def said_of_never(task: ManualTask) -> str:
    """The history's word for the answer that the call (whose undo failed) never happened; empty if it did happen."""
    step, generation = effect_in_question(task.wait.name)
    calls = Effect.objects.filter(workflow=task.workflow_id, step=step, generation=generation, undo=False)
    if not calls.filter(state__in=IN_DOUBT).exists():
        return ""
    definition = definitions().get(task.workflow.workflow_type)
    return "never_charged" if definition and moves_money(definition, step) else "never_happened"


def _checked_decision(task: ManualTask, answer: Mapping[str, Any]) -> dict[str, Any]:
    decision = _validated(answer_models.Decision, answer)
    if decision["retry"] and not may_retry(task):
        raise NotAllowed("A retry does not mend why it failed: have it reversed, or leave it as it is.")
    return decision


def may_retry(task: ManualTask) -> bool:
    """Whether a person who is asked before a reversal may retry instead: only if a retry may help."""
    return words_for_code(wording_of_type(task.workflow.workflow_type), task.workflow.last_error_code).passing


def _validated(model: type[BaseModel], answer: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return answer_models.validated(model, answer)
    except ValidationError as error:
        raise NotAllowed(f"That is not an answer to this question: {field_errors(error)}.") from None
    except Unstorable as error:
        raise NotAllowed(f"That answer cannot be kept: {error}") from None
    except answer_models.AnswerModelBroke as error:
        raise NotAllowed(str(error)) from None


def checked_result(definition: WorkflowDefinition, step: Step, answer: Mapping[str, Any] | None) -> dict[str, Any]:
    """A call's result as a person gives it. It must have all that the step returns: later steps and undos need it.

    Raises NotAllowed.
    """
    model = result_model(definition, step)
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
        result = as_json(answer) if model is None else _validated(model, answer)
        definition.context_class.model_validate_json(to_json(result))
    except Unstorable as error:
        raise NotAllowed(f"That answer cannot be kept: {error}") from None
    except ValidationError as error:
        raise NotAllowed(f"No step of {definition.name} could have returned this: {field_errors(error)}.") from None
    return result


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def for_history(task: ManualTask, answer: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the history stores of an answer about a call or an undo. `answer` is None for a rejection.

    It has no personal data: only choices that a model offers, and values that look like references.
    """
    if task.task_type == undo_question.TASK_TYPE:
        return {"said": "left_as_it_is" if answer is None else "retry" if answer["retry"] else "reverse"}
    if task.task_type not in compensation.KEPT_ON_CANCEL:
        return {}
    of_undo, (step, _) = task.task_type == undo_doubts.UNDO_TASK_TYPE, effect_in_question(task.wait.name)
    if answer is None:
        return {"step": step, "said": "try_again" if of_undo else "did_not_happen"}
    if of_undo and answer["kept"]:
        return {"step": step, "said": "left_as_it_is"}
    if of_undo and answer["never_happened"]:
        return {"step": step, "said": said_of_never(task)}
    if of_undo:
        return {"step": step, "said": "undone_by_hand", **shown(task.workflow_id, reference=answer["reference"])}
    return {"step": step, "said": "happened", **shown(task.workflow_id, result=answer)}


def shown(workflow_id: int, *, result: Mapping[str, Any] | None = None, reference: str = "") -> dict[str, Any]:
    """The part of a call's result, or of a reference, that may be shown: `fields`, and `reference`."""
    payload, workflow_type = Workflow.objects.values_list("payload", "workflow_type").get(pk=workflow_id)
    definition = definitions().get(workflow_type)
    private = private_part(payload, definition.public_fields if definition else ())
    known = definition.context_class.model_fields if definition else {}
    fields = {
        name: str(value) if answer_models.is_choice(known[name]) else masked_reference(value, private)
        for name, value in (result or {}).items()
    }
    told: dict[str, Any] = {} if result is None else {"fields": fields}
    return told | ({"reference": masked_reference(reference, private)} if reference else {})


def recorded_answer(task: ManualTask) -> dict[str, Any]:
    """What the history stores of the answer to a task: `said`, as `for_history` made it."""
    decided = Event.objects.filter(workflow=task.workflow_id, detail__task=task.pk, detail__has_key="said")
    event = decided.order_by("id").last()
    return {"said": event.detail["said"]} if event else {}


def reason_for_history(task: ManualTask, reason: str) -> str:
    """The reason of a decision as everybody who sees the workflow may read it.

    A step's question shows values of what was sent to those who decide, who repeat them: the history has them masked,
    as the error of a rejection has. The engine's questions show none.
    """
    return without_values(task.workflow_id, reason) if task.undoable else reason


def without_values(workflow_id: int | None, reason: str) -> str:
    """A reason without what was sent about the patient."""
    rows = Workflow.objects.filter(pk=workflow_id) if workflow_id is not None and reason else Workflow.objects.none()
    known = rows.values_list("workflow_type", "payload").first()
    if known is None:
        return scrub(reason)
    definition = definitions().get(known[0])
    return scrub(reason, private_part(known[1], definition.public_fields if definition else ()))
