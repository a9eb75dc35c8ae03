"""What signals say, and what waits were answered, of private workflows: sealed, read by steps, gone with the row."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from pydantic import BaseModel

from tests import engine
from tests.workflows.admin.walk.kept import every_column, leaks
from tests.workflows.undoing import ada
from workflows import operations
from workflows.intake.submissions import enter
from workflows.models import ContentKey, ManualTask, Signal, Wait, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.postgres.jsonb import parse
from workflows.postgres.statements import fetch_row
from workflows.retention import ages, content
from workflows.sealing import rows
from workflows.sealing.envelopes import KeyLacking
from workflows.sealing.key_register import require_keys
from workflows.signals import store
from workflows.waits import require_approval, wait_for_signal

pytestmark = engine.ENGINE

CANARY = "canary-of-ada"
DAY = timedelta(days=1)
seen: list[Any] = []


class Form(BaseModel):
    note: str


def told(*, workflow: Workflow, context: Any) -> None:
    signal = wait_for_signal(workflow, "paid", "paid", matching={"invoice": 7}, timeout=DAY)
    seen.append(signal.payload)


def asks_and_looks(*, workflow: Workflow, context: Any) -> None:
    facts = {"Name": CANARY}
    seen.append(require_approval(workflow, "q", question="May it?", facts=facts, form=Form, timeout=DAY).answer.note)
    seen.append(wait_for_signal(workflow, "l", "never", timeout=DAY, look=lambda: {"note": CANARY}).payload["note"])


@pytest.fixture(autouse=True)
def private_definition(engine: None) -> None:
    define()
    seen.clear()


def define(*steps: Any, private: bool = True, **options: Any) -> None:
    options = {"matched_fields": ("invoice",), "linking_id": "account", **options}
    engine.define(steps or [told], private=private, **options)


def send() -> Workflow:
    sent = parse(b'{"account": "a-1"}')
    entry = enter(engine.DEFINITION, idempotency_key=uuid4(), payload=sent, submitted_by="shop")
    return Workflow.objects.get(pk=entry.id)


def tell(workflow: Workflow | None = None, *, key: str = "1", note: str = CANARY, invoice: int = 7) -> bool:
    address: Any = {"workflow_id": workflow.pk} if workflow else {"linking_id": "a-1"}
    payload = parse(f'{{"invoice": {invoice}, "note": "{note}", "n": 1.10}}'.encode())
    return store.send(source="shop", dedupe_key=key, name="paid", payload=payload, **address)


SAID = {"invoice": 7, "note": CANARY, "n": 1.1}


def empty(workflow: Workflow) -> None:
    Workflow.objects.filter(pk=workflow.pk).update(status="COMPLETE", completed_at="2020-01-01T00:00Z")
    Signal.objects.update(created_at="2019-12-31T00:00Z")  # before that, as what it has used
    content.empty([workflow.pk])


def drain() -> None:
    engine.worker().run(drain=True)


@pytest.mark.parametrize("is_linked", [True, False])
def test_nothing_that_was_told_asked_or_found_is_in_clear_and_no_key_is_left(*, is_linked: bool) -> None:
    define(told, asks_and_looks)
    row = send()
    drain()
    tell(None if is_linked else row, key="other", invoice=8)
    tell(None if is_linked else row)
    drain()
    task = ManualTask.objects.get()
    assert task.facts == [["Name", CANARY]]
    operations.approve(task.pk, user=ada(), reason="Looks well.", answer={"note": CANARY})
    drain()
    assert Workflow.objects.get().status == "COMPLETE"
    assert seen[-3:] == [SAID, CANARY, CANARY]
    assert leaks(every_column(), [CANARY]) == []
    assert Signal.objects.get(name=task.signal_name).payload["answer"] == {"note": CANARY}
    assert ContentKey.objects.count() == 4, "of the workflow, two signals and the answer"
    empty(row)
    assert not ContentKey.objects.exists()


def test_what_is_sent_again_is_compared_in_clear(settings: Any) -> None:
    row = send()
    assert tell(row)
    assert not tell(row)
    with pytest.raises(store.DedupeKeyReused):
        tell(row, note="another")
    settings.DATA_KEYS, keys = ["another"], settings.DATA_KEYS
    with pytest.raises(KeyLacking):
        tell(row)
    settings.DATA_KEYS = keys
    ContentKey.objects.exclude(pk=row.idempotency_key).delete()
    assert not tell(row, note="nobody can tell"), "it would come again for ever"


def test_a_signal_and_its_key_are_written_in_one_transaction_or_neither() -> None:
    row = send()
    tell(row)
    tell(row)
    keys = ContentKey.objects.exclude(pk=row.idempotency_key)
    assert keys.count() == 1
    together = "SELECT count(*) FROM workflows_signal s JOIN workflows_contentkey k ON s.xmin = k.xmin"
    assert fetch_row(together) == (1,)
    empty(row)
    assert not tell(row, key="late")
    assert not keys.exists()


@pytest.mark.parametrize("was_private", [True, False])
def test_a_plain_workflow_is_told_in_a_release_with_a_private_one_and_before(*, was_private: bool) -> None:
    define(private=False)
    row = send()
    define(private=was_private)
    tell(key="linked")
    define(private=not was_private)
    drain()
    assert seen == [SAID]
    assert Workflow.objects.get(pk=row.pk).status == "COMPLETE"
    define(private=True)
    other = engine.submit({"account": "a-2"})
    tell(other, key="addressed")
    assert Signal.objects.filter(payload__note=CANARY, workflow=other).exists(), "to it alone nothing is sealed"


def test_each_workflow_keeps_its_answer_when_another_of_the_linking_id_is_emptied() -> None:
    one, other = send(), send()
    drain()
    tell()
    drain()
    assert seen == [SAID] * 2
    empty(one)
    assert set(ContentKey.objects.values_list("pk", flat=True)) == {other.idempotency_key}
    Workflow.objects.filter(pk=other.pk).update(status="PENDING", completed_at=None, begun=True)
    engine.again(other)
    assert seen == [SAID] * 3


def test_a_step_finds_the_context_of_the_attempt_before_in_clear() -> None:
    def first(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        seen.append(workflow.context.get("number"))
        return {"number": 5}

    define(first, told)
    row = send()
    drain()
    tell()
    drain()
    assert seen == [None, 5, SAID]
    row.refresh_from_db()
    assert row.status == "COMPLETE"


def test_the_key_of_a_signal_that_nobody_waited_for_goes_by_age() -> None:
    tell()
    assert ContentKey.objects.count() == 1
    Signal.objects.update(created_at="2000-01-01T00:00Z", closed_at=ClockTimestamp(), ignored=True)
    assert ages.forget(ages.OLD[-1]).changed == 1
    assert not ContentKey.objects.exists()


def test_a_wait_by_a_field_that_is_sealed_is_a_question_and_where_nothing_is_private_it_waits() -> None:
    define(matched_fields=())
    row = send()
    drain()
    task = ManualTask.objects.get(workflow=row)
    assert "by invoice" in task.question
    define()
    operations.approve(task.pk, user=ada())
    assert engine.again(row).waiting_for == "the signal paid"
    define(private=False, matched_fields=())
    row = engine.work(send())
    assert row.waiting_for == "the signal paid"
    with pytest.raises(ValueError, match="matched_fields"):
        define(matched_fields="invoice")


def test_an_answer_that_does_not_open_is_never_taken_for_an_empty_one() -> None:
    row, other = send(), send()
    drain()
    tell(row)
    tell(other, key="2")
    signal = Signal.objects.get(workflow=row)
    own = "SELECT split_part(payload ->> '(sealed)', ':', 1)::uuid FROM workflows_signal WHERE id = %s"
    ContentKey.objects.filter(pk=fetch_row(own, [signal.pk])[0]).delete()
    drain()
    assert seen == [SAID]
    assert Workflow.objects.get(pk=other.pk).status == "COMPLETE"
    task = ManualTask.objects.get(state="open")
    assert (task.workflow_id, task.question) == (row.pk, "What a signal says cannot be read. May it be tried again?")
    operations.approve(task.pk, user=ada())
    drain()
    task = ManualTask.objects.get(state="open")
    operations.reject(task.pk, user=ada(), reason="It is lost.")
    drain()
    row.refresh_from_db()
    assert (row.status, row.last_error_code) == ("FAILED", "content_unreadable")
    operations.retry(row.pk, user=ada())
    tell(row, key="3")
    drain()
    assert seen == [SAID] * 2


def test_what_a_person_answered_and_does_not_open_is_asked_again() -> None:
    define(asks_and_looks)
    row = send()
    drain()
    operations.approve(ManualTask.objects.get().pk, user=ada(), answer={"note": CANARY})
    ContentKey.objects.exclude(pk=row.idempotency_key).delete()
    drain()
    task = ManualTask.objects.get(state="open")
    assert "What was answered cannot be read" in str(task.facts)
    operations.approve(task.pk, user=ada(), answer={"note": CANARY})
    drain()
    assert seen == [CANARY] * 2


def test_the_keys_of_signals_are_checked_and_rotated(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "SLICE", 2)
    for n in range(3):
        tell(key=str(n))
    both = ["the-new-one", *settings.DATA_KEYS]
    settings.DATA_KEYS = ["the-new-one"]
    with pytest.raises(CommandError, match="3 rows have a secret that does not open"):
        call_command("datakeys", "check", stdout=StringIO())
    settings.DATA_KEYS = both
    call_command("datakeys", "rotate", stdout=StringIO())
    settings.DATA_KEYS = ["the-new-one"]
    call_command("datakeys", "check", stdout=StringIO())
    assert [signal.payload for signal in Signal.objects.all()] == [SAID] * 3


def test_while_the_keys_are_changed_a_signal_waits_for_a_worker_that_has_its_key(settings: Any) -> None:
    row = send()
    drain()
    old, new = settings.DATA_KEYS, ["the-new-one", *settings.DATA_KEYS]
    settings.DATA_KEYS = new
    require_keys()
    tell()
    settings.DATA_KEYS = old
    assert engine.again(row).waiting_for == "a worker that has the key of its secrets"
    assert Wait.objects.get().outcome == ""
    settings.DATA_KEYS = new
    engine.again(row)
    assert seen == [SAID]


@pytest.mark.parametrize("is_linked", [True, False])
def test_what_a_release_has_sealed_that_knew_of_no_match_is_told_all_the_same(*, is_linked: bool) -> None:
    row = send()
    define(matched_fields=())
    for invoice in (8, 7):
        tell(None if is_linked else row, key=str(invoice), invoice=invoice)
    define()
    drain()
    assert seen == [SAID]
    assert leaks(every_column(), [CANARY]) == []


def test_nothing_is_left_of_a_signal_that_was_being_stored_while_its_workflow_was_emptied() -> None:
    row, other = send(), send()
    with transaction.atomic():
        store.store(source="shop", dedupe_key="late", name="paid", workflow_id=row.pk, payload=SAID)
        engine.elsewhere(lambda: empty(row))
    tell(other)
    engine.do_maintenance()
    assert Signal.objects.get().workflow_id == other.pk
    assert ContentKey.objects.count() == 2
