"""What a workflow has done is undone, once and in order, whatever dies, fails or is missing on the way."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from onboarding.samples import Kind
from onboarding.workflow import ONBOARDING
from tests.acceptance.faults.definitions import WITH_UNDO
from tests.acceptance.faults.harness import (
    System,
    assert_each_key_once,
    fired,
    history_is_complete,
    is_as_expected,
    ledger_agrees,
    of,
    outcomes,
)
from tests.processes import until
from workflows import operations
from workflows.errors import NotAllowed
from workflows.failpoints import BOUNDARIES
from workflows.models import Attempt, Effect, Event, ManualTask, State, Workflow

pytestmark = pytest.mark.django_db(transaction=True)

CALL, COMMIT = BOUNDARIES[:4], BOUNDARIES[4:]
UNDONE = [step.identity for step in ONBOARDING.steps if step.undo]
PAYING = frozenset({Kind.NET_NEW, Kind.EXISTING})


def assert_all_undone(system: System) -> None:
    """Every workflow given is FAILED, and all that it has done and that can be undone is, newest first, each once."""
    log = system.sandbox.effects()
    assert_each_key_once(log)
    steps = {step.identity: step for step in ONBOARDING.steps}
    for row in Workflow.objects.filter(pk__in=system.given):
        assert row.status == "FAILED", (row.pk, row.current_step)
        own = of(row, log)
        did = [effect["operation"] for effect in own]
        undos = [name for name in did if name in ("withdraw", "refund")]
        done = [name for name in did if name in ("charge", "enroll")]
        assert undos == [{"charge": "refund", "enroll": "withdraw"}[name] for name in reversed(done)], (row.pk, did)
        ledger_agrees(row, own, steps)
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


@pytest.mark.parametrize("kind", ["status", "drop_after", "timeout_after", "half", "slow", "replay_500"])
def test_an_undo_that_fails_is_made_once_and_holds_the_earlier_ones(system: System, kind: str) -> None:
    how = {"status": {"status": 503}, "slow": {"delay_s": 2.5}}.get(kind, {})
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


def test_an_undo_that_always_fails_is_put_before_a_person(system: System) -> None:
    fault = system.sandbox.fault("payments", "refund", "status", status=422)["id"]
    (workflow,) = system.submit(1, kinds=PAYING)
    system.work("CLOSED")
    until(lambda: ManualTask.objects.filter(workflow=workflow, state="open").exists(), what=system.what_is_left)
    assert fired(system.sandbox)[fault] == 3
    row = Workflow.objects.with_state().get(pk=workflow.pk)
    assert (row.state, row.status) == (State.COMPENSATING, "PENDING")
    system.sandbox.http.delete("/_faults").raise_for_status()
    system.wait_until_at_rest()  # and the person says: try again
    system.stop()
    assert_all_undone(system)


@pytest.mark.parametrize(("kind", "undone"), [("timeout_after", True), ("slow", True), ("status", False)])
def test_what_is_in_flight_when_it_is_cancelled_is_found_out_first(system: System, kind: str, undone: bool) -> None:
    """`slow`: the charge is made after we have stopped waiting for it, and after the first look for it.

    Before the second look, which takes for granted that it has arrived: after SETTLE.
    """
    how = {"slow": {"delay_s": 2.5}, "status": {"status": 500}}.get(kind, {})
    fault = system.sandbox.fault("payments", "charge", kind, count=1, **how)["id"]
    workflow = system.enter("undone", attempts=1)
    system.work("WITH_UNDO")
    until(lambda: Effect.objects.filter(workflow=workflow, step="charge", state="unknown").exists())
    until(lambda: not Attempt.objects.filter(workflow=workflow, closed_at=None).exists())  # rescheduled, for an hour
    told = operations.cancel(workflow.pk, user=system.person, reason="Asked for by phone.")
    assert "reverses what it has done" in told
    system.wait_until_at_rest()
    system.stop()
    assert fired(system.sandbox)[fault] == 1
    own = of(workflow, system.sandbox.effects())
    assert [effect["operation"] for effect in own] == ["attach_card", *(["charge", "refund"] if undone else [])]
    assert Effect.objects.get(workflow=workflow, step="charge", undo=False).state == (
        "undone" if undone else "not_done"
    )
    assert Workflow.objects.with_state().get(pk=workflow.pk).state == State.CANCELLED
    ledger_agrees(workflow, own, {step.identity: step for step in WITH_UNDO.steps})


def test_an_undo_that_a_release_lacks_is_a_question_until_another_has_it(system: System) -> None:
    workflow = system.enter("undone", attempts=2)
    system.work("WITH_UNDO", arguments=("--drain",)).wait()
    system.hurry()
    lacks_it = system.work("WITHOUT_UNDO")
    task = until(lambda: ManualTask.objects.filter(workflow=workflow, state="open").first(), what=system.what_is_left)
    assert task.task_type == "undo_in_doubt"
    assert "is not in this release" in task.question
    lacks_it.kill()
    system.workers = [system.work("WITH_UNDO")]
    system.wait_until_at_rest()  # the person says: try again
    system.stop()
    own = of(workflow, system.sandbox.effects())
    assert [effect["operation"] for effect in own] == ["attach_card", "charge", "refund"]
    assert Workflow.objects.get(pk=workflow.pk).status == "FAILED"


def test_a_compensated_workflow_that_is_retried_does_it_all_again_under_new_keys(system: System) -> None:
    (workflow,) = system.submit(1, kinds=frozenset({Kind.NET_NEW}))
    closed = system.work("CLOSED")
    system.wait_until_at_rest()
    closed.signal(15)
    assert closed.wait(60) == 0
    operations.retry(workflow.pk, user=system.person, reason="It is open again.")
    system.workers = [system.work()]
    system.wait_until_at_rest()
    system.stop()
    row = Workflow.objects.get(pk=workflow.pk)
    assert row.status == "COMPLETE"
    own = of(workflow, system.sandbox.effects())
    charges = [effect["idempotency_key"] for effect in own if effect["operation"] == "charge"]
    assert charges == [f"{row.key}:execute_checkout", f"{row.key}:execute_checkout:2"]
    did = [effect["operation"] for effect in own]
    assert (did.count("refund"), did.count("enroll"), did.count("create_account")) == (1, 2, 1)
    ledger_agrees(row, own, {step.identity: step for step in ONBOARDING.steps})


def test_workflows_cancelled_while_they_run_are_paid_and_enrolled_or_neither(system: System) -> None:
    """Under load, at whatever step each of them is."""
    system.sandbox.fault("programs", "enroll", "slow", delay_s=0.5)
    given = system.submit(40, kinds=PAYING)
    system.work(processes=3)
    told: dict[int, str] = {}

    def cancel(pk: int) -> None:
        told[pk] = ""
        with suppress(NotAllowed):
            told[pk] = operations.cancel(pk, user=system.person, reason="Asked for by phone.")

    def one_that_has_paid() -> int | None:
        paid = Effect.objects.filter(step="execute_checkout", state="done").values("workflow")
        under_way = Workflow.objects.filter(status="PENDING", compensating=False, pk__in=paid)
        return under_way.exclude(pk__in=told).values_list("pk", flat=True).first()

    for _ in range(5):  # while there is much to come: of the last ones none might be under way any more
        cancel(until(one_that_has_paid))
    for workflow in given[20::2]:
        until(lambda pk=workflow.pk: Attempt.objects.filter(workflow=pk).exists())  # type: ignore[misc]
        cancel(workflow.pk)
    system.wait_until_at_rest()
    system.stop()
    states = dict(Workflow.objects.with_state().filter(pk__in=system.given).values_list("pk", "state"))
    cancelled = [pk for pk, state in states.items() if state == State.CANCELLED]
    assert cancelled, "some were"
    assert set(cancelled) <= {pk for pk, words in told.items() if words}
    assert {state for pk, state in states.items() if pk not in cancelled} == {State.COMPLETE}
    log = system.sandbox.effects()
    assert_each_key_once(log)
    assert [effect for effect in log if effect["operation"] == "refund"], "some had paid"
    steps = {step.identity: step for step in ONBOARDING.steps}
    for pk, sample in system.given.items():
        row = Workflow.objects.get(pk=pk)
        own = of(row, log)
        did = [effect["operation"] for effect in own]
        if pk in cancelled:
            assert (did.count("charge"), did.count("enroll")) == (did.count("refund"), did.count("withdraw")), did
        else:
            assert sample
            is_as_expected(row, own, sample)
        ledger_agrees(row, own, steps)
        history_is_complete(row)
