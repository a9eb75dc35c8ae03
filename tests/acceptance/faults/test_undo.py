"""What a workflow has done is undone, once and in order, whatever dies, fails or is missing on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from onboarding.samples import Kind
from onboarding.workflow import ONBOARDING
from tests.acceptance.faults.audit import of
from tests.acceptance.faults.definitions import CLOSED
from tests.acceptance.faults.harness import (
    System,
    assert_each_key_once,
    assert_the_ledger_is_right,
    fired,
    history_is_complete,
    outcomes,
)
from tests.processes import until
from workflows.failpoints import BOUNDARIES
from workflows.models import Event, Workflow

pytestmark = pytest.mark.django_db(transaction=True)

CALL, COMMIT = BOUNDARIES[:4], BOUNDARIES[4:]
UNDONE = [step.identity for step in ONBOARDING.steps if step.undo]
PAYING = frozenset({Kind.NET_NEW, Kind.EXISTING})


def assert_all_undone(system: System) -> None:
    """Every workflow given is FAILED, and all that it has done and that can be undone is, newest first, each once."""
    log = system.sandbox.effects()
    assert_each_key_once(log)
    for row in Workflow.objects.filter(pk__in=system.given):
        assert row.status == "FAILED", (row.pk, row.current_step)
        own = of(row, log)
        did = [effect["operation"] for effect in own]
        undos = [name for name in did if name in ("withdraw", "refund")]
        done = [name for name in did if name in ("charge", "enroll")]
        assert undos == [{"charge": "refund", "enroll": "withdraw"}[name] for name in reversed(done)], (row.pk, did)
        assert_the_ledger_is_right(row, log, CLOSED)
        history_is_complete(row)


def test_a_worker_killed_at_any_boundary_of_an_undo_undoes_everything_once(system: System, tmp_path: Path) -> None:
    (reached := tmp_path / "reached").mkdir()
    armed = [f"{boundary}:undo {step}" for step in UNDONE for boundary in CALL]
    armed += [f"{boundary}:compensated" for boundary in COMMIT]
    system.submit(12, kinds=PAYING)
    for _ in range(3):
        system.work("CLOSED", ONRAMP_FAILPOINT=",".join(armed), ONRAMP_FAILPOINT_ONCE=str(reached))
    system.wait_until_at_rest()
    assert {each.name for each in reached.iterdir()} == set(armed), "each boundary was reached"
    until(lambda: outcomes(system)["killed"] == len(armed) - 1, what=lambda: outcomes(system))
    system.stop()
    assert_all_undone(system)


@pytest.mark.parametrize("kind", ["status", "half", "replay_500"])
def test_an_undo_that_fails_is_made_once_and_holds_the_earlier_ones(system: System, kind: str) -> None:
    how = {"status": {"status": 503}}.get(kind, {})
    faults = [
        system.sandbox.fault(service, operation, kind, count=3, **how)["id"]
        for service, operation in (("payments", "refund"), ("programs", "withdraw"))
    ]
    system.submit(6, kinds=PAYING)
    system.work("CLOSED", processes=2)
    if kind == "replay_500":  # as long as it lasts it answers so
        # Of the withdrawals, which come first: the refunds are held by them.
        system.wait_until(lambda: fired(system.sandbox)[faults[1]] >= 3)
        system.sandbox.http.delete("/_faults").raise_for_status()
    system.wait_until_at_rest()
    if kind != "replay_500":
        assert [fired(system.sandbox)[fault] for fault in faults] == [3, 3]
    system.stop()
    assert Event.objects.filter(workflow__in=system.given, kind="undo_failed").count() >= 3
    assert_all_undone(system)
