"""Starting other workflows and waiting for them, from inside a step."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.db.models.functions import Now

from tests import engine
from tests.engine import Context, another_connection, do_maintenance, make_due, submit, work, worker
from tests.postgres import without_triggers
from tests.workflows import rows
from tests.workflows.waits.approvals import boss
from workflows import operations
from workflows.definition import Step, WorkflowDefinition, definitions
from workflows.errors import NotAllowed, RetryableStepError, StepError
from workflows.features.bulk import operations as bulk
from workflows.models import Attempt, BulkOperation, Event, ManualTask, Signal, Wait, Workflow
from workflows.operations.retrying import retry_together
from workflows.telling.sentence import standing
from workflows.waits import Child, ChildOutcome, WaitExpired, wait_for_children

pytestmark = engine.ENGINE

HOUR = timedelta(hours=1)

outcomes: list[list[ChildOutcome]] = []
refused: set[str] = set()
busy: set[str] = set()


def check(*, workflow: Workflow, context: Context) -> dict[str, Any]:
    if workflow.child_key in busy:
        raise RetryableStepError("Busy.", base_delay=300)
    if workflow.child_key in refused:
        raise StepError("Refused.", code="refused")
    return {"text": workflow.payload["policy"]}


def fan_out(*, workflow: Workflow, context: Context) -> dict[str, Any]:
    children = [Child("child", {"policy": f"p-{n}"}, key=f"c{n}") for n in range(workflow.payload["count"])]
    try:
        ended = wait_for_children(workflow, "checks", children, timeout=timedelta(hours=1))
    except WaitExpired:
        if workflow.payload.get("patient", True):
            raise
        ended = []
    if len(ended) < workflow.payload.get("enough", workflow.payload["count"]):
        raise StepError("Too few of them have ended.", code="too_few")
    outcomes.append(ended)
    if workflow.payload.get("strict") and not all(child.completed for child in ended):
        raise StepError("One of them has failed.", code="child_failed")
    return {"number": sum(child.completed for child in ended)}


CHILD = WorkflowDefinition(name="child", priority=2, steps=[check], context_class=Context)
PARENT = WorkflowDefinition(name="parent", steps=[fan_out], context_class=Context)


@pytest.fixture(autouse=True)
def known(engine: None, settings: Any) -> None:
    settings.WORKFLOWS = [f"{__name__}.CHILD", f"{__name__}.PARENT"]
    definitions.cache_clear()
    outcomes.clear()
    refused.clear()
    busy.clear()


def parent(count: int, **payload: Any) -> Workflow:
    return submit({"count": count, **payload}, workflow_type="parent", tenant="shop")


def drain() -> int:
    runs, this = 0, worker()
    while this.process_next():
        runs += 1
    return runs


def end_of(workflow: Workflow) -> tuple[str, int | None]:
    """Its status, and how many children have completed, when nothing is due any more."""
    drain()
    workflow.refresh_from_db()
    return workflow.status, workflow.context.get("number")


def attempts(workflow: Workflow) -> int:
    return Attempt.objects.filter(workflow=workflow).count()


def test_it_starts_many_and_goes_on_when_all_have_ended() -> None:
    workflow = work(parent(3))
    assert (workflow.status, workflow.waiting_for) == ("PENDING", "the workflows that it has started (checks)")
    children = workflow.children.order_by("id")
    assert [(child.child_key, child.payload, child.tenant, child.priority, child.request_id) for child in children] == [
        (f"c{n}", {"policy": f"p-{n}"}, "shop", 2, workflow.request_id) for n in range(3)
    ]
    assert end_of(workflow) == ("COMPLETE", 3)
    assert [(child.key, child.status, child.context["text"]) for child in outcomes[-1]] == [
        (f"c{n}", "COMPLETE", f"p-{n}") for n in range(3)
    ]
    assert attempts(workflow) == 2
    assert not Signal.objects.filter(closed_at=None).exists()


def test_none_to_wait_for_is_over_at_once() -> None:
    workflow = work(parent(0))
    assert (workflow.status, outcomes) == ("COMPLETE", [[]])


def test_met_again_it_starts_none_again() -> None:
    workflow = work(parent(3))
    for _ in range(3):
        make_due(workflow)
        work(workflow)
    assert workflow.children.count() == 3
    assert Wait.objects.count() == 1


def test_children_whose_start_a_restore_has_lost_start_again_under_the_keys_they_had() -> None:
    workflow = work(parent(3))
    keys = sorted(workflow.children.values_list("idempotency_key", flat=True))
    with without_triggers():
        workflow.children.all().delete()
        Wait.objects.all().delete()
    make_due(workflow)
    work(workflow)
    assert sorted(workflow.children.values_list("idempotency_key", flat=True)) == keys
    assert len({*keys}) == 3


def expired(workflow: Workflow) -> Workflow:
    """The parent of children that nobody runs, past its deadline."""
    engine.expire(workflow)
    Workflow.objects.filter(parent=workflow).update(queue="nobody")
    return work(workflow)


def test_in_the_end_not_all_have_ended() -> None:
    workflow = expired(work(parent(2)))
    assert (workflow.status, workflow.last_error_code) == ("FAILED", "wait_expired")
    assert workflow.children.filter(status="PENDING").count() == 2, "they go on by themselves"


def test_an_expiry_that_a_step_took_for_an_answer_outlives_a_retry() -> None:
    workflow = expired(work(parent(2, patient=False)))
    assert (workflow.status, workflow.last_error_code) == ("FAILED", "too_few")
    Workflow.objects.filter(pk=workflow.pk).update(payload={"count": 2, "patient": False, "enough": 0})
    operations.retry(workflow.pk, user=boss())
    assert work(workflow).status == "COMPLETE"


def test_a_retried_parent_looks_anew_how_its_children_have_ended_and_starts_none_again() -> None:
    refused.add("c1")
    workflow = parent(2, strict=True)
    drain()
    workflow.refresh_from_db()
    assert workflow.last_error_code == "child_failed"
    failed = outcomes[-1][1]
    assert (failed.key, failed.status, failed.error_code, failed.cancelled) == ("c1", "FAILED", "refused", False)
    refused.clear()
    operations.retry(workflow.children.get(child_key="c1").pk, user=boss())
    operations.retry(workflow.pk, user=boss())
    assert end_of(workflow) == ("COMPLETE", 2)
    assert workflow.children.count() == 2


def test_a_child_that_is_started_once_more_before_the_parent_looks_is_waited_for_and_nothing_loops() -> None:
    refused.add("c1")
    workflow = work(parent(2))
    this = worker()
    assert [this.process_next(), this.process_next()] == [True, True]
    operations.retry(workflow.children.get(child_key="c1").pk, user=boss())
    refused.clear()
    Workflow.objects.filter(parent=workflow).update(queue="later")
    assert drain() == 1, "the parent looks, and waits on"
    Workflow.objects.filter(parent=workflow).update(queue="default")
    assert end_of(workflow) == ("COMPLETE", 2)


def test_a_worker_that_dies_before_it_could_tell_the_parent_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = work(parent(1))
    with monkeypatch.context() as patched:
        patched.setattr("workflows.signals.store.notify_parent", lambda child_id: None)
        assert drain() == 1
    do_maintenance()
    assert end_of(workflow) == ("COMPLETE", 1)


@pytest.mark.parametrize("obeyed", [False, True], ids=["before they have obeyed", "after it"])
def test_retrying_a_cancelled_parent_starts_again_what_was_cancelled_with_it(obeyed: bool) -> None:
    workflow = work(parent(3))
    operations.cancel(workflow.children.get(child_key="c0").pk, user=boss(), reason="not this one")
    operations.cancel(workflow.pk, user=boss(), reason="a mistake")
    if obeyed:
        drain()
        assert Workflow.objects.get(pk=workflow.pk).cancelled_at is not None
        children = workflow.children.values_list("status", "last_error_code")
        assert set(children) == {("FAILED", "cancelled")}
    operations.retry(workflow.pk, user=boss(), reason="all but one")
    carry_out()
    assert end_of(workflow) == ("COMPLETE", 2)


def cancelled_family(count: int) -> Workflow:
    workflow = work(parent(count))
    operations.cancel(workflow.pk, user=boss(), reason="a mistake")
    drain()
    return Workflow.objects.get(pk=workflow.pk)


def carry_out(*, slices: int = 100) -> None:
    """So many slices of bulk operations, of one item each."""
    for _ in range(slices):
        BulkOperation.objects.update(next_at=Now(), pace=1)
        with transaction.atomic():
            bulk.do_slice(0)


def test_a_retry_of_a_cancelled_parent_takes_as_many_statements_for_thirty_children_as_for_three() -> None:
    """3,000 took 128 s, in the request."""
    sent = []
    ContentType.objects.get_for_model(BulkOperation)  # which a process reads once
    for count in (3, 30):
        workflow = cancelled_family(count)
        with engine.sent() as statements:
            told = operations.retry(workflow.pk, user=boss(), reason="it was right", seen=operations.ended_at(workflow))
        sent.append(len(statements))
        assert told.startswith(f"{count} workflows that were cancelled with it are being retried first, and then this")
        assert set(Workflow.objects.filter(parent=workflow).values_list("status", flat=True)) == {"FAILED"}
    assert sent[0] == sent[1]


def test_a_slice_retries_thirty_children_in_as_many_statements_as_three_and_their_parent_after_them() -> None:
    """3,000 took 56,000 statements, and 60 s at the pace of other bulk operations."""
    sent = []
    for count in (3, 30):
        workflow = cancelled_family(count)
        operations.retry(workflow.pk, user=boss(), reason="it was right")
        with engine.sent() as statements:
            carry_out(slices=1)
        sent.append(len(statements))
        family = BulkOperation.objects.latest("id")
        assert dict(family.items.values_list("row", "outcome")) == dict.fromkeys(
            [*workflow.children.values_list("pk", flat=True), workflow.pk], "done"
        )
        told = Event.objects.filter(detail__bulk=family.pk, kind="retried", actor=boss().username)
        assert [event.detail["reason"] for event in told] == ["it was right"] * (count + 1)
        assert end_of(workflow) == ("COMPLETE", count)
    assert sent[0] == sent[1]


def test_what_has_to_be_asked_about_is_not_retried_together_and_what_is_above_it_waits() -> None:
    root = cancelled_family(7)
    plain, refunded, asked, ended_again, duplicate, locked, above = root.children.order_by("id")
    cancelled = {"status": "FAILED", "cancelled_at": Now(), "completed_at": Now()}
    for number, parent in enumerate([above, above]):
        below = submit(parent=parent, child_key=str(number), **cancelled)
        Signal.objects.create(
            workflow_id=below.pk, name="cancel", source="engine", dedupe_key=f"c{number}", payload={}, closed_at=Now()
        )
    operations.retry(root.pk, user=boss(), reason="it was right")
    Workflow.objects.filter(pk=refunded.pk).update(workflow_type="of another release")
    rows.refunded_charge(refunded)
    rows.to_confirm(boss(), asked)
    Workflow.objects.filter(pk=duplicate.pk).update(last_error_code="duplicate_of")
    Event.objects.create(workflow_id=duplicate.pk, kind="duplicate", detail={"first": 0})
    Workflow.objects.filter(pk=ended_again.pk).update(completed_at=Now())
    family = BulkOperation.objects.get()
    with another_connection() as other, other.transaction():
        other.execute("SELECT FROM workflows_workflow WHERE id = ANY (%s) FOR UPDATE", [[locked.pk, below.pk]])
        told = retry_together(family.pk, user=boss(), reason="it was right")
    assert told == [plain.pk, below.pk - 1]
    assert retry_together(family.pk, user=boss(), reason="it was right") == [locked.pk, below.pk]


@pytest.mark.parametrize("together", [0, 1000], ids=["one by one", "together"])
def test_the_children_are_retried_first_each_once_and_one_that_has_ended_again_is_left_and_told(
    together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.operations.retrying.TOGETHER", together)
    workflow = cancelled_family(3)
    operations.retry(workflow.pk, user=boss(), reason="it was right")
    with pytest.raises(NotAllowed, match="3 workflows that were cancelled with it are being retried first"):
        operations.retry(workflow.pk, user=boss(), reason="once more")
    first, second, third = workflow.children.order_by("id")
    if not together:
        carry_out(slices=1)
        assert [*workflow.children.order_by("id").values_list("status", flat=True)] == ["PENDING", "FAILED", "FAILED"]
    operations.retry(second.pk, user=boss(), reason="quicker")
    refused.add("c1")
    drain()
    assert Workflow.objects.get(pk=workflow.pk).status == "FAILED", "it waits for its children to be retried"
    family, shown = BulkOperation.objects.get(), Workflow.objects.with_state().get(pk=workflow.pk)
    assert "3 workflows that were cancelled with it" in standing(shown, None, [], None, [])
    carry_out()
    family.refresh_from_db()
    outcome = dict(family.items.values_list("row", "outcome"))
    assert outcome == {first.pk: "done", second.pk: "skipped", third.pk: "done", workflow.pk: "done"}
    assert family.items.get(row=second.pk).why == "It has ended again since you looked at it."
    assert end_of(workflow) == ("COMPLETE", 2)
    assert (family.state, Event.objects.filter(detail__bulk=family.pk, kind="retried").count()) == ("done", 3)


def test_grandchildren_come_before_their_parents_and_what_was_not_cancelled_with_them_stays() -> None:
    root = cancelled_family(2)
    child, other = root.children.order_by("id")
    cancel = {"name": "cancel", "source": "engine", "payload": {}}
    ended = {"status": "FAILED", "completed_at": Now(), "cancelled_at": Now()}
    below = [submit(parent=child, child_key=key, **ended) for key in ("by engine", "by a person")]
    Signal.objects.create(workflow_id=below[0].pk, dedupe_key="c", closed_at=Now(), **cancel)
    operations.retry(root.pk, user=boss(), reason="it was right")
    items = list(BulkOperation.objects.get().items.order_by("id").values_list("row", flat=True))
    assert items == [below[0].pk, child.pk, other.pk, root.pk]


def test_a_child_that_a_person_has_cancelled_since_it_was_retried_with_its_parent_stays_cancelled() -> None:
    workflow = cancelled_family(2)
    operations.retry(workflow.pk, user=boss(), reason="it was right")
    carry_out()
    first, second = workflow.children.order_by("id")
    operations.cancel(first.pk, user=boss(), reason="this one was not")
    operations.cancel(workflow.pk, user=boss(), reason="a mistake")
    drain()
    BulkOperation.objects.all().delete()
    operations.retry(workflow.pk, user=boss(), reason="it was right")
    items = BulkOperation.objects.get().items.order_by("id").values_list("row", flat=True)
    assert list(items) == [second.pk, workflow.pk]


def test_a_cancelled_child_is_a_failed_one() -> None:
    workflow = work(parent(1))
    Workflow.objects.filter(parent=workflow).update(queue="later")
    operations.cancel(workflow.children.get().pk, user=boss(), reason="no longer wanted")
    assert drain() == 1
    workflow.refresh_from_db()
    assert (workflow.status, outcomes[-1][0].cancelled) == ("COMPLETE", True)


@pytest.mark.parametrize("children", [[Child("nobody", {})], [Child("child", {}, "x"), Child("child", {}, "x")]])
def test_what_cannot_be_started_fails_the_step_and_starts_nothing(
    children: list[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*, workflow: Workflow, context: Any) -> None:
        wait_for_children(workflow, "checks", children, timeout=timedelta(hours=1))

    monkeypatch.setattr(PARENT, "steps", (Step(start),))
    workflow = work(parent(0))
    assert workflow.status == "FAILED"
    assert Workflow.objects.count() == 1
    assert not Wait.objects.exists()


def test_a_child_in_back_off_is_no_end() -> None:
    busy.add("c0")
    workflow = parent(1)
    assert drain() == 2
    assert (workflow.children.get().retry_count, attempts(workflow)) == (1, 1)
    assert not Signal.objects.exists()
    this = worker()
    do_maintenance()
    assert this.process_next() is False


def test_children_of_two_waits_are_two_however_they_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        both = [("a", "b/c"), ("a/b", "c")]
        ended = [wait_for_children(workflow, a, [Child("child", {"policy": a}, b)], timeout=HOUR) for a, b in both]
        return {"number": sum(map(len, ended))}

    monkeypatch.setattr(PARENT, "steps", (Step(start),))
    workflow = parent(0)
    assert end_of(workflow) == ("COMPLETE", 2)


# --- A wait that is renamed -----------------------------------------------------------------------------------------


def renamed(monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    """The next release: the wait for the checks has another name."""

    def fan_out_anew(*, workflow: Workflow, context: Context) -> dict[str, Any]:
        children = [Child("child", {"policy": "p"}, key=f"c{n}") for n in range(workflow.payload["count"])]
        return {"number": len(wait_for_children(workflow, "controls", children, timeout=HOUR, **options))}

    monkeypatch.setattr(PARENT, "steps", (Step(fan_out_anew, name="fan_out"),))


def test_a_wait_that_is_renamed_starts_no_children_again_and_a_person_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = work(parent(2))
    usual = PARENT.steps
    renamed(monkeypatch)
    workflow = engine.again(workflow)
    assert workflow.waiting_for == "a release that waits for the workflows of checks, which it has started"
    assert workflow.children.count() == 2
    engine.expire(workflow)
    task = ManualTask.objects.get(workflow=work(workflow))
    assert (task.task_type, task.state, workflow.children.count()) == ("step_undeclared", "open", 2)
    Wait.objects.filter(name="checks").update(deadline=Now() + HOUR)
    monkeypatch.setattr(PARENT, "steps", usual)
    assert engine.again(workflow).waiting_for == "the workflows that it has started (checks)"
    task.refresh_from_db()
    assert task.state == "closed", "it has answered itself"
    assert end_of(workflow) == ("COMPLETE", 2)


def test_a_renamed_wait_that_says_its_first_name_is_the_same_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = work(parent(2))
    renamed(monkeypatch, formerly="checks")
    make_due(workflow)
    assert end_of(workflow) == ("COMPLETE", 2)
    assert workflow.children.count() == 2


def test_a_person_may_say_that_other_children_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = work(parent(2))
    renamed(monkeypatch)
    engine.expire(engine.again(workflow))
    task = ManualTask.objects.get(workflow=work(workflow))
    operations.approve(task.pk, user=boss())
    assert end_of(workflow) == ("COMPLETE", 2)
    assert workflow.children.count() == 4


def test_a_second_wait_for_children_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def fan_out_twice(*, workflow: Workflow, context: Context) -> dict[str, Any]:
        for name in ("first", "second"):
            wait_for_children(workflow, name, [Child("child", {"policy": name})], timeout=HOUR)
        return {"number": 2}

    monkeypatch.setattr(PARENT, "steps", (Step(fan_out_twice, name="fan_out"),))
    assert end_of(parent(2)) == ("COMPLETE", 2)
