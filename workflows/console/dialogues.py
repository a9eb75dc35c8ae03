"""How a person sees each type of question: its buttons, their consequences, and its form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django import forms

from workflows import operations
from workflows.console.answer_form import AnswerForm, ResultForm, UndoForm, YesForm
from workflows.console.verbs import KEPT, read_once, reason_field
from workflows.definition import wording_of_type
from workflows.effects.reconcile import DOUBT_TASK_TYPE, effect_in_question
from workflows.engine import undo_question
from workflows.engine.undo_doubts import LOSSES_TASK_TYPE, UNDO_TASK_TYPE
from workflows.extension import installed
from workflows.models import Effect, ManualTask
from workflows.telling.words import SAID
from workflows.waits.declared import UNDECLARED_TASK_TYPE


@dataclass(frozen=True, slots=True)
class Dialogue:
    """The words of a type of question: its two buttons, their consequences, and when a reason is required.

    `final` says whether the answer can be retracted. `retry` is a third button, for questions where a retry may help.
    `safe`: the second button takes nothing away from a patient, and calls nothing a second time; it is not red.
    """

    approve: str
    reject: str
    consequences: str
    expired: str = "Then it is asked again."
    reason: str = "Required when rejecting."
    needs_reason: bool = False
    final: str = "A decision is final."
    retry: str = ""
    safe: bool = False


APPROVAL = Dialogue(
    *("Approve", "Reject"),
    "Approved, the workflow goes on. Rejected, it fails with this reason.",
    expired="If nobody has decided by then it expires, and the workflow fails.",
)
NOT_FINAL = "A wrong answer can be retracted while nothing has built on it."
DIALOGUES = {
    DOUBT_TASK_TYPE: Dialogue(
        *("It happened", "It did not happen"),
        "It goes on at once: with this result if it happened. If not, it is called again, under a new key, unless the "
        "workflow is being reversed, or no longer has this step.",
        expired="If nobody has answered by then, the workflow fails, and asks again when it is retried. While it is "
        "being reversed, it asks again at once.",
        reason="Required if it did not happen.",
        final=NOT_FINAL,
    ),
    UNDO_TASK_TYPE: Dialogue(
        *("It is settled", "Try again"),
        "Settled, what was done before it is reversed next. Else its reversal is tried again, three times.",
        reason="Required.",
        needs_reason=True,
        final=NOT_FINAL,
        safe=True,
    ),
    undo_question.TASK_TYPE: Dialogue(
        *("Reverse it", "Leave it as it is"),
        "Reversed, what it did is undone at once, and the workflow fails. Left as it is, it fails, and nothing is "
        "reversed: what was charged stays charged, and a later retry does not charge it again.",
        expired="If nobody has decided by then, it is reversed.",
        reason="Required if it is left as it is.",
        final=NOT_FINAL,
        retry="Retry it",
        safe=True,
    ),
    UNDECLARED_TASK_TYPE: Dialogue(
        *("It is right, go on", "It is wrong"),
        "If it is right, the workflow goes on and makes the calls that follow. Ask an engineer first: a step that was "
        "only renamed would make its call a second time, and a wait would start its workflows a second time. If it is "
        "wrong, the workflow fails with this reason. Once a release has it, the workflow goes on without an answer.",
        reason="Required.",
        needs_reason=True,
    ),
    LOSSES_TASK_TYPE: Dialogue(
        *("Try again", "Let it fail"),
        "Tried again, the workflow starts from its first step, and its recorded calls are not made again. Else it "
        "fails with this reason, and what it has done is reversed.",
        expired="Then it is tried once more, and you are asked again if that fails.",
        reason="Required if it is to fail.",
    ),
}
ON_EXPIRY = {
    "approved": "If nobody has decided by then it counts as approved, and the workflow goes on.",
    "rejected": "If nobody has decided by then it counts as rejected, and the workflow fails.",
}


class DecisionForm(forms.Form):
    decision = forms.ChoiceField(choices=[("approve", "Approve"), ("reject", "Reject")])
    reason = reason_field()

    def __init__(self, words: Dialogue, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(data)
        if words.retry:
            self.fields["decision"].choices += [("retry", words.retry)]  # type: ignore[attr-defined]
        reason = self.fields["reason"]
        reason.required = words.needs_reason
        reason.help_text = f"{words.reason} {KEPT}"

    def clean(self) -> None:
        if self.cleaned_data.get("decision") == "reject" and self.cleaned_data.get("reason") == "":
            self.add_error("reason", "Say why.")


def of_features() -> dict[str, Dialogue]:
    """The dialogues of the features' questions."""
    return {task_type: words for each in installed() for task_type, words in each.dialogues().items()}


# The reversal of a call that a person has made by hand: nothing is called without a lookup that finds it.
OF_BY_HAND = replace(
    DIALOGUES[UNDO_TASK_TYPE],
    reject="Look again",
    consequences="Settled, what was done before it is reversed next. Else it is looked for in its system, and reversed "
    "there only if it is found as it was said; if not, it is asked again.",
)


def _is_by_hand(task: ManualTask) -> bool:
    def read() -> bool:
        step, generation = effect_in_question(task.wait.name)
        calls = Effect.objects.filter(workflow=task.workflow_id, step=step, generation=generation, undo=False)
        return calls.exclude(by_hand="").exists()

    return read_once(task, "of_by_hand", read)


def dialogue_for(task: ManualTask) -> Dialogue:
    if task.task_type == UNDO_TASK_TYPE and _is_by_hand(task):
        return OF_BY_HAND
    return {**DIALOGUES, **of_features()}.get(task.task_type, APPROVAL)


def answer_form(task: ManualTask, data: Mapping[str, Any] | None = None, *, asked: bool = True) -> YesForm | None:
    """The form of an approval's fields; None if yes is enough. Raises NotAllowed if this release lacks their model."""
    if task.task_type == UNDO_TASK_TYPE:
        return UndoForm(data, asked=asked, never=SAID.get(operations.said_of_never(task), ""))
    if model := operations.answer_model(task):
        wording = wording_of_type(task.workflow.workflow_type)
        return AnswerForm(model, data, asked=asked, wording=wording)
    return ResultForm(data, asked=asked) if task.task_type == DOUBT_TASK_TYPE else None
