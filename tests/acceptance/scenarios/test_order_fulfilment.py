"""Orders, in a real worker process: charged, told of by the payment service's webhook, shipped; or all given back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings

from tests import engine
from tests.acceptance.conftest import Start
from tests.acceptance.outside import attempts, now
from tests.acceptance.scenarios.watching import ORDER_FULFILMENT, done, requests, until_it
from tests.acceptance.test_signals import deliver
from tests.servers import gunicorn
from workflows import operations
from workflows.definition import definitions
from workflows.ingress import webhooks
from workflows.models import State, Wait, Workflow
from workflows.signals import store

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def console(settings: Settings) -> Iterator[None]:
    """It knows what the workers know: of an unknown type, any refunded call takes two people to be made again."""
    settings.WORKFLOWS = [ORDER_FULFILMENT]
    definitions.cache_clear()
    yield
    definitions.cache_clear()


def an_order() -> Workflow:
    return engine.submit({"order": "A-1", "address": "Pier 4"}, workflow_type="order_fulfilment", linking_id="A-1")


def payment(outcome: str, order: Workflow) -> bool:
    """What the payment service tells of a charge: by the order's number, for it knows nothing of workflows."""
    return store.send(
        source="payments",
        dedupe_key=str(uuid4()),
        name=f"payment.{outcome}",
        linking_id=order.payload["order"],
        payload={"charge_id": now(order).context["charge_id"]},
    )


def test_an_order_is_shipped_when_its_payment_is_confirmed_by_a_webhook(runworker: Start, tmp_path: Path) -> None:
    order, worker = an_order(), runworker(ORDER_FULFILMENT)
    waiting = until_it(State.WAITING, order, worker)
    assert waiting.waiting_for == "the payment service's word"
    assert done() == ["reserve", "charge"]
    (wait,) = Wait.objects.all()
    assert wait.deadline - wait.created_at == pytest.approx(timedelta(minutes=15), abs=timedelta(seconds=1))

    told = {"name": "payment.confirmed", "linking_id": "A-1", "payload": {"charge_id": waiting.context["charge_id"]}}
    with gunicorn("config.wsgi", tmp_path) as console:
        assert deliver(console, webhooks.create("payments"), told, source="payments") == (202, {"replayed": False})
    complete = until_it(State.COMPLETE, order, worker)
    assert complete.context["parcel_id"]
    assert done() == ["reserve", "charge", "ship", "confirm"]
    assert set(requests().values()) == {1}
    assert attempts(order) == ["waiting", "complete"]


def test_a_payment_that_is_never_confirmed_gives_the_goods_back(runworker: Start) -> None:
    order, worker = an_order(), runworker(ORDER_FULFILMENT)
    until_it(State.WAITING, order, worker)
    engine.expire(order)
    failed = until_it(State.FAILED, order, worker)
    assert failed.last_error_code == "wait_expired"
    assert done() == ["reserve", "charge", "refund", "release"]

    payment("confirmed", order)  # long after, of a charge that was paid back
    operations.retry(order.pk, user=User.objects.create_superuser("ada"), reason="They say that they have paid.")
    until_it(State.WAITING, order, worker)
    assert done() == ["reserve", "charge", "refund", "release", "reserve", "charge"], "nothing is shipped unpaid"
    payment("failed", order)
    until_it(State.FAILED, order, worker)
    assert done() == ["reserve", "charge", "refund", "release"] * 2
    assert set(requests().values()) == {1}
