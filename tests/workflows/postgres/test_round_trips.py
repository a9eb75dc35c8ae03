"""The engine's own statements: prepared, several in one trip, and in step with what Django knows of the transaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import Group
from django.db import DataError, InternalError, OperationalError, connection, connections, transaction

from tests import engine
from tests.clock import standing_still
from workflows.errors import ClaimLost
from workflows.postgres.deadlines import query_in_time
from workflows.postgres.round_trips import Session, session_of
from workflows.postgres.wire import Wire
from workflows.timeouts import StepTimeout, call_within

pytestmark = engine.ENGINE

PREPARED = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'onramp%%' AND %(any)s::bool"
INSERT = "INSERT INTO auth_group (name) VALUES (%(name)s) RETURNING 1 / %(divisor)s"


@pytest.fixture
def session() -> Session:
    connection.close()
    return session_of()


def groups() -> set[str]:
    """Those that others see."""
    with engine.another_connection() as other:
        return {name for (name,) in other.execute("SELECT name FROM auth_group WHERE name LIKE 'by %'")}


def writing_with_django() -> None:
    Group.objects.create(name="by a step")


def writing_past_django() -> None:
    connection.connection.execute("INSERT INTO auth_group (name) VALUES ('by a step')")


def copying() -> None:
    with connection.connection.cursor().copy("COPY auth_group (name) FROM STDIN") as copy:
        copy.write_row(["by a step"])


class Refusal(Exception):
    """What a step fails with."""


def refuse_after(*writes: Callable[[], object]) -> None:
    """A block with a savepoint that fails."""
    with session_of().savepoint():
        for write in writes:
            write()
        raise Refusal


def commit_with(session: Session, divisor: int) -> None:
    with transaction.atomic():
        session.run(INSERT, {"name": "by ada", "divisor": 1})
        session.run_with_commit(INSERT, {"name": "by bob", "divisor": divisor})
        session.commit()


def commit_after(session: Session, what: Callable[[], object]) -> None:
    """A transaction in the midst of which something happens."""
    with transaction.atomic():
        session.run(INSERT, {"name": "by ada", "divisor": 1})
        what()
        session.run_with_commit(INSERT, {"name": "by bob", "divisor": 1})
        session.commit()


def execute(statement: str) -> None:
    with suppress(psycopg.Error):
        connection.connection.execute(statement)


# --- Statements ---------------------------------------------------------------------------------------


def test_values_come_and_go_as_with_djangos_cursor(session: Session) -> None:
    given = {"n": 7, "text": "100%", "none": None, "names": ["a", "b"]}
    sql = "SELECT %(n)s + %(n)s, %(text)s || '%%', %(none)s::int, %(names)s::text[], '{\"a\": 1}'::jsonb"
    assert session.run(sql, given) == [(14, "100%%", None, ["a", "b"], '{"a": 1}')]
    assert session.run("SELECT %s::text || %s::text", ["a", "b"]) == [("ab",)]
    assert session.run("DELETE FROM auth_group WHERE name = %(n)s", {"n": "nobody"}) == []


def prepared() -> list[str]:
    """The names of what the server keeps for us."""
    ours = "SELECT name FROM pg_prepared_statements WHERE name LIKE 'onramp%' ORDER BY 1"
    return [name for (name,) in connection.connection.execute(ours)]


def test_a_statement_is_prepared_and_anew_after_a_minute(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its plan is that of the table as it was."""
    clock = standing_still(monkeypatch, "workflows.postgres.wire")
    kept = []
    for _ in range(3):
        session.run(PREPARED, {"any": True})
        kept.append(prepared())
        clock.now += 40
    first, second, third = kept
    assert first == second
    assert len(third) == 1, "the one before it is gone"
    assert third != first


def test_what_is_slow_twice_in_a_row_is_prepared_anew_later(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan made on an empty table, for one, which has grown since."""
    clock = standing_still(monkeypatch, "workflows.postgres.wire", "workflows.postgres.round_trips")
    exchange = Wire.exchange

    def take_long(*arguments: Any) -> Any:
        clock.now += 0.1
        return exchange(*arguments)

    session.run(PREPARED, {"any": True})
    first = prepared()
    clock.now += 2
    session.run(PREPARED, {"any": True})
    assert prepared() == first
    for takes in (take_long, exchange, take_long, take_long):  # twice only in the end
        assert prepared() == first
        monkeypatch.setattr(Wire, "exchange", takes)
        session.run(PREPARED, {"any": True})
    session.run(PREPARED, {"any": True})
    assert prepared() != first


def test_who_watches_the_statements_of_a_connection_sees_these_too(session: Session) -> None:
    with engine.sent() as seen, transaction.atomic():
        session.run(INSERT, {"name": "by ada", "divisor": 1})
        with session.savepoint():
            Group.objects.count()
        session.run_with_commit(INSERT, {"name": "by bob", "divisor": 1})
        session.commit()
    assert [sql.split()[0] for sql in seen] == ["INSERT", "SELECT", "SAVEPOINT", "RELEASE", "INSERT"]
    assert groups() == {"by ada", "by bob"}


def test_a_value_that_no_statement_can_hold_breaks_nothing(session: Session) -> None:
    with pytest.raises(DataError):
        session.run(INSERT, {"name": "by \x00", "divisor": 1})
    session.run(INSERT, {"name": "by ada", "divisor": 1})
    assert groups() == {"by ada"}


def test_a_statement_that_takes_too_long_in_a_step_is_cancelled_and_the_session_goes_on(session: Session) -> None:
    with pytest.raises(StepTimeout):
        call_within(0.1, lambda: session.run("SELECT pg_sleep(%(seconds)s)", {"seconds": 60}))
    assert session.run("SELECT %(n)s::int", {"n": 1}) == [(1,)]


def test_an_answer_that_was_never_read_is_not_taken_for_the_next_one(session: Session) -> None:
    """An interrupt in between: whoever speaks next does not get the rows of somebody else."""
    connection.connection.pgconn.enter_pipeline_mode()
    with pytest.raises(OperationalError, match="interrupted"):
        session.run("SELECT %(n)s::int", {"n": 1})
    connection.close()


def test_a_rollback_drops_nothing_that_is_prepared() -> None:
    """Psycopg prepares what the attempt log repeats, and lets go of everything with a rollback: of ours, too."""
    connections["attempt_log"].close()
    session = session_of("attempt_log")
    session.run("SELECT %(n)s::int", {"n": 1})
    with transaction.atomic(using="attempt_log"):
        for _ in range(10):
            connections["attempt_log"].cursor().execute("SELECT %s::int", [1])
        transaction.set_rollback(True, using="attempt_log")
    assert session.run("SELECT %(n)s::int", {"n": 1}) == [(1,)]


# --- Transactions -------------------------------------------------------------------------------------


def test_a_transaction_starts_with_its_first_statement_and_ends_with_its_last(session: Session) -> None:
    with transaction.atomic():
        session.run(INSERT, {"name": "by ada", "divisor": 1})
        assert groups() == set()
        session.run_with_commit(INSERT, {"name": "by bob", "divisor": 1})
        assert groups() == set()
        session.commit()
        assert groups() == {"by ada", "by bob"}


def test_what_goes_with_the_commit_and_fails_keeps_it_from_being_carried_out(session: Session) -> None:
    with pytest.raises(ClaimLost):
        commit_with(session, divisor=0)
    assert groups() == set()
    session.run(INSERT, {"name": "by cid", "divisor": 1})
    assert groups() == {"by cid"}, "the session goes on to be used"


def test_what_goes_with_the_commit_is_not_sent_if_the_transaction_is_rolled_back(session: Session) -> None:
    commit_after(session, lambda: transaction.set_rollback(True))
    assert groups() == set()


def refuse_to_commit(session: Session) -> None:
    with transaction.atomic():
        session.run_with_commit(INSERT, {"name": "by ada", "divisor": 1})
        raise Refusal


def test_what_goes_with_a_commit_goes_with_no_other(session: Session) -> None:
    with pytest.raises(Refusal):
        refuse_to_commit(session)
    with transaction.atomic():
        writing_with_django()
        session.commit()
    assert groups() == {"by a step"}


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK", "SELECT 1 / 0"])
def test_a_transaction_that_has_ended_or_failed_meanwhile_is_not_committed(session: Session, statement: str) -> None:
    """The server would start a new one for what goes with the commit, or answer to COMMIT by a rollback."""
    with pytest.raises(ClaimLost):
        commit_after(session, lambda: execute(statement))
    assert groups() == ({"by ada"} if statement == "COMMIT" else set())


def test_a_server_that_ends_the_session_says_why(session: Session) -> None:
    with pytest.raises(OperationalError, match="terminating connection"):
        commit_after(session, lambda: engine.terminate("default"))
    connections.close_all()
    assert groups() == set()


# --- The savepoint ------------------------------------------------------------------------------------


def test_where_nothing_is_sent_there_is_no_savepoint(session: Session) -> None:
    with engine.sent() as seen, transaction.atomic():
        session.run("SELECT %(n)s::int", {"n": 1})
        with session.savepoint():
            assert not session.is_used
    assert len(seen) == 1
    assert connection.savepoint_ids == []


@pytest.mark.parametrize("write", [writing_with_django, writing_past_django, copying])
def test_whatever_is_sent_comes_after_the_savepoint(session: Session, write: Callable[[], None]) -> None:
    with transaction.atomic():
        session.run(INSERT, {"name": "by the claim", "divisor": 1})
        with pytest.raises(Refusal):
            refuse_after(write)
        session.commit()
    assert groups() == {"by the claim"}
    with transaction.atomic(), session.savepoint():
        write()
        assert session.is_used
    assert groups() == {"by the claim", "by a step"}


def test_a_block_that_fails_before_anything_is_sent_fails_alone(session: Session) -> None:
    with transaction.atomic():
        session.run(INSERT, {"name": "by the claim", "divisor": 1})
        with pytest.raises(Refusal):
            refuse_after()
        session.run(INSERT, {"name": "by the decision", "divisor": 1})
        session.commit()
    assert groups() == {"by the claim", "by the decision"}


def test_django_knows_the_savepoint_as_its_own(session: Session) -> None:
    """Hooks of a block that is rolled back do not run; those of one that is not run after the commit, and once."""
    ran: list[str] = []
    with transaction.atomic():
        with pytest.raises(Refusal):
            refuse_after(lambda: transaction.on_commit(lambda: ran.append("rolled back")))
        with session.savepoint():
            transaction.on_commit(lambda: ran.append("unused"))
        with session.savepoint():
            transaction.on_commit(lambda: ran.append("used"))
            with pytest.raises(Refusal), transaction.atomic():
                refuse_after(writing_with_django)
            writing_with_django()
        assert ran == []
        session.commit()
    assert ran == ["unused", "used"]
    assert groups() == {"by a step"}
    assert (connection.savepoint_ids, connection.in_atomic_block, connection.needs_rollback) == ([], False, False)


def test_after_all_that_was_prepared_is_gone_it_is_prepared_anew(session: Session) -> None:
    assert session.run(PREPARED, {"any": True}) == [(1,)]
    connection.cursor().execute("DEALLOCATE ALL")
    session.forget_prepared()
    assert session.run(PREPARED, {"any": True}) == [(1,)]


def test_what_fails_again_and_again_leaves_nothing_prepared_behind(session: Session) -> None:
    """Maintenance that fails each minute, for one: the server would keep what its exchange has prepared."""
    for name in ("by ada", "by bob", "by eve"):
        session.run(PREPARED, {"any": True})
        with pytest.raises(DataError):
            session.run(INSERT, {"name": name, "divisor": 0})
    assert session.run(PREPARED, {"any": True}) == [(1,)]
    assert session.run(PREPARED, {"any": True}) == [(1,)]


def test_what_fails_in_a_transaction_leaves_nothing_prepared_behind_either(session: Session) -> None:
    def fail_twice() -> None:
        writing_with_django()
        with pytest.raises(DataError):
            session.run(INSERT, {"name": "by ada", "divisor": 0})
        session.run(PREPARED, {"any": True})  # the transaction has failed

    with transaction.atomic():
        session.run(PREPARED, {"any": True})
        with pytest.raises(InternalError), session.savepoint():
            fail_twice()
        assert session.run(PREPARED, {"any": True}) == [(1,)]


def test_a_query_with_a_deadline_in_a_step_is_rolled_back_with_it_and_so_is_what_follows(session: Session) -> None:
    """As if a step submits another workflow."""

    def ask_then_write() -> None:
        query_in_time(lambda: None)
        writing_with_django()

    with transaction.atomic():
        session.run(INSERT, {"name": "by ada", "divisor": 1})
        for submit in (lambda: query_in_time(writing_with_django), ask_then_write):
            with pytest.raises(Refusal):
                refuse_after(submit)
        session.commit()
    assert groups() == {"by ada"}


def test_the_deadline_of_a_query_ends_with_it() -> None:
    connection.close()
    query_in_time(writing_with_django, seconds=0.5)
    execute("SELECT pg_sleep(0.6)")
    assert groups() == {"by a step"}
