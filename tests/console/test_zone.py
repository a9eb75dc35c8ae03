"""The browser says in which zone its reader is; from the next page on times are by that clock."""

from __future__ import annotations

from tests.console.conftest import Open
from tests.workflows import rows


def test_times_are_by_the_clock_of_the_browser(open_as: Open) -> None:
    row = rows.failed()
    page = open_as("engineer", "/admin/failures/", timezone_id="Australia/Adelaide")
    assert "Times are UTC." in page.inner_text("#content")
    page.reload()
    assert "Times are by your clock (Australia/Adelaide, UTC+" in page.inner_text("#content")
    page.goto(f"/admin/workflows/workflow/{row.pk}/change/")
    assert "Adelaide time" in page.inner_text("#live")
    page.goto("/admin/workflows/pace/queue:default/hold/")
    assert page.locator("input[name=until_zone]").get_attribute("value") == "Australia/Adelaide"
