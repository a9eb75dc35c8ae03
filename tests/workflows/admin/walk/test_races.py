"""Two at once, in both orders, by real requests on two connections: one winner, and a sentence for the other."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from html import unescape
from time import sleep
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections
from django.test import Client

from tests import engine
from tests.engine import define, submit, work, worker
from tests.workflows import rows
from tests.workflows.admin.walk.forms import untouched
from workflows import operations
from workflows.errors import StepError
from workflows.models import ApiKey, Event, ManualTask, Workflow

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "attempt_log"])

BUSY = "Somebody is changing it at this moment: look at it again."
RUNNING = "It is running right now; try again in a moment."


@dataclass(frozen=True, slots=True)
class Action:
    """What a person does on a page: the page, the form's own address, the button, and what they type or choose."""

    page: str
    form: str
    button: str = ""
    typed: dict[str, str] = field(default_factory=dict)


TASK, WORKFLOW, KEY = "manualtask", "workflow", "apikey"
ACTIONS = {
    "approve": Action(f"{TASK}/change", "decide", "Approve"),
    "reject": Action(f"{TASK}/change", "decide", "Reject", {"reason": "No."}),
    "claim": Action(f"{TASK}/change", "claim"),
    "assign": Action(f"{TASK}/assign", "assign"),
    "take back": Action(f"{TASK}/take_back", "take_back", typed={"reason": "Another patient's."}),
    "cancel": Action(f"{WORKFLOW}/cancel", "cancel", typed={"reason": "By phone."}),
    "retry": Action(f"{WORKFLOW}/retry", "retry", typed={"why": "The cause is mended."}),
    "run now": Action(f"{WORKFLOW}/run_now", "run_now"),
    "run again": Action(f"{WORKFLOW}/follow_up", "follow_up"),
    "revoke": Action(f"{KEY}/revoke", "revoke", typed={"reason": "Leaked."}),
}


def question() -> ManualTask:
    return rows.open_task(rows.waiting(task=False))


def answered() -> ManualTask:
    row = rows.open_task(rows.waiting(task=False), task_type="effect_in_doubt", about="reserve")
    operations.approve(row.pk, user=User.objects.get(username="carla"), answer={})
    return ManualTask.objects.get(pk=row.pk)


def key() -> ApiKey:
    return ApiKey.objects.create(name="web", prefix="onr_ab", digest=b"1")


Row = Workflow | ManualTask | ApiKey
APPROVED, CLAIMED, ASSIGNED = "anna approved it already, at ", "anna has claimed it, at ", "It is assigned to carla."
CANCELLED = "Only a workflow that is still under way can be cancelled; this one is cancelled."
SINCE_YOU_LOOKED = "anna has approved “May this parcel go out?” since you looked."

# What anna does, and what ben does to the same row, whose page he has opened before; and what he is told. What he is
# told after her change the tests of the operations say.
PAIRS: list[tuple[Callable[[], Row], str, str, str]] = [
    (question, "approve", "approve", APPROVED),
    (question, "approve", "reject", APPROVED),
    (question, "reject", "approve", "anna rejected it already, at "),
    (question, "claim", "claim", CLAIMED),
    (question, "claim", "approve", CLAIMED),
    (question, "approve", "claim", APPROVED),
    (question, "assign", "approve", ASSIGNED),
    (question, "approve", "assign", BUSY),
    (question, "assign", "claim", ASSIGNED),
    (question, "claim", "assign", BUSY),
    (question, "assign", "assign", BUSY),
    (question, "cancel", "approve", "Its workflow has finished; it is failed."),
    (question, "approve", "cancel", SINCE_YOU_LOOKED),
    (question, "cancel", "cancel", CANCELLED),
    (answered, "take back", "take back", RUNNING),
    (rows.failed, "retry", "retry", RUNNING),
    (rows.retrying, "run now", "run now", RUNNING),
    (rows.retrying, "cancel", "run now", RUNNING),
    (rows.given_up, "run again", "run again", RUNNING),
    (key, "revoke", "revoke", "It is revoked already."),
]


class Person:
    """A superuser at a browser."""

    def __init__(self, name: str, colleague: str) -> None:
        self.client = Client()
        self.client.force_login(User.objects.create_superuser(name))
        self.colleague = User.objects.create_superuser(colleague)

    def opens(self, row: Row, action: Action) -> Callable[[], list[str]]:
        """Open the page. What comes back sends its form, and returns what the next page refuses, in words."""
        model, page = action.page.split("/")
        pk = row.workflow_id if model == WORKFLOW and isinstance(row, ManualTask) else row.pk
        where = f"/admin/workflows/{model}/{pk}/{page}/"
        html = self.client.get(where).content.decode()
        (form, *_) = (
            sent
            for sent in untouched(where, html)
            if sent.url.partition("?")[0].endswith(f"/{action.form}/") and sent.label.startswith(action.button)
        )
        chosen = {"to": str(self.colleague.pk)} if action.form == "assign" else {}
        return lambda: self._send(form.url, {**dict(form.fields), **action.typed, **chosen})

    def _send(self, url: str, data: dict[str, str]) -> list[str]:
        html = self.client.post(url, data, follow=True).content.decode()
        said = [unescape(each) for each in re.findall(r'<li class="error">(.*?)</li>', html)]
        return [each[:1].lower() + each[1:] for each in said]  # the page starts with a capital, whatever the name is


@pytest.fixture
def people(transactional_db: None) -> tuple[Person, Person]:
    return Person("anna", "carla"), Person("ben", "dora")


class Pausing:
    """A request in a thread of its own that stops once it has written its line of the history, before it commits."""

    def __init__(self, send: Callable[[], Any]) -> None:
        self.has_written, self.go_on, self.said = threading.Event(), threading.Event(), ["it has not answered"]
        self.thread = threading.Thread(target=self._run, args=[send])
        self.thread.start()
        assert self.has_written.wait(timeout=10)

    def _run(self, send: Callable[[], Any]) -> None:
        try:
            with connection.execute_wrapper(self._stop):
                self.said = send()
        finally:
            self.has_written.set()
            connections.close_all()

    def _stop(self, execute: Any, sql: str, *rest: Any) -> Any:
        result = execute(sql, *rest)
        if re.match(r'\s*INSERT INTO "?(workflows_event|django_admin_log)\b', sql) and not self.has_written.is_set():
            self.has_written.set()
            assert self.go_on.wait(timeout=10)
        return result

    def ends(self) -> list[str]:
        self.go_on.set()
        self.thread.join(timeout=10)
        return self.said


def meanwhile(first: Pausing, send: Callable[[], list[str]]) -> list[str]:
    """Send another request now, and let the first go on when that one waits for it, or has been answered."""
    said: list[list[str]] = []
    thread = threading.Thread(target=engine.with_its_connections, args=[lambda: said.append(send())])
    thread.start()
    with engine.another_connection() as other:
        while thread.is_alive() and not other.execute(engine.BLOCKED).fetchone():
            sleep(0.01)
    assert first.ends() == []
    thread.join(timeout=10)
    return said[0]


def history(row: Row) -> list[tuple[str, str]]:
    if isinstance(row, ApiKey):
        return []
    pk = row.workflow_id if isinstance(row, ManualTask) else row.pk
    return list(Event.objects.filter(workflow=pk).values_list("actor", "kind").order_by("id"))


@pytest.mark.parametrize(("make", "first", "second", "told"), PAIRS)
def test_of_two_at_once_the_first_wins_and_the_other_is_told(
    people: tuple[Person, Person], make: Callable[[], Row], first: str, second: str, told: str
) -> None:
    row, (anna, ben) = make(), people
    by_anna, by_ben = anna.opens(row, ACTIONS[first]), ben.opens(row, ACTIONS[second])
    (said,) = meanwhile(Pausing(by_anna), by_ben)
    assert said.startswith(told[:1].lower() + told[1:])
    assert "ben" not in [actor for actor, _ in history(row)]


# --- A retry and the worker ---------------------------------------------------------------------


class Gate:
    """A step that fails, and the second time it waits to be let go on."""

    def __init__(self) -> None:
        self.runs, self.reached, self.go_on = 0, threading.Event(), threading.Event()

    def fail(self, *, workflow: Workflow, context: Any) -> None:
        self.runs += 1
        if self.runs == 2:
            self.reached.set()
            assert self.go_on.wait(timeout=10)
        raise StepError("No.", code="no")


@pytest.fixture
def gate(settings: Any) -> Gate:
    settings.WORKFLOWS = ["tests.engine.DEFINITION"]
    gate = Gate()
    define([gate.fail])
    return gate


def test_a_retry_while_the_worker_runs_it_does_nothing_and_says_so(people: tuple[Person, Person], gate: Gate) -> None:
    row, (anna, ben) = work(submit()), people
    assert row.status == "FAILED"
    by_anna, by_ben = anna.opens(row, ACTIONS["retry"]), ben.opens(row, ACTIONS["retry"])
    assert by_anna() == []
    draining = engine.draining()
    assert gate.reached.wait(timeout=10)
    assert by_ben() == [RUNNING[:1].lower() + RUNNING[1:]]
    gate.go_on.set()
    draining.join(timeout=10)
    assert [kind for _, kind in history(row)] == ["failed", "retried", "failed"]
    assert gate.runs == 2


def test_a_retry_from_the_page_of_an_earlier_failure_does_nothing_and_says_so(
    people: tuple[Person, Person], gate: Gate
) -> None:
    """It would make the calls that were reversed meanwhile once more: a charge, for one."""
    row, (anna, ben) = work(submit()), people
    by_anna, by_ben = anna.opens(row, ACTIONS["retry"]), ben.opens(row, ACTIONS["retry"])
    gate.go_on.set()
    assert by_anna() == []
    assert work(row).status == "FAILED"
    assert by_ben() == ["it has ended again since you looked at it."]
    assert [kind for _, kind in history(row)] == ["failed", "retried", "failed"]


def test_a_worker_takes_up_what_is_being_retried_once_that_is_committed(
    people: tuple[Person, Person], gate: Gate
) -> None:
    row, (anna, _) = work(submit()), people
    gate.go_on.set()
    retry = Pausing(anna.opens(row, ACTIONS["retry"]))
    assert not worker().process_next(), "the row is held, and has failed as far as anybody can see"
    assert retry.ends() == []
    assert worker().process_next()
    assert [kind for _, kind in history(row)] == ["failed", "retried", "failed"]
