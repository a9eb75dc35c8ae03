"""What the intake counts: each process by itself, and any of them tells of all."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from tempfile import gettempdir
from uuid import uuid4

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests import engine
from tests.acceptance.test_intake import get, post, send_raw
from tests.processes import children_of, until
from tests.servers import Gunicorn, database_url, gunicorn

pytestmark = pytest.mark.django_db(transaction=True)

TOKEN = "prometheus"


@pytest.fixture
def server(transactional_db: None, tmp_path: Path) -> Iterator[Gunicorn]:
    with gunicorn("config.intake", tmp_path, METRICS_TOKEN=TOKEN) as server:
        yield server


def told(server: Gunicorn) -> Mapping[str, float]:
    """Each number by its name after `onramp_intake_`, with the value of its label if it has one."""
    answer = get(server, "/metrics", TOKEN)
    assert (answer.status, answer.headers["Content-Type"].split(";")[0]) == (200, "text/plain")
    return {
        " ".join((sample.name.removeprefix("onramp_intake_"), *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.content.decode())
        for sample in family.samples
    }


def test_any_process_tells_what_all_have_answered_to_those_who_have_the_token(server: Gunicorn, key: str) -> None:
    assert {told(server)[f"answers_total {status}"] for status in (202, 500, 503)} == {0}
    for _ in range(20):
        assert post(server, key).status == 202
    for path in ("/v1/submissions/x", "/v1/other"):
        assert get(server, path, key).status == 404
    assert send_raw(server, b"junk\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    for _ in range(10):  # whichever process answers
        numbers = told(server)
        assert [numbers[f"answers_total {status}"] for status in (202, 404, 400)] == [20, 1, 1]
        assert (numbers["request_seconds_count"], numbers["request_seconds_bucket 10.0"]) == (21, 21)
        assert (numbers["group_size_bucket 1.0"], numbers["group_size_sum"], numbers["queue"]) == (20, 20, 0)
    get(server, "/metrics", "wrong").assert_problem(401, "metrics_token_invalid")


def test_a_counter_never_goes_down_and_nothing_stays_of_processes_that_were_killed(server: Gunicorn, key: str) -> None:
    def kept() -> list[Path]:
        folder = f"onramp-intake-{server.process.pid}-*"
        return [file for memory in ("/dev/shm", gettempdir()) for file in Path(memory).glob(f"{folder}/*")]  # noqa: S108

    for _ in range(20):
        assert post(server, key).status == 202
    killed, files = children_of(server.process.pid), set(kept())
    assert files
    with psycopg.connect(database_url()) as other, ThreadPoolExecutor(28) as pool:
        other.execute("LOCK TABLE workflows_workflow")
        waiting = [pool.submit(post, server, key) for _ in range(4)]
        waiting += [pool.submit(get, server, f"/v1/submissions/{uuid4()}", key) for _ in range(24)]  # all their threads
        engine.until_blocked()
        until(lambda: told(server)["queue"] == 4)
        for process in killed:
            os.kill(process, signal.SIGKILL)
        assert all(isinstance(each.exception(), HTTPException | OSError) for each in waiting)
    until(lambda: len(set(children_of(server.process.pid)) - set(killed)) == len(killed))
    assert post(server, key).status == 202
    numbers = told(server)
    assert (numbers["answers_total 202"], numbers["queue"]) == (21, 0)
    until(lambda: set(kept()) == files)
    server.process.terminate()
    server.process.wait(30)
    assert not kept()
