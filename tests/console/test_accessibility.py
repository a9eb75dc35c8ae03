"""axe-core finds nothing against WCAG 2, A and AA, on any page of the console: light, dark, and on a phone.

It finds what a program can find. That all is done by the keyboard, and where the focus is after an error, the tests
beside this one show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User

from tests.console.axe import findings
from tests.console.conftest import WORKFLOWS, session_of
from tests.console.pages import NO_PAGES, NOBODY, PAGES, Shown, names, unfold
from tests.console.states import PASSWORD
from tests.servers import Gunicorn
from workflows.models import State
from workflows.telling.words import TASK_TYPES

WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
# What each of them is looked at for: in another theme the colours are others, on a phone all else is. That is looked
# for in the first state of a page, and where all of it is unfolded: the others have the same parts.
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
    browser: Any, server: Gunicorn, listen: Callable[[Any], None] = lambda said: None
) -> Iterator[Callable[[str], Any]]:
    """A page for each group that is asked for; `listen` hears what the browser says of it."""
    pages: dict[str, Any] = {}
    address = f"http://127.0.0.1:{server.port}"

    def page_of(group: str) -> Any:
        if group not in pages:
            context = browser.new_context(base_url=address)
            if group != NOBODY:
                context.add_cookies([{**session_of(group), "url": address}])
            pages[group] = context.new_page()
            pages[group].on("console", listen)
        return pages[group]

    yield page_of
    for page in pages.values():
        page.context.close()


def show(page: Any, shown: Shown) -> None:
    page.set_viewport_size(WIDE)
    page.emulate_media(color_scheme="light")
    answer = page.goto(shown.path())
    assert answer.status == shown.status, shown
    if shown.then:
        shown.then(page)


@pytest.mark.parametrize("part", PAGES)
def test_axe_finds_nothing_on_any_page(browser: Any, server: Gunicorn, people: None, part: str) -> None:
    """Nor does any break the Content-Security-Policy."""
    found: list[str] = []

    def listen(said: Any) -> None:
        if "Security Policy" in said.text:
            found.append(f"{said.page.url}: {said.text} {said.location}")

    first = {each.name: each for each in reversed(PAGES[part])}
    with looking(browser, server, listen) as page_of:
        for shown in PAGES[part]:
            page = page_of(shown.group)
            show(page, shown)
            for theme, size, which in LOOKS if shown is first[shown.name] or shown.then is unfold else LOOKS[:1]:
                page.emulate_media(color_scheme=theme)
                page.set_viewport_size(size)
                found += findings(page, f"{shown}, {theme}, {size['width']} wide", **which)
    assert not found, "\n".join(found)


def test_every_page_of_the_console_is_looked_at() -> None:
    shown = {each.name for part in PAGES.values() for each in part}
    assert sorted(shown | NO_PAGES.keys()) == sorted(set(names()))
    assert not shown & NO_PAGES.keys()


def test_every_state_of_a_workflow_and_every_type_of_question_is_looked_at() -> None:
    states = {each.state for each in PAGES["workflows"] if each.name == "workflows_workflow_change"}
    assert states >= set(State.values)
    questions = {each.state for each in PAGES["tasks"] if each.name == "workflows_manualtask_change"}
    assert questions >= set(TASK_TYPES.values())


@pytest.mark.parametrize(
    ("fault", "of_colours"),
    [
        ("document.querySelector('label[for=find]').remove()", False),
        ("document.querySelector('#content h1').style.color = '#bbb'", True),
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


@pytest.mark.parametrize("path", ["/admin/", "/admin/find/", "/admin/auth/user/add/"])
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
