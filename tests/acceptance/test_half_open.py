"""A proxy before PostgreSQL that keeps old connections open and passes nothing on: each process goes on by new ones.

In the midst of a call: faults/test_lost.py.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from django.contrib.auth.models import User

from tests.acceptance.conftest import Consume, Start
from tests.acceptance.doors import Door
from tests.acceptance.messages import fact, until_told
from tests.acceptance.outside import attempts, done, now, open_gate, submit
from tests.acceptance.test_intake import get, post
from tests.acceptance.test_outbox import StartRelay, destinations
from tests.acceptance.test_outbox import relayoutbox as relayoutbox
from tests.acceptance.test_sign_in import PASSWORD, signed_in
from tests.acceptance.test_submissions_from_queues import door as door
from tests.acceptance.test_submissions_from_queues import good, stored
from tests.acceptance.test_submissions_from_queues import server as server
from tests.engine import another_connection
from tests.kafka import Cluster
from tests.processes import Runworker, environment, until
from tests.servers import ROOT, Proxy, database_url, gunicorn
from tests.workflows.features.outbox.receiver import receiver

pytestmark = pytest.mark.django_db(transaction=True)

SOON = 15.0  # seconds until work goes on
GRACE = 8


@pytest.fixture
def url(proxy: Proxy) -> str:
    return database_url(port=proxy.port)


def stop(process: Runworker) -> None:
    process.signal(signal.SIGTERM)
    assert process.wait(GRACE) == 0, process.output


def test_an_idle_worker_goes_on(runworker: Start, effects: Path, proxy: Proxy, url: str) -> None:
    first = submit("counted", effects)
    worker = runworker("COUNTED", arguments=("--grace", str(GRACE)), DATABASE_URL=url)
    until(lambda: now(first).status == "COMPLETE", what=lambda: worker.output)
    children = worker.children()
    proxy.freeze()
    second = submit("counted", effects)
    until(lambda: now(second).status == "COMPLETE", seconds=SOON, what=lambda: worker.output)
    assert (worker.children(), attempts(second)) == (children, ["complete"])
    proxy.freeze()
    time.sleep(1)  # it beats, and waits for the answer
    stop(worker)


@pytest.mark.parametrize("stops", [False, True], ids=["", "told to stop"])
def test_a_row_in_hand_is_free_again(runworker: Start, effects: Path, proxy: Proxy, url: str, stops: bool) -> None:
    """Its claim is open at the server, where nobody hears that the worker has closed it."""
    workflow = submit("held", effects)
    worker = runworker("HELD", arguments=("--grace", str(GRACE)), DATABASE_URL=url)
    until(lambda: done(effects, "begin") == [workflow.pk], what=lambda: worker.output)
    proxy.freeze()
    open_gate(effects)
    if stops:
        stop(worker)
        runworker("HELD")
    until(lambda: now(workflow).status == "COMPLETE", seconds=SOON, what=lambda: worker.output)
    assert attempts(workflow) == ["lost", "complete"]
    if not stops:
        stop(worker)


@pytest.mark.parametrize(
    ("silent", "holds"), [(False, False), (True, True)], ids=["refused, idle", "silent, with a row in hand"]
)
def test_a_worker_that_can_open_no_new_connection_ends_in_its_grace(
    runworker: Start, effects: Path, proxy: Proxy, url: str, silent: bool, holds: bool
) -> None:
    """It waited for an answer that nobody could end, and was killed ten seconds after its grace."""
    workflow = submit("held" if holds else "counted", effects)
    worker = runworker("HELD", "COUNTED", arguments=("--grace", str(GRACE)), DATABASE_URL=url)
    until(lambda: done(effects, "begin") or now(workflow).status == "COMPLETE", what=lambda: worker.output)
    proxy.freeze()
    proxy.fall_silent() if silent else proxy.refuse()
    open_gate(effects)
    time.sleep(1)  # it waits for an answer
    worker.signal(signal.SIGTERM)
    assert worker.wait(60) == 0, worker.output
    assert "SIGKILL" not in worker.output


def test_the_supervisor_goes_on(runworker: Start, effects: Path, proxy: Proxy, url: str) -> None:
    """As it writes how a worker process has died, and replaces it."""
    workflow = submit("deadly", effects)
    proxy.freezes_at = b"workflows_workerprocess SET stopped_at"
    worker = runworker("DEADLY", DATABASE_URL=url)
    until(lambda: proxy.freezes_at == b"", what=lambda: worker.output)
    until(lambda: attempts(workflow)[0] == "crashed", seconds=SOON, what=lambda: worker.output)
    until(worker.children, seconds=SOON, what=lambda: worker.output)
    with another_connection() as other:
        left = "SELECT FROM pg_stat_activity WHERE application_name LIKE 'onramp supervisor %%'"
        until(lambda: not other.execute(left).fetchall(), seconds=SOON)


def test_the_console_answers_on_every_thread(tmp_path: Path, proxy: Proxy, url: str) -> None:
    User.objects.create_superuser("ada", password=PASSWORD)
    with (
        gunicorn("config.wsgi", tmp_path, url=url, WEB_CONCURRENCY="1") as console,
        signed_in(f"http://127.0.0.1:{console.port}", PASSWORD) as client,
        ThreadPoolExecutor(8) as pool,
    ):

        def page(_: int) -> int:
            return client.get("/admin/", timeout=60).status_code

        assert list(pool.map(page, range(8))) == [200] * 8
        proxy.freeze()
        began = time.monotonic()
        assert list(pool.map(page, range(8))) == [200] * 8, console.printed()
        assert get(console, "/readyz").status == 200
        assert time.monotonic() - began < SOON
        proxy.freeze()
        answers = [pool.submit(page, number) for number in range(8)]
        time.sleep(1)
        began = time.monotonic()
        console.process.terminate()
        assert console.process.wait(60) == 0
        assert time.monotonic() - began < SOON
        assert [answer.result() for answer in answers] == [200] * 8


def test_the_intake_takes_submissions_and_stops(tmp_path: Path, proxy: Proxy, url: str, key: str) -> None:
    with gunicorn("config.intake", tmp_path, url=url, WEB_CONCURRENCY="1") as intake:
        assert post(intake, key).status == 202
        proxy.freeze()
        sent = str(uuid4())
        until(lambda: post(intake, key, idempotency_key=sent).status in (200, 202), seconds=SOON)
        proxy.freeze()
        began = time.monotonic()
        intake.process.terminate()
        assert intake.process.wait(60) == 0
        assert time.monotonic() - began < SOON


def test_the_intake_finds_out_once_for_all_its_sessions(tmp_path: Path, proxy: Proxy, url: str, key: str) -> None:
    """Four threads and the loop have one each: one after the other they took half a minute after a failover."""
    with gunicorn("config.intake", tmp_path, url=url, WEB_CONCURRENCY="1") as intake, ThreadPoolExecutor(8) as pool:
        sent = str(uuid4())
        assert post(intake, key, idempotency_key=sent).status == 202

        def look(_: int = 0) -> int:
            return get(intake, f"/v1/submissions/{sent}", key).status

        assert set(pool.map(look, range(40))) == {200}
        proxy.freeze()
        assert look() == 503
        assert [look() for _ in range(4)] == [200] * 4
        assert post(intake, key).status == 202


def test_the_relay_goes_on(runworker: Start, relayoutbox: StartRelay, proxy: Proxy, url: str, effects: Path) -> None:
    with receiver(answers=lambda _: 204) as it:
        relay = relayoutbox(DATABASE_URL=url, **destinations(it=it))
        runworker("TOLD", **destinations(it=it))
        submit("told", effects, {"number": 1})
        until(lambda: len(it.got) == 3, what=lambda: relay.output)
        proxy.freeze()
        submit("told", effects, {"number": 2})
        until(lambda: len(it.got) == 6, seconds=SOON, what=lambda: relay.output)
        assert len({*it.ids}) == 6
        proxy.freeze()
        proxy.refuse()
        time.sleep(1)
        stop(relay)


def test_a_relay_of_messages_goes_on(cluster: Cluster, topic: str, consume: Consume, proxy: Proxy, url: str) -> None:
    relay = consume(DATABASE_URL=url)
    cluster.send(topic, fact())
    until_told(1, relay)
    proxy.freeze()
    cluster.send(topic, fact())
    began = time.monotonic()
    until_told(2, relay)
    assert time.monotonic() - began < SOON
    stop(relay)


def test_a_consumer_of_submissions_goes_on(door: Door, proxy: Proxy, url: str) -> None:
    consumer = door.start(DATABASE_URL=url)
    first, second = good(1), good(5)
    door.send(first)
    until(lambda: len(stored()) == 1, what=lambda: consumer.output)
    proxy.freeze()
    door.send(second)
    until(lambda: stored() == {key for key, _ in first + second}, seconds=SOON, what=lambda: consumer.output)
    stop(consumer)


@pytest.mark.parametrize(
    ("command", "at", "said"),
    [
        (["doctor"], b"set_config('statement_timeout'", "Not known: "),
        (["reconcile"], b"workflows_effect", "passed nothing on"),
        (["purge"], b"workflows_", "passed nothing on"),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
def test_a_command_ends(proxy: Proxy, url: str, command: list[str], at: bytes, said: str) -> None:
    proxy.freezes_at = at
    ended = subprocess.run(
        [sys.executable, "manage.py", *command],
        cwd=ROOT,
        env={**environment("COUNTED"), "DATABASE_URL": url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert proxy.freezes_at == b""
    assert said in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
