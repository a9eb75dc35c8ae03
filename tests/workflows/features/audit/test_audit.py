"""The audit: who did what, who looked at whom; by person, patient and time; and as a file."""

from __future__ import annotations

import csv
import re
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.test import Client
from django.utils import timezone

from tests.plans import Plan, explained
from tests.postgres import without_triggers
from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_, parcels
from tests.workflows.admin.tasks import words
from workflows.definition import definitions
from workflows.features.audit import lines as audit
from workflows.features.audit import page as console
from workflows.intake.submissions import enter
from workflows.models import Access, CircuitEvent, Event, Search
from workflows.postgres.jsonb import document_of

__all__ = ["as_", "parcels"]

AUDIT, EXPORT = "/admin/audit/", "/admin/audit-export/"
AT = datetime(2026, 5, 20, 12, tzinfo=UTC)
TABLES = "workflows_access, workflows_event, workflows_search, workflows_circuitevent, django_admin_log"
EMAIL = "canary-4c1d@example.com"


def submitted(phone: str = "+15550102323") -> int:
    document = document_of({"patient": {"email": EMAIL, "phone": phone}})
    return enter(definitions()["onboarding"], idempotency_key=uuid4(), payload=document, submitted_by="web").id


def at(minutes: float) -> datetime:
    return AT + timedelta(minutes=minutes)


def logged(by: User, moment: datetime, message: str = "") -> None:
    of_users, about = ContentType.objects.get_for_model(User), {"object_id": str(by.pk), "object_repr": str(by)}
    LogEntry.objects.create(
        user=by, action_time=moment, content_type=of_users, action_flag=CHANGE, change_message=message, **about
    )


def a_day_of_work() -> int:
    """One thing in each table, at 12:00, 12:01, ... by ada, then something of the engine's; the workflow's number."""
    pk, ada = submitted(), User.objects.create_user("ada", is_staff=True)
    Access.objects.create(at=at(0), actor="ada", kind="viewed", workflow_id=pk)
    Search.objects.create(at=at(1), actor="ada", tried=["email"], hits=2)
    Event.objects.create(at=at(2), actor="ada", kind="retried", workflow_id=pk, detail={"reason": "The bank is back."})
    CircuitEvent.objects.create(at=at(3), actor="ada", kind="held", service="payments", reason="They migrate.")
    logged(ada, at(4), "Groups.")
    Event.objects.create(at=at(5), kind="completed", workflow_id=pk)
    CircuitEvent.objects.create(at=at(5), kind="opened", service="payments")
    return pk


def whats(client: Client, query: str = "") -> list[str]:
    """What each line of the page says that happened."""
    return re.findall(r'<th scope="row">(.*?)</th>', client.get(f"{AUDIT}?{query}").content.decode())


def exported(client: Client, **sent: str) -> list[list[str]]:
    answer: Any = client.post(EXPORT, sent)
    assert answer.status_code == 200
    return list(csv.reader(b"".join(answer.streaming_content).decode().splitlines()))


# --- What is on the page ------------------------------------------------------------------------


def test_it_says_who_did_and_looked_at_what_newest_first_and_nothing_of_the_engines(as_: Login) -> None:
    pk, auditor = a_day_of_work(), as_("auditor")
    assert whats(auditor) == ["Changed", "Held", "Retried", "Searched", "Opened the page"]
    told = words(auditor.get(AUDIT).content.decode())
    for said in (
        f"Retried ada 2026-05-20 12:02 UTC {pk} c•••@example.com The bank is back.",
        "Searched ada 2026-05-20 12:01 UTC By email: 2 found",
        "Held ada 2026-05-20 12:03 UTC payments: They migrate.",
        "Changed ada 2026-05-20 12:04 UTC user ada: Groups.",
    ):
        assert said in told
    assert EMAIL not in told


def test_who_did_what_yesterday_is_one_link(as_: Login) -> None:
    auditor, today = as_("auditor"), timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    for moment, actor in (
        (today, "today"),
        (today - timedelta(microseconds=1), "last"),
        (today - timedelta(days=1), "first"),
        (today - timedelta(days=1, microseconds=1), "before"),
    ):
        Access.objects.create(at=moment, actor=actor, kind="viewed")
    (link,) = re.findall(r'href="([^"]*)"[^>]*>Yesterday', auditor.get(AUDIT).content.decode())
    html = auditor.get(f"{AUDIT}{link}".replace("&amp;", "&")).content.decode()
    assert re.findall(r'data-label="Who">(.*?)<', html) == ["last", "first"]
    assert 'aria-current="true">Yesterday' in html


def test_who_looked_at_this_patient_is_a_link_of_the_workflows_page(as_: Login) -> None:
    first, again = a_day_of_work(), submitted()
    other = rows.workflow(workflow_type="onboarding", payload={"patient": {"email": "john@example.com"}}).pk
    for pk, actor in ((again, "bob"), (other, "eve")):
        Access.objects.create(at=at(9), actor=actor, kind="viewed", workflow_id=pk)
    auditor = as_("auditor")
    page = auditor.get(f"/admin/workflows/workflow/{first}/change/").content.decode()
    (link,) = re.findall(r'href="([^"]*)">Who looked at this patient', page)
    html = auditor.get(link.replace("&amp;", "&")).content.decode()
    assert re.findall(r'data-label="Who">(.*?)<', html) == ["some-auditor", "bob", "ada"]
    assert "1 more with the same e-mail address or phone number" in words(html)
    assert whats(auditor, f"patient={first}") == ["Opened the page", "Opened the page", "Retried", "Opened the page"]
    page = as_("support lead").get(f"/admin/workflows/workflow/{first}/change/").content.decode()
    assert ("Who looked" in page, "Auditors can tell who looked at this patient." in page) == (False, True)


def test_it_is_filtered_by_person_patient_time_and_sort_and_by_nothing_that_makes_no_sense(as_: Login) -> None:
    a_day_of_work()
    auditor = as_("auditor")
    for query, found in {
        "person=ada&sort=looked": ["Searched", "Opened the page"],
        "person=ada&sort=did": ["Changed", "Held", "Retried"],
        "person=bob": [],
        "since=2026-05-20&until=2026-05-20": ["Changed", "Held", "Retried", "Searched", "Opened the page"],
        "since=2026-05-21": [],
        "until=2026-05-19": [],
        "patient=999999": [],
    }.items():
        assert whats(auditor, query) == found, query
    for query in (
        *("person=%00&patient=x&sort=none&until=x", "patient=99999999999999999999&since=9999-12-31&until=0001-01-01"),
        *(f"before={place}" for place in ("1-2", "999999999999999999-1-1", "1-9-1", "--", "1-1-%00")),
    ):
        assert auditor.get(f"{AUDIT}?{query}").status_code == 200
        if "before" not in query:
            assert auditor.post(EXPORT, dict(pair.split("=") for pair in query.split("&"))).status_code == 200


def test_reveals_are_counted_by_person_and_day(as_: Login) -> None:
    now = timezone.now()
    for ago, actor in ((0, "ada"), (0, "ada"), (1, "ada"), (0, "bob"), (8, "ada")):
        Access.objects.create(at=now - timedelta(days=ago), actor=actor, kind="revealed", workflow_id=1)
    counted = [(f"{day:%Y-%m-%d}", *rest) for day, *rest in as_("auditor").get(AUDIT).context["reveals"]]
    today, before = f"{now:%Y-%m-%d}", f"{now - timedelta(days=1):%Y-%m-%d}"
    assert counted == [(today, "ada", 2), (today, "bob", 1), (before, "ada", 1)]
    since = f"{now - timedelta(days=9):%Y-%m-%d}"
    assert [number for *_, number in as_("auditor").get(f"{AUDIT}?since={since}&person=ada").context["reveals"]] == [
        *(2, 1, 1)
    ]


# --- Pages --------------------------------------------------------------------------------------


def test_the_pages_have_every_line_once_though_many_have_the_same_time(
    as_: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "SIZE", 3)
    ada = User.objects.create_user("ada")
    for minute in (1, 1, 1, 1, 2, 2):
        Access.objects.create(at=at(minute), actor="ada", kind="viewed")
        Search.objects.create(at=at(minute), actor="ada", tried=[], hits=0)
        Event.objects.create(at=at(minute), actor="ada", kind="retried", workflow_id=1)
        CircuitEvent.objects.create(at=at(minute), actor="ada", kind="held", service="payments")
    logged(ada, at(1))
    client, url, seen, pages = as_("auditor"), f"{AUDIT}?person=ada", list[Any](), 0
    while url:
        context = client.get(url).context
        seen += context["lines"]
        url, pages = context["next_url"] and f"{AUDIT}{context['next_url']}", pages + 1
    assert len(seen) == 25
    assert [line.place for line in audit.every_line(audit.Asked("ada"), size=3)] == [
        line.place for line in audit.lines(audit.Asked("ada"), limit=99)
    ]
    assert pages == 9
    assert [line.at for line in seen] == sorted((line.at for line in seen), reverse=True)
    assert [len([line for line in seen if line.what == what]) for what in ("Searched", "Retried", "Held")] == [6] * 3


def fill(number: int) -> None:
    with connection.cursor() as cursor, without_triggers():
        cursor.execute(f"TRUNCATE {TABLES}")
        time, who = f"now() - n * interval '{365 * 86400 // number} seconds'", "'user-' || mod(n, 50)"
        cursor.execute(
            f"""INSERT INTO workflows_access (at, actor, kind, workflow_id)
                SELECT {time}, {who}, CASE WHEN mod(n, 500) = 0 THEN 'revealed' ELSE 'viewed' END, mod(n, {number} / 10)
                  FROM generate_series(1, {number}) n;
                INSERT INTO workflows_event (at, actor, kind, workflow_id)
                SELECT {time}, CASE WHEN mod(n, 5) = 0 THEN {who} ELSE '' END, 'retried', mod(n, {number} / 10)
                  FROM generate_series(1, {number}) n;
                INSERT INTO workflows_search (at, actor, tried, hits)
                SELECT {time}, {who}, '{{email}}', 1 FROM generate_series(1, {number}) n;
                INSERT INTO workflows_circuitevent (at, actor, kind, service)
                SELECT {time}, CASE WHEN mod(n, 50) = 0 THEN {who} ELSE '' END, 'held', 'payments'
                  FROM generate_series(1, {number}) n;
                INSERT INTO auth_user (username, password, is_superuser, is_staff, is_active, date_joined, first_name,
                                       last_name, email)
                SELECT 'user-' || n, '', false, true, true, now(), '', '', '' FROM generate_series(0, 49) n;
                INSERT INTO django_admin_log (action_time, user_id, object_repr, action_flag, change_message)
                SELECT {time}, (SELECT min(id) FROM auth_user WHERE username LIKE 'user-%') + mod(n, 50), 'x', 2, ''
                  FROM generate_series(1, {number}) n;
                ANALYZE {TABLES}"""
        )


USED = {
    "": "access_newest search_newest event_of_people circuit_event_of_people admin_log_newest access_revealed",
    "person=user-7": "access_of_actor search_of_person event_of_actor circuit_event_of_actor admin_log_of_user",
    "patient=77": "access_of_workflow event_of_workflow",
    "since={day}&until={day}": "access_newest search_newest event_of_people admin_log_newest",
    "person=user-7&since={day}&until={day}": "access_of_actor search_of_person event_of_actor admin_log_of_user",
}


@pytest.mark.slow
def test_a_page_reads_its_lines_by_indexes_however_many_there_are_and_however_deep_it_is(as_: Login) -> None:
    auditor = as_("auditor")
    fill(20_000)
    day = timezone.now() - timedelta(days=200)
    for query, place in product(USED, ("", f"&before={int(day.timestamp() * 1e6)}-2-999")):
        plans: list[Plan] = []
        with explained(plans):
            auditor.get(f"{AUDIT}?{query.format(day=f'{day:%Y-%m-%d}')}{place}")
        used = {name for plan in plans for name in plan.indexes}
        assert {*USED[query].split()} <= used
        dear = [(plan.buffers, plan.sql) for plan in plans if plan.buffers - plan.of_accounts > 200]
        assert dear == [], query


# --- As a file ----------------------------------------------------------------------------------


def test_the_file_has_what_the_filters_ask_for_masked_and_is_itself_on_record(as_: Login) -> None:
    pk = a_day_of_work()
    client = as_("auditor")
    header, *lines = exported(client, person="ada", sort="did")
    above, _, below = client.get(AUDIT).content.decode().partition('id="lines"')
    assert ("Export as CSV" in above, "Export as CSV" in below) == (True, False)
    assert header == ["Time (UTC)", "Who", "What", "Workflow", "About", "Details"]
    assert [line[2] for line in lines] == ["Changed", "Held", "Retried"]
    assert lines[2] == [at(2).isoformat(), "ada", "Retried", str(pk), "c•••@example.com", "The bank is back."]
    made = Access.objects.latest("pk")
    assert (made.actor, made.kind, made.detail) == ("some-auditor", "exported", {"chosen": "person ada, sort did"})
    exported(client, patient=str(pk))
    assert Access.objects.latest("pk").workflow_id == pk
    assert "Exported the audit" in whats(client, f"patient={pk}&sort=looked")


FORMULAS = ["=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\uff1d1", '"=1', "a,=1\n=2", "\u202e=1"]


def test_no_cell_of_the_file_is_a_formula(as_: Login) -> None:
    for name in FORMULAS:
        Access.objects.create(actor=name, kind="revealed", workflow_id=1, detail={"fields": [name], "purpose": name})
    answer: Any = as_("auditor").post(EXPORT)
    text = b"".join(answer.streaming_content).decode()
    for line in csv.reader(text.splitlines(keepends=True)):
        for cell in line:
            assert not re.match(r"\s*[=+\-@\uff1d]|[\t\r]", cell), repr(cell)
    for name in FORMULAS:
        assert name.strip("\t\r\n") in text.replace('""', '"')


def test_the_file_ends_at_its_bound_and_says_so(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "MOST_EXPORTED", 4)
    a_day_of_work()
    *_, last = exported(as_("auditor"))
    assert "Not more than 4 lines" in last[2]
