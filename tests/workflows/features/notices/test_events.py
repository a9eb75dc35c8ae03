"""What waits for people becomes events for others: once, together, and without a word about a patient."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.checks import INFO, WARNING
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone
from pytest_django import Settings

from tests.engine import do_chore
from tests.workflows import rows
from workflows.features.cases import operations as cases
from workflows.features.notices import hooks, waiting
from workflows.features.notices.checks import check_notices
from workflows.models import (
    CaseNote,
    Confirmation,
    Correction,
    Deputy,
    ManualTask,
    Notice,
    OutboxEvent,
    Pause,
    Workflow,
)
from workflows.sealing import whole

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def destination(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "AT_A_TIME", 60.0)  # one slice, also on a slow machine
    crm = {"url": "http://127.0.0.1:9/hooks", "secrets": [SECRET], "topics": ["*"]}
    settings.OUTBOX_DESTINATIONS = json.dumps({"crm": crm})


def told() -> list[tuple[str, dict[str, Any]]]:
    """What is told now, and was not before."""
    before = set(OutboxEvent.objects.values_list("pk", flat=True))
    do_chore("tell of what waits")
    new = OutboxEvent.objects.exclude(pk__in=before).order_by("pk")
    return [(event.topic, whole.unseal(event, event.body)) for event in new]


def topics() -> list[str]:
    return sorted(topic for topic, _ in told())


def task(**fields: Any) -> ManualTask:
    return rows.open_task(rows.waiting(task=False), **fields)


def minutes_pass(minutes: int) -> None:
    Notice.objects.update(told_at=F("told_at") - timedelta(minutes=minutes))


def test_a_task_is_told_once_and_without_what_it_asks() -> None:
    row = task(team="clinic")
    [(topic, body)] = told()
    assert topic == "task.opened"
    assert body.pop("age_seconds") < 60
    assert body == {
        "code": "parcel review", "team": "clinic", "number": 1, "urgent": False,
        "subjects": [row.pk], "workflows": [row.workflow_id],
    }  # fmt: skip
    minutes_pass(60)
    assert told() == []


def test_thousands_are_few_messages() -> None:
    for _ in range(30):
        task()
    task(team="clinic")
    first = told()
    assert [body["number"] for _, body in first] == [30, 1]
    assert len(first[0][1]["subjects"]) == 20
    for _ in range(3):
        task()
        assert told() == []
    minutes_pass(9)
    assert told() == []
    minutes_pass(2)
    assert [body["number"] for _, body in told()] == [3]


def test_money_waits_a_minute_at_most() -> None:
    for minutes in (0, 1):
        minutes_pass(minutes)
        rows.unclear_charge()
        [(_, body)] = told()
        assert body["urgent"]


def test_a_slice_ends_in_time_and_money_is_in_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "AT_A_TIME", 0)
    for team in ("clinic", "desk"):
        task(team=team)
    rows.unclear_charge()
    for urgent in (True, False, False):
        [(_, body)] = told()
        assert body["urgent"] == urgent
    assert told() == []


def handed_over(user: Any, number: int = 1) -> list[CaseNote]:
    asked = {"lead_asked_at": timezone.now(), "team": "desk", "actor": user.username, "text": "Her mother paid, too."}
    return [CaseNote.objects.create(form_key=uuid4(), workflow=rows.failed(), **asked) for _ in range(number)]


WAITS: dict[str, Callable[[Any], Any]] = {
    "task.assigned": lambda user: task(assignee=user),
    "task.due_soon": lambda user: task(created_at=timezone.now() - 2 * HOUR, due_at=timezone.now() + HOUR / 2),
    "task.overdue": lambda user: task(due_at=timezone.now() - HOUR),
    "lead.asked": lambda user: task(lead_asked_at=timezone.now()),
    "reversal.failed": lambda user: rows.open_task(rows.compensating(), task_type="undo_in_doubt", expires_at=later()),
    "second_person.wanted": lambda user: rows.to_confirm(user, rows.refunded()),
    "lead.asked ": lambda user: cases.ask_lead(rows.failed().pk, user=user, reason="Her mother has paid, too."),
    "team.asked": handed_over,
    "pause.overdue": lambda user: rows.paused(user, until=-HOUR),
    "second_person.wanted ": lambda user: rows.asked_to_correct(),
    "second_person.wanted  ": lambda user: rows.bulk_operation(user, rows.failed(), state="asked"),
}


def later() -> Any:
    return timezone.now() + 50 * HOUR


@pytest.mark.parametrize("topic", WAITS)
def test_each_thing_that_waits_for_people_has_a_topic(topic: str, admin_user: Any) -> None:
    WAITS[topic](admin_user)
    found = [(each, body["urgent"]) for each, body in told() if each != "task.opened"]
    assert found == [(topic.strip(), topic.strip() in ("reversal.failed", "second_person.wanted"))]


def test_what_was_approved_or_seen_to_before_it_is_told_wants_nobody(admin_user: Any) -> None:
    rows.to_confirm(admin_user, rows.refunded())
    answered = rows.unclear_charge()
    rows.to_confirm(admin_user, answered.workflow, answered)
    rows.asked_to_correct()
    Confirmation.objects.filter(task=None).update(state="withdrawn")
    Correction.objects.update(state="withdrawn", decided_by=admin_user, proposed=None)
    ManualTask.objects.filter(pk=answered.pk).update(state="closed")
    cases.ask_lead(rows.failed().pk, user=admin_user, reason="Her mother has paid, too.")
    CaseNote.objects.update(lead_asked_at=None)
    assert topics() == []


def test_a_handed_case_and_an_overdue_pause_are_told_by_team_together_and_no_more_once_seen_to(admin_user: Any) -> None:
    handed_over(admin_user, 30)
    for _ in range(30):
        rows.paused(admin_user, until=-HOUR)
    rows.paused(admin_user, until=HOUR)
    found = {topic: (body["code"], body["team"], body["number"]) for topic, body in told() if topic != "task.opened"}
    assert found == {"team.asked": ("whole_workflow", "desk", 30), "pause.overdue": ("whole_workflow", "", 30)}
    minutes_pass(60)
    assert topics() == []
    prolonged = Pause.objects.order_by("pk")[:2].values("pk")
    Pause.objects.filter(pk__in=prolonged).update(until=timezone.now() - HOUR / 2)
    seen_to, _ = handed_over(admin_user, 2)
    CaseNote.objects.filter(pk=seen_to.pk).update(lead_asked_at=None)
    assert {topic: body["number"] for topic, body in told()} == {"team.asked": 1, "pause.overdue": 2}


def test_a_bulk_operation_and_an_erasure_are_told_as_what_is_of_no_workflow(admin_user: Any) -> None:
    bulk, erasure = rows.bulk_operation(admin_user, state="asked"), rows.erasure(admin_user)
    found = {body["code"]: (body["subjects"], body["workflows"], body["urgent"]) for _, body in told()}
    assert found == {"bulk_operation": ([bulk.pk], [], True), "erasure": ([erasure.pk], [], False)}
    Notice.objects.update(noticed_at=F("noticed_at") - 25 * HOUR)
    type(bulk).objects.update(state="running")
    minutes_pass(60)
    assert topics() == []
    assert Notice.objects.get().code == "erasure", "what is decided is noticed no more"


def test_a_task_that_opens_when_it_is_nearly_due_is_told_once(admin_user: Any) -> None:
    task(due_at=timezone.now() + HOUR / 2)
    assert topics() == ["task.opened"]


def test_a_task_that_somebody_took_themselves_or_that_is_due_in_days_is_not_told_again(admin_user: Any) -> None:
    task(assignee=admin_user, claimed_at=timezone.now(), due_at=later())
    assert topics() == ["task.opened"]


def test_what_changes_is_told_again(admin_user: Any, django_user_model: Any) -> None:
    row = task(assignee=admin_user)
    assert topics() == ["task.assigned", "task.opened"]
    other = django_user_model.objects.create(username="bob")
    ManualTask.objects.filter(pk=row.pk).update(assignee=other, lead_asked_at=timezone.now())
    assert topics() == ["lead.asked", "task.assigned"]
    ManualTask.objects.filter(pk=row.pk).update(lead_asked_at=timezone.now())
    minutes_pass(11)
    assert topics() == ["lead.asked"]


@pytest.mark.parametrize("between", [{"assignee": None}, {"claimed_at": timezone.now()}])
def test_what_is_assigned_again_after_it_was_given_back_or_taken_is_told_again(
    admin_user: Any, between: dict[str, Any]
) -> None:
    row = task(assignee=admin_user)
    assert topics() == ["task.assigned", "task.opened"]
    assert topics() == []
    ManualTask.objects.filter(pk=row.pk).update(**between)
    assert topics() == []
    ManualTask.objects.filter(pk=row.pk).update(assignee=admin_user, claimed_at=None)
    assert topics() == ["task.assigned"]


def test_a_deputy_is_told_of_what_the_other_has_and_the_other_of_what_is_left(admin_user: Any) -> None:
    ada, bob = (type(admin_user).objects.create(username=name, is_staff=True) for name in ("ada", "bob"))
    assigned, claimed = task(assignee=ada), task(assignee=ada, claimed_at=timezone.now())
    assert topics() == ["task.assigned", "task.opened"]
    hours = {"begins_at": timezone.now() - HOUR, "ends_at": timezone.now() + HOUR}
    stood_in = Deputy.objects.create(absent=ada, deputy=bob, set_by="ada", **hours)
    [(topic, body)] = told()
    assert (topic, body["subjects"]) == ("task.assigned", [assigned.pk, claimed.pk])
    assert set(Notice.objects.filter(topic=topic).values_list("whom", flat=True)) == {bob.pk}
    minutes_pass(60)
    assert told() == []
    for _ in range(2):
        Deputy.objects.filter(pk=stood_in.pk).update(ends_at=Now())
        [(topic, body)] = told()
        assert (topic, body["subjects"]) == ("task.assigned", [assigned.pk]), "what they took is theirs as it was"
        stood_in = Deputy.objects.create(absent=ada, deputy=bob, set_by="ada", **hours)
        minutes_pass(60)
        [(topic, body)] = told()
        assert (topic, body["subjects"]) == ("task.assigned", [assigned.pk, claimed.pk])
        minutes_pass(60)


def test_an_assignee_is_told_of_no_task_that_is_another_s_by_then(
    admin_user: Any, django_user_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = django_user_model.objects.create(username="bob")
    task(assignee=admin_user)
    told()
    row = task(assignee=admin_user)
    told()
    minutes_pass(11)
    ManualTask.objects.filter(pk=row.pk).update(assignee=other)
    monkeypatch.setattr(waiting, "AT_A_TIME", 0)  # as if it were reassigned within the slice
    assert "task.assigned" not in topics()


def test_a_clock_that_was_set_back_silences_nobody() -> None:
    task()
    assert topics() == ["task.opened"]
    minutes_pass(-60)
    task()
    assert topics() == ["task.opened"]


def test_a_task_that_is_decided_before_workers_look_is_not_told() -> None:
    ManualTask.objects.filter(pk=task().pk).update(state="closed")
    assert topics() == []


def test_what_changes_while_it_waits_to_be_told_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    task(lead_asked_at=timezone.now())
    told()
    row = task(lead_asked_at=timezone.now())
    assert topics() == []  # noticed, and not told before the window is over
    ManualTask.objects.filter(pk=row.pk).update(lead_asked_at=timezone.now())
    minutes_pass(11)
    with monkeypatch.context() as full:
        full.setattr(waiting, "AT_A_TIME", 0)  # a slice has no room for the change
        assert "lead.asked" not in topics()
    assert "lead.asked" in topics()
    minutes_pass(11)
    assert "lead.asked" not in topics()


@pytest.mark.parametrize("over", [{"state": "closed"}, {"workflow": None}])
def test_what_is_over_before_it_is_told_is_not_told(over: dict[str, Any]) -> None:
    task()
    assert topics() == ["task.opened"]
    row = task()
    assert topics() == []  # it waits for the window
    if over == {"workflow": None}:
        Workflow.objects.filter(pk=row.workflow_id).update(status="FAILED", completed_at=timezone.now())
    else:
        ManualTask.objects.filter(pk=row.pk).update(**over)
    minutes_pass(11)
    assert topics() == []
    assert Notice.objects.filter(subject=row.pk).count() == 0


def test_what_a_process_cannot_deliver_another_one_does(settings: Settings) -> None:
    crm, desk = json.loads(settings.OUTBOX_DESTINATIONS)["crm"], {"email": "onramp@example.com", "topics": ["*"]}
    of_others = {"crm": {**crm, "topics": ["lead.*"]}, "desk": {**desk, "topics": ["second_person.*"]}}
    task()
    for named, topic in ((of_others, []), ({"crm": crm}, ["task.opened"]), ({"desk": desk}, ["task.opened"])):
        settings.OUTBOX_DESTINATIONS = json.dumps(named)
        assert topics() == topic
    task()
    settings.OUTBOX_DESTINATIONS = json.dumps(of_others)
    for _ in range(2):
        assert topics() == []
        Notice.objects.update(noticed_at=F("noticed_at") - 8 * 24 * HOUR)
    settings.OUTBOX_DESTINATIONS = json.dumps({"crm": crm, "desk": desk})
    minutes_pass(60)
    assert topics() == [], "what nobody could tell for a week is old news"


def test_nothing_is_stored_when_nobody_is_to_be_told_and_the_check_says_so(settings: Settings) -> None:
    assert list(check_notices()) == []
    task()
    crm = {"url": "http://127.0.0.1:9/hooks", "secrets": [SECRET], "topics": ["order.*"]}
    settings.OUTBOX_DESTINATIONS = json.dumps({"crm": crm})
    assert told() == []
    assert not Notice.objects.exists()
    for topic, level in (("order.*", INFO), ("task.*", WARNING)):
        settings.OUTBOX_DESTINATIONS = json.dumps({"crm": {**crm, "topics": [topic]}})
        [said] = check_notices()
        assert (said.id, said.level) == ("workflows.W047", level)
        assert "lead.asked" in str(said.msg)
