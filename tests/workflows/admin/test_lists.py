from __future__ import annotations

from datetime import timedelta
from html import unescape
from itertools import product

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.postgres import without_triggers
from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import words
from workflows.console import paging
from workflows.console.time_filters import UNKNOWN
from workflows.health import money_at_risk
from workflows.models import Correction, State, Workflow

LIST = "/admin/workflows/workflow/"
TASKS = "/admin/workflows/manualtask/"


def listed(client: Client, query: str) -> list[int]:
    """The numbers on the list, in their order."""
    response = client.get(LIST + query)
    assert response.status_code == 200
    return [row.pk for row in response.context["cl"].result_list]


def one_of_each() -> dict[State, Workflow]:
    return {state: make() for state, make in rows.IN_STATE.items()}


def test_it_shows_what_support_asks_for(as_: Login) -> None:
    row = rows.failed(created_at=timezone.now() - timedelta(hours=3))
    html = as_("support").get(LIST).content.decode()
    for shown in [
        f">{row.pk}<",
        "Parcel",
        "badge-failed",
        ">Charge<",
        ">Card declined<",
        ">3 h<",
        "1 (failed 5 times in a row)",
    ]:
        assert shown in html
    rows.failed(workflow_type="onboarding", current_step="enroll_in_program", last_error_code="unreachable")
    html = as_("support").get(LIST).content.decode()
    assert 'class="field-step">Enrol in the program</td>' in html
    assert 'class="field-type">Onboarding</td>' in html
    assert '<span class="quiet" title="unreachable">Unreachable</span>' in html
    assert "enroll_in_program" not in html
    assert "searchbar" not in html, "what was typed into it would stand in the address"


def test_money_is_a_filter_of_the_newest_that_the_others_leave(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    support, (older, newer) = as_("support"), (rows.refunded().pk, rows.refunded().pk)
    charged = rows.waiting(workflow_type="onboarding", task=False)
    rows.refunded_charge(charged)
    charged.effects.update(state="done")
    assert listed(support, "?money=refunded&state=failed") == [newer, older]
    assert listed(support, "?money=held") == [charged.pk]
    assert listed(support, "?money=unclear") == []
    html = support.get(f"{LIST}?money=held").content.decode()
    assert "By money, of the newest 1,000" in html
    assert "Money, of the newest 1,000: <strong>Held</strong>" in html
    assert listed(support, "?money=gone") == []
    assert UNKNOWN in support.get(f"{LIST}?money=gone").content.decode()
    monkeypatch.setattr(money_at_risk, "FAILURES", 1)
    assert listed(support, "?money=refunded&state=failed") == [newer]


def test_each_row_is_found_by_the_filter_of_its_state_and_by_no_other(as_: Login) -> None:
    """In whatever way the columns come together, likely or not."""
    one_of_each()
    now, hour = timezone.now(), timedelta(hours=1)
    for running, compensating, due, parked_on, waiting_for, retry_count in product(
        (False, True), (False, True), (now - hour, now + hour), ("", "payments"), ("", "a letter"), (0, 2)
    ):
        make = rows.running if running else rows.workflow
        make(
            compensating=compensating,
            invisible_until=due,
            parked_on=parked_on,
            waiting_for=waiting_for,
            retry_count=retry_count,
        )
    found = {state: set(Workflow.objects.in_state(state).values_list("pk", flat=True)) for state in State}
    derived: dict[str, set[int]] = {state: set() for state in State}
    for row in Workflow.objects.with_state():
        derived[row.state].add(row.pk)
    assert found == derived
    assert not Workflow.objects.in_state("no state").exists()


def test_the_presets_find_what_people_come_for(as_: Login) -> None:
    made = one_of_each()
    old = rows.failed(completed_at=timezone.now() - timedelta(days=2))
    support = as_("support")
    failed = made[State.FAILED].pk
    assert listed(support, "?failed=today") == [failed]
    late = rows.overdue_wait()
    rows.overdue_wait(due=timedelta(hours=1))
    assert listed(support, "?preset=overdue-wait") == [late.pk]
    assert listed(support, "?workflow_type=parcel&state=failed") == [old.pk, failed]
    assert listed(support, "?workflow_type=other") == []


def test_a_list_reads_neither_payload_nor_context_and_counts_nothing_without_a_limit(as_: Login) -> None:
    one_of_each()
    with CaptureQueriesContext(connection) as queries:
        as_("support").get(LIST + "?state=failed")
    about = [q["sql"] for q in queries if 'FROM "workflows_workflow"' in q["sql"]]
    assert about
    assert not [sql for sql in about if '."payload",' in sql or '."context"' in sql], "but for the field of a patient"
    assert all("LIMIT 10001" in sql for sql in about if "COUNT(" in sql)


def test_a_count_stops_at_its_limit_and_says_so(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "COUNT_LIMIT", 3)
    for _ in range(3):
        rows.workflow()
    assert "3+ workflows" not in words(as_("support").get(LIST).content.decode())
    rows.workflow()
    assert "3+ workflows" in words(as_("support").get(LIST).content.decode())


def test_nothing_can_be_asked_of_the_table_that_is_not_on_the_page(as_: Login) -> None:
    """Else a payload could be guessed at, letter by letter, by whether a row is listed."""
    rows.workflow(payload={"email": "jane@example.com"})
    boss = as_("superuser")
    for query in ["payload__email=jane@example.com", "payload__email__startswith=j", "context__x=1", "id__gt=0"]:
        assert boss.get(f"{LIST}?{query}").status_code == 400
    for order in (1, 5, 9):
        assert 'ORDER BY "workflows_workflow"."id" DESC' in str(
            boss.get(f"{LIST}?o={order}").context["cl"].queryset.query
        )


def test_home_counts_by_state_and_links_to_exactly_the_rows_it_counted(as_: Login) -> None:
    made = {state: [row.pk] for state, row in one_of_each().items()}
    made[State.FAILED].insert(0, rows.failed().pk)
    support = as_("support")
    home = support.get("/admin/").context
    for state, count in home["glance"].states.items():
        assert listed(support, f"?state={state}") == made[state]
        assert count.number == len(made[state])
    assert (home["glance"].tasks.number, home["next_task"]) == (1, None)


def test_home_names_the_task_that_is_due_first_of_those_that_the_user_may_decide(as_: Login) -> None:
    now, hour = timezone.now(), timedelta(hours=1)
    later = rows.open_task(rows.waiting(task=False), expires_at=now + hour)
    first = rows.open_task(rows.waiting(task=False), expires_at=now + 9 * hour, due_at=now + hour / 2)
    others = rows.open_task(rows.waiting(task=False), task_type="keeps_dying", team="operations", due_at=now - hour)
    rows.open_task(rows.failed(), due_at=now, expires_at=now)  # its workflow has ended
    assert later.pk
    for group, task in (("approver", first), ("engineer", others)):
        home = as_(group).get("/admin/")
        assert home.context["next_task"] == task
        assert f'{TASKS}{task.pk}/change/">task {task.pk}</a>' in home.content.decode()
        assert f"by {task.due_at:%Y-%m-%d %H:%M} UTC" in words(home.content.decode())
        assert home.context["glance"].tasks.number == 3
    assert as_("support").get("/admin/").context["next_task"] is None


def test_what_is_asked_for_and_cannot_be_changes_nothing_and_is_no_error(as_: Login) -> None:
    row, boss = rows.failed(), as_("superuser")
    for query in ("state=%00&workflow_type=a%00b&preset=%00&q=%00", "failed=x/y", "failed=%2F"):
        assert boss.get(f"{LIST}?{query}", follow=True).status_code == 200
    assert listed(boss, "?failed=&preset=&came=") == [row.pk]
    for query in ("show=x&page=-1&workflow_type=%00", "page=99"):
        assert len(boss.get(f"/admin/failures/?{query}").context["lines"]) == 1
    for url in ("/admin/needs-a-person/", TASKS):
        assert boss.get(f"{url}?kind=failed%00&whose=%00&state=%00&after=1.0.1.0.²&before=end&o=1").status_code == 200


def test_a_value_that_no_filter_knows_lists_nothing_and_says_so(as_: Login) -> None:
    """All in its place would be retried, too, by a button that has been right until then."""
    rows.failed()
    support = as_("support")
    for query in ("preset=gone", "failed=2026-11-23T00:10", "came=1d", "completed=x", "ended=x", "state=x"):
        assert listed(support, f"?{query}") == []
        html = words(support.get(f"{LIST}?{query}").content.decode())
        assert ("A filter of this address is not known here, so the list shows nothing" in html) == (query != "state=x")


def test_what_needs_somebody_is_in_one_place_to_which_old_addresses_lead(as_: Login) -> None:
    support = as_("support")
    rows.failed()
    for preset, place in {"attention": "/admin/needs-a-person/", "failed-today": f"{LIST}?failed=today"}.items():
        assert support.get(f"{LIST}?preset={preset}")["Location"] == place
    assert support.get(f"{LIST}?preset=decision&state=waiting")["Location"] == "/admin/needs-a-person/"
    offered = words(support.get(LIST).content.decode().split('data-filter-title="urgency"')[1].split("</details>")[0])
    assert offered.startswith("open> By urgency All Failed and not acknowledged Waits for a release")


def test_home_leads_to_what_waits_for_a_second_person_where_it_is_listed(as_: Login) -> None:
    row, lead = rows.asked_to_correct(), as_("support lead")
    with without_triggers():
        Correction.objects.update(asked_at=timezone.now() - timedelta(days=2))
    there = "/admin/needs-a-person/?kind=correction&amp;whose=all"
    assert f'<a href="{there}">1 correction has waited' in lead.get("/admin/").content.decode()
    assert f"/workflow/{row.workflow_id}/change/" in lead.get(unescape(there)).content.decode()
