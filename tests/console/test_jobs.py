"""What support does all day, from Home, with a budget of clicks. Typing, and Enter, are free."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from onboarding.samples import Kind, sample
from tests.console.conftest import Open
from tests.engine import work
from tests.servers import Gunicorn
from tests.workflows import rows
from workflows.definition import definitions
from workflows.models import Event, ManualTask, Workflow
from workflows.postgres.jsonb import document_of
from workflows.submissions import enter

WORKFLOWS = ["onboarding.workflow.ONBOARDING", "tests.workflows.rows.PARCEL"]
EMAIL = "ada.lovelace@example.com"


@pytest.fixture(autouse=True)
def both_definitions(settings: Any) -> Iterator[None]:
    settings.WORKFLOWS = WORKFLOWS
    definitions.cache_clear()
    yield
    definitions.cache_clear()


@pytest.fixture
def server_environment() -> dict[str, str]:
    return {"WORKFLOWS": ",".join(WORKFLOWS)}


class Person:
    """Somebody at the console, whose clicks are counted."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.clicks = 0

    def click(self, text: str, role: str = "link") -> None:
        self.clicks += 1
        self.page.locator("#content").get_by_role(role, name=text).first.click()
        self.page.wait_for_load_state()

    def find(self, text: str) -> None:
        """By the keyboard alone."""
        self.page.keyboard.press("/")
        self.page.keyboard.type(text)
        with self.page.expect_navigation():
            self.page.keyboard.press("Enter")

    def reads(self, text: str) -> bool:
        return text in self.page.inner_text("#content")


def submitted(**fields: Any) -> Workflow:
    """A submission as it enters, with its search keys, and then as it stands."""
    payload = sample(Kind.PROGRAM_FULL).payload
    payload["patient"]["email"] = EMAIL
    payload["checkout"] |= {"amount_cents": 14500, "currency": "usd"}
    document = document_of(payload)
    pk = enter(definitions()["onboarding"], idempotency_key=uuid4(), payload=document, submitted_by="web").id
    Workflow.objects.filter(pk=pk).update(**fields)
    return Workflow.objects.get(pk=pk)


def paid(row: Workflow, state: str = "done") -> None:
    row.effects.create(
        step="execute_checkout",
        state=state,
        result={"charge_id": "ch_1a2b", "payment_status": "paid"},
        attempt=1,
        idempotency_key=f"{row.key}:execute_checkout",
        settled_at=timezone.now(),
    )


def test_find_a_patient_by_e_mail_and_say_why_it_stopped_and_what_to_tell_them(open_as: Open) -> None:
    row = submitted(
        status="FAILED", completed_at=timezone.now(), current_step="enroll_in_program", last_error_code="program_full"
    )
    paid(row, "undone")
    person = Person(open_as("support"))
    person.find(EMAIL.upper())
    assert person.page.url.endswith(f"/workflow/{row.pk}/change/")
    assert person.reads("Failed at “Enrol in the program”: The program is full.")
    assert person.reads("The program is full, so we could not enrol you. What you paid was given back.")
    assert person.clicks <= 2
    assert EMAIL not in person.page.content()


def test_retry_one_and_see_it_end_without_reloading(open_as: Open) -> None:
    row = rows.failed()
    person = Person(open_as("support"))
    person.find(f"#{row.pk}")
    person.click("Retry")
    assert person.reads("starts again from the first step")
    person.click("The cause is mended.", role="radio")
    with person.page.expect_navigation():
        person.page.keyboard.press("Enter")
    person.page.evaluate("window.mark = 'the same page'")
    assert work(row).status == "COMPLETE"
    person.page.wait_for_selector("#live[data-at-rest=yes]", timeout=15_000)
    assert person.reads("Complete since")
    assert person.page.evaluate("window.mark") == "the same page"
    assert person.clicks <= 3


def test_cancel_one_and_read_beforehand_what_is_refunded(open_as: Open) -> None:
    row = submitted(
        invisible_until=timezone.now() + timedelta(minutes=9), retry_count=1, current_step="enroll_in_program"
    )
    paid(row)
    person = Person(open_as("support"))
    person.find(str(row.pk))
    person.click("Cancel")
    assert person.reads("$145.00 is given back.")
    person.page.get_by_label("Reason").fill("Asked for by phone.")
    person.click("Cancel workflow", role="button")
    assert person.reads("It was cancelled. What it did is being reversed.")
    assert Event.objects.get(workflow=row, kind="cancelled").detail["reason"] == "Asked for by phone."
    assert person.clicks <= 3


def test_approve_three_reviews(open_as: Open) -> None:
    tasks = [rows.open_task(rows.waiting(task=False)) for _ in range(3)]
    person = Person(open_as("approver"))
    person.click(f"task {tasks[0].pk}")
    person.click("Approve and next (2 left)", role="button")
    person.click("Approve and next (1 left)", role="button")
    person.click("Approve", role="button")
    assert set(ManualTask.objects.values_list("state", flat=True)) == {"approved"}
    assert person.clicks <= 5


def test_hand_a_task_to_a_colleague(open_as: Open) -> None:
    task = rows.open_task(rows.waiting(task=False))
    User.objects.create_superuser("carla")
    person = Person(open_as("approver"))
    person.click(f"task {task.pk}")
    person.click("Assign to a colleague")
    person.page.get_by_label("Colleague").select_option(label="carla")
    person.page.get_by_label("Note").fill("You know her.")
    person.click("Assign it to a colleague", role="button")
    assert person.reads("Assigned to\ncarla")
    assert Event.objects.get(kind="task_assigned").detail["to"] == "carla"
    assert person.clicks <= 3


def test_see_what_needs_a_person_and_acknowledge_a_failure(open_as: Open) -> None:
    rows.open_task(rows.waiting(task=False), due_at=timezone.now() - timedelta(hours=1))
    row = rows.failed(completed_at=timezone.now() - timedelta(hours=2))
    person = Person(open_as("support"))
    person.click("What needs a person")
    assert person.page.locator(".needs tbody th a").all_inner_texts() == ["Parcel review", "Failed at “Charge”"]
    assert person.page.locator(".bar [aria-current=page]").all_inner_texts() == ["Needs a person"]
    person.click("Failed at")
    person.click("Acknowledge")
    assert person.reads("Nothing is called, and nothing is refunded or reversed.")
    person.page.get_by_label("Note").fill("She was told, and sends it again.")
    person.click("Acknowledge workflow", role="button")
    assert person.reads("Acknowledged by some-support at")
    assert person.clicks <= 4
    assert Event.objects.get(workflow=row, kind="acknowledged").detail["reason"] == "She was told, and sends it again."
    person.page.goto("/admin/needs-a-person/")
    assert person.page.locator(".needs tbody th a").all_inner_texts() == ["Parcel review"]


def test_each_of_these_is_done_by_the_keyboard_alone(open_as: Open) -> None:
    row = rows.failed()
    page = open_as("support")
    person = Person(page)
    person.find(str(row.pk))
    tab_to(page, "Retry")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    tab_to(page, "", tag="INPUT", kind="radio")
    page.keyboard.press("Space")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert person.clicks == 0
    assert Event.objects.get(kind="retried").detail["reason"] == "The cause is mended."


def tab_to(page: Any, text: str, *, tag: str = "A", kind: str = "") -> None:
    """Press Tab until that has the focus, as somebody without a mouse does."""
    for _ in range(80):
        page.keyboard.press("Tab")
        found = page.evaluate(
            "() => { const e = document.activeElement; return [e.tagName, e.textContent.trim(), e.type || '']; }"
        )
        if found[0] == tag and (not text or found[1] == text) and (not kind or found[2] == kind):
            return
    raise AssertionError(f"{text or kind} is reached by no Tab")


def test_the_focus_is_on_the_field_at_fault(open_as: Open, server: Gunicorn) -> None:
    row = rows.failed()
    page = open_as("support", f"/admin/workflows/workflow/{row.pk}/retry/")
    page.check("[name=why][value=other]")
    page.click("#content button[type=submit]")
    page.wait_for_selector(".errorlist")
    assert page.evaluate("document.activeElement.name") == "reason"
