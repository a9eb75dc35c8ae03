"""By the keyboard alone all of a page is reached, what has the focus is seen, and nothing keeps it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User

from tests.console.conftest import Open
from tests.console.people import SEEN
from tests.console.scenes import of, stopped, unclear_call
from tests.workflows import rows
from tests.workflows.admin.targets import hold

# A field for a date and a time has eight parts.
PARTS_OF_A_FIELD = 8

VISIT = """() => {
    const element = document.activeElement, seen = element.dataset.visited || 0;
    element.dataset.visited = Number(seen) + 1;
    return [element === document.body, element.outerHTML.slice(0, 160), Number(seen)];
}"""

# Of several radio buttons of a name one is reached by Tab, and the others by the arrows.
NOT_VISITED = """() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")]
    .filter((each) => !each.disabled && each.type !== "hidden" && each.tabIndex >= 0 && each.checkVisibility())
    .filter((each) => !each.dataset.visited)
    .filter((each) => each.type !== "radio" ||
        !document.querySelector(`[data-visited][name="${each.name}"]`))
    .map((each) => each.outerHTML.slice(0, 160))"""


def administered_user() -> str:
    return f"/admin/auth/user/{User.objects.create_user('carla').pk}/change/"


PATHS: dict[str, Callable[[], str]] = {
    "home": lambda: rows.failed() and "/admin/",
    "the list of workflows": lambda: rows.failed() and "/admin/workflows/workflow/",
    "a workflow": lambda: of(stopped()),
    "an unclear call": lambda: of(unclear_call()),
    "a hold": lambda: hold()[0],
    "a user": administered_user,
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_all_of_a_page_is_reached_by_tab_in_sight_and_nothing_keeps_the_focus(
    open_as: Open, path: Callable[[], str]
) -> None:
    User.objects.create_superuser("some-superuser", password="correct horse battery")
    page = open_as("superuser", path())
    page.evaluate("document.activeElement.blur()")  # some fields have the focus from the starting
    page.evaluate("document.body.tabIndex = -1, document.body.focus(), document.body.removeAttribute('tabindex')")
    for _ in range(200):
        page.keyboard.press("Tab")
        is_over, element, times = page.evaluate(VISIT)
        if is_over:
            break
        assert times or page.evaluate(SEEN), element  # the browser itself marks the parts of a field
        assert times < PARTS_OF_A_FIELD, f"it keeps the focus: {element}"
    else:
        raise AssertionError("there is no end of it")
    assert page.evaluate(NOT_VISITED) == []
