"""What people do all day, from Home, with a budget: of clicks with a mouse, of key presses without one.

The clicks are those that were promised. What a keyboard needs is what it needed when this was written, and a little
more: a page that grows a dozen links before the button that matters fails here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from tests.console.conftest import Open, playwright
from tests.console.people import Person, WithKeyboard, WithMouse
from tests.console.scenes import (
    EMAIL,
    PHONE,
    charged,
    failed_reversal,
    stopped,
    submitted,
    unclear_call,
)
from tests.engine import do_maintenance, with_its_connections, work
from tests.processes import meanwhile
from tests.workflows import rows
from workflows.models import Access, Effect, Event, ManualTask, Signal, Workflow

# Somebody of that group, at Home.
SitDown = Callable[[str], Person]


@pytest.fixture(params=[WithMouse, WithKeyboard], ids=["mouse", "keyboard"])
def sit_down(request: Any, open_as: Open) -> Iterator[SitDown]:
    return lambda group: request.param(open_as(group))  # type: ignore[no-any-return]


def test_say_whether_all_is_well_and_why_not(sit_down: SitDown) -> None:
    rows.worker()
    rows.workflow(invisible_until=timezone.now() - timedelta(minutes=20))
    rows.open_task(rows.waiting(task=False), due_at=timezone.now() - timedelta(hours=1))
    person = sit_down("support")
    assert person.reads("In trouble: the oldest waits 20 min; 1 task is overdue.")
    assert person.has_used(clicks=0, keys=0) >= 0


def test_find_a_patient_by_e_mail_and_say_why_it_stopped_and_what_to_tell_them(sit_down: SitDown) -> None:
    row = stopped()
    person = sit_down("support")
    person.find(EMAIL.upper())
    assert person.page.url.endswith(f"/workflow/{row.pk}/change/")
    assert person.reads("Failed at “Enrol in the program”: The program is full.")
    assert person.reads("The program is full, so we could not enrol you. Your payment was refunded.")
    assert EMAIL not in person.page.content()
    assert person.has_used(clicks=2, keys=1) >= 0


def test_retry_one_and_see_it_end_without_reloading(sit_down: SitDown) -> None:
    row = rows.failed()
    person = sit_down("support")
    person.find(f"#{row.pk}")
    person.follow("Retry")
    assert person.reads("starts again from the first step")
    person.choose("The cause is mended.")
    person.press(f"Retry workflow {row.pk}")
    person.page.evaluate("window.mark = 'the same page'")
    assert work(row).status == "COMPLETE"
    person.page.wait_for_selector("#live[data-at-rest=yes]", timeout=60_000)
    assert person.reads("Complete since")
    assert person.page.evaluate("window.mark") == "the same page"
    assert Event.objects.get(kind="retried").detail["reason"] == "The cause is mended."
    assert person.has_used(clicks=3, keys=20) >= 0


def test_cancel_one_and_read_beforehand_what_is_refunded(sit_down: SitDown) -> None:
    row = charged()
    person = sit_down("support lead")
    person.find(str(row.pk))
    person.follow("Cancel")
    assert person.reads("$145.00 is given back.")
    person.write("Reason", "Asked for by phone.")
    person.press(f"Cancel workflow {row.pk}")
    assert person.reads("It was cancelled. What it did is being reversed where it can be.")
    assert Event.objects.get(workflow=row, kind="cancelled").detail["reason"] == "Asked for by phone."
    assert person.has_used(clicks=3, keys=20) >= 0


def test_approve_three_reviews(sit_down: SitDown) -> None:
    tasks = [rows.open_task(rows.waiting(task=False)) for _ in range(3)]
    person = sit_down("approver")
    person.follow(f"task {tasks[0].pk}")
    person.press("Approve and next (2 left)")
    person.press("Approve and next (1 left)")
    person.press("Approve")
    assert set(ManualTask.objects.values_list("state", flat=True)) == {"approved"}
    assert person.has_used(clicks=5, keys=55) >= 0


def test_reject_one_with_a_reason(sit_down: SitDown) -> None:
    """Home leads to what this person may decide, whatever else is due before."""
    task = rows.open_task(rows.waiting(task=False))
    rows.open_task(rows.waiting(task=False), team="operations", due_at=timezone.now())
    person = sit_down("approver")
    person.follow(f"task {task.pk}")
    person.write("Reason", "It is too heavy.")
    person.press("Reject")
    assert person.reads("Rejected by some-approver")
    task.refresh_from_db()
    assert (task.state, task.reason) == ("rejected", "It is too heavy.")
    assert person.has_used(clicks=3, keys=36) >= 0


def test_answer_an_unclear_call(sit_down: SitDown) -> None:
    """The inbox has other things in it, which are due before."""
    rows.open_task(rows.waiting(task=False), due_at=timezone.now())
    task = unclear_call()
    person = sit_down("support lead")
    person.follow("For you", bar=True)
    person.follow("", row="Unclear call")
    assert person.reads("Unclear call: did “Charge the card” happen?")
    person.write("Charge", "ch_1a2b")
    person.pick("Payment", "Paid")
    person.press("It happened")
    assert person.reads("It happened: Charge ch_1a2b, Payment paid")
    task.refresh_from_db()
    assert task.state == "approved"
    assert Signal.objects.get().payload["answer"] == {"charge_id": "ch_1a2b", "payment_status": "paid"}
    assert person.has_used(clicks=4, keys=36) >= 0


def test_answer_a_failed_reversal(sit_down: SitDown) -> None:
    rows.open_task(rows.waiting(task=False), due_at=timezone.now())
    task = failed_reversal()
    person = sit_down("engineer")
    person.follow("For you", bar=True)
    person.follow("", row="Failed reversal")
    assert person.reads("The reversal of “Charge the card” failed 3 times. Has someone reversed it?")
    person.choose("It was reversed by hand")
    person.write("Reference, if it was reversed by hand", "re_9")
    person.write("Reason", "Refunded at the bank's page.")
    person.press("It is settled")
    assert person.reads("Reversed by hand: Reference re_9")
    task.refresh_from_db()
    assert task.state == "approved"
    assert Signal.objects.get().payload["answer"] == {"kept": False, "reference": "re_9", "never_happened": False}
    assert Effect.objects.get().state == "done"  # until a worker has read the answer
    assert person.has_used(clicks=4, keys=36) >= 0


def test_hand_a_task_to_a_colleague(sit_down: SitDown) -> None:
    task = rows.open_task(rows.waiting(task=False))
    User.objects.create_superuser("carla")
    person = sit_down("approver")
    person.follow(f"task {task.pk}")
    person.follow("Assign to a colleague")
    person.pick("Colleague", "carla")
    person.write("Note", "You know her.")
    person.press("Assign it to a colleague")
    assert person.reads("Assigned to\ncarla")
    assigned = Event.objects.get(kind="task_assigned").detail
    assert (assigned["to"], assigned["reason"]) == ("carla", "You know her.")
    assert person.has_used(clicks=3, keys=36) >= 0


def test_see_what_needs_a_person_and_acknowledge_a_failure(sit_down: SitDown) -> None:
    rows.open_task(rows.waiting(task=False), due_at=timezone.now() - timedelta(hours=1))
    row = rows.failed(completed_at=timezone.now() - timedelta(hours=2))
    person = sit_down("support")
    person.follow("All for you: 1 line")
    asked = person.page.locator("section :is(.needs, .services-list) tbody th a")  # not what is folded, for others
    assert asked.all_inner_texts() == ["Failed at “Charge”"]
    assert person.page.locator(".bar [aria-current=page]").all_inner_texts() == ["For you"]
    person.follow("Failed at “Charge”")
    person.follow("Acknowledge")
    assert person.reads("Nothing is called, and nothing is refunded or reversed.")
    person.write("Note", "She was told, and sends it again.")
    person.press(f"Acknowledge workflow {row.pk}")
    assert person.reads("Acknowledged by some-support at")
    assert Event.objects.get(workflow=row, kind="acknowledged").detail["reason"] == "She was told, and sends it again."
    assert person.has_used(clicks=5, keys=58) >= 0
    person.page.goto("/admin/needs-a-person/")
    assert asked.all_inner_texts() == []


def test_say_who_did_what_yesterday(sit_down: SitDown) -> None:
    yesterday = timezone.now() - timedelta(days=1)
    by_ada = {"actor": "ada", "detail": {"reason": "The bank is back."}}
    for ago in (timedelta(0), timedelta(days=1)):
        rows.event(rows.failed(), "retried", at=yesterday - ago, **by_ada)
    person = sit_down("auditor")
    person.follow("Audit", bar=True)
    person.follow("Yesterday")
    lines = person.page.locator(".needs tbody tr")
    assert lines.count() == 1
    assert re.search("Retried.*ada.*The bank is back.", " ".join(lines.all_inner_texts()[0].split()))
    assert person.has_used(clicks=2, keys=30) >= 0


def test_say_who_looked_at_a_patient(sit_down: SitDown, open_as: Open) -> None:
    row, again = submitted(), submitted()
    open_as("support", f"/admin/workflows/workflow/{again.pk}/change/")
    person = sit_down("auditor")
    person.find(str(row.pk))
    person.follow("Who looked at this patient")
    assert person.reads("1 more with the same e-mail address or phone number")
    who = person.page.locator(".needs tbody td[data-label=Who]").all_inner_texts()
    assert set(who) == {"some-support", "some-auditor"}
    assert person.reads("a•••@example.com")
    assert not person.reads(EMAIL)
    assert person.has_used(clicks=2, keys=30) >= 0


def test_reveal_a_phone_number_to_call_back_and_leave_nothing_behind(sit_down: SitDown) -> None:
    row = submitted()
    person = sit_down("support lead")
    person.find(EMAIL)
    person.follow("Reveal")
    person.tick("Phone")
    person.write("Purpose", "To call her back.")
    person.press(f"Reveal workflow {row.pk}")
    assert person.reads(PHONE)
    revealed = Access.objects.get(kind="revealed")
    assert revealed.detail == {"fields": ["patient.phone"], "purpose": "To call her back."}
    assert person.has_used(clicks=5, keys=36) >= 0
    page = person.page
    kept = page.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}])")
    assert PHONE not in page.url + page.title() + kept
    page.goto("/admin/")
    with pytest.raises(playwright.Error, match="ERR_CACHE_MISS"):  # the browser has kept nothing to show
        page.go_back()
    assert Access.objects.filter(kind="revealed").count() == 1


def test_retry_exactly_the_forty_of_one_outage_and_see_them_done(sit_down: SitDown) -> None:
    outage = {"last_error_code": "payments_unavailable", "workflow_type": "parcel"}
    forty = [rows.failed(**outage).pk for _ in range(40)]
    others = [rows.failed().pk for _ in range(3)]
    person = sit_down("support lead")
    person.follow("Failures", bar=True)
    person.follow("Failed at “Charge”", row="40")
    person.press("Retry these 40")
    late = rows.failed(**outage)
    assert person.reads("All 40 chosen are retried.")
    person.write("Reason", "Payments is back.")
    person.press("Start the retry of 40 workflows")
    with meanwhile(lambda: with_its_connections(do_maintenance), every=0.1, times=100):
        person.page.wait_for_selector("text=All 40 are retried.", timeout=60_000)  # a turn after the last of them
    assert person.reads("0 complete, 40 under way")
    assert set(Workflow.objects.filter(status="PENDING").values_list("pk", flat=True)) == set(forty)
    assert set(Workflow.objects.filter(status="FAILED").values_list("pk", flat=True)) == {late.pk, *others}
    assert person.has_used(clicks=4, keys=40) >= 0
