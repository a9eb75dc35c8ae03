"""A key may do what it was made for, and is refused everything else, at each door."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from itertools import product
from time import monotonic
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest
from django.db.models.functions import Now
from django.test import Client
from pydantic import BaseModel

from tests.asgi import Served, served
from tests.postgres import without_triggers
from tests.workflows import rows
from tests.workflows.api.answers import assert_problem
from tests.workflows.api.test_submissions import post
from workflows.api import asgi, urls
from workflows.api.asgi import Intake
from workflows.definition import Step, WorkflowDefinition, definitions
from workflows.features.queues.submissions import Door, Outcome, Sent
from workflows.health.api_keys import EXPIRED, expiring
from workflows.ingress import api_keys, bounds
from workflows.intake.submissions import submission_definition
from workflows.models import ApiKey, Signal, SpentKey, Workflow

pytestmark = pytest.mark.django_db(transaction=True)

DOORS: dict[str, tuple[str, str, Any]] = {
    "submit": (bounds.SUBMIT, "/v1/submissions", {}),
    "start": (bounds.SUBMIT, "/v1/workflows", {"workflow_type": "onboarding", "business_key": "b", "input": {}}),
    "submission": (bounds.READ, "/v1/submissions/{key}", None),
    "workflow": (bounds.READ, "/v1/workflows/{key}", None),
    "history": (bounds.READ_HISTORY, "/v1/workflows/{key}/history", None),
    "cancel": (bounds.CANCEL, "/v1/workflows/{key}/cancel", {"reason": "It was withdrawn."}),
    "signal": (bounds.SIGNAL, "/v1/workflows/{key}/signals", {"name": "parcel.delivered"}),
}
STARTING = ("submit", "start")


@pytest.fixture
def another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A type of another queue, beside onboarding."""
    step = Step(lambda *, workflow, context: None, name="pass_by")
    definition = WorkflowDefinition(name="another", steps=[step], context_class=BaseModel, queue="elsewhere")
    monkeypatch.setitem(definitions(), "another", definition)


@pytest.fixture
def intake() -> Iterator[Served]:
    with served(submission_definition()) as intake:
        yield intake


def knock(client: Any, door: str, api_key: str, row: Workflow, **headers: str) -> Any:
    _, path, body = DOORS[door]
    headers = {"Authorization": f"Bearer {api_key}", "Idempotency-Key": str(uuid4()), **headers}
    path = path.format(key=row.key)
    if body is None:
        return client.get(path, headers=headers)
    return client.post(path, json.dumps(body), content_type="application/json", headers=headers)


@pytest.mark.parametrize("verb", bounds.VERBS)
def test_a_key_for_one_verb_is_refused_at_all_other_doors(client: Client, verb: str) -> None:
    row = rows.workflow(submitted_by="shop")
    key = api_keys.create("shop", verbs=[verb])
    answers = {door: knock(client, door, key, row) for door in DOORS}
    assert {door for door, answer in answers.items() if answer.status_code < 300} == {
        door for door, (needs, *_) in DOORS.items() if needs == verb
    }
    for door in (door for door, (needs, *_) in DOORS.items() if needs != verb):
        assert_problem(answers[door], 403, "not_permitted")


@pytest.mark.parametrize("bound", ["types", "queues", "tenant"])
@pytest.mark.usefixtures("another")
def test_a_key_for_one_kind_finds_the_rows_of_others_at_no_door(client: Client, bound: str) -> None:
    narrow: dict[str, Any] = {"types": ["another"], "queues": ["elsewhere"], "tenant": "north"}
    its = {"workflow_type": "another", "queue": "elsewhere", "tenant": "north", "submitted_by": "shop"}
    key = api_keys.create("shop", may=bounds.BEYOND, **{bound: narrow[bound]})
    within, outside = rows.workflow(**its), rows.workflow(submitted_by="shop")
    for door in DOORS.keys() - STARTING:
        code = "workflow_not_found" if door == "signal" else "not_found"
        assert_problem(knock(client, door, key, outside), 404, code)
        if door != "cancel":
            assert knock(client, door, key, within).status_code < 300, door
    assert knock(client, "cancel", key, within).status_code == 202
    assert not Workflow.objects.filter(pk=outside.pk).exclude(status="PENDING").exists()
    assert list(Signal.objects.exclude(source="engine").values_list("workflow_id", flat=True)) == [within.pk]
    if bound != "tenant":
        again = {"Idempotency-Key": str(outside.key)}
        for door, sent in product(STARTING, ({}, again)):
            assert_problem(knock(client, door, key, outside, **sent), 403, "out_of_bounds")
        assert Workflow.objects.count() == 2


def test_each_door_that_takes_a_key_is_tried_here() -> None:
    tried = {path.format(key="<str:key>").strip("/") for _, path, _ in DOORS.values()}
    there = {str(each.pattern) for each in urls.urlpatterns if str(each.pattern).startswith("v1/")}
    assert there - tried == {"v1/openapi.json", "v1/signals/<str:source>", "v1/operator/"}, (
        "these take none, or a person's"
    )
    assert tried < there


@pytest.mark.usefixtures("another")
@pytest.mark.parametrize("bound", [{"types": ["another"]}, {"queues": ["elsewhere"]}, {"tenant": "north"}])
def test_nobody_waits_at_the_intake_for_a_row_outside_their_bounds(intake: Served, bound: Any) -> None:
    row = rows.workflow(submitted_by="shop")
    refused = knock(intake, "submission", api_keys.create("shop", **bound), row, Prefer="wait=1")
    assert_problem(refused, 404, "not_found")
    assert "Preference-Applied" not in refused.headers
    assert knock(intake, "submission", api_keys.create("shop"), row, Prefer="wait=1").status_code == 200


@pytest.mark.usefixtures("another")
def test_the_intake_and_the_queues_ask_the_same(intake: Served) -> None:
    row = rows.workflow(submitted_by="shop")
    refused = {
        "not_permitted": api_keys.create("shop", verbs=[bounds.READ]),
        "out_of_bounds": api_keys.create("shop", types=["another"]),
    }
    elsewhere = api_keys.create("shop", queues=["elsewhere"])
    for code, key in (*refused.items(), ("out_of_bounds", elsewhere)):
        assert_problem(knock(intake, "submit", key, row), 403, code)
    sent = [Sent("shop", {"idempotency-key": str(uuid4())}, b"{}")]
    door = Door()
    try:
        expired = api_keys.create("shop")
        ApiKey.objects.filter(digest=api_keys.digest_of(expired)).update(expires_at=Now())
        api_keys.table.invalidate()
        assert door.enter(sent) == [Outcome.LATER]
        assert [key.digest for key in expiring(EXPIRED)] == [api_keys.digest_of(expired)], "its client is told"
        valid = api_keys.create("shop", types=["onboarding"], tenant="north")
        assert door.enter(sent) == [Outcome.STORED]
        used = ApiKey.objects.get(digest=api_keys.digest_of(valid))
        assert used.last_used_at
        api_keys.rotate(used)
        assert door.enter(sent) == [Outcome.REPLAYED]
        assert not ApiKey.objects.filter(last_used_at=None, types=["onboarding"]).exists(), "the successor is used"
    finally:
        door.close()
    assert Workflow.objects.exclude(pk=row.pk).get().tenant == "north"


@pytest.mark.usefixtures("another")
@pytest.mark.parametrize("bound", [{"types": ["another"]}, {"tenant": "north"}])
def test_what_became_of_a_deleted_workflow_is_told_within_the_bounds_only(client: Client, bound: Any) -> None:
    row = rows.workflow(submitted_by="shop")
    spent = {"idempotency_key": row.key, "status": "COMPLETE", "state": "complete", "submitted_by": "shop"}
    SpentKey.objects.create(workflow_id=row.pk, workflow_type="onboarding", tenant="", **spent)
    with without_triggers():
        row.delete()
    for door in ("submission", "workflow"):
        assert_problem(knock(client, door, api_keys.create("shop", **bound), row), 404, "not_found")
        assert_problem(knock(client, door, api_keys.create("shop"), row), 410, "deleted")


def test_each_key_has_its_own_tenant_and_a_replay_goes_by_the_client(intake: Served) -> None:
    row = rows.workflow()
    north, south = (api_keys.create("shop", tenant=each) for each in ("north", "south"))
    sent = {"Idempotency-Key": str(uuid4())}
    assert knock(intake, "submit", north, row, **sent).json()["replayed"] is False
    assert Workflow.objects.exclude(pk=row.pk).get().tenant == "north"
    assert knock(intake, "submit", south, row, **sent).json()["replayed"] is True
    assert_problem(knock(intake, "submit", api_keys.create("other"), row, **sent), 409, "idempotency_key_taken")


def test_a_key_that_existed_before_goes_on_with_all_that_it_could(client: Client) -> None:
    row = rows.workflow(submitted_by="shop", tenant="south")
    ApiKey.objects.create(name="shop", prefix="onramp_", tenant="north", digest=api_keys.digest_of("onramp_old"))
    answers = {door: knock(client, door, "onramp_old", row).status_code for door in DOORS}
    assert answers == {
        **dict.fromkeys(("submit", "start", "signal"), 202),
        **dict.fromkeys(("submission", "workflow"), 200),
        **dict.fromkeys(("history", "cancel"), 403),
    }


def test_an_expired_key_is_told_so_at_each_door(client: Client, intake: Served) -> None:
    row, key = rows.workflow(submitted_by="shop"), api_keys.create("shop", may=bounds.BEYOND)
    ApiKey.objects.update(expires_at=Now())
    api_keys.table.invalidate()
    for answer in (*(knock(client, door, key, row) for door in DOORS), knock(intake, "submit", key, row)):
        assert_problem(answer, 401, "api_key_expired")


class _Unread(BytesIO):
    def read(self, *_: Any) -> bytes:
        raise AssertionError("The body was read.")


def test_over_its_limit_a_key_is_refused_before_its_body_is_read(client: Client) -> None:
    key = api_keys.create("shop", per_second=0.01)
    row = rows.workflow(submitted_by="shop")
    assert knock(client, "submission", key, row).status_code == 200
    headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": str(uuid4())}
    for path in ("/v1/submissions", "/v1/workflows", f"/v1/workflows/{row.key}/signals"):
        unread = {"wsgi.input": _Unread(), "CONTENT_LENGTH": "1000"}
        answer = client.post(path, content_type="application/json", headers=headers, **unread)
        assert_problem(answer, 429, "rate_limited")
        assert 90 < int(answer.headers["Retry-After"]) <= 100
    assert knock(client, "submission", api_keys.create("shop"), row).status_code == 200, "another key of the client"


def test_ten_thousand_requests_over_a_limit_cost_the_intake_no_body_no_statement_and_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key, other = api_keys.create("shop", per_second=0.01), api_keys.create("other")
    monkeypatch.setattr(api_keys, "MAX_AGE_SECONDS", 3600.0)  # the table is not read again meanwhile
    monkeypatch.setattr(asgi, "HELD_BACK_SECONDS", 0.0)
    headers = [(b"authorization", f"Bearer {key}".encode())]
    scope = {"type": "http", "method": "POST", "path": "/v1/submissions", "headers": headers}
    statuses: Counter[int] = Counter()

    async def send(message: Any) -> None:
        statuses[message.get("status", 0)] += 1

    async def receive() -> Any:
        raise AssertionError("The body was read.")

    async def flood(intake: Intake) -> None:
        await intake(scope, receive, send)  # it has a token, and no Idempotency-Key
        threads, intake.threads = intake.threads, Mock()
        for _ in range(10_000):
            await intake(scope, receive, send)
        assert not intake.threads.mock_calls
        intake.threads = threads

    with served(submission_definition()) as intake:
        intake._runner.run(flood(intake._intake))
        assert statuses == {400: 1, 429: 10_000, 0: 10_001}
        assert post(intake, other, b"{}").status_code == 202


def test_a_client_that_goes_on_over_its_limit_is_held_back_and_holds_up_nobody(
    intake: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi, "HELD_BACK_SECONDS", 0.3)
    key = api_keys.create("shop", per_second=0.01)
    headers = [("Authorization", f"Bearer {key}")]
    assert intake.request("POST", "/v1/submissions", headers).status_code == 400
    began = monotonic()
    answers = intake.all_at_once(50, "POST", "/v1/submissions", headers)
    assert {each.status_code for each in answers} == {429}
    assert 0.3 <= monotonic() - began < 50 * 0.3 / 2, "each is held back, and beside the others"
