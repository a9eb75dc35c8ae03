"""Every page as somebody of each group: with and without a second factor, before and after they have confirmed."""

from __future__ import annotations

from collections.abc import Iterator
from time import time
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from staff.sessions import CONFIRMED
from staff.single_sign_on import KEY
from staff.urls import pages
from tests.workflows.admin.walk.scene import ROLES, Scene
from tests.workflows.admin.walk.table import Line, lines
from tests.workflows.admin.walk.test_console import letter
from tests.workflows.admin.walk.urls import address

pytestmark = [pytest.mark.slow, pytest.mark.django_db]

STAFF = [role for role in ROLES.values() if role not in ("a user who is not staff", "nobody")]
NEED_A_FACTOR = {*STAFF} - {"support", "auditor", "staff without a group"}
CANCEL_CHARGED = {"superuser", "support lead", "engineer"}
PASSWORD, FACTOR, PROVIDER = "a password alone", "a second factor", "single sign-on"

# The pages that ask first: docs/security.md has them in words.
ASK = {
    *(f"workflows_workflow_{page}" for page in ("reveal", "cancel", "ask_erasure", "approve_correction")),
    *("workflows_workflow_confirm_retry", "workflows_manualtask_decide", "workflows_manualtask_confirm"),
    *(
        "workflows_erasure_approve",
        "workflows_bulkoperation_approve",
        "workflows_service_let_fail",
        "workflows_proposal_approve",
    ),
    *("auth_user_add", "auth_user_change", "auth_user_password_change", "auth_user_second_factor"),
    *("auth_group_change", "sessions", "password_change"),
}


def expected(line: Line, role: str, way: str, *, fresh: bool) -> str:
    """The letter of the table, or that of the gate: `s` the sign-in, `c` the page where users confirm."""
    asks = line.url in ASK
    if line.url == "workflows_workflow_cancel":
        asks = role in CANCEL_CHARGED
    if line.url == "password_change":
        asks = way == FACTOR  # others type their password in its form
    if asks and way == PASSWORD and role in NEED_A_FACTOR:
        return "s"
    return "c" if asks and not fresh else line.get[role]


def sign_in(client: Client, way: str, *, fresh: bool) -> None:
    client.force_login(User.objects.get(username="you"), backend="django.contrib.auth.backends.ModelBackend")
    session, now = client.session, time()
    session[CONFIRMED] = now if fresh else 0
    if way == PROVIDER:
        session[KEY] = {"sub": "you", "asked": now, "answered": now, "unanswered": 0}
    session.save()


def walk(scene: Scene, client: Client, role: str, way: str, *, fresh: bool) -> Iterator[str]:
    """What is not as it should be. After confirming only the pages that ask: the others have opened before."""
    sign_in(client, way, fresh=fresh)
    for line in (each for each in lines() if each.url in ASK or not fresh):
        answer = client.get(address(line.url, *scene.of(line.row)))
        to_confirm = answer.get("Location", "").startswith("/admin/confirm/?next=")
        found, wanted = "c" if to_confirm else letter(answer, []), expected(line, role, way, fresh=fresh)
        if found != wanted:
            yield f"{line.label} by {way}, {'after' if fresh else 'before'} confirming: {found}, and not {wanted}"
        if found == "s" or line.url in ("login", "session"):
            sign_in(client, way, fresh=fresh)
    for route, _, name in () if fresh else pages:
        answer = client.get(reverse(name, args=["x"] if "<" in route else []))
        if answer.status_code not in (200, 302, 404, 405):
            yield f"{name} by {way}: {answer.status_code}"
        sign_in(client, way, fresh=fresh)


@pytest.mark.parametrize("role", STAFF)
def test_each_page_opens_or_leads_to_the_gate_that_is_missing(role: str, settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.SECOND_FACTOR_REQUIRED = True
    scene = Scene()
    client, wrong = scene.sign_in(role), []
    for way in (PASSWORD, FACTOR, PROVIDER):
        Authenticator.objects.all().delete()
        if way == FACTOR:
            TOTP.activate(User.objects.get(username="you"), generate_totp_secret())
        settings.OIDC_ISSUER = "http://127.0.0.1:9" if way == PROVIDER else ""  # nobody answers there
        for fresh in (True, False):
            wrong += walk(scene, client, role, way, fresh=fresh)
    assert not wrong, f"As {role}:\n" + "\n".join(wrong)
