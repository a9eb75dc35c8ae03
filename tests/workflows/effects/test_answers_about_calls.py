"""What a person says of a call in doubt is recorded as if the step had returned it, so it has to be what it returns."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from pydantic import field_validator

from tests import engine
from tests.engine import again, define, submit, work
from tests.workflows.downstream import Downstream, call_step, fail_at_first, state
from workflows import operations
from workflows.definition import Step
from workflows.errors import NotAllowed, UnknownOutcome
from workflows.models import Effect, ManualTask, Signal, Workflow

pytestmark = engine.ENGINE


def paid(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    raise UnknownOutcome("no answer")


def in_question(**policy: Any) -> tuple[Workflow, ManualTask, User]:
    """A call of which a person is asked whether it happened."""
    define([Step(paid, **{"once": True, "settle": 0, "returns": ("number", "text", "key"), **policy})])
    workflow = again(work(submit()))
    return workflow, ManualTask.objects.get(), User.objects.create_superuser("ada")


KEY = "6f6d0c5e-4f0a-4b53-9d7e-0c6f1d2a3b4c"


def test_a_yes_holds_every_field_that_the_step_returns() -> None:
    workflow, task, ada = in_question()
    answer = {"number": 9, "text": "ch_9", "key": KEY}
    operations.approve(task.pk, user=ada, answer=answer)
    workflow, effect = work(workflow), Effect.objects.get()
    assert (workflow.status, workflow.context["number"]) == ("COMPLETE", 9)
    assert (effect.result, effect.settled_by) == (answer, "ada")


def test_a_yes_that_is_not_what_the_step_returns_is_refused() -> None:
    """Recorded, it would fail every further run, and every undo."""
    _, task, ada = in_question()
    refused: list[tuple[Any, str]] = [
        (None, r"say what paid returned \(number, text, key\)"),
        ([], r"say what paid returned"),
        ({}, "paid returned these too: number, text, key"),
        ({"number": None, "text": "ch_9", "key": KEY}, "paid returned these too: number"),
        ({"number": 9, "text": "  ", "key": KEY}, "paid returned these too: text"),
        ({"number": 9, "text": "ch_9", "key": KEY, "tags": []}, "paid does not return tags"),
        ({"number": 9, "text": "ch_9", "key": "k"}, r"key \(uuid_parsing\)"),
        ({"number": 9, "text": "ch\x00", "key": KEY}, "cannot be kept"),
        ({"number": 9, "text": object(), "key": KEY}, "cannot be kept"),
    ]
    for answer, why in refused:
        with pytest.raises(NotAllowed, match=why):
            operations.approve(task.pk, user=ada, answer=answer)
    task.refresh_from_db()
    assert (task.state, Signal.objects.count(), state()) == ("open", 0, "unknown")


@pytest.mark.parametrize("returns", [(), None])
def test_that_a_call_returned_nothing_has_to_be_said(returns: tuple[str, ...] | None) -> None:
    workflow, task, ada = in_question(returns=returns)
    nothing: list[Any] = [None, [], "{}"]
    for answer in nothing:
        with pytest.raises(NotAllowed, match=r"say what paid returned \(an object, {} if that was nothing\)"):
            operations.approve(task.pk, user=ada, answer=answer)
    operations.approve(task.pk, user=ada, answer={})
    assert work(workflow).status == "COMPLETE"


def test_what_the_context_refuses_is_refused_also_of_a_declared_field() -> None:
    """A validator that looks at the field is not a part of its type."""

    class Strict(engine.Context):
        @field_validator("text")
        @classmethod
        def _lower(cls, text: str | None) -> str | None:
            if text and text != text.lower():
                raise ValueError("no capitals")
            return text

    _, task, ada = in_question(returns=("text",))
    engine.DEFINITION.context_class = Strict
    with pytest.raises(NotAllowed, match=r"could have returned this: text \(value_error\)"):
        operations.approve(task.pk, user=ada, answer={"text": "CH_9"})
    operations.approve(task.pk, user=ada, answer={"text": "ch_9"})


def test_a_release_that_does_not_know_the_type_takes_no_yes_but_a_no() -> None:
    """It could not say what the call returns."""
    workflow, task, ada = in_question()
    Workflow.objects.filter(pk=workflow.pk).update(workflow_type="of the next release")
    with pytest.raises(NotAllowed, match="does not know the type of the next release"):
        operations.approve(task.pk, user=ada, answer={"number": 9, "text": "ch_9", "key": KEY})
    operations.reject(task.pk, user=ada, reason="Not there.")


def test_a_step_that_has_left_the_list_is_answered_as_one_that_says_nothing() -> None:
    _, task, ada = in_question()
    define([fail_at_first])
    with pytest.raises(NotAllowed, match="No step of test returns numbr"):
        operations.approve(task.pk, user=ada, answer={"numbr": 9})
    operations.approve(task.pk, user=ada, answer={"number": 9})


def test_a_call_that_returns_something_else_than_it_says_has_happened_all_the_same(service: Downstream) -> None:
    define([call_step(service, returns=("text",)), fail_at_first])
    workflow = again(work(submit()))
    assert (workflow.status, workflow.context["number"], len(service.calls)) == ("COMPLETE", 1, 1)
