"""A login for each group of the console, and the superuser's. Only with DEBUG, with new passwords each time."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.utils import timezone
from rich.table import Table

from onboarding.demo.processes import DemoError

SUPERUSER, SECOND_LEAD = "demo", "demo-second-lead"
# Nobody younger than a day corrects a payload, or confirms for another.
AGE = timedelta(days=30)
# In the order of docs/permissions.md, which has the details.
MAY = {
    "support": "find patients and see them, masked; retry, run now, run again, cancel what has not paid",
    "support lead": "also cancel what has paid, answer unclear calls and failed reversals, assign any task",
    "approver": "decide the reviews",
    "engineer": "as support; also cancel what has paid, answer as operations, hold services, revoke API keys",
    "operations": "answer unclear calls and failed reversals, and nothing else",
    "auditor": "look at everything but the workers; change nothing but legal holds",
}


@dataclass(frozen=True, slots=True)
class Login:
    """A user of the console with a new password. `group` is empty for the superuser."""

    user: User
    password: str
    group: str = ""

    @property
    def name(self) -> str:
        return self.user.get_username()


def make_logins() -> list[Login]:
    """Make the superuser `demo`, a user such as `demo-support` for each existing group, and a second support lead.

    A user of an earlier demo gets a new password, and only their own group. Raises DemoError without DEBUG.
    """
    if not settings.DEBUG:
        raise DemoError("The demo's logins are for trying the console out: they are made with DEBUG=1 only.")
    logins = [Login(*_make_user(SUPERUSER, is_superuser=True))]
    groups = {group.name: group for group in Group.objects.filter(name__in=MAY)}
    names = [(f"demo-{name.replace(' ', '-')}", name) for name in MAY] + [(SECOND_LEAD, "support lead")]
    for login, name in [each for each in names if each[1] in groups]:
        user, password = _make_user(login, is_superuser=False)
        user.groups.set([groups[name]])
        user.user_permissions.clear()
        logins.append(Login(user, password, name))
    return logins


def someone(logins: Collection[Login], group: str) -> User:
    """The first user of a group, or the one of this name; the superuser if the group was deleted."""
    found = [login.user for login in logins if group in (login.group, login.name)]
    return found[0] if found else next(login.user for login in logins if not login.group)


def table(logins: Collection[Login], *, sso: bool = False) -> Table:
    """A table of the user names and passwords, and what each user may do. `sso`: the provider takes any password."""
    view = Table(title="Logins", title_justify="left")
    view.add_column("Login", no_wrap=True)
    view.add_column("Password", no_wrap=True)
    view.add_column("May")
    for login in logins:
        password = "any, at single sign-on" if sso and login.group else login.password
        view.add_row(login.name, password, MAY.get(login.group, "everything: the superuser"))
    return view


def _make_user(name: str, *, is_superuser: bool) -> tuple[User, str]:
    password = secrets.token_urlsafe(12)
    given = {"is_staff": True, "is_active": True, "is_superuser": is_superuser, "email": f"{name}@example.com"}
    given |= {"date_joined": timezone.now() - AGE}
    user, _ = User.objects.update_or_create(username=name, defaults=given)
    user.set_password(password)
    user.save()
    return user, password
