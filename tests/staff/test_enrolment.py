"""A second factor is enrolled by a link that works once, after the password of the user whom it is for."""

from __future__ import annotations

import io
import re
import time
from datetime import timedelta
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from staff.enrolment import SENSITIVE, new_link
from staff.models import EnrolmentLink
from tests.staff.conftest import PASSWORD, SIGN_IN
from tests.staff.test_second_factor import ASKS, code, is_signed_in, send

ENROL = "/admin/second-factor/enrol/"


def type_password(client: Client, name: str = "ada") -> Any:
    return client.post(SIGN_IN, {"username": name, "password": PASSWORD}, REMOTE_ADDR="192.0.2.1")


@pytest.fixture
def required(ada: User, settings: Any) -> User:
    """Ada is in a group that needs a factor, as without DEBUG."""
    settings.SECOND_FACTOR_REQUIRED = True
    ada.groups.add(Group.objects.get(name="support lead"))
    return ada


def command(*options: str) -> str:
    out = io.StringIO()
    call_command("createfactorlink", "ada", *options, stdout=out, stderr=io.StringIO())
    return out.getvalue().splitlines()[-1]


def enrolled(client: Client) -> str:
    """Enrol an app on the page that is open; returns its secret."""
    page = client.get(ENROL).content.decode()
    secret = re.findall(r'factor-key">([A-Z2-7]{32})<', page)[0]
    assert client.post(ENROL, {"code": code(secret)})["Location"] == ENROL
    return str(secret)


def test_whoever_moves_money_or_sees_health_data_needs_one_and_a_password_enrols_none(required: User) -> None:
    client = Client()
    answer = type_password(client)
    assert "needs a second factor. Ask the person" in client.get(answer["Location"]).content.decode()
    for path in (ENROL, f"{ENROL}picture.svg"):
        assert client.get(path)["Location"] == "/admin/sign-in/"
    assert not is_signed_in(client)
    required.groups.set([Group.objects.get(name="support")])
    assert type_password(client)["Location"] == "/admin/"


def test_the_groups_that_need_one(db: None) -> None:
    needing = {
        group.name
        for group in Group.objects.all()
        if any(f"{each.content_type.app_label}.{each.codename}" in SENSITIVE for each in group.permissions.all())
    }
    assert needing == {"support lead", "approver", "engineer", "operations"}


def test_the_first_one_by_a_command_then_its_codes_count_and_the_link_no_more(required: User) -> None:
    path = command()
    client = Client()
    assert "set up your second factor" in client.get(path, follow=True).content.decode()
    assert type_password(client)["Location"] == ENROL
    picture = client.get(f"{ENROL}picture.svg")
    assert (picture["Content-Type"], picture.content[:5]) == ("image/svg+xml", b"<?xml")
    time.sleep(max(0, time.time() % 30 - 25) and 5.5)  # not in the last seconds of a half minute
    secret = enrolled(client)
    used = code(secret)
    assert not is_signed_in(client)
    page = client.get(ENROL).content.decode()
    assert len(re.findall(r"<code>\d{8}</code>", page)) == 10
    assert secret not in page
    assert client.post(ENROL)["Location"] == "/admin/"
    assert is_signed_in(client)
    assert not EnrolmentLink.objects.exists()
    assert "was used" in Client().get(path, follow=True).content.decode()
    again = Client()
    assert type_password(again)["Location"] == ASKS
    send(again, used)
    assert not is_signed_in(again)
    send(again, code(secret, steps=1))
    assert is_signed_in(again)
    kept = list(LogEntry.objects.order_by("id").values_list("change_message", flat=True))
    assert kept == ["A link made to enrol a second factor, by a command.", "Second factor enrolled: an app."]


def test_a_link_is_for_its_user_for_a_day_and_until_there_is_another(required: User, hasher: Any) -> None:
    User.objects.create_user("eve", password=PASSWORD, is_staff=True)
    first = command()
    eve = Client()
    eve.get(first)
    assert type_password(eve, "eve")["Location"] == "/admin/"  # she gets in as herself, and enrols nothing of Ada's
    assert eve.get(ENROL).status_code == 302
    second = command()
    ada = Client()
    ada.get(first)
    assert type_password(ada)["Location"] == "/admin/login/"
    ada.get(second)
    assert type_password(ada)["Location"] == ENROL
    EnrolmentLink.objects.update(made_at=timezone.now() - timedelta(hours=24, seconds=1))
    assert ada.post(ENROL, {"code": "000000"})["Location"] == "/admin/login/"
    assert not is_signed_in(ada)
    with pytest.raises(CommandError):
        call_command("createfactorlink", "nobody")


def test_a_link_that_is_open_in_two_browsers_enrols_one(required: User) -> None:
    path, browsers = command(), (Client(), Client())
    for client in browsers:
        client.get(path)
        assert type_password(client)["Location"] == ENROL
    enrolled(browsers[0])
    assert browsers[1].get(ENROL)["Location"] == "/admin/login/"
    assert browsers[1].get(f"{ENROL}picture.svg").status_code in (302, 404)
    assert Authenticator.objects.filter(type="totp").count() == 1


def test_wrong_codes_enrol_nothing_and_who_has_a_factor_is_asked_for_it_before_a_link_counts(required: User) -> None:
    client = Client()
    client.get(command())
    type_password(client)
    assert "Incorrect code" in client.post(ENROL, {"code": "000000"}).content.decode()
    for sent in ("{}", "x", "[]", '{"id": 1}'):
        assert client.post(ENROL, {"credential": sent}).status_code == 200
    assert not Authenticator.objects.exists()
    secret = enrolled(client)
    client.post(ENROL)
    more = Client()
    more.get(new_link(required, by=None))
    assert type_password(more)["Location"] == ASKS
    assert send(more, code(secret, steps=1))["Location"] == ENROL


# --- A lost device ------------------------------------------------------------------------------


def test_a_second_administrator_removes_lost_factors_on_record_and_nobody_their_own(
    required: User, settings: Any
) -> None:
    client = Client()
    client.get(command())
    type_password(client)
    enrolled(client)
    client.post(ENROL)
    assert UserSession.objects.filter(user=required).count() == 1
    settings.SECOND_FACTOR_REQUIRED = False  # these have none
    root = User.objects.create_superuser("root")
    office = Client()
    office.force_login(root)
    page = f"/admin/auth/user/{required.pk}/second-factor/"
    assert page in office.get(f"/admin/auth/user/{required.pk}/change/").content.decode()
    assert Authenticator.objects.count() == 2
    assert "made sure that it is ada" in office.get(page).content.decode()
    office.post(page)
    assert Authenticator.objects.count() == 2
    told = office.post(page, {"sure": "on"}).content.decode()
    path = re.findall(r"http://testserver(/admin/second-factor/link/[\w-]+/)", told)[0]
    assert not Authenticator.objects.exists()
    assert not is_signed_in(client)
    last = LogEntry.objects.order_by("id").last()
    assert last
    assert (last.user, last.object_id) == (root, str(required.pk))
    assert last.change_message == "Second factors removed, and a link made to enrol one."
    client.get(path)
    assert type_password(client)["Location"] == ENROL
    assert office.post(f"/admin/auth/user/{root.pk}/second-factor/", {"sure": "on"}).status_code == 403
    lead = Client()
    lead.force_login(required)
    assert lead.post(page, {"sure": "on"}).status_code == 403
    assert Client(enforce_csrf_checks=True).post(page, {"sure": "on"}).status_code in (302, 403)


def test_a_factor_that_was_removed_before_its_first_sign_in_signs_nobody_in(required: User) -> None:
    client = Client()
    client.get(command())
    type_password(client)
    enrolled(client)
    owner = Client()
    owner.get(command("--lost"))
    type_password(owner)
    enrolled(owner)
    for send_on in (client.get, client.post):  # neither her recovery codes nor a session
        assert send_on(ENROL)["Location"].startswith("/admin/")
    assert not is_signed_in(client)


def test_a_session_that_has_changed_its_password_ends_with_the_others(ada: User) -> None:
    client = Client()
    type_password(client)
    form = {"old_password": PASSWORD, "new_password1": "a longer one, 42", "new_password2": "a longer one, 42"}
    assert client.post("/admin/password_change/", form, REMOTE_ADDR="192.0.2.1").status_code == 302
    new_link(ada, by=None, lost=True)
    assert client.get("/admin/session/").status_code == 401


def test_who_gains_such_rights_while_signed_in_needs_one_too(ada: User, settings: Any) -> None:
    settings.SECOND_FACTOR_REQUIRED = True
    client = Client()
    type_password(client)
    page = "/admin/workflows/workflow/1/reveal/"
    assert client.get(page).status_code == 403
    ada.groups.add(Group.objects.get(name="support lead"))
    assert "needs a second factor" in client.get(client.get(page)["Location"]).content.decode()
    assert not is_signed_in(client)


def test_a_break_glass_account_needs_one_whatever_it_may(ada: User, settings: Any) -> None:
    settings.OIDC_ISSUER, settings.OIDC_BREAK_GLASS = "https://sso.example.com", ["ada"]
    client = Client()
    assert "needs a second factor" in client.get(type_password(client)["Location"]).content.decode()
