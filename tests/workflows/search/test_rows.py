"""`manage.py searchkeys`: keys for rows that have none, and a new key for all, without a gap."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection

from tests import engine
from tests.postgres import without_triggers
from tests.workflows.search.test_search_keys import CANARY, KEYED, found, send, step
from workflows.definition import WorkflowDefinition, definitions
from workflows.management import slices
from workflows.management.commands import searchkeys
from workflows.models import OriginalPayload, SearchKeyHash, Workflow
from workflows.search import normalise
from workflows.search import rows as search_key_rows
from workflows.search.rows import begin, fill
from workflows.search.search_keys import SearchKey, hashes_of

pytestmark = engine.ENGINE

BY_NUMBER = {"email": SearchKey("patient.email", normalise.plain)}
NUMBERED = WorkflowDefinition(name="numbered", steps=[step], context_class=engine.Context, search_keys=BY_NUMBER)


@pytest.fixture(autouse=True)
def known(engine: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Slices of three, and no rests between them."""
    settings.WORKFLOWS = [
        "tests.workflows.search.test_search_keys.KEYED",
        "tests.workflows.search.test_search_keys.PLAIN",
        "tests.workflows.search.test_rows.NUMBERED",
    ]
    settings.SEARCH_KEYS = ["the-old-one"]
    monkeypatch.setattr(search_key_rows, "SLICE", 3)
    monkeypatch.setattr(search_key_rows, "LONGEST_REST", 0.0)
    definitions.cache_clear()
    yield
    definitions.cache_clear()


def old_row(email: Any = CANARY, **fields: Any) -> int:
    """A workflow as a release without search keys has stored it."""
    payload = {"patient": {"email": email, "phone": "+15550102323"}}
    return Workflow.objects.create(
        **{"idempotency_key": uuid4(), "workflow_type": "keyed", "payload": payload, **fields}
    ).pk


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("searchkeys", *arguments, stdout=out)
    return out.getvalue()


def key_ids() -> list[int]:
    return sorted(set(SearchKeyHash.objects.values_list("key_id", flat=True)))


# --- fill ---------------------------------------------------------------------------------------


def test_it_gives_old_rows_the_keys_that_a_submission_would_have() -> None:
    rows = [old_row() for _ in range(7)]
    new = send().id
    assert "14 were missing" in run("fill")
    assert found("email", CANARY) == found("phone", "+15550102323") == [*rows, new]
    assert "0 were missing" in run("fill")


@pytest.mark.parametrize("email", [None, {"a": 1}, "nobody", "a" * 400 + "@example.com"])
def test_it_gives_exactly_what_the_intake_gives(email: Any) -> None:
    entered = send('{"patient": {"email": "x"}}')
    connection.cursor().execute(
        "UPDATE workflows_workflow SET payload = jsonb_set(payload, '{patient,email}', %s::jsonb) WHERE id = %s",
        ["null", entered.id],
    )
    old_row(email, payload={"patient": {"email": email}})
    old_row(payload={})
    run("fill")
    assert hashes_of(KEYED, {"patient": {"email": email}}) == []
    assert not SearchKeyHash.objects.exists()


def test_types_without_search_keys_and_unknown_ones_are_passed_by() -> None:
    assert "0 were missing" in run("fill"), "no rows are no trouble"
    old_row(workflow_type="plain")
    old_row(workflow_type="of another release")
    assert "0 were missing" in run("fill")


def test_it_goes_on_where_it_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [old_row() for _ in range(7)]
    slices = fill(begin())
    below = next(slices).below
    slices.close()
    assert found("email", CANARY) == rows[-3:]
    assert below == rows[-3]
    read = []
    usual = search_key_rows._fill_slice
    monkeypatch.setattr(search_key_rows, "_fill_slice", lambda below, size: read.append(below) or usual(below, size))
    assert "8 were missing" in run("fill", "--below", str(below))
    assert read[0] == below
    assert found("email", CANARY) == rows


def test_when_it_is_stopped_it_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [old_row() for _ in range(7)]

    def interrupted(progress: Any) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(slices, "SAY_EVERY", 0.0)
    monkeypatch.setattr(searchkeys.Command, "_how_far", lambda self, progress: interrupted(progress))
    with pytest.raises(CommandError, match=f"searchkeys fill --below {rows[-3]}$"):
        run("fill")


def test_a_slice_that_takes_too_long_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [old_row() for _ in range(7)]
    usual, sizes = search_key_rows._fill_slice, []

    def slow(below: int, size: int) -> tuple[int, int]:
        sizes.append(size)
        if size > 1:
            with search_key_rows._limited(), connection.cursor() as cursor:
                cursor.execute("SET LOCAL statement_timeout = 1; SELECT pg_sleep(5)")
        return usual(below, size)

    monkeypatch.setattr(search_key_rows, "_fill_slice", slow)
    run("fill")
    assert found("email", CANARY) == rows
    assert sizes[:3] == [3, 1, 3]


def test_another_error_of_the_database_ends_it_and_says_nothing_of_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    old_row()

    def failing(below: int, size: int) -> tuple[int, int]:
        raise OperationalError(f"DETAIL: {CANARY}")

    monkeypatch.setattr(search_key_rows, "_fill_slice", failing)
    with pytest.raises(CommandError, match=r"The database failed: OperationalError\. Go on later") as caught:
        run("fill")
    assert CANARY not in str(caught.value)


def test_what_was_corrected_is_found_by_what_was_first_sent_too() -> None:
    row = old_row(email="right@example.com")
    OriginalPayload.objects.create(workflow_id=row, payload={"patient": {"email": CANARY}})
    run("fill")
    assert found("email", CANARY) == found("email", "right@example.com") == [row]


# --- rotate -------------------------------------------------------------------------------------


def test_a_key_is_rotated_without_a_gap(settings: Any) -> None:
    mine = [send().id for _ in range(5)]
    (old,) = key_ids()
    settings.SEARCH_KEYS = ["the-new-one", "the-old-one"]
    assert found("email", CANARY) == mine
    mine.append(send().id)
    assert "10 search keys of other keys are removed" in run("rotate")
    assert found("email", CANARY) == mine
    assert len(key_ids()) == 1 != [old]
    settings.SEARCH_KEYS = ["the-new-one"]
    assert found("email", CANARY) == mine


def test_until_the_new_ones_are_written_the_old_ones_stay(settings: Any) -> None:
    mine = [send().id for _ in range(5)]
    settings.SEARCH_KEYS = ["the-new-one", "the-old-one"]
    for _ in fill(begin()):
        assert sorted(set(found("email", CANARY))) == mine
    assert len(key_ids()) == 2


def test_keys_of_a_secret_that_nobody_has_any_more_are_removed(settings: Any) -> None:
    send()
    settings.SEARCH_KEYS = ["the-new-one"]
    assert "2 search keys of other keys are removed" in run("rotate")
    assert len(key_ids()) == 1


def test_what_a_process_has_written_with_the_old_key_meanwhile_stays_and_is_told(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    send()
    settings.SEARCH_KEYS = ["the-new-one", "the-old-one"]
    usual = search_key_rows.remove_old
    late = []

    def with_a_late_one(progress: Any) -> Any:
        settings.SEARCH_KEYS = ["the-old-one"]
        late.append(send().id)
        settings.SEARCH_KEYS = ["the-new-one", "the-old-one"]
        return usual(progress)

    monkeypatch.setattr(search_key_rows, "remove_old", with_a_late_one)
    with pytest.raises(CommandError, match=r"2 were written with another key while this ran.*Restart it"):
        run("rotate")
    assert late[0] in found("email", CANARY)
    monkeypatch.undo()
    settings.SEARCH_KEYS = ["the-new-one", "the-old-one"]
    run("rotate")
    assert late[0] in found("email", CANARY)
    assert len(key_ids()) == 1


def test_keys_of_a_type_that_is_unknown_here_stay_and_are_told(settings: Any) -> None:
    mine = send().id
    Workflow.objects.filter(pk=mine).update(workflow_type="of another release")
    settings.SEARCH_KEYS = ["the-new-one", "the-old-one"]
    assert "2 stay" in run("rotate")
    assert found("email", CANARY) == [mine]
    with without_triggers():
        Workflow.objects.filter(pk=mine).delete()
    assert "2 search keys of other keys are removed" in run("rotate")


def test_numbers_and_truth_values_are_filled_in_as_they_are_stored_at_entry() -> None:
    sent = ["7", "7.0", "1e3", "12.50", "true", '"7"', "null", "[7]", "{}", "123456789012345678901234567890"]
    for value in sent:
        send(f'{{"patient": {{"email": {value}}}}}', definition=NUMBERED)
    at_entry = sorted(SearchKeyHash.objects.values_list("hash", "workflow_id"))
    assert len(at_entry) == 7
    with without_triggers():
        SearchKeyHash.objects.all().delete()
    for _ in fill(begin()):
        pass
    assert sorted(SearchKeyHash.objects.values_list("hash", "workflow_id")) == at_entry
