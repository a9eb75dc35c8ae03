"""A definition publishes that its workflows are complete, have failed, or wait for a person: on every path there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.engine import ENGINE, again, define, make_due, submit, work
from tests.workflows.undoing import World
from workflows import operations
from workflows.definition import LIFECYCLE, Retry, WorkflowDefinition
from workflows.errors import RetryableStepError, StepError
from workflows.features.outbox.checks import check_outbox
from workflows.ingress import api_keys
from workflows.models import ManualTask, OutboxEvent, Workflow
from workflows.sealing import whole
from workflows.waits import require_approval
from workflows.wording import CodeWords, Wording

pytestmark = [*ENGINE, pytest.mark.usefixtures("destinations")]

WORDING = Wording(codes={"refused": CodeWords(staff="Refused.", patient="The program is full.")})


def told() -> list[str]:
    topics = OutboxEvent.objects.filter(destination="crm").order_by("id").values_list("topic", flat=True)
    return [topic.removeprefix("workflow.") for topic in topics]


def ids() -> set[Any]:
    return set(OutboxEvent.objects.filter(destination="crm").values_list("event_id", flat=True))


def publishing(*steps: Any, publishes: Any = LIFECYCLE, **options: Any) -> None:
    define(list(steps), publishes=publishes, wording=WORDING, **options)


def ask(*, workflow: Workflow, context: Any) -> None:
    require_approval(workflow, "review", question="May it go on?", timeout=timedelta(hours=1))


def fine(**_: Any) -> None: ...


def refuse(**_: Any) -> None:
    raise StepError("Secret of Zoë.", code="refused")


@pytest.fixture
def got(client: Client) -> Callable[[Workflow], dict[str, Any]]:
    """What `GET /v1/submissions/KEY` says."""
    key = api_keys.create("shop")

    def get(row: Workflow) -> dict[str, Any]:
        path, bearer = f"/v1/submissions/{row.idempotency_key}", {"Authorization": f"Bearer {key}"}
        return dict(client.get(path, headers=bearer).json())

    return get


@pytest.mark.parametrize("step", [fine, refuse, ask])
def test_it_says_what_the_client_is_told(step: Any, got: Callable[[Workflow], dict[str, Any]]) -> None:
    publishing(step)
    row = work(submit(submitted_by="shop"))
    event = OutboxEvent.objects.get(destination="crm")
    expected = {fine: ["completed"], refuse: ["failed"], ask: ["waiting"]}[step]
    assert told() == expected
    body = whole.unseal(event, event.body)
    assert body == got(row)
    assert step is not refuse or body["message"] == "The program is full."
    assert step is not ask or body["waits_for"] == "person"


def test_it_tells_what_the_definition_names_and_a_topic_that_is_taken(destinations: Callable[..., None]) -> None:
    publishing(fine, publishes=["failed"])
    work(submit())
    assert told() == []
    publishing(fine, publishes="completed")
    destinations(lake={"kafka": "events", "topics": ["workflow.failed"]})
    work(submit())
    assert not OutboxEvent.objects.exists()
    with pytest.raises(ValueError, match="cannot publish ended"):
        WorkflowDefinition(name="test", steps=[], context_class=object, publishes=["ended"])  # type: ignore[arg-type]


@pytest.mark.parametrize("step", [fine, refuse, ask])
def test_a_definition_that_publishes_nothing_pays_nothing(step: Any, destinations: Callable[..., None]) -> None:
    """Not a statement more than where nobody is told anything."""
    counted = []
    for _ in range(3):
        publishing(step, publishes=())
        row = submit()
        with CaptureQueriesContext(connection) as queries:
            work(row)
        counted.append(len(queries))
        destinations() if len(counted) == 2 else None
    assert (counted[1], OutboxEvent.objects.exists()) == (counted[2], False)


def test_that_a_feature_asks_a_person_before_the_first_step_is_told() -> None:
    publishing(fine, publishes=["waiting"], business_key=["email"])
    for name in ("Ada", "Eve"):
        work(submit({"email": "a@example.com", "name": name}))
    assert told() == ["waiting"]


def test_failed_is_told_when_nothing_is_left_to_undo(world: World) -> None:
    publishing(world.step("charge"), refuse)
    row = work(submit())
    assert (row.status, row.compensating, told()) == ("PENDING", True, [])
    assert again(row).status == "FAILED"
    assert told() == ["failed"]


def test_each_end_is_an_event_of_its_own(ada: User) -> None:
    errors = [StepError("no"), StepError("no")]

    def flaky(**_: Any) -> None:
        if errors:
            raise errors.pop()

    publishing(flaky)
    row = work(submit())
    for _ in range(2):
        operations.retry(row.pk, user=ada)
        work(row)
    assert (told(), len(ids())) == (["failed", "failed", "completed"], 3)


def test_a_completion_that_a_failover_lost_is_the_same_event_again() -> None:
    publishing(fine)
    row = work(submit())
    first = ids()
    OutboxEvent.objects.all().delete()
    Workflow.objects.filter(pk=row.pk).update(status="PENDING", completed_at=None, queue="default")
    assert again(row).status == "COMPLETE"
    assert (told(), ids()) == (["completed"], first)


def test_what_a_person_cancels_is_told_at_once_or_when_it_is_undone(ada: User, world: World) -> None:
    publishing(fine)
    row = submit()
    operations.cancel(row.pk, user=ada, reason="They asked.")
    event = OutboxEvent.objects.get(destination="crm")
    assert (told(), whole.unseal(event, event.body)["state"]) == (["failed"], "cancelled")
    publishing(world.step("charge"), ask)
    row = work(submit())
    operations.cancel(row.pk, user=ada, reason="They asked.")
    assert told() == ["failed", "waiting"]
    make_due(row)
    work(row)
    assert told() == ["failed", "waiting", "failed"]


def test_a_question_is_told_once_however_often_the_workflow_meets_it() -> None:
    failures = [RetryableStepError("later")]

    def flaky(**_: Any) -> None:
        if len(OutboxEvent.objects.all()) and failures:
            raise failures.pop()

    publishing(flaky, ask, retry=Retry(base_delay=0))
    row = work(submit())
    again(row)  # it fails before the question
    assert again(row).waiting_for
    assert (failures, told()) == ([], ["waiting"])


def test_what_is_asked_of_staff_while_calls_are_undone_is_not_told(world: World) -> None:
    world.errors["undo charge"] = [StepError("no")] * 9
    publishing(world.step("charge", undo_lookup=None), refuse)
    row = work(submit())
    for _ in range(5):
        again(row)
    assert ManualTask.objects.filter(task_type="undo_in_doubt").exists()
    assert told() == []


def test_what_expires_has_failed() -> None:
    publishing(fine, expires_after=timedelta(hours=1))
    row = submit(expires_at="2020-01-01T00:00Z")
    assert work(row).last_error_code == "expired"
    assert told() == ["failed"]


def test_a_check_warns_of_what_is_told_to_nobody(destinations: Callable[..., None]) -> None:
    publishing(fine)
    assert list(check_outbox()) == []
    destinations(lake={"kafka": "events", "topics": ["workflow.completed"]})
    (found,) = check_outbox()
    assert (found.id, "workflow.failed, workflow.waiting" in found.msg) == ("workflows.W025", True)
    destinations()
    assert list(check_outbox()) == []
