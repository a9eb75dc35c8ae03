"""Users with permissions and teams, the tasks that they decide, and a worker that holds a row meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth.models import Group, Permission, User

from tests.engine import another_connection
from tests.workflows import rows
from workflows.models import ManualTask, Workflow


def user(name: str, *permissions: str, teams: tuple[str, ...] = ()) -> User:
    """One of the staff, who may `decide`, `assign` or `resolve` tasks."""
    made = User.objects.create_user(name, is_staff=True)
    made.user_permissions.set(Permission.objects.filter(codename__in=[f"{each}_manualtask" for each in permissions]))
    made.groups.set([Group.objects.get_or_create(name=team)[0] for team in teams])
    return made


def task(**fields: Any) -> ManualTask:
    return rows.open_task(rows.waiting(task=False), **fields)


@contextmanager
def held(row: Workflow) -> Iterator[None]:
    """The row as a worker holds it."""
    with another_connection() as other, other.transaction():
        other.execute("SELECT FROM workflows_workflow WHERE id = %s FOR NO KEY UPDATE", [row.pk])
        yield
