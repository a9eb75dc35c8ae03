"""Behind a real PgBouncer a worker refuses to work, and says why: a restart would mend nothing. The intake and the
console work there.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import connection

from tests import engine
from tests.acceptance.conftest import Start
from tests.acceptance.outside import now, submit
from tests.acceptance.test_intake import post
from tests.migrating.traces import columns, taken_back
from tests.processes import until
from tests.servers import ROOT, Proxy, gunicorn
from workflows.features.doctor import server as doctor
from workflows.ingress import api_keys
from workflows.models import Workflow
from workflows.postgres.migrating import is_announced

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed"),
]

# A command line for the pooler's settings, and the URL of the database behind it.
Pooler = Callable[..., str]


@pytest.fixture
def pooler(tmp_path: Path) -> Iterator[Pooler]:
    """Starts a PgBouncer in front of the test database, with these settings, and returns the URL that leads there."""
    started: list[subprocess.Popen[bytes]] = []

    def start(**settings: str | int) -> str:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        connection.ensure_connection()
        info = connection.connection.info
        password = f" password={info.password}" if info.password else ""
        target = f"host=127.0.0.1 port={way.port} dbname={info.dbname} user={info.user}{password}"
        lines = {"listen_addr": "127.0.0.1", "listen_port": port, "unix_socket_dir": "", "auth_type": "any", **settings}
        config = tmp_path / f"pgbouncer-{port}.ini"
        options = "\n".join(f"{name} = {value}" for name, value in lines.items())
        config.write_text(f"[databases]\npooled = {target}\n[pgbouncer]\n{options}\n")
        user = ["-u", "nobody"] if getpass.getuser() == "root" else []
        assert PGBOUNCER
        with (tmp_path / "pgbouncer.log").open("wb") as log:
            started.append(subprocess.Popen([PGBOUNCER, *user, str(config)], stdout=log, stderr=log))
        url = f"postgres://{info.user}@127.0.0.1:{port}/pooled"

        def answers() -> bool:
            with suppress(psycopg.OperationalError), psycopg.connect(url, connect_timeout=2):
                return True
            return False

        until(answers, what=(tmp_path / "pgbouncer.log").read_text)
        return url

    with Proxy() as way:
        try:
            yield start
        finally:
            for process in started:
                process.terminate()
                process.wait(10)


DROPPED = {"ignore_startup_parameters": "options,extra_float_digits"}

IGNORES = "ignores what a worker asks of its session"
POOLERS = {
    "that takes no options": ({"pool_mode": "transaction"}, "takes no startup options"),
    "of transactions": ({"pool_mode": "transaction", **DROPPED}, IGNORES),
    "of sessions that drops options": ({"pool_mode": "session", **DROPPED}, IGNORES),
}


@pytest.mark.parametrize("which", POOLERS)
def test_a_worker_refuses_a_pooler_in_one_line(runworker: Start, effects: Path, pooler: Pooler, which: str) -> None:
    settings, said = POOLERS[which]
    workflow = submit("counted", effects)
    worker = runworker("COUNTED", arguments=("--processes", "2"), DATABASE_URL=pooler(**settings))
    assert worker.wait() == 1
    (line,) = (each for each in worker.output.splitlines() if " INFO " not in each)
    assert line.startswith("CommandError: The server at 127.0.0.1:")
    assert said in line
    assert line.endswith('Connect the workers to PostgreSQL itself: see docs/deployment.md, "How many connections".')
    assert now(workflow).status == "PENDING"


@pytest.mark.parametrize("pool_mode", ["session", "transaction"])
def test_the_doctor_sees_a_pooler(pooler: Pooler, pool_mode: str) -> None:
    assert not list(doctor.pooler())
    port = urlsplit(pooler(pool_mode=pool_mode, ignore_startup_parameters="options")).port
    way = {"host": "127.0.0.1", "port": port, "dbname": "pooled"}
    parameters: dict[str, Any] = {**connection.get_connection_params(), **way}
    connection.close()
    with patch.object(connection, "get_connection_params", lambda: dict(parameters)):
        assert [finding.about for finding in doctor.pooler()] == ["pooler"]
        assert connection.connection.onramp_backend is None, "no half-open session ends another's backend"
        connection.close()


@pytest.mark.parametrize("entry", ["config.intake", "config.wsgi"])
def test_submissions_are_taken_through_a_pooler_that_takes_no_options(
    tmp_path: Path, pooler: Pooler, entry: str
) -> None:
    key = api_keys.create("shop")
    with gunicorn(entry, tmp_path, url=pooler(pool_mode="transaction")) as server:
        for _ in range(10):
            assert post(server, key).status == 202
    assert Workflow.objects.count() == 10


def test_a_migration_through_a_pooler_lets_the_workers_go_on(pooler: Pooler) -> None:
    """What it asks of them ends with its transaction: a lock of a session would be left behind with the backend."""
    environ = {
        **os.environ,
        "DATABASE_URL": pooler(pool_mode="transaction", server_idle_timeout=3600),
        "DJANGO_SETTINGS_MODULE": "tests.migrating.settings",
    }
    workflow = engine.submit(workflow_type="held")
    with taken_back(), engine.another_connection() as claim:
        claim.execute("BEGIN")
        claim.execute("SELECT FROM workflows_workflow WHERE id = %s FOR NO KEY UPDATE", [workflow.pk])
        command = [sys.executable, "manage.py", "migrate", "migrating", "0001"]
        with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as migrate:
            until(is_announced)
            with suppress(psycopg.OperationalError), psycopg.connect(environ["DATABASE_URL"]) as another:
                another.execute("SELECT pg_sleep(1)")  # it takes the backend that is free
            claim.execute("COMMIT")
            said, _ = migrate.communicate(timeout=30)
        assert migrate.returncode == 0, said
        assert columns() == {"ahead"}
        assert not is_announced()
