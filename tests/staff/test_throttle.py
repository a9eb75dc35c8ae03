"""Sign-ins that fail are counted by account and by address; beyond that nothing is compared, and nothing hashed."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from staff import sign_in as throttle
from tests.staff.conftest import PASSWORD, SIGN_IN, CountingHasher, sign_in

REFUSED = "too many wrong passwords"
NEW_PASSWORD = "staple of four words"
OFFICE, HOME = "192.0.2.1", "198.51.100.7"


def refused(answer: Any) -> bool:
    said = REFUSED in answer.content.decode()
    assert (answer.status_code == 429) == said
    return said


def pause_is_over() -> None:
    AccessAttempt.objects.update(attempt_time=timezone.now() - timedelta(minutes=15, seconds=1))


def test_a_sign_in_leads_nowhere_else_and_then_home(ada: User) -> None:
    for elsewhere in ("//evil.example/", "https://evil.example/admin/", "/\\evil.example", "javascript:1"):
        for data, query in (({"next": elsewhere}, {}), ({}, {"next": elsewhere})):
            form = {"username": "ada", "password": PASSWORD, **data}
            assert Client().post(SIGN_IN, form, query_params=query)["Location"] == "/admin/"


def test_wrong_passwords_cost_five_hashes_whatever_sends_them(ada: User, hasher: type[CountingHasher]) -> None:
    answers = [
        sign_in(password=f"guess {number}", address=f"198.51.100.{number}", HTTP_USER_AGENT=f"browser {number}")
        for number in range(7)
    ]
    assert [refused(each) for each in answers] == [False] * 4 + [True] * 3
    assert hasher.hashed == 5
    assert refused(sign_in())
    assert hasher.hashed == 5


def test_many_accounts_from_one_address_cost_few_hashes(
    ada: User, hasher: type[CountingHasher], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert throttle.FAILURES_OF_ADDRESS == 4
    monkeypatch.setattr(throttle, "FAILURES_OF_ADDRESS", 2)
    users = [User.objects.create_user(f"user{number}", password=PASSWORD, is_staff=True) for number in range(12)]
    hasher.hashed = 0
    answers = [sign_in(user.username, "Summer 2026 again") for user in users]
    assert [refused(each) for each in answers] == [False] * 9 + [True] * 3
    assert hasher.hashed == 10
    assert refused(sign_in())
    assert sign_in(address=HOME).status_code == 302


def test_what_is_wrong_is_told_beside_the_password_and_the_refusal_says_until_when(ada: User) -> None:
    for _ in range(6):
        answer = sign_in(password="guess")
        page = answer.content.decode()
        assert re.search(r'<input type="password"[^>]* aria-invalid="true" aria-describedby="id_password_error"', page)
        assert re.search(r'<ul class="errorlist" id="id_password_error"><li>(Please enter|There were too many)', page)
    assert refused(answer)
    assert "Wait 15 minutes" in page
    assert answer.headers["Retry-After"] == "900"
    assert "'self'" in answer.headers["Content-Security-Policy"]
    pause_is_over()
    assert sign_in().status_code == 302


def test_what_is_refused_does_not_make_the_pause_longer(ada: User) -> None:
    for _ in range(5):
        sign_in(password="guess")
    (before,) = AccessAttempt.objects.values("failures_since_start", "attempt_time")
    for _ in range(5):
        assert refused(sign_in(password="guess"))
    assert AccessAttempt.objects.values("failures_since_start", "attempt_time").get() == before


def test_whoever_locks_an_account_does_not_lock_out_its_owner_at_a_known_address(ada: User) -> None:
    assert sign_in(address=OFFICE).status_code == 302
    for _ in range(6):
        sign_in(password="guess", address=HOME)
    assert refused(sign_in(address=HOME))
    assert refused(sign_in(address="203.0.113.1"))
    assert sign_in(address=OFFICE).status_code == 302


def test_at_a_known_address_guesses_are_counted_too(ada: User, hasher: type[CountingHasher]) -> None:
    assert sign_in().status_code == 302
    hasher.hashed = 0
    answers = [sign_in(password="guess") for _ in range(6)]
    assert [refused(each) for each in answers] == [False] * 4 + [True] * 2
    assert hasher.hashed == 5


def test_an_account_of_ones_own_does_not_start_the_count_of_an_address_anew(
    ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttle, "FAILURES_OF_ADDRESS", 1)
    for number in range(4):
        sign_in(f"user{number}", "guess")
    assert sign_in().status_code == 302
    assert refused(sign_in("user5", "guess"))


def test_a_typing_error_is_forgotten_with_the_sign_in(ada: User) -> None:
    for _ in range(2):
        for _ in range(4):
            assert not refused(sign_in(password="typo"))
        assert sign_in().status_code == 302


def test_an_unknown_user_costs_as_much_as_a_known_one_and_reads_the_same(
    ada: User, hasher: type[CountingHasher]
) -> None:
    def page(answer: Any) -> str:
        return re.sub(r'(name="csrfmiddlewaretoken" value=)"[^"]*"', r"\1", answer.content.decode())

    for _ in range(6):
        before = hasher.hashed
        known = sign_in(password="guess", address=OFFICE)
        of_known, before = hasher.hashed - before, hasher.hashed
        unknown = sign_in("nobody", "guess", address=HOME)
        assert hasher.hashed - before == of_known
        assert unknown.status_code == known.status_code
        assert page(unknown).replace("nobody", "ada") == page(known)


def test_the_right_password_of_a_user_without_the_console_counts_like_a_wrong_one(
    db: None, hasher: type[CountingHasher]
) -> None:
    User.objects.create_user("bob", password=PASSWORD)
    answers = [sign_in("bob") for _ in range(6)]
    assert [refused(each) for each in answers] == [False] * 4 + [True] * 2
    User.objects.update(is_staff=True)
    assert refused(sign_in("bob"))


def test_no_user_and_a_locked_one_in_one_browser_are_no_server_error(ada: User) -> None:
    client = Client(raise_request_exception=True)
    for name in ("", "ada", "x" * 500, "né\u0301", "a\x00b"):
        assert client.post("/admin/login/", {"username": name, "password": "guess"}).status_code == 200


# --- The address --------------------------------------------------------------------------------


def test_a_header_of_the_client_does_not_tell_its_address(ada: User) -> None:
    for number in range(5):
        sign_in("ada", "guess", HTTP_X_FORWARDED_FOR=f"198.51.100.{number}")
    assert set(AccessAttempt.objects.values_list("ip_address", flat=True)) == {OFFICE}


@pytest.mark.parametrize(
    ("told", "address"),
    [
        ("10.0.0.1, ::ffff:203.0.113.9", "203.0.113.9"),  # what our proxy has appended, not what the client claims
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("nonsense", None),
    ],
)
def test_behind_a_proxy_its_header_tells_the_address(ada: User, settings: Any, told: str, address: str | None) -> None:
    settings.CLIENT_ADDRESS_HEADER = "X-Forwarded-For"
    for _ in range(5):
        answer = sign_in("ada", "guess", HTTP_X_FORWARDED_FOR=told)
    assert refused(answer)
    assert AccessAttempt.objects.get().ip_address == address


def test_a_deployment_behind_a_proxy_is_warned_that_the_address_is_not_told(settings: Any) -> None:
    from staff.checks import proxy_tells_the_address

    assert list(proxy_tells_the_address()) == []
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    assert [each.id for each in proxy_tells_the_address()] == ["staff.W001"]
    settings.CLIENT_ADDRESS_HEADER = "X-Forwarded-For"
    assert list(proxy_tells_the_address()) == []


def change_password(client: Client, old: str) -> Any:
    form = {"old_password": old, "new_password1": NEW_PASSWORD, "new_password2": NEW_PASSWORD}
    return client.post("/admin/password_change/", form, REMOTE_ADDR=OFFICE)


def test_an_open_session_does_not_let_anybody_guess_at_its_password(ada: User, hasher: type[CountingHasher]) -> None:
    client = Client()
    client.force_login(ada)
    answers = [change_password(client, f"guess {number}") for number in range(8)]
    assert [refused(each) for each in answers] == [False] * 4 + [True] * 4
    assert hasher.hashed == 5
    assert "Your old password was entered incorrectly." in answers[0].content.decode()
    assert refused(change_password(client, PASSWORD))
    assert refused(sign_in(address=HOME))  # they are counted together
    pause_is_over()
    assert change_password(client, PASSWORD)["Location"] == "/admin/password_change/done/"
    assert sign_in(password=NEW_PASSWORD).status_code == 302
