"""USERS of the project, whatever its AUTH_USER_MODEL is (`checks_of_settings.check_users` says what it must have)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib.auth import get_user_model
from django.db.models import QuerySet

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def named(name: str) -> QuerySet[User]:
    """The user who signs in by this name; it is what the history and the audit call them."""
    return get_user_model().objects.filter(**{get_user_model().USERNAME_FIELD: name})
