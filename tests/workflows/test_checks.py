from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, Field
from pytest_django import Settings

from tests.engine import Context
from workflows.checks import check_definitions
from workflows.definition import Step, WorkflowDefinition, WorkflowStep
from workflows.models import Workflow


def one(*, workflow: Workflow, context: Context) -> None: ...


def two(*, workflow: Workflow, context: Context) -> None: ...


def definition(steps: list[Step | WorkflowStep], name: str = "good") -> WorkflowDefinition:
    return WorkflowDefinition(name=name, steps=steps, context_class=Context)


GOOD = definition([one, two])
TWIN = definition([one], name="good")
EMPTY = definition([], name="empty")
SAME_STEP = definition([one, Step(two, name="one")], name="same_step")
OLD_NAME = definition([one, Step(two, formerly=("one",))], name="old_name")
NOT_ONCE = definition([Step(one, key_ttl=timedelta(hours=1))], name="not_once")


def undo(*, workflow: Workflow, context: Context, effect: Any) -> None: ...
def lookup(*, workflow: Workflow, context: Context, effect: Any) -> None: ...


UNDO_NOT_ONCE = definition([Step(one, undo=undo)], name="undo_not_once")
DAY = timedelta(hours=24)
UNDO_IN_DOUBT = definition([Step(one, once=True, undo=undo, key_ttl=DAY, returns=())], name="undo_in_doubt")
UNDONE = definition([Step(one, once=True, undo=undo, lookup=lookup, returns=("number", "text"))], name="undone")


class Demanding(BaseModel):
    number: int


class Secretive(BaseModel):
    token: str | None = Field(default=None, exclude=True)
    number: int | None = None


HIDDEN = WorkflowDefinition(
    name="hidden",
    steps=[Step(one, once=True, key_ttl=timedelta(hours=24), returns=("token", "number"))],
    context_class=Secretive,
)
DEMANDING = WorkflowDefinition(name="demanding", steps=[one], context_class=Demanding)
NEITHER = definition([Step(one, once=True, returns=())], name="neither")
SHORT_KEY = definition([Step(one, once=True, key_ttl=timedelta(minutes=5), returns=())], name="short_key")
LONG_KEY = definition([Step(one, once=True, key_ttl=DAY, returns=()), two], name="long_key")
SAYS_NOTHING = definition([Step(one, once=True, key_ttl=DAY)], name="says_nothing")
MISSPELT = definition([Step(one, once=True, key_ttl=DAY, returns=("numbr", "text"))], name="misspelt")
LONG_NAME = definition([Step(one, name="x" * 101)], name="long_name")
NO_DEFINITION = "a string"


def test_a_good_definition_passes(settings: Settings) -> None:
    settings.WORKFLOWS = [f"{__name__}.GOOD", f"{__name__}.LONG_KEY", f"{__name__}.UNDONE"]
    assert check_definitions() == []


@pytest.mark.parametrize(
    ("names", "expected", "words"),
    [
        (["MISSING"], "workflows.E001", "cannot be imported"),
        (["NO_DEFINITION"], "workflows.E002", "is a str"),
        (["GOOD", "TWIN"], "workflows.E003", "named 'good'"),
        (["EMPTY"], "workflows.E004", "no steps"),
        (["SAME_STEP"], "workflows.E005", "named 'one'"),
        (["OLD_NAME"], "workflows.E005", "named 'one'"),
        (["NOT_ONCE"], "workflows.E006", "is not once"),
        (["UNDO_NOT_ONCE"], "workflows.E006", "has an undo"),
        (["UNDO_IN_DOUBT"], "workflows.W003", "has an undo and no lookup"),
        (["DEMANDING"], "workflows.E008", "requires number before any step has run"),
        (["LONG_NAME"], "workflows.E007", "longer than its column"),
        (["NEITHER"], "workflows.W001", "neither a lookup nor a key_ttl"),
        (["SHORT_KEY"], "workflows.W002", "longer than its key is honoured"),
        (["SAYS_NOTHING"], "workflows.W010", "does not say what it returns"),
        (["MISSPELT"], "workflows.E010", "returns numbr: not declared in Context"),
        (["HIDDEN"], "workflows.E011", "returns token, which Secretive keeps out"),
    ],
)
def test_a_bad_one_is_named(settings: Settings, names: list[str], expected: str, words: str) -> None:
    settings.WORKFLOWS = [f"{__name__}.{name}" for name in names]
    (message,) = check_definitions()
    assert message.id == expected
    assert words in message.msg
