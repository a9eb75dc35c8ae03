"""An insert that meets another row: its double, stored and not committed yet; or a stranger, which is not a double."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from pytest_django import Settings

from tests import engine
from tests.engine import define, submit, work, worker
from workflows.definition import definitions
from workflows.errors import ClaimLost
from workflows.ingress import api_keys, messages
from workflows.ingress.messages import Arrived
from workflows.intake import submissions
from workflows.models import Signal, Workflow
from workflows.postgres.jsonb import InputRefused, document_of
from workflows.postgres.statements import execute
from workflows.signals import store
from workflows.waits import Child, wait_for_children, wait_for_time

pytestmark = engine.ENGINE

HOUR = timedelta(hours=1)
KEY = uuid4()

Payload = dict[str, Any]
Answer = tuple[int, str | bool]
Ask = Callable[[str, Payload], Any]

keys: dict[str, str] = {}
offsets = count()


@pytest.fixture(autouse=True)
def known(transactional_db: None, engine: None, settings: Settings) -> None:
    settings.SUBMISSION_WORKFLOW = "test"
    define([lambda *, workflow, context: None])
    keys.update({client: api_keys.create(client) for client in ("shop", "another")})


# --- Its double is not committed yet ------------------------------------------------------------------


def post(path: str, client: str, body: Payload, idempotency_key: UUID | None) -> Any:
    headers = {"Authorization": f"Bearer {keys[client]}"}
    if idempotency_key:
        headers["Idempotency-Key"] = str(idempotency_key)
    return Client().post(path, json.dumps(body), content_type="application/json", headers=headers)


def send(client: str, payload: Payload) -> Any:
    return post("/v1/submissions", client, payload, KEY)


def start(client: str, payload: Payload, *, name: str = "order-1", key: UUID | None = None) -> Any:
    return post("/v1/workflows", client, {"workflow_type": "test", "business_key": name, "input": payload}, key)


def tell(client: str, payload: Payload) -> Any:
    workflow = Workflow.objects.get()
    return post(f"/v1/workflows/{workflow.key}/signals", client, {"name": "paid", "payload": payload}, KEY)


def store_what_is_told(client: str, payload: Payload) -> None:
    """What `tell` stores, without its commit."""
    workflow = Workflow.objects.get()
    store.store(source=f"api:{client}", dedupe_key=str(KEY), name="paid", workflow_id=workflow.pk, payload=payload)


def answer_of(request: Callable[[], Any], *, meeting: Callable[[], Any], committed: bool = True) -> Answer:
    """What is answered to a request that meets what is uncommitted, and waits until that is committed or retracted.

    The statement that waits has a snapshot from before: it cannot show the row that was in its way.
    """
    with ThreadPoolExecutor(1) as other:
        with transaction.atomic():
            meeting()
            requested = other.submit(engine.with_its_connections, request)
            engine.until_blocked()
            transaction.set_rollback(not committed)
        response = requested.result(30)
    answer = response.json()
    return response.status_code, answer["code"] if "code" in answer else answer["replayed"]


@pytest.mark.parametrize(
    ("ask", "client", "payload", "answer"),
    [
        (send, "shop", {"a": 1.0}, (202, True)),
        (send, "shop", {"a": 2}, (422, "idempotency_key_reused")),
        (send, "another", {"a": 1}, (409, "idempotency_key_taken")),
        (start, "shop", {"a": 1.0}, (202, True)),
        (start, "shop", {"a": 2}, (409, "business_key_taken")),
        (start, "another", {"a": 1}, (409, "business_key_taken")),
    ],
)
def test_a_workflow_is_answered_by_the_one_that_it_waited_for(
    ask: Ask, client: str, payload: Payload, answer: Answer
) -> None:
    assert answer_of(lambda: ask(client, payload), meeting=lambda: ask("shop", {"a": 1})) == answer
    assert Workflow.objects.get().payload == {"a": 1}


@pytest.mark.parametrize(
    ("client", "answer"), [("shop", (422, "idempotency_key_reused")), ("another", (409, "idempotency_key_taken"))]
)
def test_it_may_have_waited_for_its_idempotency_key_alone(client: str, answer: Answer) -> None:
    def other_order() -> Any:
        return start(client, {}, name="order-2", key=KEY)

    assert answer_of(other_order, meeting=lambda: start("shop", {}, name="order-1", key=KEY)) == answer
    assert Workflow.objects.get().business_key == "order-1"


@pytest.mark.parametrize(
    ("payload", "answer"), [({"a": 1.0}, (202, True)), ({"a": 2}, (422, "idempotency_key_reused"))]
)
def test_a_signal_is_answered_by_the_one_that_it_waited_for(payload: Payload, answer: Answer) -> None:
    submit()
    assert answer_of(lambda: tell("shop", payload), meeting=lambda: store_what_is_told("shop", {"a": 1})) == answer
    assert Signal.objects.get().payload == {"a": 1}


@pytest.mark.parametrize("ask", [send, start])
def test_what_waited_for_one_that_was_retracted_is_stored(ask: Ask) -> None:
    def first() -> None:
        ask("shop", {"a": 1})

    assert answer_of(lambda: ask("shop", {"a": 2}), meeting=first, committed=False) == (202, False)
    assert Workflow.objects.get().payload == {"a": 2}


def test_a_signal_that_waited_for_one_that_was_retracted_is_stored() -> None:
    def first() -> None:
        store_what_is_told("shop", {"a": 1})

    submit()
    assert answer_of(lambda: tell("shop", {"a": 2}), meeting=first, committed=False) == (202, False)
    assert Signal.objects.get().payload == {"a": 2}


# --- It is a stranger ---------------------------------------------------------------------------------


def put_in_the_way(table: str) -> None:
    """Let the next row get an id that is there: a constraint that no insert reckons with."""
    execute(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id), false) FROM {table}")


def store_a_submission() -> None:
    submissions.enter(definitions()["test"], idempotency_key=uuid4(), payload=document_of({}), submitted_by="shop")


def store_a_workflow() -> None:
    submissions.start(
        definitions()["test"], tenant="", business_key=str(uuid4()), payload=document_of({}), submitted_by="shop"
    )


def store_a_signal() -> None:
    store.store(source="shop", dedupe_key=str(uuid4()), name="paid", linking_id="acc", payload={})


def leave_a_message_undelivered() -> None:
    message = Arrived("facts", 0, next(offsets), 1_700_000_000_000, [], b"")
    messages.keep_undelivered(message, InputRefused("field_unknown", "No such field."))


def open_an_attempt() -> None:
    submit()
    worker().process_next()


@pytest.mark.parametrize(
    ("insert", "table"),
    [
        (store_a_submission, "workflows_workflow"),
        (store_a_workflow, "workflows_workflow"),
        (store_a_signal, "workflows_signal"),
        (leave_a_message_undelivered, "workflows_undeliveredmessage"),
        (open_an_attempt, "workflows_attempt"),
    ],
)
def test_a_stranger_in_the_way_is_an_error_and_no_duplicate(insert: Callable[[], None], table: str) -> None:
    insert()
    put_in_the_way(table)
    with pytest.raises((IntegrityError, ClaimLost), match=f"{table}_pkey"):
        insert()


def wait(*, workflow: Workflow, context: Any) -> None:
    wait_for_time(workflow, "w", HOUR)


def start_a_child(*, workflow: Workflow, context: Any) -> None:
    wait_for_children(workflow, "w", [Child("test", {})], timeout=HOUR)


@pytest.mark.parametrize(("step", "table"), [(wait, "workflows_wait"), (start_a_child, "workflows_workflow")])
def test_a_stranger_in_the_way_of_a_wait_or_a_child_is_told_and_no_fault_of_the_step(step: Any, table: str) -> None:
    """Were it swallowed, a parent would go on as if it had asked for fewer children."""
    define([step])
    work(submit())
    workflow = submit(queue="next")
    put_in_the_way(table)
    with pytest.raises(ClaimLost, match=f"{table}_pkey"):
        worker(queue="next").process_next()
    workflow.refresh_from_db()
    assert (workflow.status, workflow.last_error_class) == ("PENDING", "")
