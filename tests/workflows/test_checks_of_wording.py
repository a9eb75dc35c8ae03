from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import Settings

from tests.engine import Context
from tests.workflows import rows
from tests.workflows.test_checks import one, two
from workflows.checks import check_codes_have_words, check_wording
from workflows.definition import WorkflowDefinition, definitions
from workflows.wording import CodeWords, StepWords, Wording, label_of_result, words_for_step

ONE = StepWords("The first one", "Phase one")
CODES = {"card_declined": CodeWords("The bank declined it.", "Your bank declined the card.")}


def worded(name: str, wording: Wording | None) -> WorkflowDefinition:
    return WorkflowDefinition(name=name, steps=[one, two], context_class=Context, retired=["three"], wording=wording)


SILENT = worded("silent", None)
WHOLE = worded("whole", Wording(steps={"one": ONE, "two": ONE, "three": ONE}, codes=CODES))
HALF = worded("half", Wording(steps={"one": ONE}))
MISSPELT = worded("misspelt", Wording(steps={"one": ONE, "two": ONE, "tow": ONE}))


@pytest.fixture(autouse=True)
def _definitions_are_read_anew() -> Iterator[None]:
    definitions.cache_clear()
    yield
    definitions.cache_clear()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("SILENT", []),
        ("WHOLE", []),
        ("HALF", [("workflows.W013", "no words for two.")]),
        ("MISSPELT", [("workflows.W014", "names tow")]),
    ],
)
def test_a_definition_that_has_words_has_some_for_each_step(
    settings: Settings, name: str, expected: list[tuple[str, str]]
) -> None:
    settings.WORKFLOWS = [f"{__name__}.{name}"]
    messages = list(check_wording())
    assert [message.id for message in messages] == [id for id, _ in expected]
    assert all(words in message.msg for message, (_, words) in zip(messages, expected, strict=True))


@pytest.mark.django_db
def test_a_code_that_workflows_have_failed_with_is_named_if_nothing_says_what_it_means(settings: Settings) -> None:
    settings.WORKFLOWS = [f"{__name__}.WHOLE", f"{__name__}.SILENT"]
    for code in ("card_declined", "poison", "", "surprising"):
        rows.failed(workflow_type="whole", last_error_code=code)
    rows.failed(workflow_type="silent", last_error_code="surprising")
    rows.failed(workflow_type="stranger", last_error_code="surprising")
    rows.workflow(workflow_type="whole", last_error_code="no_answer")  # it is tried again
    messages = list(check_codes_have_words(databases=["default"]))
    assert {message.id for message in messages} == {"workflows.W015"}
    assert [message.msg.split("'")[1::2] for message in messages] == [["whole", "no_answer"], ["whole", "surprising"]]
    assert list(check_codes_have_words(databases=None)) == []


def test_what_nobody_has_words_for_is_made_of_the_name() -> None:
    assert words_for_step(Wording(), "execute_checkout") == StepWords("Execute checkout")
    assert words_for_step(WHOLE.wording, "one") == ONE
    assert label_of_result(Wording(), "charge_id") == "Charge id"
    assert label_of_result(Wording(results={"charge_id": "Charge"}), "charge_id") == "Charge"
