"""The page for the night, as somebody new types it: a primary is lost, and its standby takes over by hand.

The commands of Patroni and etcd need a cluster of theirs: `tests.failover.page`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from config.embedded.server import DATABASE, Server
from onboarding.samples import Kind, sample
from tests.acceptance.test_point_in_time import manage
from tests.acceptance.test_synchronous import all_of, folder, kill, primary, standby, url_of, wait_for
from tests.processes import meanwhile, until
from tests.runbook import Reader
from tests.sandbox_process import SandboxProcess
from tests.servers import Gunicorn

__all__ = ["folder", "primary", "standby"]

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

IS_IT_OVER, WHO_LEADS, REFUSES = "1. Is it over?", "2. Who leads?", "The primary is there, and refuses"


@pytest.fixture
def intake(primary: Server, standby: Server, tmp_path: Path) -> Iterator[Gunicorn]:
    with Gunicorn("config.intake", tmp_path / "intake.log", url_of(primary, standby), WEB_CONCURRENCY="1") as intake:
        yield intake


@pytest.fixture
def reader(primary: Server, standby: Server, intake: Gunicorn, sandbox: SandboxProcess, tmp_path: Path) -> Reader:
    """Somebody on the hosts of the intake and of the standby."""
    (tmp_path / "environment").write_text(f"DATABASE_URL='{url_of(primary, standby)}'\nSERVICES_URL={sandbox.url}\n")
    places = {
        "cd /opt/onramp && ": "",
        "/etc/onramp/environment": f"{tmp_path}/environment",
        "127.0.0.1:8000": f"127.0.0.1:{intake.port}",
        ".venv/bin/python": sys.executable,
        "psql ": f"{standby.program('psql')} ",
    }
    shell = {"DATABASE_URL": url_of(primary, standby), "SERVICES_URL": sandbox.url}  # that of the first step
    there = {"PGHOST": str(standby.socket_folder()), "PGUSER": "postgres", "PGDATABASE": DATABASE}
    return Reader("how-to/lost-primary.md", tmp_path, places, {**shell, **there})


def test_a_standby_takes_over_by_the_page_alone(
    primary: Server, standby: Server, intake: Gunicorn, reader: Reader
) -> None:
    key = manage(primary, "createapikey", "shop").stdout.split()[-1]

    def post(seed: int) -> int:
        submission = sample(Kind.NET_NEW, seed)
        headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": str(submission.idempotency_key)}
        url = f"http://127.0.0.1:{intake.port}/v1/submissions"
        return httpx.post(url, json=submission.payload, headers=headers, timeout=30, trust_env=False).status_code

    assert post(1) == 202
    assert "not stored" not in reader.types(IS_IT_OVER)
    wait_for(standby, "*")  # as each server of a cluster has it
    kill(primary)
    assert post(2) == 503
    told = reader.types(IS_IT_OVER)
    assert "not stored" in told
    assert "Critical:" in told

    in_recovery, promoted, *_ = reader.types("Without Patroni").splitlines()
    assert (in_recovery[:2], promoted) == ("t|", "t")
    until(lambda: post(2) == 202)
    assert "not stored" not in reader.types(IS_IT_OVER)
    wait_for(standby, "nobody")
    with meanwhile(lambda: post(3), every=0.1, times=100):
        until(lambda: re.search(r" waiting \n-+\n +[1-9]", reader.types(WHO_LEADS, 1)))
        told = reader.types(IS_IT_OVER)
        assert "not stored" in told
        assert "No standby is there that a COMMIT waits for" in told
        assert "pg_terminate_backend" not in told
    wait_for(standby, "")
    assert "Nothing differs." in reader.types("Asynchronous")
    assert reader.types(REFUSES).split() == ["f", "off"]
    assert len(all_of(standby, "SELECT FROM workflows_workflow")) >= 2
