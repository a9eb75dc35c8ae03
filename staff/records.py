"""The log of changes to users: Django's, which the audit shows."""

from __future__ import annotations

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType


def record(user: User, what: str, *, by: User | None = None) -> None:
    """Record a change of a user's account. `by` is who did it; None for the user themselves or a machine."""
    LogEntry.objects.create(
        user=by or user,
        content_type=ContentType.objects.get_for_model(User),
        object_id=str(user.pk),
        object_repr=user.username,
        action_flag=CHANGE,
        change_message=what,
    )
