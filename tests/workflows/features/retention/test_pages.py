"""Legal holds and erasures on the console: what people read there before they decide, and what comes of it."""

from __future__ import annotations

import html
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_
from tests.workflows.features.retention.test_erasing import young
from tests.workflows.features.retention.test_purge import is_emptied
from workflows.models import Erasure, Hold, Workflow

__all__ = ["as_"]

pytestmark = pytest.mark.django_db(transaction=True)

WORKFLOWS, HOLDS, ERASURES = (f"/admin/workflows/{each}" for each in ("workflow", "hold", "erasure"))
NEEDS = "/admin/needs-a-person/"


def page(client: Client, url: str) -> str:
    return html.unescape(client.get(url).content.decode())


def told(client: Client, url: str, **form: str) -> str:
    """What the page says on which a verb ends."""
    return html.unescape(client.post(url, form, follow=True).content.decode())


def day(days: int) -> str:
    return f"{timezone.now() + timedelta(days=days):%Y-%m-%d}"


def test_a_hold_is_placed_shown_extended_and_lifted(as_: Login) -> None:
    row, auditor = young(), as_("auditor")
    of_row = f"{WORKFLOWS}/{row.pk}"
    assert "A legal hold is on it" in told(auditor, f"{of_row}/place_hold/", until=day(9), reason="A court asks.")
    hold = Hold.objects.get()
    of_hold = page(auditor, f"{HOLDS}/{hold.pk}/change/")
    assert all(said in of_hold for said in ("A court asks.", ">Held<", f"{of_row}/change/"))
    extend = f"{HOLDS}/{hold.pk}/extend/"
    assert "as long as that already" in told(auditor, extend, until=day(9), reason="It goes on.")
    assert "Another hold" in told(auditor, extend, until=day(99), reason="It goes on.")
    first, second = Hold.objects.order_by("id")
    assert (first.until, first.reason, second.workflow_id) == (hold.until, hold.reason, row.pk)
    for each in (first, second):
        assert "It is lifted" in told(auditor, f"{HOLDS}/{each.pk}/lift/", reason="The court has decided.")
    assert ">Ended<" in page(auditor, f"{HOLDS}/{hold.pk}/change/")
    assert "A legal hold is on it" not in page(auditor, f"{of_row}/change/")


def test_a_hold_is_on_all_of_the_address_of_a_workflow_too(as_: Login) -> None:
    row, other, lead = young(), young(), as_("support lead")
    of_all = {"until": day(9), "reason": "A court asks.", "of_person": "on"}
    told(lead, f"{WORKFLOWS}/{row.pk}/place_hold/", **of_all)
    assert "A legal hold is on it" in page(lead, f"{WORKFLOWS}/{other.pk}/change/")
    hold = Hold.objects.get()
    assert "an e-mail address" in page(lead, f"{HOLDS}/{hold.pk}/change/").partition("Until")[0]
    told(lead, f"{HOLDS}/{hold.pk}/extend/", until=day(99), reason="It goes on.")
    assert Hold.objects.filter(hash=hold.hash, workflow=None).count() == 2


def test_an_erasure_is_asked_for_by_one_and_approved_by_another_who_finds_it(as_: Login) -> None:
    row, other = young(), young()
    lead, colleague = as_("support lead"), as_("superuser")
    ask = f"{WORKFLOWS}/{row.pk}/ask_erasure/"
    assert all(f"{WORKFLOWS}/{each.pk}/change/" in page(lead, ask) for each in (row, other))
    assert "Another user approves it" in told(lead, ask, reason="Ticket 812.")
    erasure = Erasure.objects.get()
    of_erasure = f"{ERASURES}/{erasure.pk}"
    sentence = "some-support lead asks to erase what a person has sent: Ticket 812."
    assert [sentence in page(each, NEEDS) for each in (lead, colleague, as_("support"))] == [False, True, False]
    assert f"{of_erasure}/change/" in page(colleague, NEEDS)
    home = [client.get("/admin/").context for client in (colleague, lead)]
    assert [(each["needs_a_person"], [line.what for line in each["first_lines"]]) for each in home] == [
        ("1", [sentence]),
        ("0", []),
    ]
    assert "another user approves it" in told(lead, f"{of_erasure}/approve/")
    assert f"{of_erasure}/approve/" in page(colleague, f"{of_erasure}/change/")
    assert not is_emptied(row)
    receipt = told(colleague, f"{of_erasure}/approve/")
    assert all(said in receipt for said in ("some-support lead", ", by some-superuser", "Ticket 812.", "the receipt"))
    assert f"{of_erasure}/approve/" not in page(colleague, f"{of_erasure}/change/")
    assert (is_emptied(row), is_emptied(other)) == (True, True)
    assert "Ask to erase" not in page(lead, f"{WORKFLOWS}/{row.pk}/change/")


def test_while_an_erasure_waits_each_of_its_workflows_says_so_to_those_who_may_erase(as_: Login) -> None:
    row, other, lead = young(), young(), as_("support lead")
    told(lead, f"{WORKFLOWS}/{row.pk}/ask_erasure/", reason="Ticket 812.")
    erasure = Erasure.objects.get()
    link, waits = f"{ERASURES}/{erasure.pk}/change/", "some-support lead asked at"
    for each in (row, other):
        of_each = page(lead, f"{WORKFLOWS}/{each.pk}/change/")
        assert all(said in of_each for said in (waits, "Ticket 812.", "Once another user approves it,", link))
        assert f"{WORKFLOWS}/{each.pk}/ask_erasure/" not in of_each, "it is asked for already"
        folded = of_each.partition('<details data-key="barred">')[2].partition("</details>")[0]
        assert "Ask to erase: " in folded
    assert waits not in page(as_("support"), f"{WORKFLOWS}/{row.pk}/change/")
    rows.legal_hold(other)
    held = f"It cannot be approved now. Nothing is erased before all of it can be. Workflow {other.pk}: a legal hold"
    assert held in page(lead, f"{WORKFLOWS}/{row.pk}/change/")
    for client in (lead, as_("superuser")):
        with CaptureQueriesContext(connection) as captured:
            home = client.get("/admin/").context
        assert (home["needs_a_person"], held in home["first_lines"][0].what) == ("1", True), "who has asked, too"
        assert home["first_lines"][0].whose == "Waits until it can be approved"
        assert len([each for each in captured if 'FROM "workflows_erasure"' in each["sql"]]) == 1
        assert held in page(client, NEEDS)
    told(lead, f"{ERASURES}/{erasure.pk}/refuse/")
    assert waits not in page(lead, f"{WORKFLOWS}/{row.pk}/change/")


@pytest.mark.parametrize(("days", "said"), [(80, False), (84, True), (91, True)])
def test_what_is_soon_deleted_for_its_age_says_so_to_everybody(days: int, said: bool, as_: Login) -> None:
    row = rows.complete(completed_at=timezone.now() - timedelta(days=days))
    assert ("is deleted for its age" in page(as_("support"), f"{WORKFLOWS}/{row.pk}/change/")) is said
    Workflow.objects.update(emptied_at=timezone.now())
    assert "is deleted for its age" not in page(as_("support"), f"{WORKFLOWS}/{row.pk}/change/")


def test_what_is_unsettled_is_named_before_it_is_asked_for_and_when_it_is_approved(as_: Login) -> None:
    row, lead = young(), as_("support lead")
    erasure = rows.erasure(User.objects.create_superuser("bob"), row)
    Workflow.objects.filter(pk=row.pk).update(status="PENDING", completed_at=None)
    for verb, of in {"ask_erasure": f"{WORKFLOWS}/{row.pk}", "approve": f"{ERASURES}/{erasure.pk}"}.items():
        for said in (page(lead, f"{of}/change/"), told(lead, f"{of}/{verb}/")):
            assert "Nothing is erased before all of it can be." in said
            assert "it is still under way: cancel it (not while it is reversed), or wait for its end" in said
    assert "Nothing is erased." in told(lead, f"{ERASURES}/{erasure.pk}/refuse/")
    assert Erasure.objects.get().state == "refused"
