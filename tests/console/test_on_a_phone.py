"""On a phone: each row of a list is a card, no page is wider than the screen, and the bar is seen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from tests.console.conftest import Open
from tests.console.scenes import everything, failed_reversal, stopped, unclear_call
from tests.workflows import rows
from tests.workflows.admin.test_navigation import ALL
from tests.workflows.admin.walk.scene import Scene
from workflows.models import ManualTask, Workflow

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True}

# What cannot be seen without scrolling sideways, of the page or of anything on it; but for tracebacks.
WIDER = """() => [document.documentElement, ...document.querySelectorAll("body *")]
    .filter((each) => each.tagName !== "PRE" && each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 0)
    .filter((each) => each === document.documentElement || /auto|scroll/.test(getComputedStyle(each).overflowX))
    .map((each) => `${each.tagName} ${each.id} ${each.className}: ${each.scrollWidth} in ${each.clientWidth}`)"""


def rows_of_every_kind() -> None:
    """With the longest texts that they have."""
    Scene()
    for make in rows.IN_STATE.values():
        make()
    stopped()
    unclear_call()
    failed_reversal()
    Workflow.objects.filter(status="PENDING").update(retry_count=7)
    colleague = User.objects.create(username="a.colleague.with.a.long.name@support.example.com", is_staff=True)
    overdue = timezone.now() - timedelta(hours=1)
    rows.open_task(rows.waiting(task=False), assignee=colleague, team="operations", due_at=overdue)


def found(page: Any) -> None:
    page.fill("#content [name=q]", "ada.lovelace@example.com")
    page.keyboard.press("Enter")
    page.wait_for_selector("#several")


LISTS: dict[str, Callable[[Any], None] | None] = {
    "/admin/workflows/workflow/": None,
    "/admin/workflows/manualtask/": None,
    "/admin/workflows/manualtask/?state=all": None,
    "/admin/needs-a-person/": None,
    "/admin/incident/?workflow_type=parcel&step=charge&code=card_declined": None,
    "/admin/workflows/bulkoperation/": None,
    "/admin/workflows/service/": None,
    "/admin/workflows/pace/": None,
    "/admin/workflows/workerprocess/": None,
    "/admin/workflows/apikey/": None,
    "/admin/workflows/undeliveredmessage/": None,
    "/admin/workflows/outboxevent/": None,
    "/admin/workflows/hold/": None,
    "/admin/workflows/erasure/": None,
    "/admin/find/": found,
    "/admin/workflows/proposal/": None,
    "/admin/deputies/": None,
    "/admin/sessions/": None,
}


def test_no_list_scrolls_sideways(open_as: Open) -> None:
    rows_of_every_kind()
    page = open_as("superuser", **PHONE)
    for path, then in LISTS.items():
        page.goto(path)
        if then:
            then(page)
        assert page.locator(".cards tbody tr").count() > 0, path
        assert page.evaluate(WIDER) == [], path
    task = ManualTask.objects.open().latest("pk")  # the longest name is among those to whom it can be assigned
    for path in ("/admin/auth/user/", "/admin/auth/group/", f"/admin/workflows/manualtask/{task.pk}/assign/"):
        page.goto(path)
        assert page.evaluate(WIDER) == [], path


def test_nor_does_the_page_of_a_workflow_in_which_all_has_happened_and_the_history_comes_first(open_as: Open) -> None:
    row = everything()
    page = open_as("superuser", f"/admin/workflows/workflow/{row.pk}/change/", **PHONE)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    assert page.evaluate(WIDER) == []
    tops = page.evaluate("['history', 'steps'].map((id) => document.getElementById(id).getBoundingClientRect().top)")
    assert tops == sorted(tops)


def test_a_card_says_what_is_what(open_as: Open) -> None:
    row = rows.retrying(retry_count=2)
    page = open_as("superuser", "/admin/workflows/workflow/", **PHONE)
    labels = page.evaluate(
        """() => [...document.querySelectorAll(".cards tbody td")].filter((each) => each.checkVisibility())
            .map((each) => getComputedStyle(each, "::before").content)"""
    )
    assert [label for label in labels if label not in ("none", "normal")] == [
        *('"Step "', '"Attempts "', '"Next attempt "', '"Error "', '"Submitted "')
    ]
    box = "getComputedStyle(document.querySelector('.action-checkbox-column .text'), '::after').content"
    assert page.evaluate(box) == '"Select all on this page"'
    toggle = "getComputedStyle(document.querySelector('.drop .theme-toggle')).display"
    assert page.evaluate(toggle) == "flex", "its icon stands beside its words"
    icon = "getComputedStyle(document.querySelector('.drop .theme-toggle svg')).width"
    assert page.evaluate(icon) == "24px", "as large as its symbol, or it is cut off"
    page.set_viewport_size({"width": 1280, "height": 900})
    assert page.locator("#result_list thead th").nth(1).is_visible()
    assert page.evaluate("getComputedStyle(document.querySelector('.cards td.field-step'), '::before').content") in (
        "none",
        "normal",
    )
    page.click(f"text='{row.pk}'")
    page.wait_for_url(f"**/{row.pk}/change/")


def test_filters_are_folded_and_each_that_is_active_is_a_chip_to_take_away(open_as: Open) -> None:
    rows.failed()
    page = open_as("superuser", "/admin/workflows/workflow/?state=failed&workflow_type=parcel", **PHONE)
    chips = page.locator(".chips li")
    assert [text.split(" ✕")[0] for text in chips.all_inner_texts()] == ["State: Failed", "Type: Parcel"]
    fold = page.locator("#changelist-filter")
    assert not fold.get_by_text("By state").is_visible()
    assert fold.bounding_box()["height"] < 70  # type: ignore[index]
    fold.get_by_text("Filter", exact=True).click()
    assert fold.get_by_text("By state").is_visible()
    page.get_by_label("Without State: Failed").click()
    page.wait_for_url("**/workflow/?workflow_type=parcel")
    assert chips.count() == 1
    page.set_viewport_size({"width": 1280, "height": 900})
    page.reload()
    assert fold.get_by_text("By state").is_visible()


def test_the_heading_is_near_the_top_and_the_menu_has_all_of_the_bar(open_as: Open) -> None:
    rows.failed()
    rows.workflow(invisible_until=timezone.now() - timedelta(hours=1))
    page = open_as("superuser", **PHONE)
    for path in ("/admin/", "/admin/find/", "/admin/needs-a-person/", "/admin/workflows/workflow/"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate("document.querySelector('#content :is(h1, h2)').getBoundingClientRect().top") <= 120
        links = page.locator(".bar a")
        assert not links.first.is_visible()
        page.click("text=Menu")
        assert links.all_inner_texts() == ALL
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in map(_box, links.all()))
        assert all(_box(link)["height"] >= 40 for link in links.all())
        page.keyboard.press("Escape")
        assert not links.first.is_visible()


def test_the_buttons_that_decide_stay_in_sight(open_as: Open) -> None:
    page = open_as("superuser", f"/admin/workflows/workflow/{rows.failed().pk}/retry/", **PHONE)
    page.set_viewport_size({"width": 390, "height": 600})
    button = _box(page.locator("form > .verbs button"))
    assert button["y"] + button["height"] <= 600
    assert button["height"] >= 44
    field = page.locator("textarea")
    bottom = int(_box(field)["y"] + _box(field)["height"])
    page.set_viewport_size({"width": 390, "height": bottom})
    seen = f"document.elementFromPoint(40, {bottom - 6}).tagName"
    assert page.evaluate(seen) != "TEXTAREA"
    field.evaluate("each => each.focus({ preventScroll: true })")
    assert page.evaluate(seen) == "TEXTAREA", "the buttons cover no part of the field that somebody writes in"


def _box(link: object) -> dict[str, float]:
    return link.bounding_box()  # type: ignore[attr-defined, no-any-return]
