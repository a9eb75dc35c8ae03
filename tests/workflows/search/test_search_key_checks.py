"""What `manage.py check` says of search keys, and of the secret that they are made with."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from tests.engine import Context
from workflows.checks import check_definitions, check_search_keys
from workflows.definition import WorkflowDefinition
from workflows.models import Workflow
from workflows.sealing.envelopes import FROM_SECRET_KEY
from workflows.search import normalise
from workflows.search.search_keys import SearchKey

LONG, OTHER = "a" * 32, "b" * 43


def one(*, workflow: Workflow, context: Context) -> None: ...


def definition(search_keys: Any, **more: Any) -> WorkflowDefinition:
    return WorkflowDefinition(name="good", steps=[one], context_class=Context, search_keys=search_keys, **more)


GOOD = definition(
    {"email": SearchKey("patient.email", normalise.email), "order_2": SearchKey("order", normalise.email)}
)
BAD_KIND = definition({"E-mail": SearchKey("patient.email", normalise.email)})
NO_FIELD = definition({"email": SearchKey("patient..email", normalise.email)})
BUSINESS, NO_BUSINESS = definition({}, business_key="order.number"), definition({}, business_key=("order", ""))


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        *(("GOOD", []), ("BAD_KIND", ["workflows.E013"]), ("NO_FIELD", ["workflows.E013"])),
        *(("BUSINESS", []), ("NO_BUSINESS", ["workflows.E014"])),
    ],
)
def test_a_search_key_is_a_word_and_a_field_and_a_business_key_fields(
    settings: Settings, name: str, ids: list[str]
) -> None:
    settings.WORKFLOWS = [f"{__name__}.{name}"]
    assert [message.id for message in check_definitions()] == ids


@pytest.mark.parametrize(
    ("keys", "ids"),
    [
        ([LONG], []),
        ([LONG, OTHER], []),
        ([LONG, FROM_SECRET_KEY], []),
        ([], ["workflows.W016"]),
        (["c" * 31], ["workflows.W017"]),
        ([LONG, "tiny"], ["workflows.W017"]),
        ([LONG, LONG], ["workflows.W017"]),
    ],
)
def test_the_secret_is_set_and_long_and_there_once(settings: Settings, keys: list[str], ids: list[str]) -> None:
    settings.SEARCH_KEYS = keys
    messages = list(check_search_keys())
    assert [message.id for message in messages] == ids
    assert all("searchkeys --help" in str(message.hint) for message in messages)
    assert not any(key in f"{message.msg}{message.hint}" for message in messages for key in (LONG, "tiny"))
