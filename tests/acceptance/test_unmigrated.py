"""Commands on a database without the tables of this release, or without a server: they say so, in one line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from tests.processes import PATIENCE, environment
from tests.servers import ROOT, connecting_to, empty_database
from workflows.management.database import refuse_unmigrated

FOR_PEOPLE = [["listapikeys"], ["createwebhooksecret", "github"]]
COMMANDS = [["createapikey", "shop"], ["runworker"], ["consumekafka"]]
NOBODY_THERE = "postgres://onramp:hunter2@127.0.0.1:1/elsewhere"


@pytest.fixture
def empty(db: None) -> Iterator[str]:
    with empty_database(f"onramp_empty_{os.getpid()}") as url:
        yield url


def start(url: str, *arguments: str) -> subprocess.Popen[str]:
    environ = {**environment("COUNTED"), "DATABASE_URL": url, "KAFKA_BROKERS": "127.0.0.1:1", "KAFKA_TOPICS": "facts"}
    return subprocess.Popen(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_before_any_migration_they_say_what_to_do(empty: str) -> None:
    with ExitStack() as stack:
        started = [stack.enter_context(start(empty, *command)) for command in COMMANDS]
        for process in started:
            stack.callback(process.kill)
        for process in started:
            out, err = process.communicate(timeout=PATIENCE)
            said = re.fullmatch(
                r"CommandError: The database lacks (\d+) migrations of this release: "
                r"run `python manage\.py migrate` first\.\n",
                err,
            )
            assert said, err
            assert (process.returncode, out) == (1, "")
            # The recorder also has those that a migration replaces.
            assert int(said[1]) == len(MigrationLoader(connection).graph.nodes), "those of this release"


@pytest.mark.django_db
@pytest.mark.parametrize("arguments", FOR_PEOPLE, ids=" ".join)
def test_what_lacks_only_the_last_migration_is_not_migrated(arguments: list[str]) -> None:
    MigrationRecorder(connection).migration_qs.filter(app="workflows").order_by("-id")[:1].get().delete()
    with pytest.raises(CommandError, match=r"^The database lacks 1 migration of this release: run"):
        call_command(*arguments)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("arguments", FOR_PEOPLE, ids=" ".join)
def test_a_person_is_told_that_the_database_is_away(arguments: list[str]) -> None:
    with connecting_to(port=1), pytest.raises(CommandError, match=r"^The database .+ cannot be reached: "):
        call_command(*arguments)


@pytest.mark.django_db
def test_which_database_is_away_is_told_without_its_password() -> None:
    process = start(NOBODY_THERE, "createapikey", "shop")
    out, err = process.communicate(timeout=PATIENCE)
    assert re.fullmatch(r"CommandError: The database elsewhere at 127\.0\.0\.1:1 cannot be reached: .+\n", err)
    assert "connection refused" in err
    assert "hunter2" not in err
    assert (process.returncode, out) == (1, "")


@pytest.mark.django_db(transaction=True)
def test_what_runs_on_looks_at_the_migrations_and_holds_no_connection() -> None:
    """A worker is forked after that."""
    refuse_unmigrated()
    assert connection.connection is None
    with connecting_to(port=1):
        refuse_unmigrated()
