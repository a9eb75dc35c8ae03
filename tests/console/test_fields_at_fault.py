"""After an error the focus is on the field at fault, which says what is wrong with it to those who hear the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import User

from tests.console.conftest import Open
from tests.console.scenes import failed_reversal, of, unclear_call
from tests.workflows import rows
from tests.workflows.admin.walk.scene import PASSWORD

# What somebody hears of the field that has the focus, besides its label; of a group of buttons the group says it.
DESCRIBED = """() => {
    const field = document.activeElement, group = field.type === "radio" ? field.closest("fieldset") : field;
    const ids = (group.getAttribute("aria-describedby") || "").split(" ").filter(Boolean);
    return ids.map((id) => document.getElementById(id).innerText).join(" ");
}"""


@dataclass(frozen=True)
class Mistake:
    """On which page, made how, by pressing what; the name of the field at fault, and what is said of it."""

    path: Callable[[], str]
    button: str
    field: str
    said: str
    make: Callable[[Any], object] = lambda page: None


def say_nothing(page: Any) -> None:
    """A space is no reason; the browser takes it for one."""
    page.fill("[name=reason]", " ")


def fill(**typed: str) -> Callable[[Any], None]:
    def make(page: Any) -> None:
        for name, text in typed.items():
            page.fill(f"[name='{name}']", text)

    return make


def unfounded(page: Any) -> None:
    """As a browser would send it that does not check forms by itself."""
    page.evaluate("for (const form of document.forms) form.noValidate = true")


def all_of_a_page(page: Any) -> None:
    rows.failed()
    page.reload()
    page.check("#action-toggle")
    page.select_option("[name=action]", "retry")
    with page.expect_navigation():
        page.click("[name=index]")
    say_nothing(page)


REQUIRED = "This field is required."

MISTAKES = {
    "a retry for another reason": Mistake(
        lambda: of(rows.failed(), "retry"),
        *("Retry workflow", "reason", "Say why."),
        lambda page: page.check("[name=why][value=other]"),
    ),
    "a retry of several": Mistake(
        lambda: "/admin/workflows/workflow/", "Start the retry of 1 workflow", "reason", REQUIRED, all_of_a_page
    ),
    "an unclear call without a choice": Mistake(
        lambda: of(unclear_call()),
        *("It happened", "answer-payment_status", REQUIRED),
        lambda page: (page.fill("[name=answer-charge_id]", "ch_1"), unfounded(page)),
    ),
    "a failed reversal": Mistake(lambda: of(failed_reversal()), "It is settled", "answer-how", "Say which.", unfounded),
    "a search": Mistake(lambda: "/admin/find/", "Find", "q", "Type what you know of the workflow."),
    "a new user": Mistake(
        lambda: "/admin/auth/user/add/",
        *("Save", "password2", "This password is too short."),
        fill(username="carla", password1="horse", password2="horse"),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_the_field_at_fault_has_the_focus_and_says_what_is_wrong(open_as: Open, mistake: Mistake) -> None:
    User.objects.create_superuser("some-superuser", password=PASSWORD)
    page = open_as("superuser", mistake.path())
    mistake.make(page)
    with page.expect_navigation():
        page.locator("#content").get_by_role("button", name=mistake.button).first.click()
    at_fault(page, mistake.field, mistake.said)


def at_fault(page: Any, name: str, said: str) -> None:
    focused = page.evaluate("['name', 'aria-invalid'].map((each) => document.activeElement.getAttribute(each))")
    assert focused == [name, "true"]
    assert said in page.evaluate(DESCRIBED)
    assert page.evaluate("document.activeElement.getBoundingClientRect().top < innerHeight")


def test_a_sign_in_that_failed_starts_again_at_the_password(open_as: Open) -> None:
    User.objects.create_superuser("some-superuser", password=PASSWORD)
    page = open_as("superuser")
    page.context.clear_cookies(name="sessionid")
    page.goto("/admin/login/")
    assert page.evaluate("document.activeElement.name") == "username"
    page.fill("[name=username]", "some-superuser")
    page.fill("[name=password]", "wrong")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    at_fault(page, "password", "Please enter the correct username and password")
    assert page.input_value("[name=username]") == "some-superuser"
    page.keyboard.type(PASSWORD)
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert page.url.endswith("/admin/")


REQUIRED_BY_THE_BROWSER = {
    "a retry": (lambda: of(rows.failed(), "retry"), "Retry workflow", "why"),
    "an unclear call": (lambda: of(unclear_call()), "It happened", "answer-charge_id"),
}


@pytest.mark.parametrize("case", REQUIRED_BY_THE_BROWSER.values(), ids=REQUIRED_BY_THE_BROWSER.keys())
def test_what_is_missing_has_the_focus_before_anything_is_sent(
    open_as: Open, case: tuple[Callable[[], str], str, str]
) -> None:
    path, button, field = case
    page = open_as("superuser", path())
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.method))
    page.locator("#content").get_by_role("button", name=button).first.click()
    page.wait_for_timeout(200)
    assert page.evaluate("document.activeElement.name") == field
    assert "POST" not in sent
