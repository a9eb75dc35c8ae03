"""A standby takes over without the last moments: what a session, a row or a chart knows fits the new primary."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import httpx
import psutil
import pytest
from django.db import OperationalError
from psycopg.types.json import Jsonb

from config.embedded.server import Server
from tests.acceptance.conftest import Start
from tests.acceptance.outside import done, open_gate
from tests.acceptance.test_point_in_time import manage
from tests.acceptance.test_synchronous import (  # noqa: F401 (fixtures)
    Context,
    all_of,
    charge,
    connected_to,
    find_charge,
    folder,
    kill,
    primary,
    standby,
    submitting,
    url_of,
    wait_for,
)
from tests.postgres import connect
from tests.processes import until
from tests.servers import Gunicorn
from workflows.definition import Step, WorkflowDefinition
from workflows.features.trends import rollup
from workflows.postgres import often

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

STARTED = "SELECT coalesce(sum(count), 0)::int FROM workflows_rollup WHERE grain = 'total' AND metric = 'started'"
LIVE = "SELECT name FROM workflows_workerprocess WHERE stopped_at IS NULL"
COUNT = "SELECT count(*) FROM workflows_workflow WHERE workflow_type = %s"


def fall_behind(primary: Server, standby: Server) -> None:  # noqa: F811
    """What is committed on the primary from now on, its standby never gets."""
    wait_for(primary, "")
    until(lambda: all_of(primary, "SHOW synchronous_standby_names") == [("",)])
    [(at,)] = all_of(primary, "SELECT pg_current_wal_lsn()::text")
    until(lambda: all_of(standby, f"SELECT pg_last_wal_replay_lsn() >= '{at}'") == [(True,)])
    [(sender,)] = all_of(primary, "SELECT pid FROM pg_stat_replication")
    psutil.Process(sender).suspend()


def take_over(primary: Server, standby: Server) -> None:  # noqa: F811
    kill(primary)
    assert all_of(standby, "SELECT pg_promote()") == [(True,)]


def test_each_row_is_counted_once_and_a_statement_is_prepared_anew(primary: Server, standby: Server) -> None:  # noqa: F811
    with connected_to(primary), connect(primary) as late, late.cursor() as cursor:
        submit = [submitting() for _ in range(8)]
        submit[0]()
        cursor.execute("BEGIN")
        cursor.execute(
            """INSERT INTO workflows_workflow (workflow_type, idempotency_key, payload)
               VALUES ('late', gen_random_uuid(), '{}')"""
        )
        submit[1]()
        rollup.add_up()  # its snapshot has an open transaction
        assert often.fetch_row(STARTED) == (2,)
        fall_behind(primary, standby)
        cursor.execute("COMMIT")
        submit[2]()
        rollup.add_up()
        assert often.fetch_row(STARTED) == (4,)
        take_over(primary, standby)
        with pytest.raises(OperationalError):
            often.fetch_row(STARTED)
    with connected_to(standby):
        assert often.fetch_row(STARTED) == (2,)
        for number in (0, 2, 3, 4):
            submit[number]()
        for _ in range(2):
            rollup.add_up()
            assert often.fetch_row(STARTED) == (5,)
        assert often.fetch_row(COUNT, ["onboarding"]) == (5,)


CHARGED = WorkflowDefinition(
    name="charged", steps=[Step(charge, once=True, lookup=find_charge, settle=0)], context_class=Context
)


def test_workers_go_on_with_rows_and_numbers_of_their_own(
    primary: Server,  # noqa: F811
    standby: Server,  # noqa: F811
    runworker: Start,
    tmp_path: Path,
) -> None:
    """The new primary knows neither the second worker nor what was worked on meanwhile."""
    keys = [str(uuid4()) for _ in range(9)]

    def enter(server: Server, *numbers: int) -> None:
        with connect(server) as database, database.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO workflows_workflow (workflow_type, idempotency_key, payload) VALUES ('charged', %s, %s)",
                [(keys[number], Jsonb({"folder": str(tmp_path)})) for number in numbers],
            )
        until(lambda: all_of(server, "SELECT count(*) FROM workflows_workflow WHERE status = 'PENDING'") == [(0,)])

    def start() -> None:
        begin = all_of(primary, LIVE)
        runworker(f"{__name__}.CHARGED", arguments=("--processes", "1"), DATABASE_URL=url_of(primary, standby))
        until(lambda: len(all_of(primary, LIVE)) == len(begin) + 1)

    start()
    enter(primary, 0, 1, 2)
    fall_behind(primary, standby)
    start()
    enter(primary, 3, 4, 5)
    take_over(primary, standby)
    with connect(standby) as database:
        database.execute("ALTER SYSTEM SET log_statement = 'all'")
        database.execute("SELECT pg_reload_conf()")
    enter(standby, 5, 4, 3, 6, 7, 8)
    assert all_of(standby, "SELECT count(*), max(status) FROM workflows_workflow") == [(9, "COMPLETE")]
    until(lambda: len(all_of(standby, LIVE)) == 2)
    assert len({name for (name,) in all_of(standby, LIVE)}) == 2
    assert all_of(standby, "SELECT FROM workflows_workerprocess WHERE stopped_at IS NOT NULL") == []
    until(lambda: "LISTEN " in (standby.cluster / "server.log").read_text())
    assert all_of(standby, "SELECT count(DISTINCT call_number) FROM workflows_effect WHERE state = 'done'") == [(9,)]
    assert all_of(standby, "SELECT FROM pg_locks WHERE locktype = 'advisory'") == []
    assert {key.partition(":")[0] for key in (tmp_path / "charges").read_text().split()} == set(keys)


def test_nobody_stays_with_a_primary_that_stores_nothing_any_more(
    primary: Server,  # noqa: F811
    standby: Server,  # noqa: F811
    runworker: Start,
    tmp_path: Path,
) -> None:
    """As when Patroni alone dies: the old primary comes first, lives, and waits in vain for its standby."""
    url, key = url_of(primary, standby), manage(primary, "createapikey", "shop").stdout.split()[-1]
    http = httpx.Client(headers={"Authorization": f"Bearer {key}"}, trust_env=False, timeout=30)

    def post() -> int:
        headers = {"Idempotency-Key": str(uuid4())}
        return http.post(f"http://127.0.0.1:{intake.port}/v1/submissions", json={}, headers=headers).status_code

    worker = runworker("onboarding.workflow.ONBOARDING", arguments=("--processes", "1"), DATABASE_URL=url)
    with Gunicorn("config.intake", tmp_path / "intake.log", url, WEB_CONCURRENCY="1") as intake, http:
        assert post() == 202
        until(lambda: all_of(primary, "SELECT FROM workflows_workflow WHERE status = 'FAILED'"))
        assert all_of(standby, "SELECT pg_promote()") == [(True,)]
        until(lambda: post() == 202 and all_of(standby, COUNT.replace("%s", "'onboarding'")) > [(1,)], seconds=60)
        failed = "SELECT count(*) FROM workflows_workflow WHERE status = 'FAILED'"
        until(lambda: all_of(standby, failed) > [(1,)], seconds=60, what=lambda: worker.output)


def test_a_row_in_hand_is_free_at_once_and_an_open_circuit_stays_open(
    primary: Server,  # noqa: F811
    standby: Server,  # noqa: F811
    runworker: Start,
    effects: Path,
) -> None:
    """The lease of the claim ends with its server. The circuit is a row: it is as open, and its trial as late."""
    places = {"log": str(effects), "gate": str(effects.with_name("gate"))}
    with connect(primary) as database, database.cursor() as cursor:
        cursor.execute(
            """INSERT INTO workflows_service (name, opened_at, retry_at, held_by)
               VALUES ('letters', now(), now() + interval '1 hour', 'ada')"""
        )
        cursor.executemany(
            "INSERT INTO workflows_workflow (workflow_type, idempotency_key, payload) VALUES (%s, %s, %s)",
            [(workflow_type, uuid4(), Jsonb(places)) for workflow_type in ("held", "calling_slowly")],
        )
    url = url_of(primary, standby)
    worker = runworker("HELD", "CALLING_SLOWLY", arguments=("--processes", "2"), DATABASE_URL=url)
    until(lambda: len(done(effects, "begin")) == 1, what=lambda: worker.output)
    parked = "SELECT FROM workflows_workflow WHERE workflow_type = 'calling_slowly' AND parked_on = 'letters'"
    until(lambda: all_of(primary, parked), what=lambda: worker.output)
    take_over(primary, standby)
    until(lambda: len(done(effects, "begin")) == 2, what=lambda: worker.output)
    open_gate(effects)
    ended = "SELECT outcome FROM workflows_attempt WHERE workflow_id IN (SELECT id FROM workflows_workflow WHERE "
    of_held = f"{ended} workflow_type = 'held') ORDER BY number"
    until(lambda: all_of(standby, of_held) == [("lost",), ("complete",)], what=lambda: worker.output)
    assert len(done(effects, "end")) == 1
    assert (len(all_of(standby, parked)), done(effects, "calls")) == (1, [])
    all_of(standby, "UPDATE workflows_service SET retry_at = now() RETURNING name")
    until(lambda: len(done(effects, "called")) == 1, what=lambda: worker.output)
    closed = "SELECT FROM workflows_service WHERE name = 'letters' AND opened_at IS NULL"
    until(lambda: all_of(standby, closed), what=lambda: worker.output)
    assert len(done(effects, "calls")) == 1
