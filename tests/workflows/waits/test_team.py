"""The engine's own questions are for the team `operations`, and find somebody where there is none."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User

from tests import engine
from tests.engine import again, define, submit, work
from tests.groups import make_groups
from tests.workflows.downstream import Downstream, unknown
from tests.workflows.waits.approvals import HOURS_72
from workflows.models import ManualTask, Workflow
from workflows.waits import require_go_ahead

pytestmark = engine.ENGINE


@pytest.fixture(autouse=True)
def groups(transactional_db: None) -> None:
    make_groups()


def member(*groups: str, **fields: Any) -> User:
    user = User.objects.create_user("lena", **{"is_staff": True, **fields})
    user.groups.set(Group.objects.filter(name__in=groups))
    return user


def asked() -> str:
    """The team that a question of the engine's is put to."""

    def ask(*, workflow: Workflow, context: Any) -> None:
        about = {"question": "May it?", "facts": {}, "task_type": "keeps_dying"}
        require_go_ahead(workflow, "q", **about, timeout=HOURS_72, due=HOURS_72)

    define([ask])
    assert work(submit()).status == "PENDING"
    return ManualTask.objects.get().team


@pytest.mark.parametrize("group", ["support lead", "engineer", "operations"])
def test_the_engine_asks_the_team(group: str) -> None:
    member(group)
    assert asked() == "operations"


def test_the_permission_of_a_user_alone_counts_too() -> None:
    member().user_permissions.set(Permission.objects.filter(codename="resolve_manualtask"))
    assert asked() == "operations"


@pytest.mark.parametrize(
    ("group", "fields", "gone"),
    [
        pytest.param("", {"is_superuser": True}, [], id="nobody is in it"),
        pytest.param("support lead", {}, ["operations"], id="there is no such group"),
        pytest.param("support lead", {"is_active": False}, [], id="its only member is inactive"),
        pytest.param("support lead", {"is_staff": False}, [], id="its only member is no staff"),
        pytest.param("", {}, Group.objects.values("name"), id="there are no groups at all"),
    ],
)
def test_without_the_team_everybody_who_may_decide_is_asked(group: str, fields: dict[str, Any], gone: Any) -> None:
    member(group, **fields)
    Group.objects.filter(name__in=gone).delete()
    assert asked() == ""


def test_a_call_in_doubt_is_put_to_the_team() -> None:
    member("support lead")
    again(unknown(Downstream(), settle=0))
    assert [(task.task_type, task.team) for task in ManualTask.objects.all()] == [("effect_in_doubt", "operations")]
