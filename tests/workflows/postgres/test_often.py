"""Statements of figures: whose plans the session keeps, and when it must not."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Length

from workflows.models import Service
from workflows.postgres import often, wire
from workflows.postgres.wire import wire_of

pytestmark = pytest.mark.django_db(transaction=True)

NAMED = "SELECT name, name LIKE 'a%%' FROM unnest(%(names)s::text[]) name"


@pytest.fixture
def raw() -> Iterator[Any]:
    connection.close()
    connection.ensure_connection()
    yield connection.connection
    connection.close()


def kept() -> list[str]:
    """The statements that the server keeps in this session."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements ORDER BY prepare_time")
        return [statement for (statement,) in cursor.fetchall()]


def test_a_statement_is_planned_once_with_its_parameters_as_constants(raw: Any) -> None:
    for _ in range(2):
        assert often.fetch_all(NAMED, {"names": ["a%s", "b'%"]}) == [("a%s", True), ("b'%", False)]
        assert often.fetch_row("SELECT 'a' LIKE 'a%%'") == (True,)
    assert len(kept()) == 2
    assert "$1" not in kept()[0], "PostgreSQL would plan each run anew for its parameters"


def test_behind_a_pooler_no_plan_is_kept_because_the_backend_may_be_another_one(raw: Any) -> None:
    raw.onramp_backend = None  # see half_open
    assert often.fetch_all(NAMED, {"names": ["a"]}) == [("a", True)]
    assert kept() == []


def test_the_first_statement_of_a_transaction_begins_it(raw: Any) -> None:
    with transaction.atomic():
        (first,) = often.fetch_row("SELECT now()")
        (second,) = often.fetch_row("SELECT now()")
    assert first == second


def test_what_is_not_asked_any_more_is_dropped_when_its_minute_is_over(
    raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    often.fetch_row("SELECT 1")
    later = monotonic() + wire.PREPARED_FOR
    monkeypatch.setattr(wire, "monotonic", lambda: later)
    often.fetch_row("SELECT 2")
    assert (kept(), len(wire_of(raw)._prepared)) == (["SELECT 2"], 1)


def test_the_same_statement_with_other_parameters_has_constants_of_its_own(
    raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(often, "_MOST_TEXTS", 2)
    often._texts.clear()
    for name in ("a", "b", "c", "a"):
        assert often.fetch_all(NAMED, {"names": [name]}) == [(name, name == "a")]
        assert len(often._texts) <= 2


def test_a_statement_is_run_though_another_thread_drops_its_text(raw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dropped(dict[tuple[str, str], str]):
        def __setitem__(self, key: tuple[str, str], text: str) -> None:
            self.clear()

    monkeypatch.setattr(often, "_texts", Dropped())
    assert often.fetch_all(NAMED, {"names": ["a"]}) == [("a", True)]


def numbered() -> QuerySet[Service]:
    return Service.objects.filter(step="").annotate(length=Length("name")).order_by("name")


def test_instances_are_as_django_reads_them_and_what_it_converts_is_read_when_it_is_asked_for(raw: Any) -> None:
    Service.objects.create(name="payments", tallies={"r1": 2}, judged=[4, 5])
    often.instances(numbered)
    Service.objects.create(name="visits")
    found = often.instances(numbered)
    assert [(each.name, vars(each)["length"]) for each in found] == [("payments", 8), ("visits", 6)]
    assert (found[0], found[0].judged, found[0].tallies) == (Service.objects.get(pk="payments"), [4, 5], {"r1": 2})
