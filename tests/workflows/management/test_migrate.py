"""`manage.py migrate` on a database that is in use: who waits for whom, and for how long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import StringIO
from threading import Thread, Timer
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DataError, OperationalError, connection
from pytest_django import Settings

from tests import engine
from tests.engine import define, draining, submit, with_its_connections
from tests.migrating.traces import applied, columns, taken_back, valid_indexes
from tests.processes import until
from tests.servers import ROOT, database_url
from tests.workflows.cancelling import nothing
from workflows.models import Attempt, Workflow
from workflows.postgres.migrating import IDLE_LIMIT, NAME, Request, is_announced

pytestmark = [*engine.ENGINE, pytest.mark.slow]


@pytest.fixture(autouse=True)
def migrations(settings: Settings) -> Iterator[None]:
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "tests.migrating"]
    with taken_back():
        yield


@contextmanager
def a_claim() -> Iterator[Callable[[], object]]:
    """A transaction that has locked a workflow's row; until the end, or until what is yielded is called."""
    workflow = submit(workflow_type="held")
    with engine.another_connection() as other:
        other.execute("BEGIN")
        other.execute("SELECT FROM workflows_workflow WHERE id = %s FOR NO KEY UPDATE", [workflow.pk])
        yield lambda: other.execute("COMMIT")


class Migrating(Thread):
    """`migrate` in a thread, with what it says and how it ends."""

    def __init__(self, *arguments: str, **options: Any) -> None:
        super().__init__()
        self.out = StringIO()
        self.error: BaseException | None = None
        self._arguments, self._options = arguments, options
        self.start()

    def run(self) -> None:
        def migrate() -> None:
            call_command("migrate", "migrating", *self._arguments, stdout=self.out, no_color=True, **self._options)

        try:
            with_its_connections(migrate)
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self.join(30)
        assert not self.is_alive(), self.out.getvalue()
        if self.error:
            raise self.error


def longest_submission(seconds: float) -> float:
    """How long one took at most, of those sent one after the other for some time."""
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '10s'")
    longest, stop_at = 0.0, time.monotonic() + seconds
    while time.monotonic() < stop_at:
        began = time.monotonic()
        submit(workflow_type="held")
        longest = max(longest, time.monotonic() - began)
    connection.close()
    return longest


def test_submissions_do_not_wait_behind_a_migration_that_waits_for_a_claim() -> None:
    with a_claim() as release:
        waiting = Migrating("0001")
        until(is_announced, what=waiting.out.getvalue)
        assert longest_submission(2) < 2  # half a second, in fact
        assert columns() == set()
        release()
        waiting.end()
    assert columns() == {"ahead"}
    assert applied() == {"0000_thing", "0001_column"}
    said = waiting.out.getvalue()
    assert " in use, tried again in 1 s; workers take up nothing new. In a transaction: " in said
    assert said.rstrip().endswith("Applying migrating.0001_column... OK")
    assert not is_announced()


def test_meanwhile_workers_take_up_nothing_new_and_afterwards_all_of_it() -> None:
    """A worker that is to end when nothing is due does not take that for the end."""
    define([nothing])
    with a_claim() as release:
        waiting = Migrating("0001")
        until(is_announced, what=waiting.out.getvalue)
        workflow = submit()
        draining_worker = draining()
        draining_worker.join(1)
        assert draining_worker.is_alive()
        assert not Attempt.objects.exists()
        release()
        waiting.end()
        draining_worker.join(10)
    assert Workflow.objects.get(pk=workflow.pk).status == "COMPLETE"


def test_a_worker_that_is_busy_looks_once_a_second() -> None:
    """Or it would go on claiming for as long as something is due."""
    define([lambda *, workflow, context: time.sleep(0.05)])
    for _ in range(100):
        submit()
    with engine.another_connection() as other:
        working = draining()
        until(lambda: Attempt.objects.count() > 3)
        other.execute("SELECT pg_advisory_lock(7201407)")
        time.sleep(1.5)
        before = Attempt.objects.count()
        time.sleep(1)
        assert Attempt.objects.count() == before < 100
        other.execute("SELECT pg_advisory_unlock(7201407)")
        working.join(30)
    assert Attempt.objects.filter(outcome="complete").count() == 100


def test_it_gives_up_says_why_and_lets_the_workers_go_on() -> None:
    with a_claim():
        with pytest.raises(CommandError) as error:
            call_command("migrate", "migrating", "0001", verbosity=0, patience=2.0)
        assert not engine.elsewhere(is_announced), "also before the session ends: another migration may come"
        longest_submission(0.1)
    why = "migrating.0001_column was not applied: its tables were in use for 2 s. In a transaction: a session, process "
    assert str(error.value).startswith(why)
    assert NAME not in str(error.value), "its own request is not in the way"
    assert columns() == set()
    assert applied() == {"0000_thing"}, "what came before it"


def test_an_index_is_built_beside_claims_and_submissions_however_long_the_claims_are() -> None:
    Migrating("0001").end()
    with a_claim() as release:
        building = Migrating("0002")
        engine.until_blocked()
        assert longest_submission(2) < 2
        assert building.is_alive()
        assert not is_announced()
        release()
        building.end()
    assert valid_indexes() == {"ahead_index"}


def test_workers_do_not_wait_for_an_index_that_comes_after_a_migration_that_waited() -> None:
    with engine.another_connection() as other, a_claim() as release:
        both = Migrating("0002")
        until(is_announced, what=both.out.getvalue)
        other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT")  # the index waits for this snapshot, the column does not
        release()
        until(lambda: columns() == {"ahead"} and engine.elsewhere(lambda: not is_announced()), what=both.out.getvalue)
        assert both.is_alive()
        other.execute("COMMIT")
        both.end()
    assert valid_indexes() == {"ahead_index"}


def test_one_that_is_no_transaction_is_not_tried_again() -> None:
    """The first try may have left something behind. It waits as it is told by whoever set this limit."""
    Migrating("0001").end()
    with a_claim(), connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '300ms'")
        out = StringIO()
        with pytest.raises(OperationalError, match="lock timeout"):
            call_command("migrate", "migrating", "0002", stdout=out)
    connection.close()
    assert " in use" not in out.getvalue()


def test_one_that_fails_half_way_leaves_nothing_of_itself_behind() -> None:
    with pytest.raises(DataError, match="division by zero"):
        call_command("migrate", "migrating", "0003", verbosity=0)
    assert columns() == {"ahead"}
    assert applied() == {"0000_thing", "0001_column", "0002_index"}
    assert not is_announced()
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("0",)


def test_what_changes_no_table_waits_for_nobody() -> None:
    with a_claim():
        for options, code in (({"plan": True}, 0), ({"check_unapplied": True}, 1)):
            looking = Migrating("0001", **options)
            looking.join(5)
            assert not looking.is_alive()
            assert (looking.error.code if isinstance(looking.error, SystemExit) else 0) == code
        assert applied() == set()
        Migrating("0001", fake=True).end()
    assert applied() == {"0000_thing", "0001_column"}
    assert columns() == set()


def test_two_at_once_wait_both() -> None:
    with engine.another_connection() as another_migrate, a_claim() as release:
        another_migrate.execute("SELECT pg_advisory_lock(7201407)")
        waiting = Migrating("0001")
        until(lambda: " in use" in waiting.out.getvalue())
        release()
        waiting.end()
        assert is_announced(), "it is the other one's"
    assert columns() == {"ahead"}


@pytest.mark.parametrize(("before", "after"), [("0000", "0001"), ("0001", "0000")])
def test_what_another_has_migrated_meanwhile_is_not_migrated_twice(before: str, after: str) -> None:
    """Several hosts start, and each migrates: columns could not be added twice, and data would be changed twice."""
    Migrating(before).end()
    with a_claim() as release:
        one = Migrating(after)
        until(is_announced, what=one.out.getvalue)
        time.sleep(0.5)  # each tries while the other pauses
        other = Migrating(after)
        until(lambda: " in use" in other.out.getvalue())
        release()
        one.end()
        other.end()
    assert columns() == ({"ahead"} if after == "0001" else set())
    told = [" another migrate has done it meanwhile. OK" in " ".join(m.out.getvalue().split()) for m in (one, other)]
    assert sorted(told) == [False, True], one.out.getvalue() + other.out.getvalue()


def test_of_two_one_waits_for_the_other_to_end() -> None:
    """The plan of one is made before the other ends; so it looks again once it has its turn."""
    with engine.another_connection() as another_migrate, another_migrate.transaction():
        another_migrate.execute("SELECT pg_advisory_xact_lock(7201408)")
        waiting = Migrating("0000")
        until(lambda: " in use" in waiting.out.getvalue())
        assert applied() == set()
    waiting.end()
    assert applied() == {"0000_thing"}


def test_what_another_ends_while_this_one_waits_for_its_turn_is_not_migrated_twice() -> None:
    Migrating("0000").end()
    with engine.another_connection() as another_migrate, another_migrate.transaction():
        another_migrate.execute("SELECT pg_advisory_xact_lock(7201408)")
        waiting = Migrating("0001")
        engine.until_blocked()
        another_migrate.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('migrating', '0001_column', now())"
        )
    waiting.end()
    assert " another migrate has done it meanwhile. OK" in waiting.out.getvalue()
    assert columns() == set()


def start_migrate(*arguments: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "tests.migrating.settings"}
    command = [sys.executable, "manage.py", "migrate", "migrating", *arguments]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a shell's background ignores it
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_one_that_is_interrupted_while_it_waits_stops_nobody_any_more(number: signal.Signals) -> None:
    with a_claim(), start_migrate("0001") as process:
        until(is_announced)
        process.send_signal(number)
        assert process.wait(10) != 0
        until(lambda: not is_announced(), seconds=5)
    assert columns() == set()


def test_one_that_is_stopped_while_it_waits_stops_the_workers_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    assert IDLE_LIMIT == "60s"
    monkeypatch.setattr("workflows.postgres.migrating.IDLE_LIMIT", "300ms")
    asked: list[bool] = []

    def stop(_: float) -> None:
        asked.append(is_announced())
        until(lambda: not is_announced(), seconds=5)

    monkeypatch.setattr("workflows.postgres.migrating.sleep", stop)
    request = Request(connection)
    request.pause(1)
    request.pause(1)  # it has gone on, and asks again
    assert asked == [True, True]
    request.withdraw()


def test_a_try_that_takes_long_asks_for_all_of_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.postgres.migrating.IDLE_LIMIT", "300ms")
    request = Request(connection)
    request.pause(0)
    time.sleep(0.6)
    assert is_announced()
    request.withdraw()
    assert not is_announced()


def test_a_worker_that_is_just_looking_does_not_keep_it_from_asking() -> None:
    with engine.another_connection() as looking:
        looking.execute("BEGIN")
        looking.execute("SELECT pg_try_advisory_xact_lock_shared(7201407)")
        through = Timer(0.2, looking.execute, ["COMMIT"])
        through.start()
        request = Request(connection)
        request.pause(0)
        assert is_announced()
        request.withdraw()
        through.join()
