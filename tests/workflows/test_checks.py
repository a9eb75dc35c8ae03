from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.checks import ERROR, WARNING, CheckMessage
from django.db import connection, transaction
from django.db.models.functions import Now
from pydantic import BaseModel, Field
from pytest_django import Settings

from tests.engine import Context
from tests.workflows import rows
from workflows.before_undo import ask
from workflows.checks import (
    check_definitions,
    check_options,
    check_series,
    check_submission_workflow,
    check_teams,
    check_undeclared_steps,
)
from workflows.correctable import Correctable
from workflows.definition import (
    OPTIONS_OF_FEATURES,
    Brake,
    Retention,
    Retry,
    Step,
    WorkflowDefinition,
    WorkflowStep,
    definitions,
)
from workflows.features import installed
from workflows.health import series
from workflows.models import Workflow
from workflows.wording import ENGINE_CODES, Money, Wording

DAY = timedelta(hours=24)


def one(*, workflow: Workflow, context: Context) -> None: ...
def two(*, workflow: Workflow, context: Context) -> None: ...
def undo(*, workflow: Workflow, context: Context, effect: Any) -> None: ...
def lookup(*, workflow: Workflow, context: Context, effect: Any) -> None: ...


class Demanding(BaseModel):
    number: int


class Secretive(BaseModel):
    token: str | None = Field(default=None, exclude=True)
    number: int | None = None


def definition(*steps: Step | WorkflowStep, **options: Any) -> WorkflowDefinition:
    return WorkflowDefinition(**{"name": "good", "steps": steps, "context_class": Context, **options})


def once(**options: Any) -> Step:
    return Step(one, once=True, **{"key_ttl": DAY, "returns": (), **options})


REVERSED = once(undo=undo, lookup=lookup)
UNDONE = (REVERSED, once(name="last", undo=undo, lookup=lookup))
PAID = Wording(money=Money("one", "cents", "currency", "number", "number"))
GOOD = definition(one, two)
ASKING = definition(REVERSED, before_undo=ask("billing", when=["poison"]))
TWIN = definition(one)
NO_DEFINITION = "a string"
TRIED = GOOD  # what the test tries


def checked(tried: WorkflowDefinition, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> list[CheckMessage]:
    monkeypatch.setitem(globals(), "TRIED", tried)
    settings.WORKFLOWS = [f"{__name__}.TRIED"]
    return list(check_definitions())


@pytest.mark.parametrize(
    "steps",
    [
        (one, two),
        (once(), two),
        (once(undo=undo, lookup=lookup, returns=("number", "text")),),
        (two, Step(one, best_effort=True)),
        (once(best_effort=True), two),
        (Step(one, best_effort=True, repeatable=True), two),
        (two, once(name="account", stays=True), *UNDONE, once(name="mail")),
    ],
)
def test_a_good_definition_passes(
    steps: Sequence[Step | WorkflowStep], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checked(definition(*steps), settings, monkeypatch) == []


@pytest.mark.parametrize(("entered", "warned"), [("good", False), ("", False), ("onboarding", True)])
def test_the_definition_that_submissions_enter_is_one_of_the_releases(
    settings: Settings, entered: str, warned: bool
) -> None:
    settings.WORKFLOWS, settings.SUBMISSION_WORKFLOW = [f"{__name__}.GOOD"], entered
    definitions.cache_clear()
    messages = list(check_submission_workflow())
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
    ],
)
def test_a_bad_path_is_named(settings: Settings, names: list[str], expected: str, words: str) -> None:
    settings.WORKFLOWS = [f"{__name__}.{name}" for name in names]
    (message,) = check_definitions()
    assert (message.id, message.level) == (expected, ERROR)
    assert words in message.msg


@pytest.mark.parametrize(
    ("bad", "expected", "words"),
    [
        (definition(), "E004", "no steps"),
        (definition(one, Step(two, name="one")), "E005", "named 'one'"),
        (definition(one, Step(two, formerly=("one",))), "E005", "named 'one'"),
        (definition(Step(one, key_ttl=DAY)), "E006", "is not once"),
        (definition(Step(one, undo=undo)), "E006", "has an undo"),
        (definition(once(undo_lookup=lookup)), "E006", "an undo_lookup and no undo"),
        (definition(Step(one, name="x" * 101)), "E007", "longer than its column"),
        (definition(Step(one, name="x\0")), "E007", "characters that cannot be printed"),
        (definition(one, name="\ud800"), "E007", "characters that cannot be printed"),
        (definition(one, queue=""), "E007", "is empty"),
        (definition(one, context_class=Demanding), "E008", "requires number before any step has run"),
        (definition(once(repeatable=True, lookup=lookup), two), "E009", "'one' of 'good' is once and repeatable"),
        (definition(once(returns=("numbr", "text"))), "E010", "returns numbr: not declared in Context"),
        (
            definition(once(returns=("token", "number")), context_class=Secretive),
            "E011",
            "returns token, which Secreti",
        ),
        (definition(once(), before_undo=ask("a", when=["poison"])), "E017", "is never asked: no step has an undo"),
        (definition(REVERSED, before_undo=ask("a")), "E017", "has no words for its codes"),
        (definition(REVERSED, before_undo=ask("a", when=["lost"])), "E017", "after lost, and the wording has no words"),
        (definition(REVERSED, before_undo=ask("a", when=["expired"])), "E017", "is never asked after expired"),
        (definition(once(key_ttl=None)), "W001", "neither a lookup nor a key_ttl"),
        (definition(once(undo=undo)), "W003", "has an undo and no lookup"),
        (definition(Step(one, best_effort=True), two), "W005", "'one' of 'good' is best effort and stands before"),
        (definition(once(returns=None)), "W010", "does not say what it returns"),
        (
            definition(once(name="mail"), *UNDONE, two),
            "W056",
            "'mail' of 'good' is once, and has no undo: if 'last' or",
        ),
        (definition(once(best_effort=True, name="mail"), *UNDONE), "W056", "'mail' of 'good' is once, and has no undo"),
        (
            definition(once(stays=True, returns=("number",)), two, wording=PAID),
            "W056",
            "'one' of 'good' charges, and says stays=True",
        ),
        (definition(once(undo=undo, lookup=lookup, stays=True)), "E057", "says stays=True, and has an undo"),
        (definition(Step(one, stays=True)), "E057", "or is not once"),
    ],
)
def test_a_bad_definition_is_named(
    bad: WorkflowDefinition, expected: str, words: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (message,) = checked(bad, settings, monkeypatch)
    assert (message.id, message.level) == (f"workflows.{expected}", WARNING if expected[0] == "W" else ERROR)
    assert words in message.msg


def test_a_step_may_say_that_a_person_is_asked(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not checked(definition(once(key_ttl=timedelta(0))), settings, monkeypatch)


def test_one_name_is_never_taken_for_its_letters() -> None:
    """`p`, `a`, `s` would be sealed, and the password stored in clear."""
    assert definition(one, secret_fields="password").secret_fields == ("password",)


STATES_ALL = definition(
    Step(one, best_effort=True, repeatable=True, parks=True, needs=("billing",), follow_up=Retry()),
    brake=Brake(),
    business_key="email",
    same_person=("name", "born_on"),
    correctable=Correctable(Secretive, {}),
    retention=Retention(),
    publishes="failed",
    listings={"one": lambda since: ()},
)


@pytest.mark.parametrize("feature", OPTIONS_OF_FEATURES)
def test_an_option_whose_feature_is_not_installed_is_an_error_that_names_both(
    feature: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.checks.readable_definitions", lambda: {"plain": GOOD, "good": STATES_ALL})
    assert not list(check_options())
    for name in ("FEATURES", "EXTENSIONS"):
        others = [each for each in getattr(installed, name) if f".{feature}." not in type(each).__module__]
        monkeypatch.setattr(installed, name, others)
    assert [(each.id, each.msg) for each in check_options()] == [
        (
            "workflows.E023",
            f"The definition 'good' says {option}=, and the feature {feature!r} is not installed: "
            "nothing does what the option says.",
        )
        for option in sorted(OPTIONS_OF_FEATURES[feature])
    ]


@pytest.mark.parametrize(("name", "feature"), [("FEATURES", "business_key"), ("EXTENSIONS", "outages")])
def test_a_feature_is_not_installed_either_if_one_of_its_doors_is_not_asked(
    name: str, feature: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.checks.readable_definitions", lambda: {"good": STATES_ALL})
    monkeypatch.setattr(installed, name, ())
    assert any(f"the feature {feature!r} is" in each.msg for each in check_options())


PAID = WorkflowDefinition(
    name="paid",
    steps=[Step(one, once=True, formerly=("uno",), key_ttl=timedelta(1))],
    context_class=Context,
    retired=["three", "gnoe"],
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
    assert "retired=('gone',)). Did you mean 'gnoe'?" in str(message.hint)


@pytest.mark.parametrize(
    ("team", "options"),
    [
        *[("", {}), ("x" * 151, {}), ("a", {"when": "program_full"}), ("a", {"when": [""]})],
        *[("a", {"timeout": DAY + timedelta(seconds=1)}), ("a", {"timeout": timedelta(0)})],
    ],
)
def test_a_question_before_a_reversal_that_nobody_could_answer_is_refused(team: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"question before a reversal|tuple of error codes"):
        ask(team, **options)


@pytest.mark.django_db
def test_a_team_that_is_no_group_is_named(settings: Settings) -> None:
    settings.WORKFLOWS = [f"{__name__}.ASKING"]
    definitions.cache_clear()
    (message,) = check_teams(databases=["default"])
    assert (message.id, "'billing'" in message.msg) == ("workflows.W026", True)
    Group.objects.create(name="billing")
    assert list(check_teams(databases=["default"])) == list(check_teams(databases=None)) == []
    definitions.cache_clear()


def test_more_series_than_are_told_are_named(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.WORKFLOWS = [f"{__name__}.PAID"]
    definitions.cache_clear()
    monkeypatch.setattr(series, "MOST_SERIES", len(ENGINE_CODES))
    assert list(check_series()) == []
    monkeypatch.setattr(series, "MOST_SERIES", len(ENGINE_CODES) - 1)
    (message,) = check_series()
    assert message.id == "workflows.W018"
    definitions.cache_clear()


def test_the_database_is_read_only_where_somebody_asks_for_that() -> None:
    """Without a mark the test may not use it."""
    assert list(check_undeclared_steps(databases=None)) == []


@pytest.mark.django_db
def test_before_the_migrations_of_a_release_nothing_is_said_of_its_steps() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE workflows_effect RENAME COLUMN undo TO not_yet")
    with transaction.atomic():
        assert list(check_undeclared_steps(databases=["default"])) == []
        transaction.set_rollback(True)
