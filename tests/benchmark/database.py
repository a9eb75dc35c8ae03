"""A database for one run of the benchmark, and what it is asked from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import sql

from tests.benchmark.findings import track
from tests.servers import ROOT, database_url, empty_database

# As long as a machine that is busy may take for a new database with all its tables.
SECONDS_TO_MIGRATE = 120
# The one with a row for each submission first.
TABLES = (
    "workflows_workflow, workflows_attempt, workflows_effect, workflows_event, workflows_signal, "
    "workflows_wait, workflows_manualtask, workflows_searchkey, workflows_businesskey"
)
PAYLOAD = ROOT / "docs" / "examples" / "net_new.json"
# Rows that one statement inserts, so that it is seen how far it has come.
PIECE = 50_000
METRICS_TOKEN = "m" * 43
DEFINITIONS = (
    *("NO_OPS", "SECRETS", "ONE", "PLAIN", "HELD", "AWAITS"),
    *("ENTERED", "ENTERED_WITH_KEYS", "ENTERED_WITH_SECRETS"),
)
ONBOARDING = "onboarding.workflow.ONBOARDING"


class BenchmarkError(Exception):
    """The benchmark cannot go on; the message says why."""


class Database:
    """Rows go in, times come out."""

    def __init__(self, url: str, connection: psycopg.Connection[Any]) -> None:
        self.url = url
        self._connection = connection

    def row(self, query: str, *parameters: Any) -> Any:
        return self._connection.execute(query, parameters).fetchone()

    def ask(self, query: str, *parameters: Any) -> Any:
        """The first value of the first row; None when there is no row."""
        row = self.row(query, *parameters)
        return row[0] if row else None

    def execute(self, statement: str, *parameters: Any, **named: Any) -> None:
        self._connection.execute(statement, parameters or named or None)

    def fill(self, what: str, count: int, *statements: str, **named: Any) -> None:
        """Run the statements for one piece of rows after the other, each from %(first)s to %(last)s."""
        for first in track(range(1, count + 1, PIECE), f"filling, {what}"):
            for statement in statements:
                self.execute(statement, **named, first=first, last=min(first + PIECE - 1, count))

    def submit(self, workflow_type: str, count: int) -> int:
        """Store workflows with a real submission's payload; the id of one."""
        pk: int = self.ask(
            """INSERT INTO workflows_workflow (idempotency_key, workflow_type, payload)
               SELECT gen_random_uuid(), %s, %s::jsonb FROM generate_series(1, %s) RETURNING id""",
            *(workflow_type, PAYLOAD.read_text(), count),
        )
        return pk

    def count(self, condition: str) -> int:
        return int(self.ask(f"SELECT count(*) FROM workflows_workflow WHERE {condition}"))

    def begin_anew(self, tables: str = TABLES) -> None:
        # Without the triggers that keep what is on record: the server is ours.
        self.execute(
            f"SET session_replication_role = replica; TRUNCATE {tables} CASCADE; RESET session_replication_role"
        )

    def analyze(self) -> None:
        """Let the planner know what there is, as autovacuum does where nobody is in a hurry."""
        self.execute("VACUUM ANALYZE")


@contextmanager
def connected(url: str) -> Iterator[Database]:
    """Parameters are put into the text: so they may stand in any statement, and in several at once."""
    with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        yield Database(url, connection)


@contextmanager
def throwaway_database(suffix: str = "") -> Iterator[Database]:
    """A database of our own on the server of the settings, with the project's tables. It is dropped at the end."""
    with empty_database(f"onramp_benchmark_{os.getpid()}{suffix}") as url:
        manage(url, "migrate", "--verbosity", "0")
        with connected(url) as database:
            yield database


@contextmanager
def kept_database(name: str) -> Iterator[Database]:
    """The database of that name on the server of the settings, with the project's tables; made if there is none.

    It is not dropped: whoever measures several times fills it once.
    """
    server = database_url()
    with psycopg.connect(server, autocommit=True) as administrator, suppress(psycopg.errors.DuplicateDatabase):
        administrator.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    url = f"{server.rpartition('/')[0]}/{name}"
    manage(url, "migrate", "--verbosity", "0")
    with connected(url) as database:
        yield database


def production(url: str, *more_definitions: str) -> dict[str, str]:
    """The environment of a process in production, on this database."""
    return {
        "DEBUG": "0",
        "DATABASE_URL": url,
        "SECRET_KEY": "only-for-the-benchmark-long-and-of-many-characters-0123456789",
        "SEARCH_KEYS": "k" * 43,
        "DATA_KEYS": "d" * 43,
        "ALLOWED_HOSTS": "localhost,testserver",
        "SERVICES_URL": "https://services.example.com",
        "SUBMISSION_WORKFLOW": "",
        "METRICS_TOKEN": METRICS_TOKEN,
        "WORKFLOWS": ",".join([*(f"tests.benchmark.definitions.{name}" for name in DEFINITIONS), *more_definitions]),
    }


def manage(url: str, *arguments: str) -> str:
    """Run a command of manage.py on this database; return what it prints."""
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env={**os.environ, **production(url)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_TO_MIGRATE,
        check=False,
    )
    if done.returncode:
        raise BenchmarkError(f"manage.py {' '.join(arguments)} failed:\n{done.stderr}")
    return done.stdout
