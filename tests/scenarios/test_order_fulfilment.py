"""The order fulfilment as its authors would test it, in the test's own process (docs/how-to/test.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.order_fulfilment import ORDER_FULFILMENT
from workflows import testing

pytestmark = testing.databases()

ORDER = {"order": "A-1", "address": "Pier 4"}
PAID: testing.Signals = {"payment.confirmed": lambda order: {"charge_id": order.context["charge_id"]}}


@pytest.fixture(autouse=True)
def _log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCENARIOS_LOG", str(tmp_path / "services"))


def test_an_order_is_shipped() -> None:
    run = testing.run(ORDER_FULFILMENT, ORDER, signals=PAID)
    assert (run.status, run.called("create_shipment")) == ("COMPLETE", 1)


def test_a_payment_that_is_never_confirmed_gives_the_goods_back() -> None:
    run = testing.run(ORDER_FULFILMENT, ORDER, overdue=["payment of *"])
    assert (run.status, run.undone) == ("FAILED", ["charge_payment", "reserve_inventory"])


@testing.every_failure(ORDER_FULFILMENT)  # each step in turn; each once step also after its call has happened
def test_whatever_fails_is_undone(failure: testing.Failure) -> None:
    testing.check_compensation(ORDER_FULFILMENT, ORDER, failure, signals=PAID)


@testing.every_crash(ORDER_FULFILMENT)  # at each boundary of each once step, and of the commits
def test_a_crash_changes_nothing(boundary: str) -> None:
    run = testing.run(ORDER_FULFILMENT, ORDER, signals=PAID, crash=boundary)
    assert (run.status, run.called("charge_payment")) == ("COMPLETE", 1)


def test_an_outage_of_the_carrier_costs_time_and_ships_once() -> None:
    with testing.unavailable("carrier", calls=12):  # the first twelve calls are in vain; without `calls`, all of them
        run = testing.run(ORDER_FULFILMENT, ORDER, signals=PAID)
    assert (run.status, run.called("create_shipment")) == ("COMPLETE", 1)


def test_a_person_keeps_a_paid_order_that_the_carrier_does_not_deliver() -> None:
    run = testing.run(ORDER_FULFILMENT, {**ORDER, "address": "nowhere"}, signals=PAID, decide=lambda task: False)
    assert (run.status, run.undone, run.effects["charge_payment"]) == ("FAILED", [], "kept")
