"""`manage.py reconcile`: what a database that fell back has lost is told, by what the services list and look up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db.models import F
from django.db.models.signals import post_init

from onboarding import samples
from onboarding.samples import Kind
from onboarding.sandbox import services
from onboarding.services import http, payments
from onboarding.workflow import ONBOARDING
from tests.engine import again
from tests.postgres import without_triggers
from tests.sandbox_process import SandboxProcess, SandboxThread
from workflows import testing
from workflows.definition import WorkflowDefinition, definitions
from workflows.features.doctor import comparison
from workflows.features.doctor.adoption import adopt
from workflows.features.doctor.comparison import Difference
from workflows.models import Effect, SpentKey, Workflow

pytestmark = testing.databases()

Differences = list[tuple[str, str, str]]


def reconcile(*arguments: str) -> Differences:
    """Kind, step and state of each difference that the command finds, of a ledger that it leaves as it is."""
    before = list(Effect.objects.order_by("pk").values())
    out, code = StringIO(), 0
    try:
        call_command("reconcile", "--json", *arguments, stdout=out, stderr=StringIO())
    except SystemExit as end:
        code = int(str(end.code))
    assert list(Effect.objects.order_by("pk").values()) == before
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    assert code == bool(told)
    return [(each["kind"], each["step"], each["state"]) for each in told]


@pytest.fixture
def own_sandbox(tmp_path: Path) -> Iterator[SandboxProcess]:
    """Services that know no calls but the test's."""
    sandbox = SandboxThread(tmp_path)
    yield sandbox
    http.close()
    sandbox.end()


@pytest.fixture
def run(own_sandbox: SandboxProcess, settings: Any, seed: int) -> Callable[[Kind], Workflow]:
    settings.SERVICES = own_sandbox.services()

    def one(kind: Kind) -> Workflow:
        sample = samples.sample(kind, seed)
        if sample.account:
            own_sandbox.account(**sample.account)
        return testing.run(ONBOARDING, sample.payload).workflow

    return one


Run = Callable[[Kind], Workflow]


def test_nothing_differs(run: Run) -> None:
    for kind in (Kind.EXISTING, Kind.CARD_INVALID, Kind.PROGRAM_FULL):
        run(kind)
    assert reconcile() == []
    Effect.objects.update(idempotency_key="")  # as a later release writes what follows from the row
    assert reconcile() == []


def test_a_row_of_the_ledger_is_read_for_its_own_step_only(run: Run) -> None:
    """And for the two look-ups of a charge and an enrolment. Read for each step, it was four times as slow."""
    run(Kind.EXISTING)
    read: list[object] = []

    def count(instance: Effect, **_: object) -> None:
        read.append(instance)

    post_init.connect(count, sender=Effect)
    try:
        assert reconcile() == []
    finally:
        post_init.disconnect(count, sender=Effect)
    assert len(read) <= 4 * Effect.objects.count()


def test_calls_that_the_ledger_has_lost_are_told_with_amount_and_submission_and_a_reversed_one_is_left_to_people(
    run: Run,
) -> None:
    workflow = run(Kind.PROGRAM_FULL)
    calls = Effect.objects.filter(workflow=workflow, step="execute_checkout").order_by("undo")
    charge, refund = calls.values_list("result__charge_id", flat=True)[0], calls[1].result["refund_id"]
    calls.filter(undo=True).delete()
    calls.update(state="done")
    assert reconcile() == [("not_on_ledger", "undo execute_checkout", "")], "a lost refund is told once"
    calls.delete()
    assert reconcile() == [("not_on_ledger", "execute_checkout", ""), ("not_on_ledger", "undo execute_checkout", "")]
    with pytest.raises(SystemExit):
        call_command("reconcile", stdout=(out := StringIO()), stderr=StringIO(), no_color=True)
    cents = workflow.payload["checkout"]["amount_cents"]
    for words in (
        f"${cents / 100:,.2f}, {charge}, ",
        f", {refund}, ",
        f"submission {workflow.key}",
        f"workflow {workflow.pk} ",
    ):
        assert words in out.getvalue()
    with pytest.raises(SystemExit):
        call_command("reconcile", "--adopt", stdout=StringIO(), stderr=StringIO())
    assert not calls.all().exists()
    second = f"{workflow.key}:execute_checkout:2"
    adopt([Difference(comparison.Kind.NOT_ON_LEDGER, "onboarding", "execute_checkout", second, str(workflow.key))])
    assert Effect.objects.get(idempotency_key=second).generation == 2


@pytest.mark.slow
def test_a_lost_call_that_is_adopted_is_looked_up_and_not_made_again(run: Run, own_sandbox: SandboxProcess) -> None:
    """The services have forgotten all keys by then."""
    workflow = run(Kind.NET_NEW)
    made = own_sandbox.effects()
    own_sandbox.end()
    own_sandbox.key_ttl = 0.001
    own_sandbox.start()
    ledger = Effect.objects.filter(workflow=workflow)
    was = ledger.get(step="execute_checkout")
    ledger.filter(step__in=["execute_checkout", "enroll_in_program"]).delete()
    Workflow.objects.filter(pk=workflow.pk).update(status="PENDING", completed_at=None, queue="default")
    with pytest.raises(SystemExit):
        call_command("reconcile", "--adopt", stdout=StringIO(), stderr=StringIO())
    charge = ledger.get(step="execute_checkout")
    assert (charge.state, charge.has_undo, charge.generation) == ("unknown", True, 1)
    assert charge.begun_at >= was.begun_at
    ledger.update(first_begun_at=F("begun_at") - timedelta(days=2), begun_at=F("begun_at") - timedelta(days=2))
    assert again(workflow).status == "COMPLETE"
    again_made = [each["operation"] for each in own_sandbox.effects()[len(made) :]]
    assert again_made == ["save_questionnaire"], "it is not a call of the ledger's"


TWIN = WorkflowDefinition(
    name="twin", steps=ONBOARDING.steps, context_class=ONBOARDING.context_class, listings=ONBOARDING.listings
)


@pytest.fixture
def twin(settings: Any) -> Iterator[None]:
    """A definition that calls the same services by steps of the same names."""
    settings.WORKFLOWS = [*settings.WORKFLOWS, f"{__name__}.TWIN"]
    definitions.cache_clear()
    yield
    definitions.cache_clear()


def test_calls_of_a_submission_that_is_lost_are_told_once(run: Run, twin: None) -> None:
    workflow = run(Kind.NET_NEW)
    made = Effect.objects.filter(workflow=workflow, state="done")
    steps = set(made.values_list("step", flat=True))
    made.delete()
    with without_triggers():
        Workflow.objects.all().delete()
    assert sorted(reconcile()) == [("no_submission", step, "") for step in sorted(steps)]
    spent = {"workflow_id": workflow.pk, "idempotency_key": workflow.idempotency_key}
    SpentKey.objects.create(**spent, status="COMPLETE")  # deleted because of its age
    assert reconcile() == []


def test_a_reversal_is_looked_up_as_that_of_its_own_generation(run: Run) -> None:
    workflow = run(Kind.PROGRAM_FULL)
    Effect.objects.filter(step="execute_checkout", undo=True).update(idempotency_key="by hand")
    later = {"generation": 2, "state": "kept", "result": {"charge_id": "ch_2", "payment_status": "paid"}}
    Effect.objects.create(workflow=workflow, step="execute_checkout", idempotency_key="second", attempt=0, **later)
    assert ("not_at_service", "execute_checkout", "kept") in (found := reconcile())
    assert ("not_at_service", "undo execute_checkout", "done") not in found


def test_a_call_that_the_service_made_and_the_ledger_has_in_another_state(run: Run) -> None:
    run(Kind.NET_NEW)
    for state in ("not_done", "unknown", "kept"):  # the last one was left as it is while it was in doubt
        Effect.objects.filter(step="enroll_in_program").update(state=state, result=None)
        assert reconcile() == [("other_state", "enroll_in_program", state)]


def test_a_call_that_only_the_ledger_knows(run: Run) -> None:
    workflow = run(Kind.PROGRAM_FULL)
    for step, undo in ("start_visit", False), ("execute_checkout", True):
        Effect.objects.filter(step=step, undo=undo).update(idempotency_key=F("step"))
    assert [each for each in reconcile() if each[0] == "not_at_service"] == [("not_at_service", "start_visit", "done")]
    # The refund has another key at the service, but the charge is refunded: somebody may have done it by hand.
    Effect.objects.filter(workflow=workflow, step="execute_checkout", undo=False).update(
        result={"charge_id": "ch_2", "payment_status": "paid"}
    )
    assert ("not_at_service", "undo execute_checkout", "done") in reconcile()


def test_what_was_done_by_hand_is_left_out_unless_a_service_has_our_key_of_it(run: Run) -> None:
    workflow = run(Kind.PROGRAM_FULL)
    calls = Effect.objects.filter(workflow=workflow)
    made = {"step": "enroll_in_program", "generation": 2, "attempt": 1, "result": {"enrollment_id": "en-77"}}
    key = f"{workflow.key}:enroll_in_program:2"
    calls.create(workflow=workflow, state="undone", by_hand="en-77", idempotency_key=key, settled_by="ada", **made)
    assert reconcile() == []
    calls.create(workflow=workflow, state="done", undo=True, idempotency_key=f"{key}:undo", settled_by="ada", **made)
    assert reconcile() == []
    calls.filter(undo=True, generation=2).update(settled_by="call")
    assert reconcile() == [("not_at_service", "undo enroll_in_program", "done")]
    calls.filter(generation=2).delete()
    calls.filter(step="execute_checkout", undo=False).update(by_hand="pos-77")
    assert reconcile() == [("other_state", "execute_checkout", "undone")]


def test_a_charge_that_somebody_has_refunded_at_the_service(run: Run, twin: None) -> None:
    workflow = run(Kind.NET_NEW)
    payments.refund(workflow.context["charge_id"], idempotency_key=str(uuid4()))
    assert reconcile() == [("reversed_at_service", "execute_checkout", "done")]


def test_only_what_was_started_since_is_compared(run: Run) -> None:
    workflow = run(Kind.NET_NEW)
    Effect.objects.filter(workflow=workflow).update(idempotency_key="lost")
    last = Effect.objects.latest("begun_at").begun_at
    assert reconcile("--since", (last + timedelta(minutes=10)).isoformat()) == []
    found = reconcile("--since", last.isoformat())
    assert {step for kind, step, _ in found if kind == "not_at_service"} == {"send_confirmation"}
    assert len(found) > 2  # a service's clock may be behind: its calls of a little earlier are listed, too


def test_a_service_that_does_not_answer_is_told_and_the_others_are_compared(
    run: Run, own_sandbox: SandboxProcess
) -> None:
    run(Kind.NET_NEW)
    Effect.objects.filter(step="enroll_in_program").delete()
    own_sandbox.fault("payments", "list_changes", "status", status=503)
    found = reconcile()
    assert ("not_told", "execute_checkout", "") in found
    assert [each for each in found if each[0] != "not_told"] == [("not_on_ledger", "enroll_in_program", "")]


def test_calls_of_other_clients_are_none_of_ours(run: Run, own_sandbox: SandboxProcess) -> None:
    workflow = run(Kind.NET_NEW)
    payments.refund(workflow.context["charge_id"], idempotency_key=f"{uuid4()}:refund:undo")
    Effect.objects.filter(step="execute_checkout").update(state="kept")
    assert reconcile() == []


def test_a_service_lists_its_calls_page_by_page(
    run: Run, own_sandbox: SandboxProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "PAGE", 2)
    patient = UUID(own_sandbox.account(email="ada@example.com")["patient_uuid"])
    for _ in range(5):
        payments.attach_card(patient, "tok_visa", idempotency_key=f"{uuid4()}:attach_payment_card")
    assert reconcile() == [("no_submission", "attach_payment_card", "")] * 5


def test_it_refuses_what_is_no_time() -> None:
    with pytest.raises(CommandError, match="'yesterday' is not a time"):
        call_command("reconcile", "--since", "yesterday")
