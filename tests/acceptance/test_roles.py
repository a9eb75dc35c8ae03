"""Each process with its own role in the database, on tables that the migrator owns: docs/deployment.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.processes import Runworker, until
from tests.sandbox_process import SandboxProcess
from tests.servers import ROOT, database_url, empty_database, gunicorn
from workflows.management import roles

pytestmark = pytest.mark.django_db(transaction=True)

NAMES = roles.Names(*(f"onramp_{role}_{os.getpid()}" for role in roles.Names._fields))
PASSWORD = "correct horse battery"
OPTIONS = [f"--{role}={name}" for role, name in NAMES._asdict().items()]


class Database:
    """A database that the migrator owns, migrated and granted by it, and its roles."""

    def __init__(self, url: str) -> None:
        self.url = url

    def of(self, role: str) -> str:
        address = urlsplit(self.url)
        return address._replace(
            netloc=f"{role}:{PASSWORD}@{address.netloc.rpartition('@')[2]}".replace(" ", "%20")
        ).geturl()

    def manage(self, role: str, *arguments: str, may_find: int = 0, **environment: str) -> str:
        environ = {**os.environ, "DEBUG": "1", "DATABASE_URL": self.of(role), **environment}
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode <= may_find, done.stdout + done.stderr
        return done.stdout

    def ask(self, sql: str, *parameters: Any) -> Any:
        """As the superuser of the server: the first value."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(sql, parameters).fetchone()[0]  # type: ignore[index]


@pytest.fixture
def database() -> Iterator[Database]:
    with empty_database(f"test_roles_{os.getpid()}") as url:
        with psycopg.connect(url, autocommit=True) as administrator:
            for role in NAMES:
                administrator.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
            administrator.execute(f"ALTER DATABASE test_roles_{os.getpid()} OWNER TO {NAMES.migrator}")
            administrator.execute(f"ALTER SCHEMA public OWNER TO {NAMES.migrator}")
        database = Database(url)
        database.manage(NAMES.migrator, "migrate", "--verbosity=0")
        with psycopg.connect(database.of(NAMES.migrator), autocommit=True) as migrator:
            migrator.execute(database.manage(NAMES.migrator, "grants", *OPTIONS))
        yield database
    with psycopg.connect(database_url(), autocommit=True) as administrator:
        for role in NAMES:
            administrator.execute(f"DROP ROLE {role}")


@contextmanager
def signed_in(server: Any, name: str) -> Iterator[Console]:
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}/admin", timeout=30) as client:
        console = Console(client)
        console.post("/login/", username=name, password=PASSWORD)
        yield console


class Console:
    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def post(self, url: str, *, page: str = "", **data: Any) -> str:
        """Fill in the form of a page, the same one by default, and say what follows."""
        found = self.client.get(page or url)
        assert found.status_code == 200, (url, found.status_code)
        fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', found.text))
        answer = self.client.post(url, data={**fields, **data}, follow_redirects=True)
        assert answer.status_code == 200, (url, answer.status_code)
        return answer.text


def test_each_process_works_with_its_own_role(database: Database, sandbox: SandboxProcess, tmp_path: Path) -> None:
    environment = {
        "SERVICES_URL": sandbox.url,
        "WORKFLOWS": "onboarding.workflow.ONBOARDING,tests.acceptance.definitions.ASKED",
        "SUBMISSION_WORKFLOW": "onboarding",
    }
    for name in ("ada", "bob"):
        arguments = "--noinput", f"--username={name}", f"--email={name}@example.com"
        database.manage(NAMES.console, "createsuperuser", *arguments, DJANGO_SUPERUSER_PASSWORD=PASSWORD)
    key = database.manage(NAMES.console, "createapikey", "shop").splitlines()[-1]
    worker = Runworker(tmp_path / "worker.log", (), (), DATABASE_URL=database.of(NAMES.worker), **environment)
    urls = {"url": database.of(NAMES.intake)}, {"url": database.of(NAMES.console)}
    folders = [tmp_path / name for name in ("intake", "console")]
    for folder in folders:
        folder.mkdir()
    try:
        with (
            gunicorn("config.intake", folders[0], **urls[0], **environment) as intake,
            gunicorn("config.wsgi", folders[1], **urls[1], **environment) as console,
            signed_in(console, "ada") as ada,
            signed_in(console, "bob") as bob,
        ):
            submit_and_erase(database, key, f"http://127.0.0.1:{intake.port}", ada, bob)
            decide_and_retry(database, key, f"http://127.0.0.1:{console.port}", ada, str(tmp_path / "effects"))
        database.manage(NAMES.worker, "purge", **environment)
        database.manage(NAMES.console, "datakeys", "rotate", **environment)
        printed = "".join(each.read_text() for each in (worker.log, *(each / "gunicorn.log" for each in folders)))
        assert "42501" not in printed
        assert "permission denied" not in printed + database.manage(NAMES.console, "doctor", may_find=2, **environment)
    finally:
        worker.kill()


def submit_and_erase(database: Database, key: str, intake: str, ada: Console, bob: Console) -> None:
    sent, body = str(uuid4()), (ROOT / "docs/examples/uninsured.json").read_text()
    headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": sent, "Content-Type": "application/json"}

    def post(body: str) -> httpx.Response:
        return httpx.post(f"{intake}/v1/submissions", content=body, headers=headers, timeout=30)

    row = post(body).json()["id"]
    assert post(body).json()["replayed"]
    assert post(body.replace("{", '{"another": 1, ', 1)).status_code == 422
    found = httpx.get(f"{intake}/v1/submissions/{sent}", headers={**headers, "Prefer": "wait=10"}, timeout=30).json()
    assert found["status"] == "COMPLETE", found
    assert re.search(r"Your card was charged \$[\d.]+ on", found["message"])
    assert post(body).json()["replayed"], "its secrets are emptied by now"
    of_row = f"/workflows/workflow/{row}"
    assert "ada.alvarez@example.com" in ada.post(
        f"{of_row}/reveal/", fields_asked="patient.email", reason="To call her."
    )
    assert of_row in str(ada.post("/find/", q="ada.alvarez@example.com"))
    ada.post(f"{of_row}/ask_erasure/", reason="Ticket 812.")
    bob.post(f"/workflows/erasure/{database.ask('SELECT id FROM workflows_erasure')}/approve/")
    assert database.ask(
        "SELECT emptied_at IS NOT NULL AND payload::text !~ 'alvarez' FROM workflows_workflow WHERE id = %s", row
    )
    assert post(body).json()["replayed"]


def decide_and_retry(database: Database, key: str, api: str, ada: Console, effects: str) -> None:
    def start(name: str) -> int:
        request = {"workflow_type": "asked", "tenant": "", "business_key": name, "input": {"log": effects}}
        answer = httpx.post(f"{api}/v1/workflows", json=request, headers={"Authorization": f"Bearer {key}"}, timeout=30)
        assert answer.status_code == 202, answer.text
        return int(answer.json()["id"])

    def task_of(row: int) -> str:
        task = "SELECT max(id) FROM workflows_manualtask WHERE workflow_id = %s AND state = 'open'"
        return f"/workflows/manualtask/{until(lambda: database.ask(task, row))}/"

    def decide(row: int, **form: str) -> None:
        ada.post(f"{(of_task := task_of(row))}decide/", page=f"{of_task}change/", **form)

    def comes_to(row: int, status: str) -> None:
        look = "SELECT status = %s FROM workflows_workflow WHERE id = %s"
        until(lambda: database.ask(look, status, row), what=lambda: f"{row} is not {status}")

    cancelled, rejected, approved = (start(name) for name in ("cancelled", "rejected", "approved"))
    task_of(cancelled)
    ada.post(f"/workflows/workflow/{cancelled}/cancel/", reason="By phone.")
    decide(rejected, decision="reject", reason="No.")
    decide(approved, decision="approve", reason="Fine.")
    for row, status in ((cancelled, "FAILED"), (rejected, "FAILED"), (approved, "COMPLETE")):
        comes_to(row, status)
    attempts = "SELECT count(*) FROM workflows_attempt WHERE workflow_id = %s"
    before = database.ask(attempts, rejected)
    ada.post(f"/workflows/workflow/{rejected}/retry/", why="other", reason="Yes, after all.")
    until(lambda: database.ask(attempts, rejected) > before)
