from datetime import timedelta
from typing import Any

import pytest
from django.core.checks import ERROR, WARNING
from django.db import connection, transaction
from django.db.models.functions import Now
from pydantic import BaseModel, Field
from pytest_django import Settings

from tests.engine import Context
from tests.workflows import rows
from workflows.checks import check_definitions, check_submission_workflow, check_undeclared_steps
from workflows.definition import Step, WorkflowDefinition, WorkflowStep, definitions
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


NOTHING_TO_LOOK_UP = WorkflowDefinition(
    name="nothing_to_look_up",
    steps=[Step(one, once=True, undo_lookup=one, key_ttl=timedelta(days=1), returns=())],
    context_class=Context,
)
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
BOTH = definition([Step(one, once=True, repeatable=True, lookup=lookup, returns=()), two], name="both")
MAILS = definition([Step(one, best_effort=True), two], name="mails")
MAILS_LAST = definition([two, Step(one, best_effort=True)], name="mails_last")
MAILS_ONCE = definition([Step(one, best_effort=True, once=True, key_ttl=DAY, returns=()), two], name="mails_once")
MAILS_REPEATABLY = definition([Step(one, best_effort=True, repeatable=True), two], name="mails_repeatably")
NO_DEFINITION = "a string"


def test_a_good_definition_passes(settings: Settings) -> None:
    good = ("GOOD", "LONG_KEY", "UNDONE", "MAILS_LAST", "MAILS_ONCE", "MAILS_REPEATABLY")
    settings.WORKFLOWS = [f"{__name__}.{name}" for name in good]
    assert check_definitions() == []


@pytest.mark.parametrize(("entered", "warned"), [("good", False), ("", False), ("onboarding", True)])
def test_the_definition_that_submissions_enter_is_one_of_the_releases(
    settings: Settings, entered: str, warned: bool
) -> None:
    settings.WORKFLOWS, settings.SUBMISSION_WORKFLOW = [f"{__name__}.GOOD"], entered
    definitions.cache_clear()
    messages = check_submission_workflow()
    definitions.cache_clear()
    assert [message.id for message in messages] == ["workflows.W012"] * warned
    if warned:
        assert "SUBMISSION_WORKFLOW is 'onboarding', which no definition in WORKFLOWS is called" in messages[0].msg
        assert messages[0].hint
        assert "one of: good" in messages[0].hint


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
        (["NOTHING_TO_LOOK_UP"], "workflows.E006", "an undo_lookup and no undo"),
        (["UNDO_IN_DOUBT"], "workflows.W003", "has an undo and no lookup"),
        (["DEMANDING"], "workflows.E008", "requires number before any step has run"),
        (["LONG_NAME"], "workflows.E007", "longer than its column"),
        (["NEITHER"], "workflows.W001", "neither a lookup nor a key_ttl"),
        (["SHORT_KEY"], "workflows.W002", "longer than its key is honoured"),
        (["SAYS_NOTHING"], "workflows.W010", "does not say what it returns"),
        (["MISSPELT"], "workflows.E010", "returns numbr: not declared in Context"),
        (["HIDDEN"], "workflows.E011", "returns token, which Secretive keeps out"),
        (["MAILS"], "workflows.W005", "'one' of 'mails' is best effort and stands before others"),
        (["BOTH"], "workflows.E009", "'one' of 'both' is once and repeatable"),
    ],
)
def test_a_bad_one_is_named(settings: Settings, names: list[str], expected: str, words: str) -> None:
    settings.WORKFLOWS = [f"{__name__}.{name}" for name in names]
    (message,) = check_definitions()
    assert (message.id, message.level) == (expected, WARNING if ".W" in expected else ERROR)
    assert words in message.msg


PAID = WorkflowDefinition(
    name="paid",
    steps=[Step(one, once=True, formerly=("uno",), key_ttl=timedelta(1))],
    context_class=Context,
    retired=["three"],
)


@pytest.mark.django_db
def test_the_steps_that_workflows_under_way_have_called_and_no_list_declares_are_named(settings: Settings) -> None:
    settings.WORKFLOWS = [f"{__name__}.PAID"]
    definitions.cache_clear()
    for name, status, state in [
        *(("gone", "PENDING", "done"), ("gone", "PENDING", "unknown"), ("gone", "COMPLETE", "done")),
        *(("one", "PENDING", "done"), ("uno", "PENDING", "intent"), ("three", "PENDING", "done")),
        ("not_there", "PENDING", "not_done"),
    ]:
        row = rows.workflow(workflow_type="paid", status=status, completed_at=None if status == "PENDING" else Now())
        row.effects.create(step=name, state=state, result={}, attempt=1, idempotency_key=f"{row.key}:{name}")
        row.effects.create(
            step="gone", undo=True, state="done", result={}, attempt=1, idempotency_key=f"{row.key}:undo"
        )
    stranger = rows.workflow(workflow_type="stranger")
    stranger.effects.create(step="gone", state="done", result={}, attempt=1, idempotency_key="stranger")
    (message,) = check_undeclared_steps(databases=["default"])
    definitions.cache_clear()
    assert message.id == "workflows.W004"
    assert "'paid' declares no step 'gone'" in message.msg
    assert "(2)" in message.msg
    assert "formerly=('gone',)" in str(message.hint)
    assert "retired=('gone',)" in str(message.hint)


def test_the_database_is_read_only_where_somebody_asks_for_that() -> None:
    """Without a mark the test may not use it."""
    assert check_undeclared_steps(databases=None) == []


@pytest.mark.django_db
def test_before_the_migrations_of_a_release_nothing_is_said_of_its_steps() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE workflows_effect RENAME COLUMN undo TO not_yet")
    with transaction.atomic():
        assert check_undeclared_steps(databases=["default"]) == []
        transaction.set_rollback(True)
