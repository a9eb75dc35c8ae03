"""An unclear charge, from the answer of the first person to the page that the second one has confirmed."""

from __future__ import annotations

from tests.console.conftest import Open
from tests.console.people import WithKeyboard, WithMouse
from tests.console.scenes import of
from tests.workflows import rows
from workflows.models import Confirmation, ManualTask


def test_one_says_that_it_did_not_happen_and_another_confirms_it(open_as: Open) -> None:
    task = rows.unclear_charge()
    lead = WithMouse(open_as("support lead", f"/admin/workflows/manualtask/{task.pk}/change/"))
    lead.write("Reason", "The bank's list has no such charge.")
    lead.press("It did not happen")
    assert lead.reads("Waits for a second person")
    assert lead.reads("Nobody else may confirm it. If that stays so, you may confirm it alone from")
    assert not lead.page.get_by_role("button", name="It did not happen").count()
    assert lead.used == 2, "the field, and the button"

    engineer = WithKeyboard(open_as("engineer", "/admin/needs-a-person/"))
    engineer.follow("Unclear call: “Charge the card”", row="second person")
    assert engineer.reads("The bank's list has no such charge.")
    engineer.follow("Confirm it")
    assert engineer.reads("you are the last who can see a mistake")
    engineer.write("What you have seen", "I have asked the bank: none.")
    engineer.press(f"Confirm the answer to manual task {task.pk}")
    assert engineer.reads("It did not happen")
    assert not engineer.reads("Waits for a second person")
    page = WithMouse(open_as("engineer", of(task.workflow))).page
    assert "First said by some-support-lead" in page.inner_text("#content").replace("support lead", "support-lead")
    assert (ManualTask.objects.get().state, Confirmation.objects.get().state) == ("rejected", "confirmed")
