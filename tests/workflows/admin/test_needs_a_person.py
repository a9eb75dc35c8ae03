"""For you: what is on it, in which order, and for whom. The list of tasks is the same page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import words
from workflows import operations
from workflows.console import needs_a_person
from workflows.health import bounded
from workflows.health import needs_a_person as needs
from workflows.health.for_whom import Whose
from workflows.health.needs_a_person import Rank
from workflows.models import AssignedCause, Effect, FollowUp, ManualTask, Wait, Workflow

LIST, TASKS = "/admin/needs-a-person/", "/admin/workflows/manualtask/"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def everybodys(query: str) -> str:
    """The query, for everybody's rows unless it says whose."""
    return query if "whose=" in query else f"?whose=all&{query.lstrip('?')}"


def shown(client: Client, query: str = "", url: str = LIST) -> list[Any]:
    response = client.get(url + everybodys(query))
    assert response.status_code == 200
    return list(response.context["lines"])


def asks(client: Client, query: str = "") -> list[str]:
    """The rows, and what has failed: first where money is held, and at the end, in brackets, what is folded away."""
    return asked_and_told(client, query)[0]


def text(client: Client, query: str = "", url: str = LIST) -> str:
    return told_by(client.get(url + everybodys(query)))


def asked_and_told(client: Client, query: str = "") -> tuple[list[str], str]:
    """What a page asks, as `asks`, and its text."""
    response = client.get(LIST + everybodys(query))
    found = response.context
    held, groups, told = ([group.what for group in found[name]] for name in ("charged", "groups", "told"))
    asked = [*held, *(line.asks for line in found["lines"]), *groups, *(f"({what})" for what in told)]
    return asked, told_by(response)


def told_by(response: Any) -> str:
    return words(response.content.decode().split('id="content"')[1])


def task(since: timedelta = timedelta(0), **fields: Any) -> ManualTask:
    """An open task that was made so long ago."""
    row = rows.open_task(rows.waiting(task=False), **fields)
    ManualTask.objects.filter(pk=row.pk).update(created_at=timezone.now() - since)
    return ManualTask.objects.get(pk=row.pk)


def failed(since: timedelta = timedelta(0), **fields: Any) -> Workflow:
    return rows.failed(completed_at=timezone.now() - since, **fields)


def given_up(since: timedelta = timedelta(0)) -> Workflow:
    row = rows.given_up()
    FollowUp.objects.filter(workflow=row).update(created_at=timezone.now() - since)
    return row


def one_of_each() -> None:
    task(5 * HOUR, task_type="parcel_review")
    task(4 * HOUR, task_type="effect_in_doubt", team="operations")
    task(3 * HOUR, task_type="undo_in_doubt", team="operations")
    failed(2 * HOUR)
    given_up(HOUR)


# --- What is on it, and in which order ----------------------------------------------------------


UNCLEAR, FAILED_REVERSAL = "Unclear call: “Charge”", "Failed reversal: “Charge”"
EACH = [
    UNCLEAR,
    FAILED_REVERSAL,
    "Parcel review",
    "Given up: “Thank”",
    "Failed at “Charge”",
]


def test_it_has_all_that_waits_for_somebody_what_may_cost_money_first(as_: Login) -> None:
    one_of_each()
    charged = rows.failed(workflow_type="onboarding", current_step="enroll_in_program", last_error_code="email_taken")
    call = {"step": "execute_checkout", "state": "done", "result": {"charge_id": "ch_1"}, "attempt": 1}
    Effect.objects.create(workflow=charged, idempotency_key=f"{charged.key}:charge", **call)
    support = as_("support")
    asked, told = asked_and_told(support)
    assert asked == ["Failed at “Enrol in the program”", *EACH]
    assert "6 wait for somebody" in told
    asked, told = asked_and_told(support, "?whose=")
    assert asked == ["Failed at “Enrol in the program”", *EACH[3:]], "support decides no tasks"
    assert "3 are for you" in told
    home = support.get("/admin/")
    assert [line.what for line in home.context["first_lines"]] == asked
    assert re.search(rf'href="{LIST}">All for you: 3 lines<', home.content.decode())


def test_it_has_nothing_that_waits_for_nobody(as_: Login) -> None:
    for make in (rows.workflow, rows.running, rows.retrying, rows.parked, rows.compensating, rows.cancelled):
        make()
    rows.complete()
    rows.left_undone()
    rows.waiting(task=False)
    task(state="expired")
    rows.open_task(rows.failed(completed_at=None), expires_at=timezone.now() + HOUR)  # its workflow is not under way
    seen_to = failed()
    Workflow.objects.filter(pk=seen_to.pk).update(acknowledged_failure=seen_to.completed_at)
    FollowUp.objects.create(workflow=rows.complete(), step="thank", queue="default", due_at=timezone.now())
    given_up()
    (row,) = FollowUp.objects.filter(due_at=None)
    FollowUp.objects.filter(pk=row.pk).update(acknowledged_failure=row.created_at)
    undone = given_up()
    Workflow.objects.filter(pk=undone.pk).update(status="PENDING", completed_at=None, compensating=True)
    asked, told = asked_and_told(as_("superuser"))
    assert asked == []
    assert "Nothing of this waits for anybody." in told


def test_an_overdue_wait_is_among_what_is_overdue_with_its_team_and_nothing_that_was_sent(as_: Login) -> None:
    now = timezone.now()
    task(HOUR, task_type="late", due_at=now - 2 * HOUR)
    task(10 * DAY, task_type="in_time", due_at=now + HOUR)
    theirs = rows.overdue_wait(due=-3 * HOUR, team="support", waiting_for="a word of Ada Quill")
    rows.overdue_wait(team="clinicians")
    rows.overdue_wait(due=HOUR, team="support")
    support = as_("support")
    lines = shown(support)
    assert [(line.asks, line.whose, line.is_overdue) for line in lines] == [
        ("Overdue: “Review”", "Support", True),
        ("Late", "Approvers", True),
        ("Overdue: “Review”", "Clinicians", True),
        ("In time", "Approvers", False),
    ]
    assert lines[0].url.endswith(f"/workflow/{theirs.pk}/change/")
    told = text(support)
    assert "Quill" not in told
    assert "4 wait for somebody" in told
    for query, number in (("kind=overdue-wait", 2), ("whose=teams", 1), ("whose=mine", 0), ("whose=unassigned", 4)):
        assert len(shown(support, f"?{query}")) == number, query
    assert [line.whose for line in shown(support, "?whose=teams")] == ["Support"]
    assert [line.whose for line in shown(as_("superuser"), "?whose=teams&kind=overdue-wait")] == [
        "Support",
        "Clinicians",
    ]
    assert [line.whose for line in shown(support, "?whose=")] == ["Support"]
    assert [line.what for line in support.get("/admin/").context["first_lines"]] == [lines[0].asks]
    assert shown(support, "?state=overdue")[0].asks == "Late", "an overdue wait is no task"


def test_what_is_overdue_comes_first_and_is_marked(as_: Login) -> None:
    now = timezone.now()
    failed(9 * DAY)
    task(HOUR, task_type="late", due_at=now - 2 * HOUR)
    task(8 * DAY, task_type="later", due_at=now - HOUR)
    task(10 * DAY, task_type="in_time", due_at=now + HOUR)
    support = as_("support")
    page = support.get(f"{LIST}?whose=all")
    assert [line.asks for line in page.context["lines"]] == ["Late", "Later", "In time"]
    assert [line.is_overdue for line in page.context["lines"]] == [True, True, False]
    assert page.content.decode().count("badge-overdue") == 2
    assert f"{now - 2 * HOUR:%Y-%m-%d %H:%M} UTC Overdue" in told_by(page)
    page = support.get(f"{LIST}?whose=all&state=overdue")
    assert [line.asks for line in page.context["lines"]] == ["Late", "Later"]
    assert "2 wait for somebody" in told_by(page)


def test_each_row_says_what_is_asked_since_when_and_whose_it_is_and_leads_there(as_: Login) -> None:
    approver = as_("approver")
    me = User.objects.get()
    reviewed = task(5 * HOUR, assignee=me)
    left = task(4 * HOUR, assignee=User.objects.create_user("gone"), team="packers")
    asked = task(3 * HOUR, team="clinicians")
    anybody = task(2 * HOUR)
    let_go = given_up()
    page = approver.get(f"{LIST}?whose=all")
    lines = page.context["lines"]
    assert [line.whose for line in lines] == [
        "some-approver",
        "gone (Packers), who can no longer decide it",
        "Clinicians",
        "Approvers",
        "Support",
    ]
    assert [line.waits for line in lines] == ["5 h", "4 h", "3 h", "2 h", "now"]
    tasks = [f"/admin/workflows/manualtask/{row.pk}/change/" for row in (reviewed, left, asked, anybody)]
    assert [line.url.split("?")[0] for line in lines] == [*tasks, f"/admin/workflows/workflow/{let_go.pk}/change/"]
    for line in lines:
        assert approver.get(line.url).status_code == 200
    told = told_by(page)
    assert f"{let_go.pk} Parcel" in told
    assert f"Task {asked.pk}" in told
    assert f"expires {asked.expires_at:%Y-%m-%d %H:%M} UTC" in told


def test_of_many_causes_it_has_a_page_and_counts_them_all(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs_a_person, "CAUSES_SHOWN", 2)
    [rows.failed(current_step=f"step_{n}") for n in range(3)]
    support = as_("support")
    page = support.get(LIST)
    assert len(page.context["groups"]) == 2
    assert "3 are for you: 3 causes of failures." in told_by(page)
    assert "Counts stop at 1,000." in told_by(page)
    assert "/admin/failures/" in page.content.decode().split('id="content"')[1]
    assert '<a href="?kind=failed">1 more cause</a>. <a href="/admin/failures/">' in page.content.decode()
    monkeypatch.setattr(needs, "PAGE", 3)
    page = support.get(f"{LIST}?kind=failed")
    assert (len(page.context["groups"]), "more cause" in told_by(page)) == (3, False)
    for code in ("declined", "program_full", "expired"):
        row = rows.failed(workflow_type="onboarding", last_error_code=code)
        call = {"step": "execute_checkout", "state": "done", "result": {"charge_id": "ch_1"}, "attempt": 1}
        Effect.objects.create(workflow=row, idempotency_key=f"{row.key}:charge", **call)
    assert "Money is held by 1 more cause: " in text(support)


def test_what_asks_for_nobody_is_folded_away_and_not_counted(as_: Login) -> None:
    verdict = {"workflow_type": "onboarding", "current_step": "validate_duplicate_email"}
    [rows.failed(**verdict, last_error_code="email_taken") for _ in range(2)]
    support = as_("support")
    asked, told = asked_and_told(support)
    assert asked == ["(Failed at “Check that the e-mail address is free”)"]
    assert "2 failures need nobody" in told
    assert "for somebody" not in told
    assert support.get("/admin/").context["needs_a_person"] == "0"


def test_a_row_says_whom_it_is_about_by_what_may_be_shown(as_: Login) -> None:
    sent = {"patient": {"email": "ada@example.com"}, "checkout": {"amount_cents": 39900, "currency": "usd"}}
    about = rows.waiting(task=False, workflow_type="onboarding", payload=sent)
    rows.open_task(about)
    rows.open_task(rows.waiting(task=False, workflow_type="onboarding", payload={"patient": {"email": {"a": 1}}}))
    rows.open_task(rows.waiting(task=False, workflow_type="onboarding", payload=["no", "object"]))
    support = as_("support")
    page = support.get(f"{LIST}?whose=all")
    assert [line.patient for line in page.context["lines"]] == ["a•••@example.com", "", ""]
    home = as_("superuser").get("/admin/")
    assert [line.patient for line in home.context["first_lines"]] == ["a•••@example.com", "", ""]
    assert [line.amount for line in page.context["lines"]] == ["$399.00", "", ""]
    assert 'data-label="Price">$399.00<' in page.content.decode(), "nothing is charged yet"
    assert "ada@" not in page.content.decode()
    assert "a•••@example.com" in words(support.get("/admin/workflows/workflow/").content.decode())


def test_neither_questions_nor_messages_of_errors_are_shown(as_: Login) -> None:
    """They may hold what a patient has sent."""
    task(question="Is canary-7f3a right?")
    ManualTask.objects.update(facts=[["Name", "canary-7f3a"]])
    given_up()
    failed(last_error_message="canary-7f3a is not an address", payload={"name": "canary-7f3a"})
    with CaptureQueriesContext(connection) as queries:
        html = as_("superuser").get(LIST).content.decode()
    assert "canary" not in html
    read = [sql for sql in (query["sql"] for query in queries) if "workflows_" in sql]
    for column in ("question", "facts", "context", "last_error_message"):
        assert not [sql for sql in read if f'"{column}"' in sql]


def test_what_is_dealt_with_while_the_page_is_read_is_left_out(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, stays = given_up(HOUR), given_up()
    read = needs.page_and_count

    def page(*args: Any, **kwargs: Any) -> tuple[needs.Page, int]:
        found = read(*args, **kwargs)
        FollowUp.objects.filter(workflow=gone).delete()
        return found

    monkeypatch.setattr(needs, "page_and_count", page)
    assert [line.workflow for line in shown(as_("support"))] == [stays.pk]


# --- Filters ------------------------------------------------------------------------------------


def test_each_kind_is_a_filter(as_: Login) -> None:
    one_of_each()
    support = as_("support")
    for kind, label in zip(["unclear", "reversal", "task", "given-up", "failed"], EACH, strict=True):
        asked, told = asked_and_told(support, f"?kind={kind}")
        assert asked == [label]
        assert "1 waits for somebody" in told


def test_whose_it_is_is_a_filter(as_: Login) -> None:
    approver = as_("approver")
    me = User.objects.get()
    me.groups.add(Group.objects.create(name="clinicians"))
    task(9 * HOUR, task_type="mine", assignee=me)
    task(8 * HOUR, task_type="free")
    task(7 * HOUR, task_type="theirs", assignee=User.objects.create_superuser("other"))
    task(6 * HOUR, task_type="stranded", assignee=User.objects.create_user("gone"))
    task(5 * HOUR, task_type="ours", team="clinicians")
    task(4 * HOUR, task_type="others", team="packers")
    task(3 * HOUR, task_type="effect_in_doubt", team="operations")
    task(2 * HOUR, task_type="effect_in_doubt", assignee=me)
    failed(HOUR)
    given_up()
    unowned = [
        UNCLEAR,
        "Free",
        "Stranded",
        "Ours",
        "Others",
        "Given up: “Thank”",
        "Failed at “Charge”",
    ]
    assert asks(approver, "?whose=mine") == [UNCLEAR, "Mine"]
    assert asks(approver, "?whose=mine&kind=failed") == []
    assert asks(approver, "?whose=unassigned") == unowned
    assert asks(approver, "?whose=unassigned&kind=task") == unowned[1:5]
    assert asks(approver, "?whose=teams") == ["Ours"]
    assert asks(as_("engineer"), "?whose=teams") == [UNCLEAR]
    assert asks(as_("superuser"), "?whose=teams") == [UNCLEAR, "Ours", "Others"]


# --- For you, and for others --------------------------------------------------------------------


def halves(client: Client) -> tuple[list[str], list[str]]:
    """The rows for the user, in their order, and those for others, to which the page has a link."""
    found = client.get(LIST)
    assert 'href="?whose=others"' in found.content.decode()
    titles = [client.get(f"{LIST}?{query}").context["title"] for query in ("", "whose=others", "whose=all")]
    assert titles == ["For you", "For others", "For you and others"]
    mine, others = found.context["lines"], client.get(f"{LIST}?whose=others").context["lines"]
    return [line.asks for line in mine], [line.asks for line in others]


def test_each_row_is_for_the_user_or_for_others_by_what_they_may_decide(as_: Login) -> None:
    approver, now = as_("approver"), timezone.now()
    me, other = User.objects.get(), User.objects.create_superuser("other")
    me.groups.add(Group.objects.create(name="clinicians"))
    task(task_type="soon", due_at=now + HOUR)
    task(task_type="late", due_at=now - HOUR, team="clinicians")
    task(task_type="mine", due_at=now, assignee=me)
    task(task_type="left", due_at=now + 2 * HOUR, assignee=User.objects.create_user("gone"))
    task(task_type="taken", due_at=now - HOUR, assignee=other)
    task(task_type="own", due_at=now, four_eyes=True, requested_by=me)
    task(task_type="own, and taken", due_at=now + HOUR / 2, four_eyes=True, requested_by=me, assignee=other)
    task(task_type="of_packers", due_at=now + HOUR, team="packers")
    task(task_type="effect_in_doubt", due_at=now + 9 * HOUR, team="operations")
    given_up()
    rows.overdue_wait(team="clinicians")
    rows.overdue_wait()
    waits = "Overdue: “Review”"
    assert halves(approver) == (
        ["Late", waits, "Mine", "Soon", "Left"],
        [UNCLEAR, "Taken", waits, "Own", "Own, and taken", "Of packers", "Given up: “Thank”"],
    )
    lead = as_("support lead")
    assert halves(lead)[0] == [UNCLEAR, waits, "Given up: “Thank”"]
    ManualTask.objects.filter(task_type="soon").update(lead_asked_at=now)
    mine, others = halves(lead)
    assert (mine[:2], "Soon" in others) == ([UNCLEAR, "Soon"], False), "leads are asked for it"
    assert "Soon" in halves(approver)[0]
    for client, user in ((approver, me), (lead, User.objects.get(username="some-support lead"))):
        parts = {
            whose: needs.page_and_count(needs.Asked(user, whose=whose))[1] for whose in (None, Whose.YOU, Whose.OTHERS)
        }
        assert parts[None] == parts[Whose.YOU] + parts[Whose.OTHERS] == 12
        found = needs.page_and_count(needs.Asked(user, kinds=needs.TASKS, whose=Whose.YOU))[0].items
        asked = ManualTask.objects.filter(lead_asked_at__isnull=False) if client is lead else ManualTask.objects.none()
        expected = [*operations.decidable(user), *asked]
        assert {item.pk for item in found} == {each.pk for each in expected}


def test_failures_are_for_whom_they_are_assigned_to_or_for_those_who_may_acknowledge_them(as_: Login) -> None:
    support = as_("support")
    me = User.objects.get()
    for step, whom in (("reserve", me), ("charge", User.objects.create_superuser("boss")), ("review", None)):
        row = failed(current_step=step)
        if whom:
            cause = {"workflow_type": row.workflow_type, "step": step, "code": row.last_error_code}
            AssignedCause.objects.create(**cause, assignee=whom, at=timezone.now() + HOUR)
    assert asks(support, "?whose=") == ["Failed at “Reserve”", "Failed at “Review”"]
    assert asks(support, "?whose=others") == ["Failed at “Charge”"]
    assert asks(as_("approver"), "?whose=") == []


def test_what_an_engineer_looks_at_first_is_for_engineers_if_there_is_one(as_: Login) -> None:
    support, unforeseen, explained = as_("support"), "Failed at “Charge”", "Failed at “Reserve”"
    failed(), failed(current_step="reserve", last_error_code="wait_expired")
    as_("superuser")
    one = User.objects.create_user("one", is_staff=True)
    may = [*Permission.objects.filter(codename__in=("view_workflow", "acknowledge_workflow", "try_service"))]
    for lacking in (*may, None):
        one.user_permissions.set({*may} - {lacking})
        User.objects.filter(pk=one.pk).update(is_staff=lacking is not None)
        assert sorted(asks(support, "?whose=")) == [unforeseen, explained], f"lacks {lacking or 'a place in the staff'}"
    User.objects.filter(pk=one.pk).update(is_staff=True)
    page = support.get(LIST)
    assert [each.what for each in page.context["groups"]] == [explained]
    assert "1 is for you" in told_by(page)
    assert asks(support, "?whose=others") == [unforeseen]
    assert support.get("/admin/").context["needs_a_person"] == "1"
    assert sorted(asks(as_("engineer"), "?whose=")) == [unforeseen, explained]


# --- Tasks by state -----------------------------------------------------------------------------


def in_inbox(client: Client, query: str) -> list[int]:
    return [int(line.url.split("/")[4]) for line in shown(client, query, TASKS)]


def test_it_has_tasks_by_type_under_both_addresses(as_: Login) -> None:
    one_of_each()
    approver = as_("approver")
    mine = task(6 * HOUR, task_type="parcel_review", assignee=User.objects.get())
    first = ManualTask.objects.exclude(pk=mine.pk).earliest("pk").pk
    assert in_inbox(approver, "?task_type=parcel_review") == [first, mine.pk]
    assert in_inbox(approver, "?task_type=parcel_review&whose=unassigned") == [first]
    assert in_inbox(approver, "?whose=mine&task_type=undo_in_doubt") == []
    row, *_ = shown(approver, "?whose=mine", TASKS)
    assert row.url.endswith(f"/{mine.pk}/change/?_changelist_filters=whose%3Dmine"), "for the task after it"


def test_it_has_tasks_of_each_state_too_the_newest_first(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    approver = as_("approver")
    decided = {"decided_by": User.objects.get(), "decided_at": timezone.now(), "task_type": "letter"}
    made: dict[str, int] = {}
    for state in ManualTask.State:
        made[state] = task(state=state, **(decided if state in ("approved", "rejected") else {})).pk
    ended = rows.open_task(rows.failed(), task_type="note", expires_at=timezone.now() + HOUR).pk
    closed = [pk for state, pk in made.items() if state != "open"][::-1]
    for state, pk in made.items():
        assert in_inbox(approver, f"?state={state}") == [pk], "an open task of a workflow that has ended awaits nobody"
    assert in_inbox(approver, "?state=done") == closed
    assert in_inbox(approver, "?state=all") == [ended, *closed, made["open"]]
    assert in_inbox(approver, "?state=done&task_type=letter") == [made["rejected"], made["approved"]]
    assert in_inbox(approver, "?state=all&task_type=%00") == in_inbox(approver, "?state=all")
    assert "task_type=note" not in approver.get(TASKS).content.decode()
    ManualTask.objects.filter(pk=made["expired"]).update(assignee=User.objects.get(), due_at=timezone.now() - HOUR)
    assert in_inbox(approver, "?state=done&whose=mine") == [made["expired"]]
    told = text(approver, "?state=all", TASKS)
    assert "7 tasks, newest first" in told
    assert "Counts stop at 10,000." in told
    assert "Letter Task" in told
    assert "Approved" in told
    assert "Decided by some-approver, " in told
    assert "Overdue" not in told.split("What is asked")[1]
    monkeypatch.setattr(needs, "PAGE", 2)
    pages = list(walk(approver, "?state=done", TASKS))
    assert [len(page) for page in pages] == [2, 2, 1]


# --- Page by page -------------------------------------------------------------------------------


def walk(client: Client, query: str = "", url: str = LIST) -> Iterator[list[tuple[str, int]]]:
    """The pages of the list, by their links, as what each row leads to."""
    query = everybodys(query)
    for _ in range(100):
        response = client.get(url + query)
        yield [(line.url.split("/")[3], line.workflow) for line in response.context["lines"]]
        if not (query := response.context["next_url"]):
            return
    raise AssertionError("The links lead in a circle.")


def test_page_by_page_each_is_there_once(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where many are equally old, of all sources."""
    now = timezone.now()
    for n in range(2):
        one_of_each()
        task(due_at=now - HOUR, task_type=f"type_{n}")
        task(due_at=now + HOUR)
    ManualTask.objects.update(created_at=now - DAY)
    FollowUp.objects.update(created_at=now - DAY)
    as_("support")
    user = User.objects.get()
    whole = needs.page_and_count(needs.Asked(user))[0].items
    assert len({(item.source, item.pk) for item in whole}) == 12
    for size in (1, 5):
        monkeypatch.setattr(needs, "PAGE", size)
        page, _ = needs.page_and_count(needs.Asked(user))
        found = [*page.items]
        while page.next:
            assert len(page.items) == size
            page, _ = needs.page_and_count(needs.Asked(user), after=page.next)
            found += page.items
        assert found == [*whole]


def test_where_there_are_more_than_are_counted_the_first_come_first(
    as_: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "PEOPLE_LIMIT", 2)
    [task(due_at=timezone.now() + HOUR) for _ in range(3)]
    rows.overdue_wait()
    page = as_("superuser").get(f"{LIST}?whose=all")
    assert [line.asks for line in page.context["lines"]] == ["Overdue: “Review”", *["Parcel review"] * 3]
    assert "2+ wait for somebody" in told_by(page)


@pytest.mark.parametrize(
    "after",
    ["x", "0.1.0.1.1", "-1.1.0.1", "4.1.0.1", "0.1.99.1", "0.1.0.²"],
)
def test_a_place_that_there_is_not_is_none(after: str) -> None:
    assert needs.place(after) is None


def test_behind_all_of_it_there_is_nothing_more(as_: Login) -> None:
    one_of_each()
    for rank in Rank:
        after = ".".join([str(int(rank)), "9" * 16, "1", "9" * 16])
        expected = {Rank.DUE: EACH[3:4], Rank.REST: []}.get(rank, EACH[2:4])
        asked, told = asked_and_told(as_("support"), f"?after={after}")
        assert asked == expected
        assert bool(expected) != ("Nothing is left behind this" in told)


# --- Who ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("permission", "expected"), [("view_manualtask", EACH[:3]), ("view_workflow", EACH[3:])])
def test_what_one_may_not_see_is_not_shown(as_: Login, permission: str, expected: list[str]) -> None:
    one_of_each()
    client = as_("nobody")
    User.objects.get(username="some-nobody").user_permissions.add(Permission.objects.get(codename=permission))
    asked, told = asked_and_told(client)
    assert asked == expected
    assert f"{len(expected)} wait for somebody" in told
    rows.overdue_wait()
    html = client.get(f"{LIST}?whose=all").content.decode().split('id="content"')[1]
    assert ("/admin/workflows/manualtask/" in html) == (permission == "view_manualtask")
    assert ("/admin/workflows/workflow/" in html) == (permission == "view_workflow")


# --- Home ---------------------------------------------------------------------------------------


def test_what_a_lead_is_asked_to_see_to_stands_first_for_leads_until_somebody_has_it(as_: Login) -> None:
    support, lead = as_("support"), as_("support lead")
    old, asked = task(DAY), task(HOUR)
    url = f"/admin/workflows/manualtask/{asked.pk}/"
    assert "Ask a lead" in support.get(f"{url}change/").content.decode()
    assert "Ask a lead" not in lead.get(f"{url}change/").content.decode()
    support.post(f"{url}ask_lead/", {"reason": ""})
    assert [line.task for line in shown(lead)] == [old.pk, asked.pk], "a lead is told why"
    support.post(f"{url}ask_lead/", {"reason": "She waits on the phone."})
    assert "Ask a lead" not in support.get(f"{url}change/").content.decode(), "one is asked already"
    assert [line.task for line in shown(lead)] == [asked.pk, old.pk]
    assert [line.task for line in shown(support)] == [old.pk, asked.pk]
    assert [line.task for line in shown(lead, "?state=overdue", TASKS)] == []
    assert shown(lead, "?kind=unclear") == []
    assert "2 wait for somebody" in text(lead)
    unclear = task(task_type="effect_in_doubt", lead_asked_at=timezone.now())
    assert [line.task for line in shown(lead, "?task_type=effect_in_doubt", TASKS)] == [unclear.pk], "once"
    unclear.delete()
    assert "A lead is asked by some-support She waits on the phone." in words(
        lead.get(f"{url}change/").content.decode()
    )
    leads_abroad, may = as_("nobody"), Permission.objects.filter(codename__in=("assign_manualtask", "view_workflow"))
    User.objects.get(username="some-nobody").user_permissions.set(may)
    assert shown(leads_abroad) == [], "who may not see tasks sees none"
    as_("approver").post(f"{url}claim/")
    assert [line.task for line in shown(lead)] == [old.pk, asked.pk]


def test_a_question_of_another_release_without_a_step_in_its_name_is_listed(as_: Login) -> None:
    task = rows.unclear_charge()
    Wait.objects.filter(pk=task.wait_id).update(name="asked")
    assert asks(as_("superuser")) == ["Unclear call"]
