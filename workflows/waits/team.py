"""The team for the engine's own questions: `operations`, and never nobody."""

from __future__ import annotations

from workflows.models.manual_task import OPERATIONS
from workflows.state import attempt_log

# Superusers are in every team, but no question is left to them.
_HAS_MEMBERS = """
SELECT EXISTS (SELECT FROM auth_group WHERE name = %s) AND EXISTS (
    SELECT FROM auth_user u, auth_permission p JOIN django_content_type c ON c.id = p.content_type_id
     WHERE u.is_active AND u.is_staff AND c.app_label = 'workflows' AND p.codename = 'resolve_manualtask'
       AND (EXISTS (SELECT FROM auth_user_user_permissions own WHERE own.user_id = u.id AND own.permission_id = p.id)
         OR EXISTS (
            SELECT FROM auth_user_groups g JOIN auth_group_permissions of_group ON of_group.group_id = g.group_id
             WHERE g.user_id = u.id AND of_group.permission_id = p.id)))
"""


def team_for_the_engine(preferred: str = "") -> str:
    """The team `preferred`, if there is such a group; else `operations`.

    Empty, for everybody who may decide, if that has no members: no question may wait for ever.
    """
    if is_group(preferred):
        return preferred
    ((has_members,),) = attempt_log.execute(_HAS_MEMBERS, [OPERATIONS])
    return OPERATIONS if has_members else ""


def is_group(name: str) -> bool:
    """Whether there is a group of that name."""
    return bool(attempt_log.execute("SELECT 1 FROM auth_group WHERE name = %s", [name]))
