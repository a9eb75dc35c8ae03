"""Pause and resume in the console: what the pages say, and where an overdue pause is listed."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_, parcels, read
from workflows.health import counts, health
from workflows.models import Pause

__all__ = ["as_", "parcels"]

pytestmark = pytest.mark.django_db(transaction=True)

WHY = "Her insurer calls back."
HOUR = timedelta(hours=1)


def test_support_pauses_one_and_resumes_it(as_: Login) -> None:
    row, support = rows.waiting(), as_("support")
    page = f"/admin/workflows/workflow/{row.pk}/"
    asked = read(support, f"{page}pause/")
    assert "its deadlines do not move" in asked
    assert "2 days, until" in asked
    assert "Its open tasks can still be decided." in asked
    done = support.post(f"{page}pause/", {"how_long": "60", "reason": WHY}, follow=True).content.decode()
    assert "It is paused until" in done
    shown = read(support, f"{page}change/")
    assert re.search(rf"Paused by some-support until .+: {WHY} It goes on when somebody resumes it\.", shown)
    assert "3000" not in shown
    assert "This is paused for now, and we go on with it after that. We expect that by" in shown
    assert re.search(rf"Paused by a person.+Until .+: {WHY}", shown)
    assert f'href="{page}run_now/"' not in done
    context = support.get(f"{page}change/").context
    labels = [verb.label for verb, _ in context["verbs"]]
    assert labels[:2] == ["Resume", "Cancel"], "the red button comes second"
    assert "Pause this one again" in labels
    assert (context["main"].label, "Paused" in context["badge"]) == ("Resume", True)
    listed = read(support, "/admin/workflows/workflow/?paused=yes")
    assert ("a colleague who resumes it: it is paused" in listed, "3000" in listed) == (True, False)
    (seen,) = re.findall(r'name="seen" value="(\d+)"', support.get(f"{page}resume/").content.decode())
    answer = support.post(f"{page}resume/", {"seen": seen}, follow=True).content.decode()
    assert "It is not paused any more." in answer
    assert str(row.pk) not in re.findall(
        r"/workflow/(\d+)/", support.get("/admin/workflows/workflow/?paused=yes").content.decode()
    )


def test_an_overdue_pause_stands_among_what_is_overdue_and_on_home(as_: Login) -> None:
    lead = as_("support lead")
    boss = User.objects.create_superuser("boss")
    late, _ = rows.paused(boss, until=-HOUR), rows.paused(boss, rows.waiting(task=False))
    lines = lead.get("/admin/needs-a-person/").context["lines"]
    told = [(line.workflow, line.asks, line.is_overdue) for line in lines]
    assert told == [(late.pk, "The pause by boss is over its time: resume it?", True)]
    assert "1 pause is over its time" in str(health.judge(counts.read()))
    (link,) = re.findall(r'href="([^"]+)">1 pause is over its time', lead.get("/admin/").content.decode())
    assert [row.pk for row in lead.get(link).context["cl"].result_list] == [late.pk]
    assert "somebody has to resume it" in read(lead, f"/admin/workflows/workflow/{late.pk}/change/")


def test_a_wish_for_a_pause_is_told_while_a_worker_has_it(as_: Login) -> None:
    row, support = rows.running(), as_("support")
    Pause.objects.create(workflow=row, until=timezone.now() + HOUR, actor="ada", reason=WHY)
    page = f"/admin/workflows/workflow/{row.pk}/"
    assert re.search(
        rf"Running since .+ ada has it paused when this run has ended, until .+: {WHY}", read(support, f"{page}change/")
    )
    assert "It is not paused yet, and will not be." in read(support, f"{page}resume/")
    assert "takes the place of the pause of ada" in read(support, f"{page}pause/")


def test_one_with_an_unclear_call_is_not_offered_for_pause(as_: Login) -> None:
    row, support = rows.unclear_charge().workflow, as_("support")
    assert "A call of it is unclear: it can be paused once that is known." in read(
        support, f"/admin/workflows/workflow/{row.pk}/change/"
    )
