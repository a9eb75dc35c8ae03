"""A restore to a point in time, in the midst of onboardings: what the database lost is named, and nobody pays twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from psycopg import Connection
from psycopg.types.json import Jsonb

from config.embedded.server import DATABASE, PORT, USER, Server
from onboarding.samples import Kind, Sample, samples
from tests.acceptance.conftest import Start
from tests.config.embedded.servers import a_folder_that_all_can_enter, base_backup
from tests.postgres import UNSAFE, connect
from tests.processes import Runworker, until
from tests.sandbox_process import SandboxProcess
from tests.servers import ROOT
from workflows.effects import DONE, UNDONE

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

KINDS = {Kind.NET_NEW, Kind.EXISTING, Kind.CARD_INVALID, Kind.PROGRAM_FULL}  # none waits for a person or a signal
HALF = 100
PATIENCE = 600.0  # seconds; the machine may be busy

Work = Callable[[Server], Runworker]


@pytest.fixture
def folder() -> Iterator[Path]:
    with a_folder_that_all_can_enter() as folder:
        yield folder


@pytest.fixture
def lost(folder: Path) -> Iterator[Server]:
    """The database that is going to be lost, with an archive of its WAL and a base backup of it while it was empty."""
    server = Server(folder / "lost")
    archive = folder / "archive"
    archive.mkdir(0o777)
    archive.chmod(0o777)
    server.start(**UNSAFE, archive_mode="on", archive_command=f"cp %p {archive}/%f")
    try:
        assert manage(server, "migrate").returncode == 0
        yield server
    finally:
        server.remove()


@pytest.fixture
def restored(folder: Path, lost: Server) -> Iterator[Server]:
    """A server on that base backup, not started yet."""
    server = base_backup(lost, folder / "restored", "-X", "none")
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture
def work(runworker: Start, sandbox: SandboxProcess) -> Work:
    def start(server: Server) -> Runworker:
        environ = {"DATABASE_URL": url(server), "SERVICES_URL": sandbox.url}
        return runworker("onboarding.workflow.ONBOARDING", arguments=("--processes", "2"), **environ)

    return start


def url(server: Server) -> str:
    return f"postgres://{USER}@{quote(str(server.socket_folder()), safe='')}:{PORT}/{DATABASE}"


def manage(server: Server, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env={**os.environ, "DEBUG": "1", "DATABASE_URL": url(server), **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def enter(database: Connection[tuple[str]], sandbox: SandboxProcess, wanted: list[Sample]) -> None:
    for sample in wanted:
        if sample.account:
            sandbox.account(**sample.account)
    with database.cursor() as cursor:
        cursor.executemany(
            """INSERT INTO workflows_workflow (workflow_type, idempotency_key, payload) VALUES ('onboarding', %s, %s)
               ON CONFLICT (idempotency_key) DO NOTHING""",
            [(sample.idempotency_key, Jsonb(sample.payload)) for sample in wanted],
        )


def differences(server: Server, sandbox: SandboxProcess, *arguments: str) -> list[tuple[str, str]]:
    """Kind and key of each that `manage.py reconcile` names."""
    done = manage(server, "reconcile", "--json", *arguments, SERVICES_URL=sandbox.url)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == bool(found), done.stderr
    return sorted((each["kind"], each["key"]) for each in found)


def what_differs(database: Connection[tuple[str, str]], sandbox: SandboxProcess) -> list[tuple[str, str]]:
    """The same by the sandbox's own log. Saving the questionnaire is not a call of the ledger's: it may be repeated."""
    states = dict(database.execute("SELECT idempotency_key, state FROM workflows_effect").fetchall())
    known = {str(key) for (key,) in database.execute("SELECT idempotency_key FROM workflows_workflow").fetchall()}

    def kind(key: str) -> str:
        if key.partition(":")[0] not in known:
            return "no_submission"
        return "other_state" if key in states else "not_on_ledger"

    made = [each["idempotency_key"] for each in sandbox.effects() if each["operation"] != "save_questionnaire"]
    return sorted((kind(key), key) for key in made if states.get(key) not in (DONE, UNDONE))


def test_it_names_every_call_that_was_lost_and_nobody_is_charged_twice(
    lost: Server, restored: Server, sandbox: SandboxProcess, work: Work, folder: Path, seed: int
) -> None:
    wanted = [each for each in samples(HALF * 12, seed) if each.kind in KINDS][: 2 * HALF]
    assert len(wanted) == 2 * HALF
    with connect(lost) as database:
        enter(database, sandbox, wanted[:HALF])
        worker = work(lost)
        until(lambda: len(sandbox.effects(operation="charge")) >= HALF // 4, seconds=PATIENCE)
        [(point,)] = database.execute("SELECT clock_timestamp()::text").fetchall()
        enter(database, sandbox, wanted[HALF:])
        until(lambda: len(sandbox.effects(operation="charge")) >= HALF * 5 // 4, seconds=PATIENCE)
        worker.kill()
        [(segment,)] = database.execute("SELECT pg_walfile_name(pg_switch_wal())").fetchall()
    until((folder / "archive" / segment).exists)
    lost.stop("immediate")

    recovery = {
        "restore_command": f"cp {folder}/archive/%f %p",
        "recovery_target_time": point,
        "recovery_target_action": "promote",
    }
    (restored.data / "recovery.signal").touch()
    restored.start(**UNSAFE, **recovery)
    with connect(restored) as database:
        until(lambda: database.execute("SELECT pg_is_in_recovery()").fetchone() == (False,))
        expected = what_differs(database, sandbox)
        kinds = Counter(kind for kind, _ in expected)
        assert min(kinds["no_submission"], kinds["not_on_ledger"]) > 100
        assert differences(restored, sandbox, "--since", point, "--adopt") == expected
        adopted = database.execute("SELECT idempotency_key FROM workflows_effect WHERE attempt = 0").fetchall()
        reversed_too = {key.removesuffix(":undo") for _, key in expected if key.endswith(":undo")}
        lost_calls = {key for kind, key in expected if kind == "not_on_ledger" and not key.endswith(":undo")}
        assert {str(key) for (key,) in adopted} == lost_calls - reversed_too

        enter(database, sandbox, wanted)  # their clients send them again
        work(restored)
        pending = "SELECT count(*) FROM workflows_workflow WHERE status = 'PENDING'"
        until(lambda: database.execute(pending).fetchone() == (0,), seconds=PATIENCE)
    performed = Counter((each["operation"], each["idempotency_key"]) for each in sandbox.effects())
    assert set(performed.values()) == {1}
    made = Counter(operation for operation, _ in performed)
    assert made == Counter(operation for sample in wanted for _, operation in sample.effects)
    assert differences(restored, sandbox) == []
