"""What the sign-in brings to `/metrics` and the doctor: each use of a break-glass account is an alert."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from axes.models import AccessLog
from django.conf import settings
from django.contrib.auth.models import User
from django.utils import timezone

from staff.enrolment import lacks_factor
from workflows.extension import Extension
from workflows.features.doctor.findings import Finding, Level
from workflows.health import bounded
from workflows.health.families import Family, Section, one
from workflows.health.figures import Figures

# Long enough for an alert to reach somebody, and for a scrape that fails; then it resolves by itself.
LATELY = timedelta(hours=1)


def sign_ins(at: datetime) -> int:
    """How often break-glass accounts have signed in within the hour before `at`. One bounded query."""
    if not settings.OIDC_ISSUER:
        return 0  # their passwords are like all others
    rows = AccessLog.objects.filter(username__in=settings.OIDC_BREAK_GLASS, attempt_time__gte=at - LATELY)
    return bounded.count(rows)


class SignIns(Figures):
    def families(self, at: datetime) -> Mapping[Section, Iterable[Family]]:
        says = "Sign-ins of break-glass accounts in the last hour."
        return {Section.REST: [one("onramp_break_glass_sign_ins", says, sign_ins(at))]}


def no_break_glass() -> Iterator[Finding]:
    """No break-glass account has signed in within the hour."""
    if number := sign_ins(timezone.now()):
        what = f"Break-glass accounts have signed in with a password in the last hour: {bounded.text(number)}."
        yield Finding(Level.CRITICAL, "break-glass", what, "See who it was: docs/operations.md, OnrampBreakGlass.")


def break_glass_works() -> Iterator[Finding]:
    """With single sign-on, somebody can sign in on the day when the provider is down."""
    if not settings.OIDC_ISSUER:
        return
    users = {each.username: each for each in User.objects.filter(username__in=settings.OIDC_BREAK_GLASS)}
    if not users:
        what = "OIDC_BREAK_GLASS names no account: nobody can sign in while the provider is down."
        yield Finding(Level.WARNING, "break-glass", what, "Name one there, with a second factor.")
    for name, user in sorted(users.items()):
        if not (user.is_active and user.is_staff and user.has_usable_password()):
            cure = "Give it a password, Active and Staff status, or take it out of OIDC_BREAK_GLASS."
            yield Finding(Level.WARNING, "break-glass", f"The break-glass account {name} cannot sign in.", cure)
        elif lacks_factor(user):
            what = f"The break-glass account {name} has no second factor, and cannot sign in without one."
            yield Finding(Level.WARNING, "break-glass", what, f"Make a link: manage.py createfactorlink {name}.")


class StaffExtension(Extension):
    looks = (no_break_glass, break_glass_works)

    def figures(self, at: datetime) -> SignIns:
        return SignIns()
