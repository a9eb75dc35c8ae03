"""The keys of the console: they move, open and find, and none decides, nor is one heard while somebody types."""

from __future__ import annotations

from django.utils import timezone

from tests.console.conftest import Open
from tests.workflows import rows
from workflows.models import Chore, ManualTask, Workflow
from workflows.operations import undoing

FOCUS = "document.activeElement.textContent.trim()"

# All in one task: until the next frame the focus stays in a dialog that has closed.
J_WHILE_THE_KEYS_CLOSE = """() => {
  const keys = document.getElementById("keys");
  keys.showModal();
  keys.close();
  document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: "j", bubbles: true}));
  return document.activeElement.textContent.trim();
}"""


def test_the_keys_move_open_and_go_to_the_buttons_and_none_decides(open_as: Open) -> None:
    tasks = [
        rows.open_task(rows.waiting(task=False), due_at=timezone.now(), task_type="review", undoable=True)
        for _ in range(3)
    ]
    page = open_as("approver", "/admin/needs-a-person/")
    page.keyboard.press("?")
    assert page.get_by_role("dialog", name="Keys").is_visible()
    page.keyboard.press("Escape")
    page.get_by_role("dialog", name="Keys").wait_for(state="hidden")
    links = page.locator(".needs tbody th a")
    assert page.evaluate(J_WHILE_THE_KEYS_CLOSE) == links.first.inner_text().strip()
    page.evaluate("document.activeElement.blur()")
    for key, at in (("j", 0), ("j", 1), ("j", 2), ("k", 1)):
        page.keyboard.press(key)
        assert links.nth(at).evaluate("each => each === document.activeElement"), key
    page.keyboard.press("a")
    page.wait_for_url(f"**/{tasks[1].pk}/change/**")
    page.keyboard.press("r")
    assert page.evaluate(FOCUS) == "Reject"
    page.keyboard.press("a")
    assert page.evaluate(FOCUS) == "Approve"
    page.get_by_label("Reason").focus()
    page.keyboard.type("jar ?/n")
    assert page.get_by_label("Reason").input_value() == "jar ?/n"
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Control+a")
    page.keyboard.press("n")
    page.wait_for_url(f"**/{tasks[0].pk}/change/**")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.matches('[data-find]')")
    assert set(ManualTask.objects.values_list("state", flat=True)) == {"open"}, "nothing is decided"


def test_on_a_phone_the_buttons_are_in_sight_and_cover_no_field(open_as: Open) -> None:
    task = rows.open_task(rows.waiting(task=False), facts=[["Weight", "heavy"]] * 20)
    rows.open_task(rows.waiting(task=False))
    how = {"viewport": {"width": 390, "height": 700}, "has_touch": True}
    page = open_as("approver", f"/admin/workflows/manualtask/{task.pk}/change/", **how)
    buttons = page.locator(".decisions")
    inside = "each => { const at = each.getBoundingClientRect(); return at.bottom <= innerHeight && at.top > 0; }"
    assert buttons.evaluate(inside), "at the top of the page, too"
    page.get_by_label("Reason").focus()
    field, bar = page.get_by_label("Reason").bounding_box(), buttons.bounding_box()
    assert field["y"] + field["height"] <= bar["y"]
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    last = page.locator(".decide .quiet").last.bounding_box()
    assert last["y"] + last["height"] <= buttons.bounding_box()["y"]
    page.get_by_label("Reason").fill("Too heavy.")
    page.get_by_role("button", name="Reject", exact=True).tap()
    page.get_by_text("Rejected: task").wait_for()


def test_an_undo_goes_when_its_time_is_over_and_the_page_says_what_has_become_of_the_workflow(open_as: Open) -> None:
    Chore.objects.get_or_create(pk=undoing.CHORE)
    task = rows.open_task(rows.waiting(task=False), undoable=True)
    page = open_as("approver", f"/admin/workflows/manualtask/{task.pk}/change/")
    page.click("button[value=approve]")
    assert page.locator("button:text-is('Undo')").count() == 2
    Workflow.objects.filter(pk=task.workflow_id).update(status="FAILED", completed_at=timezone.now())
    page.wait_for_selector("[data-undo-for]", state="detached", timeout=60_000)
    page.wait_for_selector("#live:has-text('Failed')", timeout=60_000)
    assert page.locator("button:text-is('Undo')").count() == 0
