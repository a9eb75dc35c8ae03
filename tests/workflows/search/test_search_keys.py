"""Search keys are stored with the row, or not at all; and nobody's submission is refused for want of one."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError

from tests import engine
from tests.servers import ROOT
from workflows.definition import WorkflowDefinition, definitions
from workflows.intake.submissions import Entry, enter, start
from workflows.models import SearchKeyHash, Workflow
from workflows.postgres.jsonb import parse
from workflows.sealing.envelopes import FROM_SECRET_KEY
from workflows.search import normalise, search_keys
from workflows.search.search_keys import SearchKey, hashes_to_find, keys
from workflows.waits import Child, wait_for_children

pytestmark = engine.ENGINE


def step(*, workflow: Workflow, context: Any) -> None: ...


def fails(text: str) -> Sequence[str]:
    raise ValueError(text)


BY = {
    "email": SearchKey("patient.email", normalise.email, only_as_hash=True),
    "phone": SearchKey("patient.phone", normalise.phone("1")),
}
KEYED = WorkflowDefinition(name="keyed", steps=[step], context_class=engine.Context, search_keys=BY)
PLAIN = WorkflowDefinition(name="plain", steps=[step], context_class=engine.Context)
BROKEN = WorkflowDefinition(
    name="broken", steps=[step], context_class=engine.Context, search_keys={"email": SearchKey("patient.email", fails)}
)
CANARY = "canary-7f3a@example.com"
SENT = '{"patient": {"email": "%s", "phone": "+15550102323"}}'


def send(payload: str = SENT % CANARY, definition: WorkflowDefinition = KEYED, **fields: Any) -> Entry:
    key = fields.pop("key", None) or uuid4()
    return enter(definition, idempotency_key=key, payload=parse(payload.encode()), submitted_by="shop")


def found(kind: str, text: str) -> list[int]:
    """The workflows with a search key, as a search looks for it."""
    hashes = hashes_to_find(kind, BY[kind].read(text))
    return sorted(SearchKeyHash.objects.filter(hash__in=hashes).values_list("workflow_id", flat=True))


def test_a_submission_is_found_by_each_of_its_search_keys_of_which_hashes_are_stored() -> None:
    mine, other = send(), send(SENT % "john@example.com")
    assert found("email", " CANARY-7f3a@example.com") == [mine.id]
    assert found("phone", "(555) 010-2323") == [mine.id, other.id]
    assert found("email", "jane@example.com") == []
    stored = list(SearchKeyHash.objects.values())
    assert {len(bytes(each["hash"])) for each in stored} == {16}
    assert "canary" not in str(stored)
    assert {each["key_id"] for each in stored} == {keys()[0].id}


def test_without_its_search_keys_a_row_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_keys, "hashes_of", lambda definition, payload: [b"1", b"1"])
    with pytest.raises(IntegrityError):
        send()
    assert not Workflow.objects.exists()


def test_a_workflow_that_is_started_by_its_business_key_has_them_too() -> None:
    for _ in range(2):
        entry = start(
            KEYED, tenant="", business_key="b-1", payload=parse((SENT % CANARY).encode()), submitted_by="shop"
        )
    assert found("email", CANARY) == [entry.id]
    assert found("phone", "5550102323") == [entry.id]


def test_what_cannot_be_normalised_gets_no_key_and_is_taken_as_any_other() -> None:
    for payload in (
        '{"patient": null}',
        '{"patient": {"email": 1, "phone": 5}}',
        '{"patient": {"email": ["a@example.com"], "phone": "none"}}',
        '{"patient": {"email": "%s"}}' % ("a" * 1000 + "@example.com"),
    ):
        assert not send(payload).replayed
    assert not SearchKeyHash.objects.exists()


def test_an_author_s_mistake_refuses_nobody_and_the_log_holds_no_value(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        send(definition=BROKEN)
    assert Workflow.objects.count() == 1
    assert "patient.email cannot be normalised: ValueError" in caplog.text
    assert "canary" not in caplog.text


# --- Children -----------------------------------------------------------------------------------


def fan_out(*, workflow: Workflow, context: Any) -> None:
    payloads = [{"patient": {"email": f"{n}@example.com"}} for n in range(3)]
    children = [Child("keyed", payload, key=f"c{n}") for n, payload in enumerate(payloads)]
    wait_for_children(workflow, "all", [*children, Child("plain", payloads[0])], timeout=timedelta(hours=1))


PARENT = WorkflowDefinition(name="parent", steps=[fan_out], context_class=engine.Context)


@pytest.fixture
def known(settings: Any) -> Iterator[None]:
    settings.WORKFLOWS = [f"{__name__}.{name}" for name in ("KEYED", "PLAIN", "PARENT")]
    definitions.cache_clear()
    yield
    definitions.cache_clear()


def test_each_child_has_its_own(known: None) -> None:
    parent = engine.submit({}, workflow_type="parent")
    engine.worker().process_next()
    children = {child.child_key: child.pk for child in Workflow.objects.filter(parent=parent)}
    for number in range(3):
        assert found("email", f"{number}@example.com") == [children[f"c{number}"]]
    assert SearchKeyHash.objects.count() == 3


# --- Keys ---------------------------------------------------------------------------------------


def test_without_a_setting_it_is_made_of_the_secret_key_and_is_not_that(settings: Any) -> None:
    settings.SEARCH_KEYS = []
    made = send()
    settings.SEARCH_KEYS = ["a-new-one", FROM_SECRET_KEY]
    assert found("email", CANARY) == [made.id]
    settings.SEARCH_KEYS = [settings.SECRET_KEY]
    assert found("email", CANARY) == []
    settings.SEARCH_KEYS, settings.SECRET_KEY = [], "another"
    assert found("email", CANARY) == []


def test_every_insert_of_a_workflow_is_one_that_knows_search_keys() -> None:
    """A new way in must store them as well: these are the two there are."""
    root = ROOT / "workflows"
    sources = {str(path.relative_to(root)): path.read_text() for path in root.rglob("*.py")}
    inserting = {name for name, text in sources.items() if re.search(r"INSERT INTO workflows_workflow\b", text)}
    assert inserting == {"intake/submissions.py", "waits/children.py"}
    assert all("INSERT INTO workflows_searchkey" in sources[name] for name in inserting)
