"""The ASGI intake in this process: what cannot be seen, or not be brought about, through a server."""

import json
from collections.abc import Iterator
from threading import Timer
from unittest.mock import Mock
from uuid import uuid4

import pytest
from django.db import connection, connections
from django.db.models.functions import Now

from config.logs import JsonFormatter
from tests.asgi import Served, served
from tests.workflows.api.answers import assert_problem
from tests.workflows.api.test_submissions import post
from tests.workflows.intake.entering import DEFINITION
from workflows.api import asgi
from workflows.api.asgi import THREADS
from workflows.ingress import api_keys
from workflows.intake import watching
from workflows.models import Workflow
from workflows.postgres.deadlines import DatabaseUnavailable

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def intake() -> Iterator[Served]:
    with served(DEFINITION) as intake:
        yield intake


def test_more_than_can_be_stored_is_503_and_may_be_sent_again(key: str) -> None:
    with served(DEFINITION, most_rows=0) as intake:
        answer = post(intake, key, b"{}")
    assert_problem(answer, 503, "overloaded")
    assert answer.headers["Retry-After"] == "5"


def test_a_header_sent_twice_is_both_together(intake: Served, key: str) -> None:
    headers = [("Authorization", f"Bearer {key}"), ("Idempotency-Key", str(uuid4())), ("Idempotency-Key", "x")]
    assert_problem(intake.request("POST", "/v1/submissions", headers), 400, "idempotency_key_invalid")


def test_an_unforeseen_error_is_a_problem_and_says_nothing_of_the_request(
    intake: Served, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.setFormatter(JsonFormatter())
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE workflows_workflow ADD CONSTRAINT refusing CHECK (NOT payload ? 'canary')")
        try:
            answer = post(intake, key, b'{"canary": 1}')
        finally:
            cursor.execute("ALTER TABLE workflows_workflow DROP CONSTRAINT refusing")
    assert_problem(answer, 500, "internal_error")
    assert "IntegrityError" in caplog.text
    assert f'"request_id": "{answer.headers["X-Request-ID"]}"' in caplog.text
    assert "canary" not in caplog.text
    assert b"canary" not in answer.content


def test_a_batchs_line_in_the_log_has_no_requests_name(
    intake: Served, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.setFormatter(JsonFormatter())
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE workflows_workflow RENAME TO gone")
        try:
            assert_problem(post(intake, key, b"["), 400, "malformed_json")
            assert_problem(post(intake, key, b"{}"), 503, "database_unavailable")
        finally:
            cursor.execute("ALTER TABLE gone RENAME TO workflows_workflow")
    (line,) = [json.loads(each) for each in caplog.text.splitlines() if "refused a statement" in each]
    assert "request_id" not in line


def test_answers_are_held_until_the_workflow_has_finished_and_take_no_thread(
    intake: Served, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = post(intake, key).headers["Location"]
    mine = {"Authorization": f"Bearer {key}"}
    for prefer, held in (("wait=1", "wait=1"), ("wait", None), ("wait=0", None), ("respond-async; wait=x", None)):
        answer = intake.get(at, headers={**mine, "Prefer": prefer})
        assert (answer.json()["status"], answer.headers.get("Preference-Applied")) == ("PENDING", held)
    for path, api_key, status in ((at, "onramp_other", 401), (at, api_keys.create("other"), 404), (f"{at}0", key, 404)):
        refused = intake.get(path, headers={"Authorization": f"Bearer {api_key}", "Prefer": "wait=1"})
        assert (refused.status_code, "Preference-Applied" in refused.headers) == (status, False)
    monkeypatch.setattr(asgi, "LONGEST_WAIT", 100)  # longer than `all_at_once` waits

    def complete() -> None:
        Workflow.objects.update(status="COMPLETE", completed_at=Now())
        connections.close_all()

    (soon := Timer(0.5, complete)).start()
    many = [("Prefer", "respond-async, wait=1000"), *mine.items()]
    answers = intake.all_at_once(3 * THREADS, "GET", at, many)
    soon.join()
    told = {(each.json()["status"], each.headers["Preference-Applied"]) for each in answers}
    assert told == {("COMPLETE", "wait=100")}


def test_answers_are_not_held_where_too_many_wait_or_the_database_is_away(
    intake: Served, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = post(intake, key).headers["Location"]
    mine = [("Authorization", f"Bearer {key}"), ("Prefer", "wait=100")]
    monkeypatch.setattr(asgi, "LONGEST_WAIT", 100)
    monkeypatch.setattr(watching, "_still_unfinished", Mock(side_effect=DatabaseUnavailable))
    for most, held in ((1, "wait=100"), (0, None)):
        monkeypatch.setattr(watching, "MOST_WAITING", most)
        [answer] = intake.all_at_once(1, "GET", at, mine)
        assert answer.headers.get("Preference-Applied") == held
