"""Secrets of rows: from the intake through a worker to the end, and under another key."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command

from tests import engine
from tests.dumps import dump, restored
from tests.workflows.undoing import ada
from workflows import operations
from workflows.definition import Retry, Step
from workflows.effects import key_for
from workflows.errors import RetryableStepError, StepError
from workflows.intake.submissions import BusinessKeyTaken, Entry, KeyReused, enter, start
from workflows.models import DataKey, FollowUp, ManualTask, OriginalPayload, Service, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.postgres.jsonb import parse
from workflows.sealing import rows
from workflows.sealing.envelopes import EMPTIED, is_emptied, is_envelope
from workflows.sealing.key_register import require_keys
from workflows.waits import Child, wait_for_children

pytestmark = engine.ENGINE

SECRET = "s3cr3t-of-ada"
seen: list[Any] = []


def uses(*, workflow: Workflow, context: Any) -> None:
    seen.append(workflow.payload["token"])


def nothing(*, workflow: Workflow, context: Any) -> None: ...


@pytest.fixture(autouse=True)
def sealed_definition(engine: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.DATA_KEYS = ["the-old-one"]
    monkeypatch.setattr(rows, "LONGEST_REST", 0.0)
    monkeypatch.setattr(rows, "BETWEEN", 0.0)
    monkeypatch.setattr(rows, "SLICE", 2)
    define()
    seen.clear()


def define(step: Callable[..., None] = uses) -> None:
    engine.define([step], secret_fields=["token"])


def send(token: Any = SECRET, key: UUID | None = None, *, n: int = 1) -> Entry:
    payload = parse(json.dumps({"token": token, "n": n}).encode())
    return enter(engine.DEFINITION, idempotency_key=key or uuid4(), payload=payload, submitted_by="shop")


def stored(pk: int) -> Any:
    return Workflow.objects.get(pk=pk).payload["token"]


def datakeys(action: str) -> str:
    out = StringIO()
    call_command("datakeys", action, stdout=out)
    return out.getvalue()


def drain() -> None:
    engine.worker().run(drain=True)


def test_a_step_sees_the_value_the_row_does_not_and_in_the_end_it_is_gone() -> None:
    entry = send()
    assert is_envelope(stored(entry.id))
    drain()
    assert seen == [SECRET]
    assert is_emptied(stored(entry.id))
    assert send(key=entry.key).replayed
    for other in ({"token": "another"}, {"token": None}, {"n": 2}):
        with pytest.raises(KeyReused):
            send(**{"key": entry.key, **other})
    without = send(None)
    with pytest.raises(KeyReused):
        send(SECRET, key=without.key)


def test_what_was_never_sealed_or_sent_is_gone_in_the_end_too() -> None:
    rows = {
        pk: kept
        for sent, kept in (({"token": SECRET * 3}, {"token": "sealed:"}), ({"token": None}, {"token": None}), ({}, {}))
        for pk in [engine.submit(sent).pk]
    }
    define(nothing)
    drain()
    assert dict(Workflow.objects.values_list("pk", "payload")) == rows


def test_a_started_workflow_is_compared_by_its_secret_under_whichever_key() -> None:
    def begin(token: str) -> Entry:
        text = json.dumps({"workflow": {"input": {"token": token}}, "token": "x"}).encode()
        payload = parse(text).part("workflow").part("input")
        return start(engine.DEFINITION, tenant="", business_key="b", payload=payload, submitted_by="shop")

    entry = begin(SECRET)
    assert SECRET not in stored(entry.id)
    assert begin(SECRET).id == entry.id
    with pytest.raises(BusinessKeyTaken):
        begin("another")


def test_a_row_that_does_not_open_is_a_question_and_goes_on_once_the_key_is_back(settings: Any) -> None:
    lost, well = send().id, None
    settings.DATA_KEYS = ["the-new-one"]
    well = send("other").id
    drain()
    assert seen == ["other"]
    assert is_emptied(stored(well))
    task = ManualTask.objects.get(workflow=lost, state="open")
    lead = ada()
    operations.approve(task.pk, user=lead)
    drain()
    again = ManualTask.objects.get(workflow=lost, state="open")
    assert again.pk != task.pk  # it does not open yet
    settings.DATA_KEYS = ["the-new-one", "the-old-one"]
    operations.approve(again.pk, user=lead)
    drain()
    assert seen == ["other", SECRET]
    assert Workflow.objects.get(pk=lost).status == "COMPLETE"


def test_while_the_keys_are_changed_a_worker_that_lacks_one_leaves_its_rows_to_others(settings: Any) -> None:
    def fail_once(*, workflow: Workflow, context: Any) -> None:
        uses(workflow=workflow, context=context)
        raise StepError("No.", code="no")

    define(fail_once)
    settings.DATA_KEYS = ["the-new-one", "the-old-one"]
    require_keys()
    undone, pk = send("another").id, send().id
    Workflow.objects.filter(pk=undone).update(compensating=True, current_step="fail_once")
    settings.DATA_KEYS = ["the-old-one"]
    drain()
    assert not seen
    assert not ManualTask.objects.exists()
    assert list(Workflow.objects.values_list("status", flat=True)) == ["PENDING"] * 2
    assert engine.kinds(Workflow.objects.get(pk=pk)) == ["put_back"]
    settings.DATA_KEYS = ["the-old-one", "the-new-one"]
    Workflow.objects.update(invisible_until=ClockTimestamp())
    drain()
    assert seen == [SECRET]
    assert list(Workflow.objects.values_list("status", flat=True)) == ["FAILED"] * 2


def test_a_field_that_only_another_release_calls_secret_is_opened_and_rotated_all_the_same(settings: Any) -> None:
    payload = {"token": SECRET, "patient": {"password": SECRET}}
    engine.define([nothing], secret_fields=["token", "patient.password"])
    enter(engine.DEFINITION, idempotency_key=uuid4(), payload=parse(json.dumps(payload).encode()), submitted_by="shop")
    engine.define([lambda *, workflow, context: seen.append(workflow.payload)])
    drain()
    assert seen == [payload]
    settings.DATA_KEYS = ["the-new-one", "the-old-one"]
    assert "2 secrets are sealed" in datakeys("rotate")
    define()
    assert "0 secrets are sealed" in datakeys("rotate")


def test_a_text_that_a_sender_wrote_like_an_envelope_stays_what_it_is() -> None:
    like = {"token": "sealed:x", "note": "sealed:", "a.b": f"sealed:{'0' * 8}:{'A' * 60}", "deep": {"x": "sealed:y"}}
    engine.define([lambda *, workflow, context: seen.append(workflow.payload)], secret_fields=["token"])
    enter(engine.DEFINITION, idempotency_key=uuid4(), payload=parse(json.dumps(like).encode()), submitted_by="shop")
    drain()
    assert seen == [like]


@pytest.mark.parametrize("lost", [False, True])
def test_an_undo_gets_the_value_too_and_goes_on_without_one_that_does_not_open(settings: Any, *, lost: bool) -> None:
    def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        key_for(workflow, "call")
        return {}

    def undo(*, workflow: Workflow, context: Any, effect: Any) -> None:
        uses(workflow=workflow, context=context)

    def refuse(*, workflow: Workflow, context: Any) -> None:
        if lost:
            settings.DATA_KEYS = ["the-new-one"]
        raise StepError("No.", code="no")

    engine.define([Step(call, once=True, undo=undo, returns=()), refuse], secret_fields=["token"])
    send()
    drain()
    assert seen == [EMPTIED if lost else SECRET]
    assert Workflow.objects.get().status == "FAILED"


def test_a_deferred_step_finds_the_value_emptied() -> None:
    def best_effort(*, workflow: Workflow, context: Any) -> None:
        uses(workflow=workflow, context=context)
        if len(seen) == 1:
            raise RetryableStepError("Not now.")

    engine.define(
        [Step(best_effort, best_effort=True, once=True, follow_up=Retry(base_delay=0))], secret_fields=["token"]
    )
    send()
    drain()
    FollowUp.objects.update(due_at=ClockTimestamp())
    drain()
    assert seen == [SECRET, EMPTIED]


def test_a_child_is_sealed_as_a_submission_is() -> None:
    def parent_or_child(*, workflow: Workflow, context: Any) -> None:
        if workflow.payload["n"]:
            child = Child("test", {"token": SECRET, "n": 0})
            (outcome,) = wait_for_children(workflow, "children", [child], timeout=timedelta(hours=1))
            seen.append(outcome.context["tags"])
        else:
            seen.append((workflow.payload["token"], is_envelope(stored(workflow.pk))))

    define(parent_or_child)
    send("another")
    drain()
    assert seen == [(SECRET, True), []]


def test_a_cause_tells_payloads_apart_by_what_is_not_secret() -> None:
    def fails(*, workflow: Workflow, context: Any) -> None:
        raise ValueError

    define(fails)
    for token, n in (("one", 1), ("two", 1), ("one", 2)):
        send(token, n=n)
    drain()
    outcomes = [each for row in Service.objects.all() for of in row.tallies.values() for each in of]
    assert len(outcomes) == 3
    assert len({each[-1] for each in outcomes}) == 2


def test_filling_seals_what_is_in_clear_and_empties_what_is_over() -> None:
    waiting = [engine.submit({"token": SECRET}).pk for _ in range(5)]
    over = engine.submit({"token": SECRET}, status="COMPLETE").pk
    engine.submit({"token": None})
    assert "6 in clear" in datakeys("check")
    assert "6 secrets are sealed" in datakeys("fill")
    assert SECRET not in str(list(Workflow.objects.values_list("payload")))
    assert is_emptied(stored(over))
    assert "0 secrets are sealed" in datakeys("fill")
    drain()
    assert seen.count(SECRET) == len(waiting)


def test_filling_leaves_no_secret_of_a_release_that_did_not_know_it_for_one() -> None:
    over = send().id
    Workflow.objects.filter(pk=over).update(status="COMPLETE", completed_at=ClockTimestamp())  # it empties nothing
    OriginalPayload.objects.create(workflow_id=over, payload={"token": SECRET, "n": 1})
    of_another_type = Workflow.objects.create(workflow_type="gone", idempotency_key=uuid4(), payload={})
    other = OriginalPayload.objects.create(workflow=of_another_type, payload={"token": "no secret"})
    assert "1 secrets are sealed" in datakeys("fill")
    assert is_emptied(stored(over))
    assert OriginalPayload.objects.get(workflow=over).payload == {"n": 1}
    other.refresh_from_db()
    assert other.payload == {"token": "no secret"}


def test_rotation_seals_anew_and_forgets_the_old_key(settings: Any) -> None:
    DataKey.objects.create(id=stored(send().id).split(":")[1])
    settings.DATA_KEYS = ["the-new-one", "the-old-one"]
    assert "1 secrets are sealed" in datakeys("rotate")
    new = stored(Workflow.objects.get().pk).split(":")[1]
    assert list(DataKey.objects.values_list("id", flat=True)) == [
        new
    ]  # a worker that lacks it leaves the row to others
    settings.DATA_KEYS = ["the-new-one"]
    assert "under the key 1 of DATA_KEYS" in datakeys("check")
    drain()
    assert seen == [SECRET]


def test_a_row_that_a_worker_holds_is_left_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    held = engine.submit({"token": SECRET}).pk
    monkeypatch.setattr(rows, "ROUNDS", 2)
    with engine.another_connection() as other, other.transaction():
        other.execute("SELECT FROM workflows_workflow WHERE id = %s FOR NO KEY UPDATE", [held])
        with pytest.raises(CommandError, match="1 workflows are held"):
            datakeys("fill")
    assert "1 secrets are sealed" in datakeys("fill")


def test_a_row_that_cannot_be_opened_is_named_and_the_old_key_stays_registered(settings: Any) -> None:
    pk = send().id
    DataKey.objects.create(id=stored(pk).split(":")[1])
    settings.DATA_KEYS = ["the-new-one"]
    for action, registered in (("check", 1), ("rotate", 2)):
        with pytest.raises(CommandError, match="1 rows have a secret that does not open"):
            datakeys(action)
        assert DataKey.objects.count() == registered


def test_a_worker_does_not_start_without_a_key_in_use(settings: Any) -> None:
    engine.define([nothing])
    require_keys()
    assert not DataKey.objects.exists(), "no definition has secrets"
    define()
    require_keys()
    settings.DATA_KEYS = ["the-new-one"]
    with pytest.raises(CommandError, match="which DATA_KEYS lacks"):
        call_command("runworker", "--drain")
    assert DataKey.objects.count() == 1
    settings.DATA_KEYS = ["the-new-one", "the-old-one"]
    require_keys()
    assert DataKey.objects.count() == 2


def test_a_dump_of_the_day_before_cannot_be_read_with_the_keys_of_today(settings: Any) -> None:
    require_keys()  # a process starts
    send()
    of_yesterday = dump()
    assert SECRET not in of_yesterday
    settings.DATA_KEYS = ["the-new-one", "the-old-one"]
    datakeys("rotate")
    settings.DATA_KEYS = ["the-new-one"]
    require_keys()
    with restored(of_yesterday):
        with pytest.raises(ImproperlyConfigured, match="which DATA_KEYS lacks"):
            require_keys()
        with pytest.raises(CommandError, match="1 rows have a secret that does not open"):
            datakeys("check")
        settings.DATA_KEYS = ["the-old-one"]
        assert "1 under the key 1" in datakeys("check")
    settings.DATA_KEYS = ["the-new-one"]
    assert "1 under the key 1" in datakeys("check")
