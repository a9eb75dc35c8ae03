"""The team for the engine's own questions: `operations`, and never an empty one."""

from __future__ import annotations

from django.contrib.auth import get_user_model

from workflows.models.manual_task import OPERATIONS, PERMISSION_BACKEND, RESOLVE
from workflows.state import attempt_log


def team_for_the_engine(preferred: str = "") -> str:
    """The team `preferred`, if there is such a group; else `operations`.

    Returns an empty name, for everybody who may decide, if `operations` has no members: no question may wait for ever.
    """
    if is_group(preferred):
        return preferred
    return OPERATIONS if is_group(OPERATIONS) and _has_members() else ""


def _has_members() -> bool:
    """Superusers do not count: they are in every team, but no question is left to them."""
    users = get_user_model().objects.with_perm(RESOLVE, include_superusers=False, backend=PERMISSION_BACKEND)
    return bool(attempt_log.execute(*users.filter(is_staff=True).values("pk")[:1].query.sql_with_params()))


def is_group(name: str) -> bool:
    return bool(attempt_log.execute("SELECT 1 FROM auth_group WHERE name = %s", [name]))
