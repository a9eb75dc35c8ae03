"""The list of workflows by the days on which they were submitted, completed or failed."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape

import pytest
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import words
from tests.workflows.admin.test_lists import LIST, listed
from workflows.health import by_time
from workflows.models.xids import CurrentTransactionId

DAY = timedelta(days=1)


def test_it_lists_what_was_submitted_completed_or_failed_on_the_readers_days(as_: Login) -> None:
    support, at = as_("support"), datetime(2026, 3, 9, 23, 30, tzinfo=UTC)  # in Berlin it is the 10th
    support.cookies["zone"] = "Europe/Berlin"
    row = rows.failed(created_at=at, completed_at=at)
    done = rows.workflow(status="COMPLETE", created_at=at + 2 * DAY, completed_at=at + 2 * DAY)
    rows.event(done, "completed", at=at + 2 * DAY, finished_xid=CurrentTransactionId())

    def of_days(of: str, since: str, until: str, more: str = "") -> list[int]:
        answer = support.get(f"{LIST}?of={of}&since={since}&until={until}{more}")
        return listed(support, answer["Location"].removeprefix(LIST))

    for of in ("came", "failed"):
        assert of_days(of, "2026-03-10", "2026-03-10") == [row.pk]
        assert of_days(of, "2026-03-09", "2026-03-09") == []
    assert of_days("came", "2026-03-10", "") == [done.pk, row.pk]
    assert of_days("came", "", "2026-03-11", "&state=failed") == [row.pk]
    assert of_days("completed", "2026-03-12", "2026-03-12") == [done.pk]
    assert of_days("completed", "", "", "&completed=7d&state=failed") == [row.pk], "no days are chosen any more"


def test_times_that_move_on_are_kept_as_such_and_said_with_their_dates(as_: Login) -> None:
    support, now = as_("support"), timezone.now()
    old, new = rows.failed(created_at=now - 9 * DAY, completed_at=now - 8 * DAY), rows.failed()
    assert listed(support, "?came=7d") == listed(support, "?failed=today") == [new.pk]
    assert listed(support, "?came=30d") == [new.pk, old.pk]
    (chip,) = support.get(f"{LIST}?came=7d").context["cl"].chips
    assert re.fullmatch(r"Last 7 days \(from \d{4}-\d\d-\d\d \d\d:00 UTC to \d{4}-\d\d-\d\d \d\d:00 UTC\)", chip[1])


def test_the_list_of_a_bar_names_its_step_and_its_code_as_the_bar_does(as_: Login) -> None:
    query = "?ended=2026-03-10T00:00:00Z/2026-03-11T00:00:00Z&step=validate_duplicate_email&code=email_taken"
    chips = as_("support").get(LIST + query).context["cl"].chips
    assert {label for _, label, _ in chips} >= {"Check that the e-mail address is free", "Email taken"}


def test_days_that_cannot_be_change_nothing_and_are_said(as_: Login) -> None:
    support = as_("support")
    for since, until, said in (
        ("2026-03-10", "2026-03-09", "The first day comes after the last one"),
        ("9999-12-31", "", "Choose days of the years 1900 to 9999"),
        ("x", "%00", "Choose days of the years 1900 to 9999"),
    ):
        answer = support.get(f"{LIST}?of=came&since={since}&until={until}&state=failed", follow=True)
        assert said in words(answer.content.decode())
        assert answer.redirect_chain[-1][0].endswith("?state=failed")
    assert support.get(f"{LIST}?of=payload&since=2026-03-10").status_code == 400


def test_the_form_keeps_the_other_filters_and_shows_the_days(as_: Login) -> None:
    rows.failed()
    html = as_("support").get(f"{LIST}?state=failed&came=2026-03-09T00:00:00.0Z/2026-03-11T00:00:00.0Z").content
    form = unescape(html.decode()).split('data-filter-title="time of submission"')[1].split("</form>")[0]
    assert re.findall(r'name="(\w+)" value="([^"]*)"', form) == [
        *(("state", "failed"), ("of", "came"), ("since", "2026-03-09"), ("until", "2026-03-10"))
    ]


def test_a_list_of_completions_that_has_not_all_says_so(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_time, "EXAMINED", 1)
    rows.event(rows.workflow(status="COMPLETE"), "completed", finished_xid=CurrentTransactionId())
    html = words(as_("support").get(f"{LIST}?completed=today&workflow_type=parcel").content.decode())
    assert "More completed in that time than can be listed, and the oldest are left out" in html
    assert "More completed" not in words(as_("support").get(f"{LIST}?completed=today").content.decode())
