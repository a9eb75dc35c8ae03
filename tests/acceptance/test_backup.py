"""The page about pgBackRest, as a reader types it on Debian: backups, and a restore beside a system that goes on."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from config.embedded.server import DATABASE, PORT, USER
from onboarding.samples import samples
from tests.acceptance.conftest import Start
from tests.acceptance.test_point_in_time import KINDS, PATIENCE, enter, what_differs
from tests.config.embedded.servers import a_folder_that_all_can_enter
from tests.processes import Runworker, until
from tests.runbook import Reader
from tests.sandbox_process import SandboxProcess

RESTORE, TAKE_OVER = "Restore to a moment, beside the running system", "Let it take over"
NEEDED = [shutil.which("pgbackrest"), shutil.which("pg_createcluster"), Path("/usr/lib/postgresql/15/bin").exists()]
SOME = 12

pytestmark = [
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a cluster as Debian does"),
    pytest.mark.skipif(not all(NEEDED), reason="Debian's pgbackrest or postgresql-15 is not installed"),
]


class Host(Reader):
    """A host of Debian's, all of whose folders are in one."""

    def __init__(self, folder: Path, services: str) -> None:
        places = {
            "/var/lib/postgresql/15": f"{folder}/15",
            "/etc/postgresql": f"{folder}/etc",
            "/srv/pgbackrest": f"{folder}/repo",
            "/etc/onramp/environment": f"{folder}/environment",
            "pgbackrest --stanza": f"pgbackrest --config={folder}/pgbackrest.conf --stanza",
            ".venv/bin/python": sys.executable,
        }
        environ = {"PG_CLUSTER_CONF_ROOT": f"{folder}/etc", "PGHOST": f"{folder}", "SERVICES_URL": services}
        super().__init__("how-to/backup.md", folder, places, environ)

    @property
    def url(self) -> str:
        return f"postgres://{USER}@{str(self.folder).replace('/', '%2F')}:{PORT}/{DATABASE}"

    def connect(self) -> psycopg.Connection[tuple[str]]:
        return psycopg.connect(host=str(self.folder), port=PORT, user=USER, dbname=DATABASE, autocommit=True)


@pytest.fixture
def host(sandbox: SandboxProcess) -> Iterator[Host]:
    """With a PostgreSQL as Debian sets it up."""
    with a_folder_that_all_can_enter() as folder:
        host = Host(folder, sandbox.url)
        (config,) = host.blocks("ini")
        ours = f"[global]\nlock-path={folder}/15/locks\nlog-level-file=off\n"
        (folder / "pgbackrest.conf").write_text(host.here(config).replace("[global]\n", ours))
        (folder / "environment").write_text(f"DATABASE_URL={host.url}\n")
        folder.chmod(0o777)  # for the socket
        create = f"install -d -o postgres {folder}/15; pg_createcluster 15 main -d {folder}/15/main -s {folder}"
        stop = "sudo -u postgres /usr/lib/postgresql/15/bin/pg_ctl -m immediate stop -D"
        try:
            host.runs(f"{create} -p {PORT} -l {folder}/15/log -o listen_addresses= -- --auth=trust")
            host.runs("pg_ctlcluster 15 main start; sudo -u postgres createdb onramp")
            host.runs(f"DATABASE_URL={host.url} {sys.executable} manage.py migrate -v 0")
            yield host
        finally:
            host.runs(f"for each in {folder}/15/*/; do {stop} $each || true; done")


def test_a_restore_to_a_moment_beside_a_system_that_goes_on(
    host: Host, sandbox: SandboxProcess, runworker: Start, seed: int
) -> None:
    wanted = [each for each in samples(SOME * 40, seed) if each.kind in KINDS]
    batches = [wanted[n * SOME : (n + 1) * SOME] for n in range(4)]

    def work() -> Runworker:
        environ = {"DATABASE_URL": host.url, "SERVICES_URL": sandbox.url}
        return runworker("onboarding.workflow.ONBOARDING", arguments=("--processes", "2"), **environ)

    def come(batch: int) -> None:
        """These come, and some of them are charged."""
        with host.connect() as database:
            enter(database, sandbox, batches[batch])
        keys = {str(each.idempotency_key) for each in batches[batch]}
        until(
            lambda: sum(each["idempotency_key"][:36] in keys for each in sandbox.effects(operation="charge")) >= 3,
            seconds=PATIENCE,
        )

    host.types("Set it up")
    worker = work()
    come(0)
    host.types("Each night")
    come(1)
    with host.connect() as database:
        [(point,)] = database.execute("SELECT clock_timestamp()::text").fetchall()
    host.places |= {"2026-03-02 09:41:00+00": point, "2026-03-02T09:40Z": point.replace(" ", "T")}
    come(2)
    host.types(RESTORE)
    come(3)
    host.types(RESTORE, 1)

    worker.signal(signal.SIGTERM)  # as systemctl does
    worker.wait()
    host.types(TAKE_OVER, 1)
    with host.connect() as database:
        expected = what_differs(database, sandbox)
        assert {"no_submission", "not_on_ledger"} <= {kind for kind, _ in expected}
        told = host.types(TAKE_OVER, 2)
        assert all(key in told for _, key in expected), told
        assert database.execute("SELECT 1 FROM workflows_effect WHERE attempt = 0").rowcount > 0, "adopted"
        host.types(TAKE_OVER, 3)
        for batch in batches:
            enter(database, sandbox, batch)  # their clients send them again
        work()
        pending = "SELECT count(*) FROM workflows_workflow WHERE status = 'PENDING'"
        until(lambda: database.execute(pending).fetchone() == (0,), seconds=PATIENCE)
    performed = Counter((each["operation"], each["idempotency_key"]) for each in sandbox.effects())
    assert set(performed.values()) == {1}
    made = Counter(operation for operation, _ in performed)
    assert made == Counter(operation for batch in batches for each in batch for _, operation in each.effects)
