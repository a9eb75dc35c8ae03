"""The demo's logins: one for each group, with DEBUG only, and with passwords that nobody can guess."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.contrib.auth.password_validation import validate_password
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from onboarding.demo import logins
from onboarding.demo.processes import DemoError
from workflows.features.corrections.operations import YOUNGEST

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def with_debug(settings: Any) -> None:
    settings.DEBUG = True
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # the others take a second each


def test_there_is_a_superuser_and_one_login_for_each_group_with_a_password_of_its_own() -> None:
    made = logins.make_logins()
    assert [login.group for login in made] == ["", *logins.MAY, "support lead"]
    assert all(login.user.email == f"{login.name}@example.com" for login in made)
    lead, second = (logins.someone(made, each) for each in ("support lead", logins.SECOND_LEAD))
    assert lead != second
    assert min(timezone.now() - each.date_joined for each in (lead, second)) > YOUNGEST, "they may correct"
    assert {*logins.MAY} == set(Group.objects.values_list("name", flat=True))
    assert len({login.password for login in made}) == len(made)
    for login in made[1:]:
        assert login.name == logins.SECOND_LEAD or login.name == f"demo-{login.group.replace(' ', '-')}"
        assert not login.user.is_superuser
        assert list(login.user.groups.values_list("name", flat=True)) == [login.group]
        validate_password(login.password, login.user)
    last = made[-1]
    answer = Client().post("/admin/login/", {"username": last.name, "password": last.password})
    assert answer.status_code == 302


def test_a_second_demo_makes_new_passwords_and_takes_back_what_a_login_was_given() -> None:
    first = logins.make_logins()
    support = User.objects.get(username="demo-support")
    support.groups.add(Group.objects.get(name="engineer"))
    support.user_permissions.add(Permission.objects.get(codename="revoke_apikey"))
    User.objects.filter(pk=support.pk).update(is_superuser=True, is_active=False)
    again = logins.make_logins()
    assert [login.name for login in again] == [login.name for login in first]
    assert not {login.password for login in first} & {login.password for login in again}
    support = User.objects.get(username="demo-support")
    assert (support.is_superuser, support.is_active, support.user_permissions.count()) == (False, True, 0)
    assert list(support.groups.values_list("name", flat=True)) == ["support"]


def test_without_debug_there_are_no_logins(settings: Any) -> None:
    settings.DEBUG = False
    with pytest.raises(DemoError, match="DEBUG=1 only"):
        logins.make_logins()
    with pytest.raises(CommandError, match="DEBUG=1 only"):
        call_command("demo")
    assert not User.objects.exists()
