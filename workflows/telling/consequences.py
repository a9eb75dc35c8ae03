"""CONSEQUENCES of a retry or a cancellation: which calls are made, which stay, and what is refunded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from workflows.definition import WorkflowDefinition, definitions, is_to_be_undone, wording_of
from workflows.effects import DONE, IN_DOUBT, KEPT, UNDONE, is_unclear
from workflows.effects.reconcile import DOUBT_TASK_TYPE
from workflows.extension import installed
from workflows.models import Effect, ManualTask, Wait, Workflow
from workflows.operations import family_retries, payments
from workflows.telling import family, words
from workflows.wording import Wording, words_for_code, words_for_step

# The charges of at most so many workflows are added up.
LOOKED_THROUGH = 100

QUESTIONS = (
    "If a question that was rejected, or expired, made it fail, that one is asked again. All other answers stay."
)


@dataclass(frozen=True, slots=True)
class Calls:
    """A workflow's calls: the latest of each step."""

    workflow: Workflow
    definition: WorkflowDefinition | None
    latest: Sequence[Effect]

    @classmethod
    def of(cls, workflow: Workflow) -> Calls:
        return cls.of_each([workflow])[0]

    @classmethod
    def of_each(cls, workflows: Sequence[Workflow]) -> list[Calls]:
        made = Effect.objects.filter(workflow__in=workflows, undo=False)
        latest = made.order_by("workflow", "step", "-generation").distinct("workflow", "step")
        by_workflow: dict[int, list[Effect]] = {workflow.pk: [] for workflow in workflows}
        for effect in sorted(latest, key=lambda effect: effect.pk):
            by_workflow[effect.workflow_id].append(effect)
        return [cls(each, definitions().get(each.workflow_type), by_workflow[each.pk]) for each in workflows]

    @property
    def wording(self) -> Wording:
        return wording_of(self.definition)

    def titles(self, *states: str) -> list[str]:
        """The titles of the steps whose calls are in one of these states."""
        return [self._title(effect.step) for effect in self.latest if effect.state in states]

    def to_be_undone(self, *, by_hand: bool = False) -> list[Effect]:
        """The calls that happened and that can be undone; or, of those, what a person has done by hand."""
        found = [effect for effect in self.on_record() if self._is_to_be_undone(effect)]
        return [effect for effect in found if bool(effect.by_hand) == by_hand]

    def to_stay(self) -> list[Effect]:
        """The calls that happened, or that a person left as they are, and that nothing undoes."""
        return [each for each in self.latest if each.state in (DONE, KEPT) and not self._is_to_be_undone(each)]

    def on_record(self) -> list[Effect]:
        """The calls that happened and stand."""
        return [effect for effect in self.latest if effect.state in (DONE, KEPT) and not is_unclear(effect)]

    def unclear(self) -> list[Effect]:
        """The calls that may or may not have happened."""
        return list(filter(is_unclear, self.latest))

    def not_made(self, by_hand: Collection[str] = ()) -> list[str]:
        """The titles of the steps whose call was not made: the next run makes it, if the step applies.

        Without the step that has one of the names `by_hand`.
        """
        if self.definition is None:
            return []
        made = {effect.step for effect in [*self.on_record(), *self.unclear()]} | {*by_hand}
        steps = [step for step in self.definition.steps if step.once and not made.intersection(step.names)]
        return [words_for_step(self.wording, step.name).title for step in steps]

    def titles_of(self, effects: Iterable[Effect]) -> list[str]:
        return [self._title(effect.step) for effect in effects]

    def _title(self, step: str) -> str:
        return words_for_step(self.wording, step).title

    def _is_to_be_undone(self, effect: Effect) -> bool:
        return effect.state != KEPT and is_to_be_undone(self.definition, effect.step, effect.has_undo)


def of_retry(workflow: Workflow, *, by_hand: Collection[str] = (), corrected: bool = False) -> Iterator[str]:
    """What a retry of this workflow does, in sentences. `by_hand`: the names of a step whose call a person has made.

    `corrected`: what was sent is corrected with it.
    """
    calls = Calls.of(workflow)
    code = words_for_code(calls.wording, workflow.last_error_code)
    on_record = calls.titles_of(calls.on_record())
    again = calls.titles(UNDONE)
    yield "A worker takes it up before what is queued and has not started, and starts again from the first step."
    if workflow.cancelled_at and family_retries.is_one(workflow.pk):
        yield "What was cancelled with it is retried first, by the workers: that may take some minutes."
    is_charged = calls.definition is not None and set(by_hand) & set(calls.definition.charge_names)
    if not is_charged and (charged := payments.charged_again(workflow.pk)):
        is_certain = not any(each.is_unclear for each in payments.held(workflow.pk))
        yield f"The card {'will' if is_certain else 'may'} be charged again: {payments.sum_of(charged)}."
    if on_record:
        yield f"{_number(on_record)} on record and not made again: {_list(on_record)}."
    yield from _of_unclear(calls)
    if again:
        yield f"Reversed before, and done again: {_list(again)}."
    if rest := [title for title in calls.not_made(by_hand) if title not in again]:
        yield f"Made where it applies: {_list(rest)}."
    if not (code.passing or workflow.cancelled_at or by_hand or corrected):
        yield f"Why it failed: {code.staff} A retry alone may not fix that."
    yield QUESTIONS
    yield from family.of_retry(workflow)


def of_run_now(workflow: Workflow) -> Iterator[str]:
    """What an early run does, also about the calls that may have happened."""
    at = words.next_attempt_at(workflow)
    yield f"A worker takes it up at once{f' instead of at {words.clock(at)}' if at else ''}."
    yield from _of_unclear(Calls.of(workflow))


def _of_unclear(calls: Calls) -> Iterator[str]:
    if unclear := calls.titles_of(calls.unclear()):
        told = "We don't know yet whether this went through; it is checked automatically, and not done twice"
        yield f"{told}: {_list(unclear)}."


def of_cancel(workflow: Workflow) -> Iterator[str]:
    """What cancelling this workflow does, in sentences."""
    calls = Calls.of(workflow)
    undone, stays = calls.titles_of(calls.to_be_undone()), calls.titles_of(calls.to_stay())
    unclear, by_hand = calls.titles(*IN_DOUBT), calls.titles_of(calls.to_be_undone(by_hand=True))
    yield "It is cancelled at once; if a worker is running it, before its next step. If none is left, it completes."
    held = payments.held(workflow.pk)
    of_children = list(family.of_cancel(workflow))
    yield from of_children
    if not (of_children or undone or stays or unclear or by_hand or held):
        yield "Nothing is given back: no call that would have to be reversed is on record."
    if returned := [each for each in held if each.is_reversible and not each.is_unclear]:
        yield f"{payments.sum_of(returned)} is given back."
    if doubtful := [each for each in held if each.is_reversible and each.is_unclear]:
        yield f"{payments.sum_of(doubtful)} may have been charged: if it was, it is given back."
    if undone:
        yield f"Reversed: {_list(undone)}."
    if by_hand:
        yield f"Done by hand, so that a person is asked to reverse it, unless its system finds it: {_list(by_hand)}."
    if unclear:
        yield f"Unclear: {_list(unclear)}. That is found out, and what happened is reversed where it can be."
    if stays:
        yield f"This stays: {_list(stays)}."
    for feature in installed():
        yield from feature.foretells("cancel", workflow)
    yield "It can be retried afterwards: what was reversed is then done again."
    for task in ManualTask.objects.open().filter(workflow=workflow).exclude(task_type=DOUBT_TASK_TYPE).order_by("pk"):
        yield f"This question is closed: {task.question}"


def of_let_fail(parked: QuerySet[Workflow]) -> Iterator[str]:
    """Sentences about letting parked workflows fail. If there are many, their charges are not added up."""
    calls = Calls.of_each(list(parked.only("workflow_type")[: LOOKED_THROUGH + 1]))
    if len(calls) > LOOKED_THROUGH:
        yield "What was charged is given back where it can be."
    else:
        own = [each for each in payments.held(*(of.workflow.pk for of in calls)) if each.root == each.workflow_id]
        if returned := [each for each in own if each.is_reversible and not each.is_unclear]:
            yield f"{payments.sum_of(returned)} is given back, for {len({each.root for each in returned})} of them."
        if unclear := [each for each in calls if each.unclear()]:
            of = f"Of {len(unclear)} a call is unclear."
            yield f"{of} That is found out, and what happened is reversed where it can be."
    yield "What they have done in other systems is reversed where it can be."


def may_run_early(workflow: Workflow) -> bool:
    """Whether an early run could change anything: not while it waits for a person, a time or workflows."""
    if not workflow.waiting_for or workflow.parked_on:
        return True
    waits = Wait.objects.filter(workflow=workflow.pk, superseded=False, outcome="", kind=Wait.Kind.SIGNAL)
    return waits.filter(deadline__gt=workflow.invisible_until).exists()  # the step looks for itself before the deadline


def _number(titles: Sequence[str]) -> str:
    return f"{len(titles)} calls are" if len(titles) > 1 else "1 call is"


def _list(titles: Sequence[str]) -> str:
    return ", ".join(f"“{title}”" for title in titles)
