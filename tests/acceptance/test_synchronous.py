"""A standby that a COMMIT waits for: what was promised is on it, also when the wait is cancelled and it takes over."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote
from uuid import uuid4

import httpx
import psutil
import pytest
from django.db import OperationalError, connections
from django.test import Client
from psycopg.types.json import Jsonb
from pydantic import BaseModel

from config.embedded.server import DATABASE, PORT, USER, Server
from onboarding.samples import Kind, sample
from tests.acceptance.conftest import Start
from tests.acceptance.test_point_in_time import manage
from tests.config.embedded.servers import a_folder_that_all_can_enter, base_backup
from tests.postgres import UNSAFE, connect
from tests.processes import meanwhile, until
from tests.servers import Gunicorn
from tests.workflows import rows
from tests.workflows.api.test_of_workflow import cancel, key_that_may
from workflows.api import of_workflow
from workflows.api.problems import Problem
from workflows.definition import Step, WorkflowDefinition, definitions
from workflows.effects import KnownEffect, key_for
from workflows.features.queues import refused
from workflows.features.queues.refused import Came
from workflows.features.queues.submissions import Sent
from workflows.ingress import messages
from workflows.ingress.messages import Arrived
from workflows.intake import submissions
from workflows.models import Workflow
from workflows.postgres.deadlines import DatabaseUnavailable
from workflows.postgres.jsonb import InputRefused, parse
from workflows.signals import store

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture
def folder() -> Iterator[Path]:
    with a_folder_that_all_can_enter() as folder:
        yield folder


@pytest.fixture
def primary(folder: Path) -> Iterator[Server]:
    server = Server(folder / "primary")
    server.start(**UNSAFE)
    try:
        assert manage(server, "migrate").returncode == 0
        yield server
    finally:
        server.remove()


@pytest.fixture
def standby(folder: Path, primary: Server) -> Iterator[Server]:
    """A standby of the primary, which waits for it with each COMMIT."""
    server = base_backup(primary, folder / "standby", "-X", "stream", "--write-recovery-conf")
    server.start(**UNSAFE)
    wait_for(primary, "*")
    try:
        until(lambda: all_of(primary, "SELECT sync_state FROM pg_stat_replication") == [("sync",)])
        yield server
    finally:
        server.remove()


def wait_for(server: Server, names: str) -> None:
    """Let each COMMIT wait for a standby with one of these names; "" for none."""
    with connect(server) as database:
        database.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        database.execute("SELECT pg_reload_conf()")


def all_of(server: Server, sql: str) -> list[Any]:
    with connect(server) as database:
        return database.execute(sql).fetchall()


def cancel_waits(server: Server) -> None:
    """As an administrator does who sees sessions that hang."""
    all_of(server, f"SELECT pg_cancel_backend(pid) FROM ({WAITING}) waits")


def kill(server: Server) -> None:
    """Kill the server with all its processes, as the loss of its host does. What is on their way to it is gone."""
    postmaster = psutil.Process(server.pid())
    processes = [postmaster, *postmaster.children()]
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGSTOP)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes)


def freeze(server: Server) -> None:
    """Let a standby receive nothing any more; its connection stays."""
    for process in psutil.Process(server.pid()).children():
        process.send_signal(signal.SIGSTOP)


def url_of(*servers: Server) -> str:
    hosts = ",".join(f"{quote(str(server.socket_folder()), safe='')}:{PORT}" for server in servers)
    return f"postgres://{USER}@{hosts}/{DATABASE}?target_session_attrs=read-write"


@pytest.mark.parametrize("cancelled_by", ["the intake", "an administrator"])
def test_a_repeat_is_accepted_only_when_a_standby_has_the_submission(
    primary: Server, standby: Server, tmp_path: Path, cancelled_by: str
) -> None:
    """The COMMIT that waited is committed on the primary, and the repeat meets its row."""
    key = manage(primary, "createapikey", "shop").stdout.split()[-1]
    first, second = (sample(Kind.NET_NEW, seed) for seed in (1, 2))

    def post(submission: Any) -> int:
        headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": str(submission.idempotency_key)}
        return http.post("/v1/submissions", json=submission.payload, headers=headers).status_code

    with (
        Gunicorn("config.intake", tmp_path / "intake.log", url_of(primary, standby), WEB_CONCURRENCY="1") as intake,
        httpx.Client(base_url=f"http://127.0.0.1:{intake.port}", trust_env=False, timeout=30) as http,
    ):
        assert post(first) == 202  # the connection is open
        freeze(standby)
        with meanwhile(lambda: cancel_waits(primary), every=0.05, times=100 if cancelled_by != "the intake" else 0):
            told = post(second)
        stored = f"SELECT idempotency_key FROM workflows_workflow WHERE idempotency_key = '{second.idempotency_key}'"
        until(lambda: all_of(primary, stored))
        assert [told, post(second)] == [503, 503]
        kill(primary)
        kill(standby)
        standby.start(**UNSAFE, synchronous_standby_names="")
        all_of(standby, "SELECT pg_promote()")
        assert not all_of(standby, stored)
        assert until(lambda: post(second) == 202)
        assert len(all_of(standby, "SELECT FROM workflows_workflow")) == 2


class Context(BaseModel):
    called: bool = False


def lose_the_standby(*, workflow: Workflow, context: Context) -> None:
    """From now on no COMMIT ends, until it is cancelled."""
    (Path(workflow.payload["folder"]) / "lost").touch()
    until(Path(workflow.payload["folder"], "go").exists)


def charge(*, workflow: Workflow, context: Context) -> dict[str, Any]:
    with Path(workflow.payload["folder"], "charges").open("a") as charges:
        charges.write(f"{key_for(workflow, 'charge')}\n")
    return {"called": True}


def find_charge(*, workflow: Workflow, context: Context, effect: KnownEffect) -> dict[str, Any] | None:
    charges = Path(workflow.payload["folder"], "charges")
    return {"called": True} if charges.exists() and effect.idempotency_key in charges.read_text() else None


CHARGING = WorkflowDefinition(
    name="charging",
    steps=[Step(lose_the_standby), Step(charge, once=True, lookup=find_charge, settle=0)],
    context_class=Context,
)


def test_a_worker_whose_intent_may_be_on_no_standby_does_not_call(
    primary: Server, runworker: Start, tmp_path: Path
) -> None:
    worker = runworker(f"{__name__}.CHARGING", arguments=("--processes", "1"), DATABASE_URL=url_of(primary))
    with connect(primary) as database:
        database.execute(
            """INSERT INTO workflows_workflow (workflow_type, idempotency_key, payload)
               VALUES ('charging', gen_random_uuid(), %s)""",
            [Jsonb({"folder": str(tmp_path)})],
        )
        until((tmp_path / "lost").exists, what=lambda: worker.output)
        wait_for(primary, "nobody")
        until(lambda: all_of(primary, "SHOW synchronous_standby_names") == [("nobody",)])
        (tmp_path / "go").touch()
        with meanwhile(lambda: cancel_waits(primary), every=0.02, times=1500):
            until(lambda: "perhaps not on a standby" in worker.output or (tmp_path / "charges").exists())
            assert not (tmp_path / "charges").exists()
        wait_for(primary, "")
        until(lambda: database.execute("SELECT status FROM workflows_workflow").fetchall() == [("COMPLETE",)])
    assert len((tmp_path / "charges").read_text().splitlines()) == 1


Act = Callable[[], object]


def submitting() -> Act:
    definition, key = onboarding(), uuid4()
    return lambda: submissions.enter(definition, idempotency_key=key, payload=parse(b"{}"), submitted_by="shop")


def starting() -> Act:
    definition = onboarding()
    return lambda: submissions.start(
        definition, tenant="north", business_key="order-7", payload=parse(b"{}"), submitted_by="shop"
    )


def sending_a_signal() -> Act:
    row = rows.workflow()
    return lambda: store.send(source="shop", dedupe_key="1", name="paid", workflow_id=row.pk, payload={})


def cancelling() -> Act:
    row = rows.workflow(submitted_by="shop")
    assert cancel(Client(), row, key_that_may()).status_code == 202
    return lambda: of_workflow._is_cancelled(row)


def refusing_a_submission() -> Act:
    came = Came("orders", 0, 7, 1, Sent("shop", {}, b"{"))
    return lambda: refused.keep(came, a_problem())


def refusing_a_message() -> Act:
    return lambda: messages.keep_undelivered(Arrived("facts", 0, 7, 1, [], b"{"), InputRefused("code", "Why."))


def onboarding() -> WorkflowDefinition:
    return definitions()["onboarding"]


def a_problem() -> Problem:
    return Problem(400, "idempotency_key_missing", "Send a UUID of your own.")


@contextmanager
def connected_to(server: Server) -> Iterator[None]:
    """Open this thread's connection to another server."""
    wrapper = connections["default"]
    parameters = wrapper.get_connection_params()
    there = {"host": str(server.socket_folder()), "port": str(PORT), "user": USER, "dbname": DATABASE}
    wrapper.close()
    with patch.object(wrapper, "get_connection_params", lambda: {**parameters, **there}):
        yield
        wrapper.close()


def test_what_was_stored_before_is_promised_by_a_commit_of_its_own(primary: Server) -> None:
    """Each repeat stores nothing. Without a record of its own its transaction would wait for no standby."""
    prepared = [submitting, starting, sending_a_signal, cancelling, refusing_a_submission, refusing_a_message]
    with connected_to(primary):
        acts = [prepare() for prepare in prepared]
        for act in acts:
            act()
        wait_for(primary, "nobody")
        until(lambda: all_of(primary, "SHOW synchronous_standby_names") == [("nobody",)])
        with meanwhile(lambda: cancel_waits(primary), every=0.05, times=2000):
            for act in acts:
                connections["default"].close()
                with pytest.raises((DatabaseUnavailable, OperationalError)):
                    act()
        wait_for(primary, "")
