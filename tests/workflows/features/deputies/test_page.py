"""The page on which people say who stands in for them, and leads for anybody; and what other pages say of it."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_, parcels, read
from tests.workflows.model.people import person
from workflows import operations
from workflows.models import AssignedCause, Deputy, ManualTask

__all__ = ["as_", "parcels"]

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "/admin/deputies/"


def until(days: int) -> str:
    return f"{timezone.now() + timedelta(days=days):%Y-%m-%dT%H:%M}"


def test_an_approver_goes_on_leave_and_a_lead_sees_to_somebody_who_is_ill(as_: Login) -> None:
    approver, lead, support = as_("approver"), as_("support lead"), as_("support")
    bob, eve, you = person("bob"), person("eve"), User.objects.get(username="some-approver")
    assert 'name="absent"' not in approver.get(PAGE).content.decode()
    refused = approver.post(PAGE, {"absent": eve.pk, "deputy": bob.pk, "until": until(200)}).content.decode()
    assert "for 180 days at the most" in refused
    approver.post(PAGE, {"absent": eve.pk, "deputy": bob.pk, "until": until(7)})
    assert Deputy.objects.get().absent == you, "whoever is no lead speaks for themselves"
    lead.post(PAGE, {"absent": eve.pk, "deputy": User.objects.get(username="some-support lead").pk, "until": until(1)})
    offered = [label for _, label in lead.get(PAGE).context["form"].fields["deputy"].choices[1:]]
    assert offered == sorted(offered)
    assert re.search(r"some-approver \(you\) bob .+ End", read(approver, PAGE))
    assert [row.absent for row in approver.get(PAGE).context["rows"]] == [you]
    assert re.search(r"some-approver bob .+eve some-support lead \(you\)", read(lead, PAGE))
    assert "You are away until" in read(approver, "/admin/")
    assert re.search(
        "You stand in for eve until .+, and approve nothing that they have asked for", read(lead, "/admin/")
    )
    assert "neither approves a correction, a retry that charges again" in read(lead, PAGE)
    assert "Away: who stands in" not in read(support, "/admin/").partition("Is all well?")[2]
    User.objects.filter(pk=bob.pk).update(is_active=False)
    assert "bob cannot decide, or is away, too" in read(lead, PAGE)
    assert support.post(PAGE, {"end": Deputy.objects.get(absent=eve).pk}).status_code == 403
    ends = {Deputy.objects.get(absent=eve).pk: "any more", "x": "over already", "9" * 30: "over already"}
    for end, said in ends.items():
        assert said in lead.post(PAGE, {"end": end}, follow=True).content.decode()
    assert Deputy.objects.now().get().absent == you


def test_pages_say_who_stands_in_and_for_whom_it_was_decided(as_: Login) -> None:
    lead, ada, bob = as_("support lead"), person("ada"), person("bob")
    task = rows.open_task(rows.waiting(task=False), assignee=ada)
    rows.failed()
    AssignedCause.objects.create(workflow_type="parcel", step="charge", code="card_declined", assignee=ada)
    page, client = f"/admin/workflows/manualtask/{task.pk}/change/", Client()
    client.force_login(bob)
    assert client.get("/admin/needs-a-person/").context["groups"] == []
    Deputy.objects.create(
        absent=ada, deputy=bob, begins_at=timezone.now(), ends_at=timezone.now() + timedelta(days=1), set_by="root"
    )
    assert [each.number for each in client.get("/admin/needs-a-person/").context["groups"]] == ["1"]
    assert "ada. Away: bob stands in" in read(lead, page)
    assert "ada, who is away: bob stands in" in read(lead, "/admin/needs-a-person/?whose=all")
    User.objects.filter(pk=bob.pk).update(is_staff=False)
    assert "ada. Away: bob cannot decide it" in read(lead, page)
    User.objects.filter(pk=bob.pk).update(is_staff=True)
    operations.approve(task.pk, user=bob, answer={})
    assert "by bob , for ada at" in read(lead, page)
    assert "by bob, for ada" in read(lead, f"/admin/workflows/workflow/{task.workflow_id}/change/")
    rows.event(task.workflow, "noted", actor="bob")
    of_ada = as_("auditor").get("/admin/audit/?person=ada&sort=did").context["lines"]
    assert [line.who for line in of_ada] == ["bob, for ada"], "not what he does in his own place"
    for query in ("", "?person=ada", "?person=bob"):
        assert "bob, for ada" in read(as_("auditor"), f"/admin/audit/{query}")
    assert "bob, for ada" not in read(as_("auditor"), "/admin/audit/?person=eve")
    assert ManualTask.objects.get().decided_by == bob


def test_a_deputy_who_left_the_team_or_lost_the_right_is_told_of_to_both_and_to_leads(as_: Login) -> None:
    lead, ada, bob = as_("support lead"), person("ada"), person("bob")
    absent, deputy, home = Client(), Client(), "/admin/"
    absent.force_login(ada), deputy.force_login(bob)
    team = Group.objects.create(name="clinicians")
    team.user_set.add(ada, bob)
    rows.open_task(rows.waiting(task=False), assignee=ada, team="clinicians")
    ends = timezone.now() + timedelta(days=1)
    Deputy.objects.create(absent=ada, deputy=bob, begins_at=timezone.now(), ends_at=ends, set_by="root")
    for client in (absent, deputy, lead):
        assert "may not decide all of" not in read(client, home) + read(client, PAGE)
    bob.groups.remove(team)
    for client in (absent, deputy, lead):
        assert "may not decide all of" in read(client, home)
        assert "may not decide all of" in read(client, PAGE)
    User.objects.filter(pk=bob.pk).update(is_staff=False)
    for client in (absent, lead):
        assert "cannot decide, or is away, too" in read(client, home)


def test_what_a_deputy_may_not_decide_stands_beside_their_name_and_a_lead_is_asked_once_more(as_: Login) -> None:
    absent, lead, bob, ada = Client(), as_("support lead"), person("bob"), person("ada", "decide_manualtask")
    absent.force_login(ada)
    Group.objects.create(name="clinicians").user_set.add(ada, person("eve"))
    rows.open_task(rows.waiting(task=False), assignee=ada, team="clinicians")
    rows.open_task(rows.waiting(task=False), assignee=ada, four_eyes=True, requested_by=person("zoe"))
    names = [label for _, label in absent.get(PAGE).context["form"].fields["deputy"].choices]
    assert names.index("eve") == 1, "who may decide all comes first"
    assert {"bob (may not decide 1 of the 2 open tasks)", "zoe (may not decide 2 of the 2 open tasks)"} < {*names}
    given = {"absent": ada.pk, "deputy": bob.pk, "until": until(7)}
    page = lead.post(PAGE, given)
    assert "bob may not decide 1 of the open tasks of ada. Choose somebody else, or press" in page.content.decode()
    assert not Deputy.objects.exists()
    given["knowing"], zoe = page.context["form"]["knowing"].value(), User.objects.get(username="zoe")
    assert "zoe may not decide 2 of" in lead.post(PAGE, {**given, "deputy": zoe.pk}).content.decode()
    lead.post(PAGE, given)
    assert Deputy.objects.get().deputy == bob
