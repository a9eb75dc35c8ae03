"""Failures: what failed, by its cause; the list of a group; and how a group is acknowledged."""

from __future__ import annotations

from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.test import Client
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import words
from tests.workflows.operations.test_bulk import carry_out
from workflows import operations
from workflows.console.links import failures_of, incident
from workflows.errors import NotAllowed
from workflows.health import failures
from workflows.models import AssignedCause, BulkItem, BulkOperation, Effect, Event, Workflow
from workflows.models.failure import Cause
from workflows.models.rollup import Grain, Metric, Rollup
from workflows.models.xids import CurrentTransactionId

PAGE = "/admin/failures/"
NOTE = "The release is rolled back."
FULL = {"workflow_type": "onboarding", "current_step": "enroll_in_program", "last_error_code": "program_full"}


def shown(client: Client, query: str = "") -> list[Any]:
    response = client.get(PAGE + query)
    assert response.status_code == 200
    return list(response.context["lines"])


def listed(client: Client, url: str) -> list[int]:
    return [row.pk for row in client.get(url).context["cl"].result_list]


def numbers(client: Client, url: str) -> dict[str, Any]:
    """What the page of a cause counts, by label."""
    return {row.label: row for row in client.get(url).context["rows"]}


def paid(**fields: Any) -> Workflow:
    row = rows.failed(**FULL, **fields)
    key = f"{row.key}:execute_checkout"
    charged = {"state": "done", "result": {"charge_id": "ch_1"}, "attempt": 1}
    Effect.objects.create(workflow=row, step="execute_checkout", idempotency_key=key, **charged)
    return row


def seen_to(row: Workflow) -> None:
    Workflow.objects.filter(pk=row.pk).update(acknowledged_failure=Workflow.objects.get(pk=row.pk).completed_at)
    rows.event(row, "acknowledged", actor="ada", detail={"reason": NOTE})


# --- The groups ---------------------------------------------------------------------------------


def test_failures_of_one_cause_are_one_line_which_leads_to_exactly_these(as_: Login) -> None:
    now = timezone.now()
    two = [rows.failed(completed_at=now - timedelta(hours=n), failed_release=f"r{n}") for n in (2, 1)]
    others = {
        "by type": rows.failed(workflow_type="onboarding"),
        "by step": rows.failed(current_step="reserve"),
        "by code": rows.failed(last_error_code="lost"),
        "by class": rows.failed(last_error_code="", last_error_class="KeyError"),
    }
    for make in (rows.cancelled, rows.compensating, rows.retrying, rows.complete):
        make(last_error_code="lost")
    seen_to(rows.failed())
    support = as_("support")
    first, *singles = shown(support)
    assert (first.number, first.group.first, first.group.last) == ("2", two[0].completed_at, two[1].completed_at)
    assert (first.what, first.group.newest) == ("Failed at “Charge”", [two[1].pk, two[0].pk])
    assert listed(support, failures_of(first.group.cause)) == [two[1].pk, two[0].pk]
    assert {line.url for line in singles} == {f"/admin/workflows/workflow/{row.pk}/change/" for row in others.values()}
    for line in singles:
        assert listed(support, failures_of(line.group.cause)) == line.group.newest
    assert listed(support, "/admin/workflows/workflow/?code=lost") == [others["by code"].pk]


def test_where_money_is_held_comes_first(as_: Login) -> None:
    [rows.failed() for _ in range(3)]
    paid()
    rows.failed(**FULL)
    held, free = shown(as_("support"))
    assert (held.group.cause.code, held.money, free.money) == ("program_full", "Held by 1", "")


def test_it_says_whose_it_is_and_whether_a_retry_may_help(as_: Login) -> None:
    for code in ("program_full", "not_ready", "malformed", "poison", "never heard of"):
        rows.failed(**{**FULL, "last_error_code": code})
    told = {line.group.cause.code: (line.whose, line.advice) for line in shown(as_("support"))}
    assert told == {
        "program_full": ("Support", "A retry alone does not help."),
        "not_ready": ("Support", "Probably temporary; try once more."),
        "malformed": ("Engineers", "An engineer looks before it is retried."),
        "poison": ("Engineers", "An engineer looks before it is retried."),
        "never heard of": ("Engineers", "An engineer looks before it is retried."),
    }


def test_of_a_time_it_has_what_is_acknowledged_too_and_by_whom(as_: Login) -> None:
    now = timezone.now()
    rows.failed(**FULL, completed_at=now - timedelta(hours=30))
    left, done = rows.failed(completed_at=now - timedelta(hours=2)), rows.failed(completed_at=now)
    seen_to(done)
    seen_to(rows.failed(current_step="reserve"))
    rows.failed(last_error_code="duplicate_of")
    support = as_("support")
    some, all_of_it = shown(support, "?show=24h")
    assert (some.number, some.group.left) == ("2", 1)
    assert some.url.endswith("&range=24h")
    assert listed(support, numbers(support, some.url)["Failed in the last 24 hours, and failed still"].url) == [
        done.pk,
        left.pk,
    ]
    assert (all_of_it.group.left, all_of_it.whose) == (0, "Acknowledged by ada")
    assert len(shown(support, "?show=7d")) == 3
    assert [line.group.cause.workflow_type for line in shown(support, "?workflow_type=onboarding")] == ["onboarding"]


def test_a_column_says_how_many_failed_in_each_hour(as_: Login) -> None:
    rows.failed()
    labels = {"workflow_type": "parcel", "step": "charge", "outcome": "failed", "code": "card_declined"}
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    for ago, count in (0, 3), (5, 4), (30, 9):
        Rollup.objects.create(
            grain=Grain.HOUR,
            metric=Metric.FINISHED,
            at=hour - timedelta(hours=ago),
            count=count,
            seconds=0,
            buckets=[],
            **labels,
        )
    (line,) = shown(as_("support"))
    assert line.chart.told == "7"
    assert [each.told for each in line.chart.columns if each.height] == ["4", "3"]


def test_many_groups_are_on_several_pages(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.console.failures.PER_PAGE", 2)
    for number in range(5):
        rows.failed(current_step=f"step_{number}")
    support = as_("support")
    pages = [shown(support, f"?page={number}") for number in (1, 2, 3)]
    assert len({line.what for page in pages for line in page}) == 5
    assert 'page=2" rel="next"' in support.get(PAGE).content.decode()


def test_only_the_newest_are_grouped_and_the_page_says_so(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "MOST", 2)
    [rows.failed() for _ in range(3)]
    support = as_("support")
    (line,) = shown(support)
    assert line.number == "2+"
    assert "The newest 2 failures" in words(support.get(PAGE).content.decode())


# --- A group ------------------------------------------------------------------------------------


def test_a_cause_has_one_page_for_all_releases_and_its_list_leads_there(as_: Login) -> None:
    now = timezone.now()
    first = paid(failed_release="r1", completed_at=now - timedelta(days=2))
    last = rows.failed(**FULL, failed_release="r2", completed_at=now)
    support, cause = as_("support"), Cause("onboarding", "enroll_in_program", "program_full")
    html = support.get(incident(cause)).content.decode()
    told = words(html)
    assert "2 workflows have failed and are not acknowledged: the first at" in told
    assert "Failed at “Enrol in the program”" in told
    assert "The program is full. " in told
    page = support.get(incident(cause)).context
    assert page["trends"]["range"].key == "7d", "the shortest one with the first failure"
    assert [(release, number) for release, number, *_ in page["releases"]] == [("r2", "1"), ("r1", "1")]
    assert [listed(support, url) for *_, url in page["releases"]] == [[last.pk], [first.pk]]
    assert f'href="{incident(cause)}"' in unescape(support.get(failures_of(cause)).content.decode())
    assert support.get("/admin/incident/?step=charge").status_code == 404


def test_a_page_of_a_cause_says_what_has_become_of_its_workflows(as_: Login) -> None:
    at = timezone.now()
    made = [rows.failed(**FULL), rows.complete(workflow_type="onboarding"), rows.cancelled(workflow_type="onboarding")]
    for row in (*made, rows.parked(workflow_type="onboarding")):
        verdict = {"step": "enroll_in_program", "detail": {"error_code": "program_full"}}
        rows.event(row, "failed", at=at, finished_xid=CurrentTransactionId(), **verdict)
    rows.complete(workflow_type="onboarding")
    support = as_("support")
    page = support.get(incident(Cause("onboarding", "enroll_in_program", "program_full"))).context
    assert page["ended"] == "4 failures of 4 workflows"
    told = [(bar.label, bar.told, bar.tone) for bar in page["bars"]]
    assert told == [(each, "1", each.lower()) for each in ("Parked", "Complete", "Failed", "Cancelled")]
    assert listed(support, page["bars"][1].url) == [made[1].pk]


def test_a_cause_whose_failures_are_all_seen_to_asks_for_nothing(as_: Login) -> None:
    seen_to(rows.failed(**FULL))
    response = as_("support").get(incident(Cause("onboarding", "enroll_in_program", "program_full")))
    assert "Nobody has to do anything" in words(response.content.decode())
    assert "bulk_all" not in response.content.decode()


def test_a_group_is_acknowledged_with_one_note_and_each_has_an_outcome(as_: Login) -> None:
    """Also by who may not start bulk operations: 22 are more than the 20 that they may retry."""
    support = as_("support")
    free, held = [rows.failed(**FULL, failed_release=f"r{n % 2}") for n in range(22)], paid()
    other = rows.failed()
    page = support.get(next(each.url for each in shown(support) if each.number == "23"))
    page = support.post(page.context["list_url"], {"bulk_all": "acknowledge"}, follow=True)
    later = rows.failed(**FULL)
    told = words(page.content.decode())
    assert "22 of the 23 chosen are acknowledged." in told
    assert "1 is left alone: Its charge stands, or is unclear: look at it by itself." in told
    form = page.context["form"]
    support.post(page.wsgi_request.path, {"reason": NOTE, "pace": form["pace"].initial})
    carry_out(BulkOperation.objects.get())
    assert dict(BulkItem.objects.values_list("row", "outcome")) == {
        **{row.pk: "done" for row in free},
        held.pk: "skipped",
    }
    notes = Event.objects.filter(kind="acknowledged").values_list("actor", "step", "detail__reason")
    assert [*notes] == [("some-support", "enroll_in_program", NOTE)] * 22
    left = {pk for each in shown(support) for pk in each.group.newest}
    assert left == {later.pk, held.pk, other.pk}


# --- Who looks after it -------------------------------------------------------------------------


def test_a_group_is_a_colleagues_who_finds_it_first_until_all_of_it_is_dealt_with(as_: Login) -> None:
    support, lead = as_("support"), as_("support lead")
    [rows.failed() for _ in range(3)]
    one = rows.failed(current_step="reserve")
    (url,) = [each.assign_url for each in shown(support) if "Reserve" in each.what]
    assert url in unescape(support.get(PAGE).content.decode())
    to = User.objects.get(username="some-support lead").pk
    assert "It is assigned to some-support lead." in words(
        support.post(url, {"to": to, "reason": NOTE}, follow=True).content.decode()
    )
    assert [(each.what, each.whose) for each in shown(support)] == [
        ("Failed at “Charge”", "Engineers"),
        ("Failed at “Reserve”", "some-support lead"),
    ]

    def lists(query: str) -> list[str]:
        return [each.what for each in lead.get(f"/admin/needs-a-person/{query}").context["groups"]]

    assert lists("") == ["Failed at “Reserve”", "Failed at “Charge”"]
    assert (lists("?whose=mine"), lists("?whose=unassigned")) == (["Failed at “Reserve”"], ["Failed at “Charge”"])
    assert NOTE in LogEntry.objects.get().get_change_message()
    User.objects.filter(pk=to).update(is_active=False)
    assert {each.whose for each in shown(support)} == {"Engineers"}, "who has left looks after nothing"
    User.objects.filter(pk=to).update(is_active=True)
    seen_to(one)
    rows.failed(current_step="reserve")
    assert {each.whose for each in shown(support)} == {"Engineers"}, "what is dealt with, and comes back, is nobody's"


def test_what_asks_for_nobody_asks_for_the_colleague_who_looks_after_it(as_: Login) -> None:
    rows.failed(workflow_type="onboarding", last_error_code="invalid_payload")
    [group] = failures.unacknowledged()
    assert group.asks_nobody
    as_("support lead")
    to = User.objects.get(username="some-support lead")
    operations.assign_cause(group.cause, user=to, to=to.pk)
    [group] = failures.unacknowledged()
    assert not group.asks_nobody


def test_only_who_may_acknowledge_failures_looks_after_them_or_says_who_does(as_: Login) -> None:
    rows.failed()
    support, auditor = as_("support"), as_("auditor")
    url = shown(support)[0].assign_url
    nobody = User.objects.get(username="some-auditor").pk
    assert support.post(url, {"to": nobody, "reason": NOTE}).status_code == 200
    assert auditor.post(url, {"to": nobody, "reason": NOTE}).status_code == 403
    [group] = failures.unacknowledged()
    supporter = User.objects.get(username="some-support")
    with pytest.raises(PermissionDenied):
        operations.assign_cause(group.cause, user=User.objects.get(pk=nobody), to=supporter.pk)
    User.objects.filter(pk=supporter.pk).update(is_staff=False)
    with pytest.raises(NotAllowed):
        operations.assign_cause(group.cause, user=supporter, to=supporter.pk)
    assert not AssignedCause.objects.exists()
