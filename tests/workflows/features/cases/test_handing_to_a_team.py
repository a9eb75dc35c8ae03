"""A case is handed to a team: listed for its members until one has seen to it, or until somebody acts on it."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.test import Client

from tests.engine import do_chore, elsewhere
from tests.groups import make_groups
from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_, parcels
from workflows import operations
from workflows.errors import NotAllowed
from workflows.features.cases import operations as cases
from workflows.models import CaseNote, Event
from workflows.telling import history
from workflows.wording import Wording

__all__ = ["as_", "parcels"]

pytestmark = pytest.mark.django_db(transaction=True)

WHY = "The scale is broken; she needs another one."


@pytest.fixture
def boss() -> User:
    make_groups()
    return User.objects.create_superuser("boss")


def listed(client: Client, whose: str = "all") -> list[tuple[int, str, str]]:
    lines = client.get(f"/admin/needs-a-person/?kind=team&whose={whose}").context["lines"]
    return [(line.workflow, line.asks, line.whose) for line in lines]


def test_the_team_finds_it_and_says_that_it_has_seen_to_it(as_: Login) -> None:
    row, support, engineer, approver = rows.waiting(), as_("support"), as_("engineer"), as_("approver")
    Group.objects.create(name="nobodys")
    page = f"/admin/workflows/workflow/{row.pk}/"
    offered = re.findall(r'<option value="([^"]+)"', support.get(f"{page}hand_to_team/").content.decode())
    assert offered == ["approver", "engineer", "support"]
    done = support.post(f"{page}hand_to_team/", {"team": "engineer", "reason": WHY}, follow=True).content.decode()
    assert "It is handed to the team Engineers." in done
    assert (WHY in done, "some-support handed it to the team Engineers at" in done) == (True, True)
    assert (
        listed(engineer, "teams")
        == listed(engineer, "you")
        == listed(approver)
        == [(row.pk, "some-support hands it to the team", "Engineers")]
    )
    assert listed(approver, "teams") == listed(approver, "you") == []
    seen = re.findall(r'name="seen" value="(\d+)"', engineer.get(f"{page}team_has_seen/").content.decode())
    asked = engineer.get(f"{page}team_has_seen/").context
    assert asked["asks"] == f"Mark workflow {row.pk} as seen to by the team Engineers"
    assert "what some-support has asked the team Engineers for" in asked["consequences"][0]
    assert ">Mark as seen to by the team Engineers</a>" in engineer.get(f"{page}change/").content.decode()
    refused = approver.post(f"{page}team_has_seen/", {"seen": seen}, follow=True).content.decode()
    assert "It is with the team Engineers, and you are not in it." in refused
    for answer in ("It is seen to for the team Engineers.", "It is not with that team any more"):
        assert answer in engineer.post(f"{page}team_has_seen/", {"seen": seen}, follow=True).content.decode()
    assert listed(engineer) == []
    told = Event.objects.filter(workflow=row).exclude(actor="").order_by("id").values_list("kind", "actor", "detail")
    assert list(told) == [
        ("team_asked", "some-support", {"reason": "", "team": "engineer"}),
        ("team_has_seen", "some-engineer", {"reason": "", "team": "engineer"}),
    ]


def test_it_is_with_one_team_and_a_lead_who_is_asked_stays_asked(boss: User) -> None:
    row, engineer = rows.failed(), User.objects.create_user("eve", is_staff=True)
    engineer.groups.set(Group.objects.filter(name__in=["engineer", "support"]))
    cases.ask_lead(row.pk, user=boss, reason=WHY)
    for team in ("engineer", "support"):
        cases.hand_to_team(row.pk, user=engineer, team=team, reason=WHY)
    assert elsewhere(lambda: do_chore("close what leads were asked").changed) == 0
    assert (cases.handed().get().team, cases.asking().count()) == ("support", 1)
    operations.retry(row.pk, user=boss, reason="Once more.")
    assert elsewhere(lambda: do_chore("close what leads were asked").changed) == 2
    assert not CaseNote.objects.filter(lead_asked_at__isnull=False).exists()


def test_only_the_team_or_a_lead_says_that_it_is_seen_to(boss: User) -> None:
    eve, sue, lead = (User.objects.create_user(name, is_staff=True) for name in ("eve", "sue", "lead"))
    for user, group in ((eve, "engineer"), (sue, "support"), (lead, "support lead")):
        user.groups.set(Group.objects.filter(name=group))
    for member in (eve, lead):
        row = rows.failed()
        cases.hand_to_team(row.pk, user=boss, team="engineer", reason=WHY)
        seen = [cases.handed().get().pk]
        with pytest.raises(NotAllowed, match="It is with the team Engineers, and you are not in it"):
            cases.team_has_seen(row.pk, user=sue, reason="", seen=seen)
        told = cases.team_has_seen(row.pk, user=member, reason="", seen=seen)
        assert told.endswith(", in which you are not." if member == lead else "for the team Engineers.")
        said = history.line(Event.objects.latest("id"), Wording()).text
        assert said == f"The team engineer{', by somebody who is not in it' * (member == lead)}"


def test_nobody_hands_it_to_a_team_that_could_not_act(boss: User) -> None:
    row, nobody = rows.failed(), User.objects.create_user("nobody", is_staff=True)
    nobody.groups.set(Group.objects.filter(name="auditor"))
    for team in ("auditor", "engineer", ""):
        with pytest.raises(NotAllowed, match="This is no team"):
            cases.hand_to_team(row.pk, user=boss, team=team, reason=WHY)
    User.objects.create_user("eve", is_staff=True).groups.set(Group.objects.filter(name="engineer"))
    with pytest.raises(NotAllowed, match="It is complete by now"):
        cases.hand_to_team(rows.complete().pk, user=boss, team="engineer", reason=WHY)
    for operation in (cases.hand_to_team, cases.team_has_seen):
        more = {"team": "engineer"} if operation is cases.hand_to_team else {"seen": []}
        with pytest.raises(PermissionDenied):
            operation(row.pk, user=nobody, reason=WHY, **more)
