"""An acknowledgement is taken back: the failure needs a person again, and who said so stands in the history."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import F
from django.test import Client

from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_, parcels
from workflows import operations
from workflows.errors import NotAllowed
from workflows.features.cases.operations import acknowledged, not_dealt_with
from workflows.models import Event, FollowUp, Workflow

__all__ = ["as_", "parcels"]

pytestmark = pytest.mark.django_db(transaction=True)

WHY = "It was another patient."


def listed(client: Client) -> list[int]:
    found = client.get("/admin/needs-a-person/").context
    return [*(line.workflow for line in found["lines"]), *(pk for each in found["groups"] for pk in each.group.newest)]


def fresh(row: Workflow) -> Workflow:
    return Workflow.objects.get(pk=row.pk)


def acknowledge(row: Workflow) -> None:
    boss, _ = User.objects.get_or_create(username="boss", is_superuser=True, is_staff=True)
    operations.acknowledge(row.pk, user=boss, reason="Called.", seen=operations.failures_left(fresh(row)))


@pytest.mark.parametrize("make", [rows.failed, rows.given_up])
def test_what_was_acknowledged_comes_back_to_the_list(as_: Login, make: Callable[[], Workflow]) -> None:
    row, other, support = make(), make(), as_("support")
    acknowledge(row), acknowledge(other)
    page = f"/admin/workflows/workflow/{row.pk}/"
    assert "Take back the acknowledgement" in [verb.label for verb, _ in support.get(f"{page}change/").context["verbs"]]
    seen = re.findall(r'name="seen" value="(\d+)"', support.get(f"{page}not_dealt_with/").content.decode())
    assert listed(support) == []
    for answer in ("The acknowledgement is taken back.", "is not so any more"):
        sent = support.post(f"{page}not_dealt_with/", {"seen": seen, "reason": WHY}, follow=True)
        assert answer in sent.content.decode()
    assert "Acknowledged by" not in sent.content.decode()
    assert listed(support) == [row.pk]
    told = Event.objects.get(kind="not_dealt_with")
    assert (told.workflow_id, told.actor, told.detail["reason"]) == (row.pk, "some-support", WHY)
    assert "Acknowledgement taken back" in support.get(f"{page}change/").content.decode()
    acknowledge(row)
    assert listed(support) == []


def test_only_what_the_user_saw_as_acknowledged_is_taken_back() -> None:
    row = rows.failed()
    acknowledge(row)
    boss, seen = User.objects.get(), acknowledged(fresh(row))
    take_back = partial(not_dealt_with, row.pk, user=boss)
    with pytest.raises(PermissionDenied):
        not_dealt_with(row.pk, user=User.objects.create_user("nobody", is_staff=True), reason=WHY, seen=seen)
    with pytest.raises(NotAllowed, match="needs a reason"):
        take_back(reason=" ", seen=seen)
    with pytest.raises(NotAllowed, match="is not so any more"):
        take_back(reason=WHY, seen=[])
    Workflow.objects.filter(pk=row.pk).update(completed_at=F("completed_at") + timedelta(seconds=1))  # it failed again
    assert acknowledged(fresh(row)) == []
    with pytest.raises(NotAllowed, match="is not so any more; this one is failed"):
        take_back(reason=WHY, seen=seen)
    with pytest.raises(NotAllowed, match="is not so any more"):
        take_back(reason=WHY, seen=[])
    assert acknowledged(rows.failed()) == acknowledged(rows.running()) == acknowledged(rows.cancelled()) == []


def test_what_the_engine_has_acknowledged_stays_so() -> None:
    row = rows.failed()
    acknowledge(row)
    rows.event(row, "duplicate")  # it was retried, and ended as one
    assert acknowledged(fresh(row)) == []


def test_a_step_that_is_run_again_needs_nobody() -> None:
    row = rows.given_up()
    acknowledge(row)
    assert len(acknowledged(row)) == 1
    FollowUp.objects.update(due_at=F("created_at"))
    assert acknowledged(row) == []
