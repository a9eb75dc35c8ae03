"""What is kept of sign-ins, sign-outs and failures, and that no password is in it, nor in a log line."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.apps import apps
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from tests.staff.conftest import PASSWORD, sign_in

CANARY = "kanarienvogel-2026"


def everything_kept() -> str:
    models = [*apps.get_app_config("axes").get_models(), *apps.get_app_config("admin").get_models()]
    return str([list(model._default_manager.values()) for model in models])


def test_a_sign_in_and_its_sign_out_are_kept_with_name_address_and_time(ada: User) -> None:
    client = Client()
    client.post("/admin/login/", {"username": "ada", "password": PASSWORD}, REMOTE_ADDR="192.0.2.9")
    (kept,) = AccessLog.objects.all()
    assert (kept.username, kept.ip_address, kept.logout_time) == ("ada", "192.0.2.9", None)
    assert timezone.now() - kept.attempt_time < timedelta(minutes=1)
    client.post("/admin/logout/")
    kept.refresh_from_db()
    assert timezone.now() - kept.logout_time < timedelta(minutes=1)


def test_a_failure_is_kept_with_name_address_time_and_whether_it_ended_in_a_refusal(ada: User) -> None:
    for _ in range(7):
        sign_in(password="guess", address="192.0.2.9")
    kept = AccessFailureLog.objects.order_by("attempt_time").values_list("username", "ip_address", "locked_out")
    assert list(kept) == [("ada", "192.0.2.9", False)] * 4 + [("ada", "192.0.2.9", True)]


def test_no_password_is_kept_nor_what_was_typed_for_a_user_name_that_is_none(
    ada: User, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(7):
        sign_in("ada", CANARY)
        sign_in(CANARY, PASSWORD)
    sign_in("ada", PASSWORD)
    kept = everything_kept()
    assert CANARY not in kept + caplog.text
    assert PASSWORD not in kept + caplog.text
    assert AccessFailureLog.objects.filter(username__startswith="unknown:").count() == 5
    sent = AccessAttempt.objects.values_list("post_data", flat=True)
    assert all("password=****" in each and "username=****" in each for each in sent)


@pytest.mark.parametrize("path", ["/admin/login/", "/admin/password_change/"])
def test_an_error_report_shows_no_password(
    ada: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise LookupError("broken")

    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_superuser("root"))
    monkeypatch.setattr("django.contrib.auth.forms.AuthenticationForm.clean", broken)
    monkeypatch.setattr("django.contrib.auth.forms.SetPasswordMixin.validate_passwords", broken)
    fields = ("username", "password", "old_password", "new_password1", "new_password2", "password1", "password2")
    answer = client.post(path, {**dict.fromkeys(fields, CANARY), "username": "ada"})
    assert answer.status_code == 500
    assert CANARY not in answer.content.decode() + caplog.text


def test_what_was_kept_long_enough_is_dropped_at_a_sign_in_with_sessions_that_are_over(
    ada: User, settings: Any
) -> None:
    sign_in(password="typo")
    sign_in()
    sign_in()
    first = AccessLog.objects.earliest("attempt_time")
    long_ago = timezone.now() - timedelta(days=settings.SIGN_INS_KEPT_DAYS, hours=1)
    AccessLog.objects.filter(pk=first.pk).update(attempt_time=long_ago)
    AccessFailureLog.objects.update(attempt_time=long_ago)
    Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))
    sign_in()
    assert AccessLog.objects.count() == 2
    assert not AccessFailureLog.objects.exists()
    assert Session.objects.count() == 1
