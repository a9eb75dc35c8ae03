"""axe-core finds nothing against WCAG 2, A and AA, on any page of the console: light, dark, and on a phone.

It finds what a program can find. That all is done by the keyboard, and where the focus is after an error, the tests
beside this one show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.conf import settings as project
from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from tests.console.axe import findings
from tests.console.conftest import WORKFLOWS, session_of
from tests.console.scenes import EMAIL, everything, of, paid, submitted, trouble
from tests.servers import Gunicorn
from tests.workflows import rows
from tests.workflows.admin.tasks import task
from tests.workflows.admin.walk.scene import PASSWORD, TASKS, Scene
from tests.workflows.admin.walk.table import lines
from tests.workflows.admin.walk.urls import address
from workflows.console.links import query
from workflows.models import ManualTask
from workflows.models.failure import Cause
from workflows.telling.words import TASK_TYPES

WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
# What each of them is looked at for: in another theme the colours are others, on a phone all else is.
LOOKS: tuple[tuple[Any, Any, dict[str, bool]], ...] = (
    ("light", WIDE, {}),
    ("dark", WIDE, {"others": False}),
    ("light", PHONE, {"colours": False}),
)

COLOURS = """() => {
    for (const each of document.getAnimations()) each.finish();
    document.activeElement.blur();
    return [...document.querySelectorAll("body, body *:not(.theme-toggle, .theme-toggle *)")].map((each) => {
        const style = getComputedStyle(each);
        return [each.tagName, style.color, style.backgroundColor, style.borderColor, style.backgroundImage];
    });
}"""


@pytest.fixture(scope="module")
def server_environment() -> dict[str, str]:
    return {"DJANGO_SETTINGS_MODULE": "tests.console.no_debug", "WORKFLOWS": ",".join(WORKFLOWS)}


@pytest.fixture
def people() -> None:
    """A superuser with a password, somebody without any permission, and somebody who may look at users and groups."""
    User.objects.create_superuser("some-superuser", password=PASSWORD)
    Group.objects.create(name="nobody")
    looks_at = Permission.objects.filter(codename__in=["view_user", "view_group"])
    Group.objects.create(name="administrator").permissions.set(looks_at)


@contextmanager
def looking(
    browser: Any, server: Gunicorn, listen: Callable[[Any], None] = lambda said: None, you: Client | None = None
) -> Iterator[Callable[[str], Any]]:
    """A page for each group that is asked for, and for nobody (""); `listen` hears what the browser says of it."""
    pages: dict[str, Any] = {}
    address, name = f"http://127.0.0.1:{server.port}", project.SESSION_COOKIE_NAME

    def page_of(group: str) -> Any:
        if group not in pages:
            context = browser.new_context(base_url=address)
            if group:
                session = {"name": name, "value": you.cookies[name].value} if you else session_of(group)
                context.add_cookies([{**session, "url": address}])
            pages[group] = context.new_page()
            pages[group].on("console", listen)
        return pages[group]

    yield page_of
    for page in pages.values():
        page.context.close()


# --- What is done on a page before it is looked at --------------------------------------------------


def press(button: str, **typed: str) -> Callable[[Any], None]:
    """Fill in the fields, and press the button; the browser checks nothing by itself."""

    def then(page: Any) -> None:
        for name, text in typed.items():
            page.fill(f"#content [name='{name}']", text)
        page.evaluate("for (const form of document.forms) form.noValidate = true")
        with page.expect_navigation():
            page.locator("#content").get_by_role("button", name=button).first.click()

    return then


def action(value: str) -> Callable[[Any], None]:
    """Choose all rows of a list, and something to do with them."""

    def then(page: Any) -> None:
        page.check("#action-toggle")
        page.select_option("[name=action]", value)
        with page.expect_navigation():
            page.click("[name=index]")

    return then


def reveal_all(page: Any) -> None:
    for box in page.locator("#content [type=checkbox]").all():
        box.check()
    press("Reveal workflow", reason="To call her back.")(page)


def unfold(page: Any) -> None:
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")


# By the name and the row of the walk's table: forms that say what is missing, and what comes of others.
THEN: dict[str, Callable[[Any], None]] = {
    "find": press("Find", q=EMAIL),
    "workflows_workflow_changelist": action("retry"),
    "workflows_workflow_retry failed": press("Retry workflow"),
    "workflows_workflow_reveal submission": reveal_all,
    "workflows_manualtask_assign anybodys": press("Assign it to a colleague"),
    "workflows_service_hold service": press("Hold", until="2020-01-01T10:00"),
    "workflows_bulkoperation_start draft": press("Start the"),
    "auth_user_changelist": action("delete_selected"),
    "auth_user_add": press("Save"),
    "password_change": press("Change my password"),
}


def found_on(page: Any, path: str, then: Callable[[Any], None] | None = None, status: int = 200) -> list[str]:
    """What axe finds on a page in each look, and once more after something was done on it."""
    found: list[str] = []
    answer = page.goto(path)
    assert answer.status == status, path
    for act in (None, then) if then else (None,):
        page.set_viewport_size(WIDE)
        page.emulate_media(color_scheme="light")
        if act:
            act(page)
        for theme, size, which in LOOKS:
            page.emulate_media(color_scheme=theme)
            page.set_viewport_size(size)
            # At the end of a page the buttons that stay in sight on a phone lie over no field.
            page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
            found += findings(page, f"{path}, {theme}, {size['width']} wide", **which)
    return found


def test_axe_finds_nothing_where_there_is_nothing_or_not_for_everybody(
    browser: Any, server: Gunicorn, people: None
) -> None:
    with looking(browser, server) as page_of:
        boss, found = page_of("superuser"), []
        for line in lines():
            if line.url.endswith("_changelist") or line.url in ("index", "needs_a_person", "failures", "audit"):
                found += found_on(boss, address(line.url))
        found += found_on(boss, "/admin/workflows/workflow/99/change/", status=404)
        found += found_on(page_of("nobody"), "/admin/workflows/workflow/", status=403)
        found += found_on(page_of("administrator"), f"/admin/auth/user/{User.objects.latest('pk').pk}/change/")
        found += found_on(page_of(""), "/admin/workflows/workflow/", press("Log in", username="some-superuser"))
        wrong = press("Log in", username="some-superuser", password="wrong")
        found += found_on(page_of(""), "/admin/login/", wrong)
        found += found_on(page_of(""), "/admin/login/", wrong)  # and there were too many
    assert not found, "\n".join(found)


PARTS = ("workflows_workflow_", "workflows_manualtask_")


@pytest.mark.parametrize("part", [*PARTS, ""])
def test_axe_finds_nothing_on_any_page(browser: Any, server: Gunicorn, part: str, settings: Any) -> None:
    """Of those of the walk's table. Nor does any break the Content-Security-Policy."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    found: list[str] = []

    def listen(said: Any) -> None:
        if "Security Policy" in said.text:
            found.append(f"{said.page.url}: {said.text} {said.location}")

    scene = Scene()
    paid(submitted()), paid(submitted())
    pages = {
        line.label: address(line.url, *scene.of(line.row))
        for line in lines()
        if line.get["superuser"] == "p" and line.url not in ("session", "jsi18n")
    }
    of_a_part = {label: path for label, path in pages.items() if label.startswith(part or PARTS) == bool(part)}
    if part == PARTS[0]:
        of_a_part |= {state: of(make()) for state, make in rows.IN_STATE.items()} | {"everything": of(everything())}
    elif part:
        of_a_part |= {name: of(ManualTask.objects.get(pk=scene.args[name])) for name in TASKS}
        of_a_part |= {kind: of(task(task_type=kind)) for kind in TASK_TYPES}
    else:
        cause = query(Cause("parcel", "charge", "card_declined"))
        of_a_part |= {each: f"/admin/{each}/?{cause}" for each in ("incident", "incident-note")}
        of_a_part |= {"trouble": trouble(), "step-up": "/admin/confirm/"}
    decisions = {"unclear-call": press("It happened"), "failed-reversal": press("It is settled"), "everything": unfold}
    with looking(browser, server, listen, scene.sign_in("superuser")) as page_of:
        for label, path in of_a_part.items():
            found += found_on(page_of("you"), path, {**THEN, **decisions}.get(label))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("fault", "of_colours"),
    [
        ("document.querySelector('#content h2').style.color = '#bbb'", True),
        ("document.documentElement.removeAttribute('lang')", False),
    ],
)
def test_it_would_find_what_is_wrong(
    browser: Any, server: Gunicorn, people: None, fault: str, of_colours: bool
) -> None:
    with looking(browser, server) as page_of:
        page = page_of("superuser")
        page.goto("/admin/")
        page.evaluate("document.querySelector('#find').removeAttribute('title')")
        page.evaluate("document.querySelector('#find').removeAttribute('placeholder')")
        page.evaluate(fault)
        assert len(findings(page)) == 1
        assert len(findings(page, others=False)) == of_colours
        assert len(findings(page, colours=False)) == (not of_colours)


@pytest.mark.parametrize("path", ["/admin/", "/admin/auth/user/add/"])
def test_a_theme_that_was_chosen_has_the_colours_of_the_systems(
    browser: Any, server: Gunicorn, people: None, path: str
) -> None:
    """So that what holds of the one holds of the other."""
    with looking(browser, server) as page_of:
        page = page_of("superuser")
        page.goto(path)
        page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        of_system = {}
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            of_system[theme] = page.evaluate(COLOURS)
        assert of_system["light"] != of_system["dark"]
        page.click(".theme-toggle")  # with a dark system the first choice is light
        assert page.evaluate("document.documentElement.dataset.theme") == "light"
        assert page.evaluate(COLOURS) == of_system["light"]
        page.click(".theme-toggle")
        page.emulate_media(color_scheme="light")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert page.evaluate(COLOURS) == of_system["dark"]
