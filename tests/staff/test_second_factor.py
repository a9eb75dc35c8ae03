"""Whoever has a second factor is asked for it after the password, and is not signed in before."""

from __future__ import annotations

import time
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, generate_totp_secret, hotp_value
from axes.models import AccessLog
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.urls import NoReverseMatch, reverse

from staff.models import FactorSecret
from tests.staff.conftest import PASSWORD, SIGN_IN, sign_in

ASKS = "/admin/second-factor/"


def code(secret: str, *, steps: int = 0) -> str:
    return format_hotp_value(hotp_value(secret, int(time.time()) // 30 + steps))


@pytest.fixture
def secret(ada: User) -> str:
    """Of Ada's app. A test does not begin in the last seconds of a half minute."""
    time.sleep(max(0, time.time() % 30 - 25) and 5.5)
    secret = generate_totp_secret()
    TOTP.activate(ada, secret)
    RecoveryCodes.activate(ada)
    return secret


def after_password(next_: str = "/admin/") -> Client:
    """A browser in which Ada has typed her password."""
    client = Client()
    form = {"username": "ada", "password": PASSWORD, "next": next_}
    answer = client.post(SIGN_IN, form, REMOTE_ADDR="192.0.2.1")
    assert (answer.status_code, answer["Location"]) == (302, ASKS)
    return client


def send(client: Client, typed: str) -> Any:
    return client.post(ASKS, {"code": typed}, REMOTE_ADDR="192.0.2.1")


def is_signed_in(client: Client) -> bool:
    return client.get("/admin/session/").status_code == 200


def test_the_password_alone_signs_nobody_in_and_the_code_then_does(secret: str) -> None:
    client = after_password("/admin/jsi18n/")
    assert not is_signed_in(client)
    assert not AccessLog.objects.exists()
    page = client.get(ASKS)
    assert "Type the code that your app shows" in page.content.decode()
    assert "no-cache" in page["Cache-Control"]
    assert send(client, code(secret))["Location"] == "/admin/jsi18n/"
    assert is_signed_in(client)
    assert AccessLog.objects.get().username == "ada"


def test_it_asks_nobody_who_has_typed_no_password_and_leads_nowhere_else(secret: str) -> None:
    assert Client().get(ASKS)["Location"] == "/admin/sign-in/"
    assert send(Client(), code(secret))["Location"] == "/admin/sign-in/"
    assert send(after_password("https://evil.example/"), code(secret))["Location"] == "/admin/"


def test_a_form_of_another_site_is_refused(secret: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.cookies = after_password().cookies
    assert send(client, code(secret)).status_code == 403


def test_a_code_counts_once_and_for_half_a_minute_to_either_side(secret: str) -> None:
    for steps, works in ((0, True), (0, False), (-1, True), (1, True), (-2, False), (2, False), (20, False)):
        client = after_password()
        send(client, code(secret, steps=steps))
        assert is_signed_in(client) == works, steps


def test_a_recovery_code_counts_once(ada: User, secret: str) -> None:
    codes = Authenticator.objects.get(user=ada, type="recovery_codes").wrap().generate_codes()
    for typed, works in ((codes[0], True), (codes[0], False), (codes[1], True)):
        client = after_password()
        send(client, typed)
        assert is_signed_in(client) == works


def test_five_wrong_codes_lock_the_account_and_the_right_one_is_refused(secret: str) -> None:
    client = after_password()
    for number in range(5):
        assert "Incorrect code" in send(client, f"00000{number}").content.decode()
    assert not is_signed_in(client)
    send(client, code(secret))
    assert not is_signed_in(client)
    assert sign_in().status_code == 429


def test_what_is_no_passkey_is_refused(secret: str) -> None:
    client = after_password()
    for sent in ("{}", "x", "[]", '{"id": 1}', '{"rawId": "AA", "response": {}, "type": "public-key"}'):
        assert client.post(ASKS, {"credential": sent}).status_code == 200
    assert not is_signed_in(client)


def test_a_user_who_was_deactivated_meanwhile_does_not_get_in(ada: User, secret: str) -> None:
    client = after_password()
    User.objects.update(is_active=False)
    send(client, code(secret))
    assert not is_signed_in(client)


def test_what_is_stored_is_sealed_and_opens_for_its_own_row_alone(ada: User, secret: str, settings: Any) -> None:
    stored = Authenticator.objects.get(user=ada, type="totp")
    kept = FactorSecret.objects.get(key=stored.data["secret"])
    assert secret not in kept.sealed
    other = FactorSecret.objects.exclude(pk=kept.pk).get()
    FactorSecret.objects.filter(pk=other.pk).update(sealed=kept.sealed)
    assert "cannot be read" in send(after_password(), "00000000").content.decode()  # the recovery codes are next
    settings.DATA_KEYS = ["another one"]
    assert "cannot be read" in send(after_password(), code(secret)).content.decode()


def test_datakeys_seals_factors_again_and_a_deleted_factor_leaves_no_secret(
    ada: User, secret: str, settings: Any
) -> None:
    settings.DATA_KEYS = ["new", *settings.DATA_KEYS]
    call_command("datakeys", "rotate")
    settings.DATA_KEYS = ["new"]
    client = after_password()
    send(client, code(secret))
    assert is_signed_in(client)
    Authenticator.objects.all().delete()
    assert not FactorSecret.objects.exists()


# --- What allauth brings, and is not used -------------------------------------------------------


def test_no_other_page_of_allauth_is_mounted_and_none_of_its_tables_has_a_page_in_the_console(db: None) -> None:
    for name in ("account_signup", "account_reset_password", "account_email", "mfa_index", "socialaccount_signup"):
        with pytest.raises(NoReverseMatch):
            reverse(name)
    assert not [model for model in admin.site._registry if model.__module__.startswith("allauth.")]


def test_the_cache_is_a_table_of_a_migration_and_a_sign_in_deletes_what_is_over(ada: User) -> None:
    cache.set("over", "y", timeout=-1)
    cache.set("counts", "y", timeout=60)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO staff_cache VALUES ('old', '', now() - interval '1 minute')")
        assert sign_in().status_code == 302
        cursor.execute("SELECT cache_key FROM staff_cache")
        assert cursor.fetchall() == [(":1:counts",)]
