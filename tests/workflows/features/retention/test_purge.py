"""What has finished long ago is emptied; what is unsettled stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import IntegrityError, OperationalError, transaction
from django.utils import timezone
from pydantic import BaseModel

from onboarding.workflow import ONBOARDING
from tests.dumps import dump
from tests.engine import BLOCKED, another_connection, do_chore, elsewhere, until_blocked, with_its_connections
from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_
from workflows import charges, operations
from workflows.definition import WorkflowDefinition, money_in
from workflows.errors import NotAllowed
from workflows.features.business_key import holders
from workflows.features.retention import content, purge
from workflows.features.retention.checks import check_retention
from workflows.intake.submissions import enter, start
from workflows.models import (
    Access,
    Attempt,
    CaseNote,
    Correction,
    Effect,
    Erasure,
    Event,
    FollowUp,
    ManualTask,
    OutboxEvent,
    Signal,
    Wait,
    Workflow,
)
from workflows.postgres.jsonb import parse
from workflows.postgres.statements import execute, fetch_all
from workflows.search import find
from workflows.search.spent_keys import spent_key
from workflows.signals import store
from workflows.wording import Money, Wording

__all__ = ["as_"]

pytestmark = pytest.mark.django_db(transaction=True)

CANARY = "canary"
PAYLOAD = {"order": CANARY, "patient": {"email": f"{CANARY}@example.com"}}


def long_ago(days: int = 91) -> Any:
    return timezone.now() - timedelta(days=days)


def old(make: Callable[..., Workflow] = rows.complete, **fields: Any) -> Workflow:
    return make(**{"completed_at": long_ago(), "payload": PAYLOAD, **fields})


def is_emptied(row: Workflow) -> bool:
    return Workflow.objects.get(pk=row.pk).emptied_at is not None


def empty_old() -> int:
    done = elsewhere(lambda: do_chore("empty old"))
    assert done.rest > 0, "it leaves others their time, however many are left"
    return done.changed


def killed() -> None:
    with pytest.raises(OperationalError):
        with_its_connections(lambda: do_chore("empty old"))


def with_content(row: Workflow) -> Workflow:
    """The word in every place that may hold what a workflow was sent."""
    wait = Wait.objects.create(
        workflow=row, name="review", waiting_for=CANARY, deadline=long_ago(), result={"n": CANARY}
    )
    task = {"question": CANARY, "facts": [["Name", CANARY]], "reason": CANARY, "expires_at": long_ago()}
    ManualTask.objects.create(workflow=row, wait=wait, task_type="review", state="closed", **task)
    Signal.objects.create(source="shop", dedupe_key=CANARY, name="paid", workflow=row, payload={"n": CANARY})
    Signal.objects.create(
        source="shop", dedupe_key="2", name="paid", linking_id=CANARY, payload={"n": CANARY}, closed_at=long_ago()
    )
    Effect.objects.create(
        workflow=row,
        step="reserve",
        state="done",
        attempt=1,
        idempotency_key="k",
        result={"n": CANARY},
        error_message=CANARY,
    )
    FollowUp.objects.create(workflow=row, step=CANARY, queue="default", created_at=row.completed_at)
    FollowUp.objects.update(acknowledged_failure=row.completed_at)
    OutboxEvent.objects.create(
        event_id=uuid4(), workflow=row, destination="crm", topic="paid", body={"n": CANARY}, state="discarded"
    )
    rows.attempt(row, 2, steps=[{"step": "charge", "outcome": "failed", "ms": 1, "error_message": CANARY}])
    rows.event(row, "retried", actor="ada", detail={"reason": CANARY})
    CaseNote.objects.create(form_key=uuid4(), workflow=row, actor="ada", text=CANARY)
    Access.objects.create(actor="ada", kind="revealed", workflow=row, detail={"fields": ["order"], "purpose": CANARY})
    asked = rows.asked_to_correct(row, value=CANARY)
    Correction.objects.filter(pk=asked.pk).update(state="stale", proposed=None)
    return row


def test_nothing_of_what_was_sent_is_left_and_what_happened_is() -> None:
    row = with_content(
        old(rows.failed, linking_id=CANARY, business_key=CANARY, last_error_message=CANARY, context={"a": CANARY})
    )
    assert dump().count(CANARY) > 20
    assert empty_old() == 1
    assert CANARY not in dump()
    left = Workflow.objects.get(pk=row.pk)
    assert (left.status, left.last_error_code, left.idempotency_key) == ("FAILED", "card_declined", row.idempotency_key)
    assert [(each.kind, each.actor) for each in Event.objects.filter(workflow=row)] == [("retried", "ada")]
    assert [each["step"] for each in Attempt.objects.filter(workflow=row).order_by("id")[1].steps] == ["charge"]
    assert Access.objects.get().detail == {"fields": ["order"]}
    assert empty_old() == 0


def test_of_the_money_the_amount_and_what_names_the_charge_stay() -> None:
    charge = {"amount_cents": 14500, "currency": "USD"}
    row = old(workflow_type="onboarding", payload={"checkout": {**charge, "note": CANARY}})
    effect = {"step": "execute_checkout", "state": "done", "attempt": 1, "idempotency_key": "k"}
    money = ONBOARDING.wording.money
    assert money
    Effect.objects.create(workflow=row, result={money.reference: "ch_1", "n": CANARY}, **effect)
    empty_old()
    left = Workflow.objects.get(pk=row.pk).payload
    assert left == {
        "checkout": {name.partition(".")[2]: charge[name.partition(".")[2]] for name in (money.amount, money.currency)}
    }
    assert Effect.objects.get().result == {money.reference: "ch_1"}


@pytest.mark.parametrize(
    ("amount", "currency", "kept"),
    [
        (14500, "USD", True),
        ("145", "usd", True),
        (-1.5, "EUR", True),
        ("-1.50", "EUR", True),
        (True, "USDT", False),
        (CANARY, CANARY, False),
        (f"1 {CANARY}", f"US {CANARY}", False),
        ("1.", 840, False),
        (None, "Ü1é", False),
    ],
)
def test_an_amount_is_a_number_and_a_currency_three_letters_and_nothing_else_stays(
    amount: Any, currency: Any, *, kept: bool
) -> None:
    payload = {"amount": amount, "currency": currency}
    wording = Wording(money=Money("pay", *payload, "id", "id"))
    definition = WorkflowDefinition(name="pays", steps=[], context_class=BaseModel, wording=wording)
    assert money_in(definition, payload) == (payload if kept else {})


def unclear(state: str = "unknown", make: Callable[..., Workflow] = rows.complete, step: str = "charge") -> Workflow:
    row = old(make)
    call = {"step": step, "state": state, "attempt": 1, "idempotency_key": "k"}
    Effect.objects.create(workflow=row, first_begun_at=long_ago(), **call)
    return row


def passed_over(days: int = 100, **fields: Any) -> Workflow:
    """A call of a best-effort step is left in doubt: that may be."""
    row = old(workflow_type="onboarding")
    call = {"step": "verify_insurance", "state": "unknown", "attempt": 1, "idempotency_key": "k", **fields}
    Effect.objects.create(workflow=row, first_begun_at=long_ago(days), **call)
    return row


def charged() -> Workflow:
    row = old(rows.failed, workflow_type="onboarding")
    money = ONBOARDING.wording.money
    assert money
    effect = {"workflow": row, "step": "execute_checkout", "state": "done", "attempt": 1}
    Effect.objects.create(idempotency_key="k", result={money.reference: "ch_1"}, **effect)
    return row


def given_up(**acknowledged: Any) -> Workflow:
    row = old()
    FollowUp.objects.create(workflow=row, step="thank", queue="default", **acknowledged)
    return row


def due_again() -> Workflow:
    given = long_ago()
    return given_up(created_at=given, acknowledged_failure=given, due_at=timezone.now())


def parent_of_one_under_way() -> Workflow:
    row = old()
    rows.workflow(parent=row, parent_wait="all", child_key="1")
    return row


def child_of(parent: Workflow) -> Workflow:
    return old(parent=parent, parent_wait="all", child_key="1")


def untold(state: str = "") -> Workflow:
    row = old()
    OutboxEvent.objects.create(event_id=uuid4(), workflow=row, destination="crm", topic="paid", body={}, state=state)
    return row


STAYS: dict[str, Callable[[], Workflow]] = {
    "young": lambda: old(completed_at=long_ago(89)),
    "pending": lambda: rows.workflow(payload=PAYLOAD),
    "of no known type": lambda: old(workflow_type="gone"),
    "unclear": unclear,
    "unclear, and a repeat would tell": lambda: passed_over(days=0),
    "unclear, of another step": lambda: passed_over(step="execute_checkout"),
    "unclear, of another type": lambda: unclear(step="verify_insurance"),
    "unclear, of a step that is once no more": lambda: unclear(step="thank"),
    "unclear whether it was reversed": lambda: passed_over(undo=True),
    "call under way": lambda: unclear("intent"),
    "left as it is, and unclear": lambda: unclear("kept", rows.failed),
    "money": charged,
    "deferred": given_up,
    "deferred, due again": due_again,
    "children": parent_of_one_under_way,
    "others are not told": untold,
    "others were never told": lambda: untold("given_up"),
    "correction": lambda: rows.asked_to_correct(old(rows.failed)).workflow,
    "parent": lambda: child_of(rows.workflow()),
    "parent that stays": lambda: child_of(unclear()),
}


def test_what_is_unsettled_stays_whatever_its_age() -> None:
    made = {why: make() for why, make in STAYS.items()}
    assert empty_old() == 0
    assert [why for why, row in made.items() if is_emptied(row)] == []


def test_a_best_effort_call_that_stays_unclear_for_good_keeps_nothing_unless_it_charges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = passed_over()
    with monkeypatch.context() as patched:
        patched.setattr(WorkflowDefinition, "charge_names", ("verify_insurance",))
        assert empty_old() == 0
    assert empty_old() == 1
    assert is_emptied(row)


def test_what_another_has_emptied_meanwhile_is_not_emptied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    row = old(business_key="order 7")
    monkeypatch.setattr(purge, "let_holds_wait", lambda: elsewhere(lambda: content.empty([row.pk])))
    assert empty_old() == 0
    assert Workflow.objects.get(business_key=spent_key("parcel", "", "order 7")) == row


def test_what_is_acknowledged_goes_though_its_charge_stands_and_a_child_with_its_parent() -> None:
    row = charged()
    Workflow.objects.filter(pk=row.pk).update(acknowledged_failure=row.completed_at)
    cancelled = unclear("kept", rows.failed)
    Workflow.objects.filter(pk=cancelled.pk).update(cancelled_at=cancelled.completed_at)
    child = child_of(row)
    assert empty_old() == 3
    assert all(map(is_emptied, (row, cancelled, child)))


def test_a_row_that_somebody_holds_is_left_for_the_next_slice() -> None:
    row = old()
    with another_connection() as other, other.transaction():
        other.execute("SELECT FROM workflows_workflow WHERE id = %s FOR NO KEY UPDATE", [row.pk])
        assert empty_old() == 0
    assert empty_old() == 1


def test_a_worker_that_dies_meanwhile_leaves_it_as_it_was() -> None:
    row = with_content(old(rows.failed))
    before = dump().count(CANARY)
    with another_connection() as other, other.transaction():
        other.execute("SELECT FROM workflows_event WHERE workflow_id = %s FOR UPDATE", [row.pk])
        dying = Thread(target=killed)
        dying.start()
        until_blocked()
        other.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM ({BLOCKED.replace('1', 'pid', 1)}) blocked")
        dying.join(10)
    assert (dump().count(CANARY), is_emptied(row)) == (before, False)
    assert empty_old() == 1


def test_it_goes_on_behind_many_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purge, "SLICE", 2)
    moment = long_ago(100)
    stay = [old(parent=rows.workflow(), completed_at=moment) for _ in range(3)]
    row, after = old(), 0
    for _ in range(4):
        after = elsewhere(lambda: purge.empty_old(after)).next  # noqa: B023 (at once)
    assert is_emptied(row)
    assert not any(map(is_emptied, stay))


def test_nothing_is_done_with_what_is_emptied(ada: User) -> None:
    row = old(rows.failed)
    empty_old()
    for again in (operations.retry, operations.run_now):
        with pytest.raises(NotAllowed, match="was deleted"):
            again(row.pk, user=ada, reason="Please.")
    with pytest.raises(IntegrityError), transaction.atomic():
        Workflow.objects.filter(pk=row.pk).update(status="PENDING", completed_at=None)


def test_what_is_sent_or_started_again_is_the_same_workflow() -> None:
    sent = parse(json.dumps({"patient": {"email": "a@example.com", "password": "secret"}}).encode())
    key = old(workflow_type="onboarding", submitted_by="web").idempotency_key
    empty_old()
    again = enter(ONBOARDING, idempotency_key=key, payload=sent, submitted_by="web")
    assert (again.replayed, again.status) == (True, "COMPLETE")
    row = old(business_key="order 7", tenant="shop", submitted_by="web")
    empty_old()
    entry = start(rows.PARCEL, tenant="shop", business_key="order 7", payload=parse(b"{}"), submitted_by="web")
    assert (entry.id, entry.replayed) == (row.pk, True)


def test_one_that_is_emptied_while_it_is_started_again_is_not_started_a_second_time() -> None:
    row = old(business_key="order 7", tenant="shop", submitted_by="web")
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            content.empty([row.pk])
            again = pool.submit(
                with_its_connections,
                lambda: start(
                    rows.PARCEL, tenant="shop", business_key="order 7", payload=parse(b"{}"), submitted_by="web"
                ),
            )
            until_blocked()
        assert (again.result(10).id, again.result().replayed) == (row.pk, True)
    assert Workflow.objects.count() == 1


def test_a_signal_stays_for_another_workflow_of_its_linking_id_that_is_under_way_or_may_come() -> None:
    old(linking_id="acc-1"), old(linking_id="acc-2"), rows.workflow(linking_id="acc-1")
    for linking_id, came in (("acc-1", 92), ("acc-2", 92), ("acc-2", 90)):  # before its end, or after it
        sent = {"source": "shop", "dedupe_key": f"{linking_id} {came}", "name": "paid", "linking_id": linking_id}
        Signal.objects.create(**sent, created_at=long_ago(came))
    assert empty_old() == 2
    assert {*Signal.objects.values_list("dedupe_key", flat=True)} == {"acc-1 92", "acc-2 90"}


def test_a_signal_that_comes_later_is_not_kept() -> None:
    row = old()
    empty_old()
    sent: dict[str, Any] = {"source": "shop", "dedupe_key": "1", "name": "told", "payload": parse(b'{"a": "canary"}')}
    for _ in range(2):
        assert not store.send(workflow_id=row.pk, **sent)
    assert not Signal.objects.exists()


def test_a_deployment_check_names_the_definitions_that_do_not_say_how_long() -> None:
    told = {(each.id, each.obj.name) for each in check_retention()}
    assert ("workflows.W022", rows.PARCEL.name) in told
    assert ("workflows.W022", ONBOARDING.name) not in told


def test_nobody_finds_it_by_the_patients_address() -> None:
    from workflows.search import rows as search_rows

    row = old(workflow_type="onboarding")
    search_rows.add(row.pk, ONBOARDING, row.payload)
    assert find.find(f"{CANARY}@example.com", actor="ada").ids == [row.pk]
    empty_old()
    assert find.find(f"{CANARY}@example.com", actor="ada").ids == []


def test_its_page_and_the_lists_are_shown(as_: Login) -> None:
    row = with_content(old(rows.failed))
    empty_old()
    for url in (f"/admin/workflows/workflow/{row.pk}/change/", "/admin/workflows/workflow/", "/admin/audit/"):
        assert as_("superuser").get(url).status_code == 200
    assert "was deleted" in as_("superuser").get(f"/admin/workflows/workflow/{row.pk}/change/").content.decode()


def corrected(row: Workflow) -> Correction:
    asked = rows.asked_to_correct(row)
    Correction.objects.filter(pk=asked.pk).update(state="stale", proposed=None)
    return asked


# What is on record of a workflow, how it may be emptied, and how not.
ON_RECORD: list[tuple[Callable[[Workflow], Any], dict[str, Any], list[dict[str, Any]]]] = [
    (
        lambda row: rows.event(row, "retried", actor="ada", detail={"reason": "x", "bulk": 7}),
        {"detail": (said := {"reason": "(deleted)", "bulk": 7})},
        [{"detail": each} for each in ({**said, "reason": "y"}, {**said, "bulk": 8}, {})]
        + [{"detail": said, "actor": "eve"}],
    ),
    (
        lambda row: Access.objects.create(
            actor="ada", kind="revealed", workflow=row, detail={"fields": ["order"], "purpose": "x"}
        ),
        {"detail": {"fields": ["order"]}},
        [{"detail": {"fields": []}}, {"detail": {"fields": ["order"]}, "actor": "eve"}],
    ),
    (
        corrected,
        {"told": [], "reason": ""},
        [{"told": [], "reason": "y"}, {"told": ["y"], "reason": ""}, {"told": [], "reason": "", "state": "refused"}],
    ),
    (rows.asked_to_correct, {}, [{"told": [], "reason": ""}]),
]


@pytest.mark.parametrize("days", [0, 91])
@pytest.mark.parametrize(("record", "emptied", "otherwise"), ON_RECORD)
def test_the_database_lets_what_is_on_record_be_emptied_only_with_an_old_emptied_row(
    record: Callable[[Workflow], Any], emptied: dict[str, Any], otherwise: list[dict[str, Any]], days: int, ada: User
) -> None:
    row, other = rows.failed(completed_at=long_ago(days)), rows.complete()
    on_record = record(row)
    Erasure.objects.create(hash=b"", workflows=[other.pk], reason="", asked_by=ada)
    Erasure.objects.update(state="done", decided_by=User.objects.create_user("bob"))

    def refused(change: dict[str, Any]) -> bool:
        try:
            with transaction.atomic():
                type(on_record).objects.filter(pk=on_record.pk).update(**change)
        except IntegrityError:
            return True
        return False

    assert not emptied or refused(emptied)
    Workflow.objects.filter(pk=row.pk).update(emptied_at=timezone.now())
    assert all(map(refused, otherwise))
    assert not emptied or refused(emptied) == (days == 0)


def test_the_command_counts_and_then_empties() -> None:
    rows_that_go = [old(), old(rows.failed)]
    child_of(unclear())

    def said(*options: str) -> str:
        call_command("purge", *options, stdout=(out := StringIO()))
        return out.getvalue()

    assert said("--dry-run").splitlines() == [
        "2 of parcel would be emptied.",
        "1 stay: it is unclear whether a best-effort step made its call: wait until nobody can tell any more.",
        "1 stay: the workflow that started it has not been deleted yet: it is deleted after that one.",
    ]
    assert not any(map(is_emptied, rows_that_go))
    stay = {"fading": 1, "parent": 1}
    assert json.loads(said("--json")) == {"emptied": {"parcel": 2}, "deleted": {}, "stay": stay}
    assert all(map(is_emptied, rows_that_go))
    assert json.loads(said("--json", "--dry-run")) == {"emptied": {}, "deleted": {}, "stay": stay}


def test_what_is_emptied_is_found_by_indexes() -> None:
    """A table may hold what years have left."""
    parameters = {
        "ids": [1, 2],
        "references": ["receipt"],
        "later_too": False,
        "hashes": [b"1"],
        "of": [1],
        "within": [timedelta()],
        **charges.parameters(),
    }
    with transaction.atomic():
        execute("SET LOCAL enable_seqscan = off", ())
        for sql in (content._SIGNALS, content._SEARCH_KEYS, holders._FORGET, *content._empty()):
            plan = "\n".join(line for (line,) in fetch_all(f"EXPLAIN {sql}", parameters))
            assert "Seq Scan" not in plan, plan
