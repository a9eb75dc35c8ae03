"""The page of one workflow, as support has it open while the patient is on the phone."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from tests.console.conftest import Open
from tests.console.scenes import everything, of, submitted
from tests.workflows import rows
from workflows.models import Workflow

LATER = timedelta(minutes=9)

# A browser without a screen shows no notification: what it would show is kept.
NOTIFICATIONS = """() => {
    window.told = [];
    window.Notification = class { constructor(text) { window.told.push(text); } };
    window.Notification.requestPermission = async () => "granted";
}"""


def complete(row: Workflow) -> None:
    Workflow.objects.filter(pk=row.pk).update(status="COMPLETE", completed_at=timezone.now())


def test_what_is_unfolded_and_what_has_the_focus_stays_so(open_as: Open) -> None:
    row = submitted(invisible_until=timezone.now() + LATER, retry_count=2, current_step="start_visit")
    rows.attempt(row, outcome="retry", steps=[{"step": "validate_payload", "outcome": "ran", "ms": 2}])
    page = open_as("support", of(row))
    summary = page.locator("details[data-key='phase-Payment'] > summary")
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator("details[data-key='phase-Payment']").get_attribute("open") is not None
    complete(row)
    page.wait_for_selector("#live[data-at-rest=yes]", timeout=60_000)
    assert "Complete" in page.inner_text("#content h1")
    assert "Everything is done" in page.inner_text("#to-tell")
    assert page.locator("details[data-key='phase-Payment']").get_attribute("open") is not None
    assert page.evaluate("document.activeElement.closest('details').dataset.key") == "phase-Payment"


def test_what_to_tell_the_patient_is_copied(open_as: Open) -> None:
    page = open_as("support", of(submitted()), permissions=["clipboard-read", "clipboard-write"])
    page.click("[data-copy]")
    page.wait_for_selector("text=Copied")
    assert page.evaluate("navigator.clipboard.readText()") == page.inner_text("#to-tell")


def test_somebody_is_told_when_it_ends(open_as: Open) -> None:
    row = submitted(invisible_until=timezone.now() + LATER)
    page = open_as("support", of(row), permissions=["notifications"])
    page.evaluate(NOTIFICATIONS)
    page.click("[data-notify]")
    page.wait_for_selector("text=You will be told")
    complete(row)
    page.wait_for_selector("#live[data-at-rest=yes]", timeout=60_000)
    assert page.evaluate("window.told") == [f"Workflow {row.pk}: Complete"]


def test_codes_are_folded_for_an_engineer_whose_browser_remembers_that(open_as: Open) -> None:
    page = open_as("engineer", f"/admin/workflows/workflow/{everything().pk}/change/")
    code = page.locator(".effects code").first
    assert not code.is_visible()
    page.click("text=For an engineer")
    assert code.is_visible()
    page.reload()
    assert code.is_visible()
