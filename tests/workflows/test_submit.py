from collections.abc import Mapping
from datetime import timedelta
from threading import Thread
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.utils import timezone
from pydantic import BaseModel

from tests import engine
from tests.engine import ENGINE, define, elsewhere, until_blocked, with_its_connections, work, worker
from workflows.definition import Retry, WorkflowDefinition, definitions, workflow
from workflows.models import BusinessKeyHash, SearchKeyHash, State, Workflow
from workflows.search import normalise
from workflows.search.search_keys import SearchKey
from workflows.submissions import InputInvalid, KeyConflict, submit
from workflows.waits import wait_for_time

pytestmark = ENGINE


class Order(BaseModel):
    number: int


def wait(*, workflow: Workflow, context: Any) -> None:
    wait_for_time(workflow, "tomorrow", timedelta(days=1))


@pytest.fixture(autouse=True)
def calls() -> list[Any]:
    def step(*, workflow: Workflow, context: Any) -> None:
        called.append(workflow.payload)

    called: list[Any] = []
    define([step], linking_id="account", search_keys={"email": SearchKey("email", normalise.email)})
    return called


def send(payload: Mapping[str, Any] | None = None, **options: Any) -> Workflow:
    return submit(engine.DEFINITION, {} if payload is None else payload, **options)


def test_it_starts_when_the_callers_transaction_commits(calls: list[Any]) -> None:
    with transaction.atomic():
        row = send({"order": UUID(int=7), "account": "L-1", "email": "ada@example.org"})
        assert (row.state, row.linking_id, row.submitted_by) == (State.QUEUED, "L-1", "")
        assert not elsewhere(worker().process_next)
    assert SearchKeyHash.objects.filter(workflow=row).count() == 1
    work(row)
    assert calls[0]["order"] == str(UUID(int=7))


def test_it_never_starts_when_the_transaction_is_rolled_back() -> None:
    with transaction.atomic():
        send(key="k")
        transaction.set_rollback(True)
    assert not Workflow.objects.exists()


def test_the_same_key_and_payload_return_the_row_that_is_there() -> None:
    key = uuid4()
    first = send({"order": 1}, key=key)
    assert send({"order": 1}, key=str(key)).pk == first.pk
    assert send({"order": 1}, key=key, tenant="north").pk != first.pk
    assert first.business_key == str(key)


def test_work_that_is_submitted_again_after_a_restore_calls_under_the_same_idempotency_key() -> None:
    with transaction.atomic():
        first = send(key="k")
        transaction.set_rollback(True)  # as a restore forgets it
    assert send(key="k").idempotency_key == first.idempotency_key


def test_a_conflict_leaves_the_callers_transaction_usable() -> None:
    send({"order": 1}, key="k")
    with transaction.atomic():
        other = send({"order": 2})
        with pytest.raises(KeyConflict, match="another payload"):
            send({"order": 3}, key="k")
        third = send({"order": 3}, key="l")
    assert Workflow.objects.filter(pk__in=[other.pk, third.pk]).count() == 2


def test_it_is_a_conflict_if_another_workflow_has_the_derived_idempotency_key() -> None:
    row = send(key="k")
    Workflow.objects.update(business_key=None)
    with transaction.atomic():
        with pytest.raises(KeyConflict):
            send(key="k")
        assert Workflow.objects.get().pk == row.pk


def test_of_two_transactions_with_the_same_key_the_later_one_waits_and_finds_the_row() -> None:
    found: list[int] = []
    second = Thread(target=lambda: with_its_connections(lambda: found.append(send({"order": 1}, key="k").pk)))
    with transaction.atomic():
        row = send({"order": 1}, key="k")
        second.start()
        until_blocked()
    second.join()
    assert found == [row.pk]


@pytest.mark.parametrize(
    ("payload", "options"),
    [
        ({"text": "\x00"}, {}),
        ({"number": float("nan")}, {}),
        ({"thing": object()}, {}),
        ({}, {"key": "\x00"}),
        ({}, {"key": ""}),
        ({}, {"key": 7}),
        ({}, {"tenant": None}),
        ({}, {"run_after": "2026-11-29"}),
        ({}, {"key": "k" * 201}),
        ({}, {"tenant": "t" * 101}),
        ({}, {"tenant": "\x00"}),
        ({}, {"run_after": timezone.make_naive(timezone.now())}),
    ],
)
def test_it_refuses_what_cannot_be_stored_before_the_database_does(payload: Any, options: Any) -> None:
    with transaction.atomic():
        with pytest.raises(ValueError, match=r"."):
            send(payload, **options)
        send()
    assert Workflow.objects.count() == 1


def test_the_input_class_checks_the_payload_and_no_value_is_quoted() -> None:
    engine.DEFINITION.input_class = Order
    with pytest.raises(InputInvalid, match="number") as refused:
        send({"number": "secret"})
    assert "secret" not in str(refused.value)


def test_a_definition_that_no_worker_knows_is_refused() -> None:
    with pytest.raises(ImproperlyConfigured, match="WORKFLOWS"):
        submit(WorkflowDefinition(name="unknown", steps=[]), {})
    with pytest.raises(TypeError, match="the definition itself"):
        submit("unknown", {})  # type: ignore[arg-type]


def test_it_runs_after_its_time(calls: list[Any]) -> None:
    row = send(run_after=timezone.now() + timedelta(hours=1))
    assert not worker().process_next()
    engine.make_due(row)
    work(row)
    assert calls


def test_it_keeps_the_requests_id() -> None:
    assert send(headers={"x-request-id": "r-1"}).request_id == "r-1"


def test_a_secret_is_stored_sealed_and_compared_in_clear() -> None:
    engine.DEFINITION.secret_fields = ("login",)
    row = send({"login": "ada:1234"}, key="k")
    assert "1234" not in row.payload["login"]
    assert send({"login": "ada:1234"}, key="k").pk == row.pk
    with pytest.raises(KeyConflict):
        send({"login": "ada:4321"}, key="k")


def test_the_commit_wakes_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    announced: list[str] = []
    monkeypatch.setattr("workflows.signals.notify.announce", announced.append)
    with transaction.atomic():
        send()
        assert not announced
    assert announced == ["default"]


def test_a_function_becomes_a_definition_of_one_step() -> None:
    @workflow
    def send_receipt(*, workflow: Workflow, context: Any) -> None:
        called.append(workflow.payload["order"])

    with pytest.raises(TypeError, match="A step is a function"):
        workflow("mail")  # type: ignore[call-overload]

    @workflow(queue="mail", retry=Retry(max_attempts=5))
    def send_mail(*, workflow: Workflow, context: Any) -> None: ...

    called: list[int] = []
    assert (send_mail.name, send_mail.queue, send_mail.retry) == ("send_mail", "mail", Retry(max_attempts=5))
    engine.DEFINITION = send_receipt
    definitions.cache_clear()
    assert work(submit(send_receipt, {"order": 7})).status == "COMPLETE"
    assert called == [7]


def test_a_number_is_a_linking_id_a_search_key_and_a_business_key() -> None:
    define([wait], linking_id="order", search_keys={"order": SearchKey("order", normalise.plain)}, business_key="order")
    row = send({"order": 7})
    assert (row.linking_id, SearchKeyHash.objects.filter(workflow=row).count()) == ("7", 1)
    work(row)
    twin = send({"order": 7.0})
    work(twin)
    assert BusinessKeyHash.objects.filter(workflow=twin, role=BusinessKeyHash.Role.WAITING).exists()
    run = send({"order": "7"})
    work(run)
    assert BusinessKeyHash.objects.filter(workflow=run, role=BusinessKeyHash.Role.WAITING).exists()


@pytest.mark.parametrize("payload", [{"account": ["L-1"]}, {"account": "x" * 201}, {"email": {"of": "ada"}}])
def test_what_could_not_be_found_by_its_fields_is_refused_without_its_values(payload: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"found or compared by {next(iter(payload))}: that is a text") as refused:
        send(payload)
    assert not any(word in str(refused.value) for word in ("L-1", "xx", "ada"))
    assert not Workflow.objects.exists()
