"""For the tests of people who write workflows: run a definition in the test's own process, on the real engine.

    pytestmark = testing.databases()

    def test_an_order_is_shipped() -> None:
        run = testing.run(ORDER, {"sku": "A-1"})
        assert (run.status, run.context["parcel_id"]) == ("COMPLETE", "p-1")

    @testing.every_failure(ORDER)
    def test_whatever_fails_is_undone(failure: testing.Failure) -> None:
        testing.check_compensation(ORDER, {"sku": "A-1"}, failure)

    @testing.every_crash(ORDER)
    def test_a_crash_changes_nothing(boundary: str) -> None:
        run = testing.run(ORDER, {"sku": "A-1"}, crash=boundary)
        assert (run.status, run.called("charge")) == ("COMPLETE", 1)

    def test_a_payment_that_never_comes_gives_the_goods_back() -> None:
        assert testing.run(ORDER, {"sku": "A-1"}, overdue=["payment"]).undone == ["charge", "reserve"]

    def test_an_outage_of_the_carrier_costs_time() -> None:
        with testing.unavailable("carrier", calls=3):
            assert testing.run(ORDER, {"sku": "A-1"}).status == "COMPLETE"

The engine is real: rows, claims, savepoints, ledger and attempt log, so tests need real transactions. They wait for no
time: rescheduled workflows become due, and times are moved back. `decide` answers the questions to people, as the user
"testing", or "another" for four eyes; what takes two people is confirmed by the other one.

Each test raises AssertionError if a step runs twice and asks for an idempotency key (`key_for`) each time, unless it is
`once`: it may have made its call twice. `Step(..., repeatable=True)` says that this does no harm. A `once` step that
asks for its key and returns None also fails the test: nobody can know whether it made its call.
"""

from workflows.testing.matrix import boundaries, check_compensation, every_crash, every_failure, failures
from workflows.testing.people import Decide
from workflows.testing.run import Crash, Failure, Run, databases, run
from workflows.testing.services import limited, slow, unavailable
from workflows.testing.world import Signals

__all__ = [
    "Crash",
    "Decide",
    "Failure",
    "Run",
    "Signals",
    "boundaries",
    "check_compensation",
    "databases",
    "every_crash",
    "every_failure",
    "failures",
    "limited",
    "run",
    "slow",
    "unavailable",
]
