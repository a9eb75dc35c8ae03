"""Who gets in by single sign-on, as whom, and with which groups (docs/adr/0038)."""

from __future__ import annotations

import logging
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from staff import oidc
from staff.records import record

logger = logging.getLogger(__name__)

NO_GROUP = "Single sign-on gives you no group that may use this console. Ask who administers your account."


class Refused(Exception):
    """The provider's user does not get in. The message is a sentence for them."""


def admit(claims: dict[str, Any]) -> SocialAccount:
    """The account of the provider's user, with the provider's groups. Raises Refused."""
    given = _groups_of(claims)
    try:
        account = _account(claims, may_begin=bool(given))
    except IntegrityError:  # the user's first sign-in, twice at once
        account = _account(claims, may_begin=bool(given))
    user = account.user
    if _is_never_theirs(user) or not (user.is_active and user.is_staff):
        raise Refused("Your account cannot sign in by single sign-on. Ask the person who administers it.")
    if not _set_groups(user, given):
        raise Refused(NO_GROUP)
    return account


def _is_never_theirs(user: User) -> bool:
    """Whether no provider signs the user in: one that was broken into must not own these accounts."""
    return user.is_superuser or user.username in settings.OIDC_BREAK_GLASS


def _groups_of(claims: dict[str, Any]) -> set[str]:
    """The names of our groups that match the provider's."""
    told = claims.get("groups")
    theirs = told if isinstance(told, list) else [told]
    return {settings.OIDC_GROUPS[each] for each in theirs if isinstance(each, str) and each in settings.OIDC_GROUPS}


@transaction.atomic
def _account(claims: dict[str, Any], *, may_begin: bool) -> SocialAccount:
    accounts = SocialAccount.objects.select_related("user")
    found = accounts.filter(provider=oidc.issuer(), uid=claims["sub"]).first()
    return found or _first_account(claims, may_begin=may_begin)


def _first_account(claims: dict[str, Any], *, may_begin: bool) -> SocialAccount:
    """The account at a first sign-in: linked once to the user of that name, or to a new user."""
    if not may_begin:
        raise Refused(NO_GROUP)
    new = User(username=User.normalize_username(str(claims.get("preferred_username") or "")), is_staff=True)
    new.email, new.first_name, new.last_name = (
        str(claims.get(name) or "")[:most] for name, most in (("email", 254), ("given_name", 150), ("family_name", 150))
    )
    new.set_unusable_password()
    user = User.objects.select_for_update().filter(username=new.username).first()
    may_be_linked = user and user.is_active and user.is_staff and not SocialAccount.objects.filter(user=user).exists()
    # A new name may not differ from another one in its capitals only: people would confuse the two.
    is_taken = not may_be_linked and User.objects.filter(username__iexact=new.username).exists()
    if is_taken or _is_never_theirs(user or new):
        raise Refused("Your user name is another account's here. Ask the person who administers your account.")
    if user is None:
        try:
            new.full_clean(validate_unique=False)
        except ValidationError:
            raise Refused("Single sign-on gives you a user name that cannot be one here.") from None
        new.save()
    record(user or new, "Linked to single sign-on, by user name." if user else "Made by single sign-on.")
    return SocialAccount.objects.create(user=user or new, provider=oidc.issuer(), uid=claims["sub"])


@transaction.atomic
def _set_groups(user: User, given: set[str]) -> set[str]:
    """Of the groups in OIDC_GROUPS, put the user in exactly the given ones, and return these. Leaves others alone."""
    ours = Group.objects.filter(name__in=settings.OIDC_GROUPS.values())
    before = set(ours.filter(user=user).values_list("name", flat=True))
    found = set(ours.filter(name__in=given).values_list("name", flat=True))
    if missing := given - found:
        logger.error("OIDC_GROUPS names groups that do not exist: %s", ", ".join(sorted(missing)))
    user.groups.add(*ours.filter(name__in=found - before))
    user.groups.remove(*ours.filter(name__in=before - found))
    changes = [f"+{name}" for name in sorted(found - before)] + [f"-{name}" for name in sorted(before - found)]
    if changes:
        record(user, f"Groups by single sign-on: {', '.join(changes)}.")
    return found


def tell_of_password(user: User, address: str | None) -> None:
    """Log an alert that a password was used despite single sign-on. The audit has it, too."""
    logger.critical("Break-glass: %s has signed in with a password, from %s.", user.username, address)
    record(user, "Signed in with a password, as a break-glass account.")
