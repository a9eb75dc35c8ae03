"""Submissions that arrive together, entered on a real database: each gets the answer it would get alone."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from typing import Any
from uuid import UUID

import pytest
from django.db import DataError, IntegrityError, connection

from tests.servers import Proxy
from tests.workflows.intake.entering import (
    DEFINITION,
    enter_together,
    entered,
    new,
    statements_for,
    submission,
    with_batches,
)
from workflows.intake.batch import MOST_ROWS, Batch, Row
from workflows.intake.batching import MOST_TRIES, Batches, Overloaded
from workflows.intake.connection import Link
from workflows.intake.submissions import Entry, KeyReused, KeyTaken, enter
from workflows.models import SpentKey, Workflow
from workflows.models.search import SearchKeyHash
from workflows.postgres.deadlines import DatabaseUnavailable
from workflows.search.search_keys import hashes_of

pytestmark = pytest.mark.django_db(transaction=True)


def transactions() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(DISTINCT xmin::text) FROM workflows_workflow")
        return int(cursor.fetchone()[0])


def test_what_arrives_together_is_stored_in_one_commit() -> None:
    sent = [submission({"number": number}) for number in range(20)]
    answers = enter_together(*sent)
    assert all(map(new, answers))
    stored = {row.idempotency_key: (row.pk, row.payload) for row in Workflow.objects.all()}
    assert stored == {each.key: (answer.id, each.payload.value) for each, answer in zip(sent, answers, strict=True)}
    assert transactions() == 1


def test_a_row_is_the_one_that_the_view_stores() -> None:
    value = {"account": "acc-1", "patient": {"email": "Ada@Example.com", "phone": "+1 555 0100"}, "n": 1.50}
    alone, grouped = submission(value), submission(value)
    enter(DEFINITION, idempotency_key=alone.key, payload=alone.payload, submitted_by="shop")
    enter_together(grouped, submission())
    differing = {"id", "idempotency_key", "created_at", "entered_xid", "invisible_until", "expires_at"}
    rows = [Workflow.objects.filter(idempotency_key=each.key).values().get() for each in (alone, grouped)]
    kept = [{name: value for name, value in row.items() if name not in differing} for row in rows]
    assert kept[0] == kept[1]
    assert (kept[0]["priority"], kept[0]["tenant"]) == (3, "")
    assert rows[1]["expires_at"] - rows[1]["created_at"] == DEFINITION.expires_after
    hashes = [sorted(bytes(k.hash) for k in SearchKeyHash.objects.filter(workflow_id=row["id"])) for row in rows]
    assert hashes[0] == hashes[1]
    assert len(hashes[0]) == 2


def test_each_has_the_tenant_of_its_key() -> None:
    alone, grouped, other = submission(), replace(submission(), tenant="north"), submission()
    enter(DEFINITION, idempotency_key=alone.key, payload=alone.payload, submitted_by="shop", tenant="north")
    enter_together(grouped, other)
    tenants = dict(Workflow.objects.values_list("idempotency_key", "tenant"))
    assert [tenants[each.key] for each in (alone, grouped, other)] == ["north", "north", ""]


def test_each_has_its_own_search_keys() -> None:
    sent = [submission({"patient": {"email": f"{name}@example.com"}}) for name in "ab"] + [submission()]
    first, second, without = enter_together(*sent)
    expected = {
        (each, answer.id)
        for one, answer in zip(sent, (first, second, without), strict=True)
        for each in hashes_of(DEFINITION, one.payload.value)
    }
    assert {(bytes(key.hash), key.workflow_id) for key in SearchKeyHash.objects.all()} == expected
    assert len(expected) == 2


def test_the_search_keys_of_a_large_batch_are_joined_by_a_hash() -> None:
    """A nested loop over 250 rows and 500 hashes would cost more than all the rest."""
    loop = asyncio.new_event_loop()
    rows = [
        Row(submission(), None, [number.to_bytes(16), (1000 + number).to_bytes(16)], loop.create_future())
        for number in range(MOST_ROWS)
    ]
    loop.close()
    statement, parameters = Batch(rows).insertion(DEFINITION, 0.1)

    async def explain() -> str:
        link = Link()
        try:
            return "\n".join(line for (line,) in await link.fetch(f"EXPLAIN {statement}", parameters))
        finally:
            await link.close()

    plan = asyncio.run(explain())
    assert "Hash Join" in plan, plan


def test_the_same_submission_twice_at_once_is_stored_once() -> None:
    one = submission({"a": 1})
    other = submission()
    first, again, beside = enter_together(one, one, other)
    assert new(first)
    assert new(beside)
    assert again == Entry(first.id, one.key, "PENDING", "queued", replayed=True)
    assert Workflow.objects.count() == 2


def test_a_duplicate_is_answered_as_the_view_answers_it_and_harms_nobody() -> None:
    stored = [submission({"a": 1}) for _ in range(3)]
    ids = [entry.id for entry in enter_together(*stored)]
    replay = submission({"a": 1.0}, key=stored[0].key)
    reuse = submission({"a": 2}, key=stored[1].key)
    theft = submission({"a": 2}, key=stored[2].key, client="another")
    beside = [submission() for _ in range(5)]
    Workflow.objects.filter(pk=ids[0]).update(status="FAILED")
    replayed, reused, taken, *others = enter_together(replay, reuse, theft, *beside)
    assert replayed == Entry(ids[0], replay.key, "FAILED", "failed", replayed=True)
    assert isinstance(reused, KeyReused)
    assert isinstance(taken, KeyTaken)
    assert all(map(new, others))
    assert Workflow.objects.count() == 8


@pytest.fixture
def refusing(transactional_db: None) -> Iterator[None]:
    """PostgreSQL refuses a payload whose `number` is none (22P02), or negative (23514)."""
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE workflows_workflow ADD CONSTRAINT refusing "
            "CHECK (coalesce((payload ->> 'number')::int, 0) >= 0)"
        )
        yield
        cursor.execute("ALTER TABLE workflows_workflow DROP CONSTRAINT refusing")


def test_a_replay_of_what_is_deleted_is_answered_as_before_and_starts_nothing() -> None:
    replay, other = submission(), submission()
    told = {"workflow_type": DEFINITION.name, "submitted_by": replay.submitted_by}
    SpentKey.objects.create(workflow_id=7, idempotency_key=replay.key, status="COMPLETE", state="complete", **told)
    again, beside = enter_together(replay, other)
    assert again == Entry(7, replay.key, "COMPLETE", "complete", replayed=True)
    assert new(beside)
    assert Workflow.objects.count() == 1


@pytest.mark.usefixtures("refusing")
def test_a_row_that_postgresql_refuses_harms_none_of_its_neighbours() -> None:
    numbers: list[Any] = list(range(20))
    numbers[3], numbers[11], numbers[12] = "x", -1, "x"
    sent = [submission({"number": each}, key=UUID(int=key)) for key, each in enumerate(numbers)]
    answers, statements = statements_for(*sent)
    assert statements < len(sent)
    assert isinstance(answers[3], DataError)
    assert isinstance(answers[12], DataError)
    assert isinstance(answers[11], IntegrityError)
    assert sum(map(new, answers)) == 17
    assert Workflow.objects.count() == 17


@pytest.fixture
def refusing_the_commit(transactional_db: None) -> Iterator[None]:
    """PostgreSQL takes any row, returns its id, and refuses the commit with the SQLSTATE of one that is `bad`."""
    with connection.cursor() as cursor:
        cursor.execute(
            """CREATE SEQUENCE tries;
               CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
               $$ BEGIN
                   IF NEW.payload ? 'late' AND nextval('tries') = 1 THEN RAISE deadlock_detected; END IF;
                   IF NEW.payload ? 'deadly' THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
                   IF NEW.payload ? 'bad' THEN RAISE USING ERRCODE = NEW.payload ->> 'bad'; END IF; RETURN NULL;
               END $$;
               CREATE CONSTRAINT TRIGGER refusing AFTER INSERT ON workflows_workflow DEFERRABLE INITIALLY DEFERRED
               FOR EACH ROW EXECUTE FUNCTION refuse()"""
        )
        yield
        cursor.execute("DROP TRIGGER refusing ON workflows_workflow; DROP FUNCTION refuse(); DROP SEQUENCE tries")


@pytest.mark.usefixtures("refusing_the_commit")
def test_nothing_is_answered_before_its_commit() -> None:
    """The ids of all of them had been returned by then."""
    good, bad, beside = enter_together(submission(), submission({"bad": "22000"}), submission())
    assert new(good)
    assert new(beside)
    assert isinstance(bad, DataError)
    assert Workflow.objects.count() == 2


@pytest.mark.usefixtures("refusing_the_commit")
@pytest.mark.parametrize("sqlstate", ["40P01", "42501", "P0001"])
def test_what_the_server_may_take_later_harms_none_of_its_neighbours(sqlstate: str) -> None:
    good, bad, beside = enter_together(submission(), submission({"bad": sqlstate}), submission(), seconds=1.5)
    assert new(good)
    assert new(beside)
    assert isinstance(bad, DatabaseUnavailable)
    assert Workflow.objects.count() == 2


@pytest.mark.usefixtures("refusing_the_commit")
def test_a_server_that_is_out_of_resources_is_not_asked_for_each_row() -> None:
    bad = [submission({"bad": "53100"}, key=UUID(int=number)) for number in range(20)]
    answers, statements = statements_for(*bad)
    assert all(isinstance(answer, DatabaseUnavailable) for answer in answers)
    assert statements == 1 + MOST_TRIES
    # It is not, when it takes a row in between.
    sent = [submission({"bad": "53100"} if number % 3 else {}, key=UUID(int=number)) for number in range(10)]
    assert [new(answer) for answer in enter_together(*sent)] == [number % 3 == 0 for number in range(10)]


@pytest.mark.usefixtures("refusing_the_commit")
def test_a_key_that_is_held_meanwhile_is_waited_for() -> None:
    bad, late = enter_together(submission({"bad": "XX000"}, key=UUID(int=1)), submission({"late": ""}, key=UUID(int=2)))
    assert isinstance(bad, DatabaseUnavailable)
    assert new(late)


@pytest.mark.usefixtures("refusing_the_commit")
def test_when_the_connection_is_gone_the_rows_behind_are_refused_untried() -> None:
    payloads: list[dict[str, str]] = [{"bad": "XX000"}, {"deadly": ""}, {}, {}]
    answers, statements = statements_for(
        *(submission(payload, key=UUID(int=number)) for number, payload in enumerate(payloads))
    )
    assert all(isinstance(answer, DatabaseUnavailable) for answer in answers)
    assert statements == 3
    assert not Workflow.objects.exists()


def test_a_refusal_of_the_session_is_not_one_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.postgres.session_settings.sql", lambda alias: "SELECT * FROM nothing")
    with pytest.raises(DatabaseUnavailable):
        asyncio.run(Link().fetch("SELECT 1", ()))


def test_what_is_new_takes_one_statement_and_what_is_not_another_one() -> None:
    sent = [submission() for _ in range(5)]
    assert statements_for(*sent)[1] == 1
    assert statements_for(*sent)[1] == 2


def test_a_connection_that_has_died_is_replaced_and_nobody_notices() -> None:
    async def use(batches: Batches) -> list[Any]:
        await batches.enter(submission())
        await asyncio.to_thread(proxy.break_connections)
        return await entered(batches, [submission() for _ in range(5)])

    with Proxy() as proxy, connecting_to_all(proxy):
        assert all(map(new, with_batches(use)))
    assert Workflow.objects.count() == 6


def test_a_server_that_falls_silent_is_503_in_time_and_is_found_again() -> None:
    async def later(batches: Batches) -> list[Any]:
        await asyncio.sleep(0.1)
        return await entered(batches, [submission()])

    async def use(batches: Batches) -> tuple[list[Any], float, Any]:
        await batches.enter(submission())
        proxy.fall_silent()
        began = monotonic()
        five, one = await asyncio.gather(entered(batches, [submission() for _ in range(5)]), later(batches))
        took = monotonic() - began
        await asyncio.to_thread(proxy.break_connections)
        await asyncio.to_thread(proxy.connect)
        return [*five, *one], took, await batches.enter(submission())

    with Proxy() as proxy, connecting_to_all(proxy):
        answers, took, after = with_batches(use, seconds=1.0)
    assert len(answers) == 6
    assert all(isinstance(answer, DatabaseUnavailable) for answer in answers)
    assert took < 2
    assert new(after)


def test_without_a_server_it_is_503_at_once() -> None:
    with connecting_to_all(1) as connects:
        (answer,) = enter_together(submission())
    assert isinstance(answer, DatabaseUnavailable)
    assert connects == [1]


@contextmanager
def connecting_to_all(target: Proxy | int) -> Iterator[list[int]]:
    """Whatever thread asks for the way to the database is told this port: once for each connection."""
    port = target if isinstance(target, int) else target.port
    from workflows.intake import connection as link

    usual = link._parameters
    connects: list[int] = []

    def parameters() -> dict[str, Any]:
        connects.append(port)
        return {**usual(), "host": "127.0.0.1", "port": str(port)}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(link, "_parameters", parameters)
        yield connects


def test_more_than_may_wait_is_refused_at_once_and_taken_later() -> None:
    async def use(batches: Batches) -> tuple[list[Any], Any]:
        return await entered(batches, [submission() for _ in range(5)]), await batches.enter(submission())

    answers, later = with_batches(use, most_rows=3)
    assert [isinstance(answer, Overloaded) for answer in answers] == [False] * 3 + [True] * 2
    assert new(later)
    assert Workflow.objects.count() == 4


def test_more_bytes_than_may_wait_are_refused() -> None:
    sent = [submission({"a": "x" * 5000}) for _ in range(4)]
    loop = asyncio.new_event_loop()
    room_for_two = 2 * Row(sent[0], None, [], loop.create_future()).size
    loop.close()
    answers = enter_together(*sent, most_bytes=room_for_two)
    assert [isinstance(answer, Overloaded) for answer in answers] == [False, False, True, True]


def test_what_is_stored_is_announced_and_what_was_sent_before_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    announced: list[str] = []
    monkeypatch.setattr("workflows.signals.notify.announce", announced.append)
    one = submission()
    enter_together(one)
    enter_together(one)
    assert announced == [DEFINITION.queue]


def test_what_nobody_waits_for_any_more_is_not_stored() -> None:
    async def use(batches: Batches) -> None:
        first = asyncio.ensure_future(batches.enter(submission()))
        await asyncio.sleep(0)
        gone = asyncio.ensure_future(batches.enter(submission(key=UUID(int=7))))
        await asyncio.sleep(0)
        gone.cancel()
        await first
        await batches.enter(submission())

    with_batches(use)
    assert not Workflow.objects.filter(idempotency_key=UUID(int=7)).exists()
    assert Workflow.objects.count() == 2


def test_its_sessions_are_told_what_all_sessions_are_told() -> None:
    async def show() -> list[Any]:
        link = Link()
        try:
            shown = ("TimeZone", "DateStyle", "synchronous_commit")
            return [(await link.fetch(f"SHOW {name}", ()))[0][0] for name in shown]
        finally:
            await link.close()

    database = connection.ops.quote_name(connection.settings_dict["NAME"])
    with connection.cursor() as cursor:
        try:
            cursor.execute(f"ALTER DATABASE {database} SET TimeZone = 'Asia/Tokyo'")
            cursor.execute(f"ALTER DATABASE {database} SET DateStyle = 'SQL, DMY'")
            cursor.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
            assert asyncio.run(show()) == ["UTC", "ISO, MDY", "on"]
        finally:
            cursor.execute(f"ALTER DATABASE {database} RESET ALL")
