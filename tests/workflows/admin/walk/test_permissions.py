"""A walk over every URL of the console, as everybody, by GET and by POST: what each gets stands in `table`."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import SimpleCookie
from django.test import Client

from tests.workflows.admin.walk.scene import ROLES, Scene
from tests.workflows.admin.walk.stored import changed, stored, undone
from tests.workflows.admin.walk.table import FORMS, Line, form_of, lines
from tests.workflows.admin.walk.urls import address, every_url

STATUSES = {200: "p", 403: "-", 404: "0", 405: "x", 401: "s"}


@pytest.fixture(autouse=True)
def fast_hasher(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def answer(response: Any, what_changed: list[str]) -> str:
    """The letter of an answer."""
    if what_changed:
        assert response.status_code in (200, 302), f"{response.status_code}, and yet {what_changed} changed"
        return "A"
    if response.status_code in (301, 302):
        return "s" if response["Location"].startswith("/admin/login/") else ">"
    return STATUSES.get(response.status_code, str(response.status_code))


def found_on(client: Client, line: Line, scene: Scene) -> tuple[str, str]:
    """What a line's URL answers to a GET and to a POST, neither of which leaves anything behind."""
    where = address(line.url, *scene.of(line.row))
    cookies, before, letters = client.cookies.output(header=""), stored(), []
    for ask, form in ((client.get, {}), (client.post, form_of(line, scene))):
        client.cookies = SimpleCookie(cookies)
        with undone():
            response = ask(where, form)
            letters.append(answer(response, changed(before, stored())))
        assert ask == client.post or letters == [letters[0].replace("A", "?")], f"to look at {where} changes something"
    client.cookies = SimpleCookie(cookies)
    return letters[0], letters[1]


@pytest.mark.parametrize("role", ROLES.values())
def test_everybody_gets_what_the_table_says(db: None, role: str) -> None:
    scene = Scene(role)
    client = scene.sign_in()
    wrong = []
    for line in lines():
        get, post = found_on(client, line, scene)
        wrong += [
            f"{method} {line.label}: {found!r}, where the table says {expected!r}"
            for method, found, expected in (("GET", get, line.get[role]), ("POST", post, line.post[role]))
            if found != expected
        ]
    assert not wrong, f"As {role}:\n" + "\n".join(wrong)


def test_the_table_has_every_url(db: None) -> None:
    known = {line.url for line in lines()}
    missing, gone = sorted(every_url().keys() - known), sorted(known - every_url().keys())
    assert not missing, (
        f"Say what everybody gets at {', '.join(missing)}: add a line for it to TABLE in {__package__}.table, with the "
        "row that it is about, if it is about one (Scene.args), and the form that its POST asks for (FORMS). The other "
        "tests then say which letters were found: judge each of them."
    )
    assert not gone, f"There is no {', '.join(gone)} any more: take it out of the table."


def test_every_form_of_the_table_is_sent(db: None) -> None:
    assert not FORMS.keys() - {line.label for line in lines()} - {line.url for line in lines()}


def test_a_post_without_its_token_is_refused_everywhere(db: None) -> None:
    scene = Scene("superuser")
    client, before, taken = scene.sign_in(csrf=True), stored(), []
    for line in lines():
        where = address(line.url, *scene.of(line.row))
        with undone():
            status = client.post(where, form_of(line, scene)).status_code
            if status not in (403, 405) or changed(before, stored()):
                taken.append(f"{line.label}: {status}")
    assert taken == []
