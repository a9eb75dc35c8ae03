"""The rules for passwords hold wherever one is set."""

from __future__ import annotations

import io
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from tests.staff.conftest import PASSWORD

# Of the project's own hasher each password takes a second.
pytestmark = pytest.mark.usefixtures("hasher")

WEAK = ["1", "elevenchars", "password1234", "adalovelace1815", "201501012026"]


@pytest.fixture
def root(ada: User) -> Client:
    ada.is_superuser, ada.first_name, ada.last_name = True, "Ada", "Lovelace"
    ada.username, ada.email = "adalovelace", "ada@example.com"
    ada.save()
    client = Client()
    client.force_login(ada)
    return client


def password_of(user: User) -> str:
    return User.objects.values_list("password", flat=True).get(pk=user.pk)


def test_a_weak_password_is_refused_for_a_new_user_another_and_oneself(root: Client, ada: User) -> None:
    before = password_of(ada)
    form = {"username": "adalovelace2", "usable_password": "true"}
    for weak in WEAK:
        mine = {"old_password": PASSWORD, "new_password1": weak, "new_password2": weak}
        assert root.post("/admin/password_change/", mine).status_code == 200
    another = {"usable_password": "true", "set-password": "1", "password1": weak, "password2": weak}
    assert root.post(f"/admin/auth/user/{ada.pk}/password/", another).status_code == 200
    assert root.post("/admin/auth/user/add/", {**form, "password1": weak, "password2": weak}).status_code == 200
    assert password_of(ada) == before
    assert not User.objects.filter(username="adalovelace2").exists()
    good = {**form, "password1": PASSWORD, "password2": PASSWORD}
    assert root.post("/admin/auth/user/add/", good).status_code == 302


def test_createsuperuser_takes_no_weak_password_from_the_environment(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    command: dict[str, Any] = {"interactive": False, "username": "adalovelace", "email": "ada@example.com"}
    for weak in WEAK:
        monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", weak)
        with pytest.raises(CommandError, match="DJANGO_SUPERUSER_PASSWORD: "):
            call_command("createsuperuser", **command)
    assert not User.objects.exists()
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", PASSWORD)
    call_command("createsuperuser", **command, stdout=io.StringIO())
    assert User.objects.get().check_password(PASSWORD)


def test_with_debug_it_takes_one_to_try_the_project_out_and_says_so(
    db: None, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.DEBUG = True
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", "1")
    told = io.StringIO()
    command: dict[str, Any] = {"interactive": False, "username": "ada", "email": "ada@example.com"}
    call_command("createsuperuser", **command, stdout=io.StringIO(), stderr=told)
    assert User.objects.get().check_password("1")
    assert "It is taken with DEBUG only" in told.getvalue()


class Terminal:
    def isatty(self) -> bool:
        return True


def test_createsuperuser_does_not_offer_to_take_a_weak_password_all_the_same(db: None) -> None:
    answers = iter(["1", "1", PASSWORD, PASSWORD])
    with patch("getpass.getpass", lambda *_: next(answers)), patch("builtins.input", lambda _: "y"):
        command: dict[str, Any] = {"username": "ada", "email": "ada@example.com", "stdin": Terminal()}
        call_command("createsuperuser", **command, stdout=io.StringIO(), stderr=io.StringIO())
    assert User.objects.get().check_password(PASSWORD)


def test_changepassword_takes_no_weak_password(ada: User) -> None:
    before = password_of(ada)
    with patch("getpass.getpass", lambda **_: "1"), pytest.raises(CommandError):
        call_command("changepassword", "ada", stdout=io.StringIO(), stderr=io.StringIO())
    assert password_of(ada) == before
