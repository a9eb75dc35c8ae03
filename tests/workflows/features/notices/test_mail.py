"""E-mail about what waits, through a real mail server: to those who may act, in their hours, and to no one else."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Sink
from django.contrib.auth.models import Group, Permission, User
from django.core.exceptions import ImproperlyConfigured
from django.db.models import F
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from tests.engine import do_chore
from tests.workflows import rows
from workflows.features.cases import operations as cases
from workflows.features.notices.checks import check_notices
from workflows.features.notices.hours import Hours
from workflows.features.notices.mail import Mail, subject
from workflows.features.outbox.destinations import destinations
from workflows.features.outbox.relay import Relay
from workflows.models import Deputy, ManualTask, Notice, OutboxEvent

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)
CLINIC = {"zone": "America/New_York", "from": "08:00", "to": "18:00"}


class Inbox(Sink):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.got: list[Any] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 (aiosmtpd's)
        self.got.append(envelope)
        return "250 OK"


@pytest.fixture
def inbox(settings: Settings, request: pytest.FixtureRequest) -> Iterator[Inbox]:
    found = getattr(request, "param", Inbox)()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = Controller(found, hostname="127.0.0.1", port=port)
    server.start()
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = server.hostname, server.port
    settings.CONSOLE_URL = "https://onramp.example.com/"
    set_hours(settings)
    yield found
    server.stop()


def set_hours(settings: Settings, **hours: Any) -> None:
    desk = {"email": "onramp@example.com", "topics": ["*"], "hours": hours}
    settings.OUTBOX_DESTINATIONS = json.dumps({"desk": desk})


def somebody(name: str, *permissions: str, team: str = "", **fields: Any) -> User:
    user = User.objects.create(username=name, email=f"{name}@example.com", is_staff=True, **fields)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    user.groups.set(Group.objects.filter(name=team))
    return user


def send() -> None:
    while do_chore("tell of what waits").changed:  # a slow machine needs more slices
        pass
    desk = destinations()["desk"]
    Relay(desk, Mail(desk), Event()).run(drain=True)


def test_those_who_may_decide_get_one_message_with_links(inbox: Inbox) -> None:
    Group.objects.create(name="clinic")
    for name in ("ada", "bob"):
        somebody(name, "decide_manualtask", team="clinic")
    somebody("eve", "decide_manualtask")
    somebody("gone", "decide_manualtask", team="clinic", is_active=False)
    tasks = [rows.open_task(rows.waiting(task=False), team="clinic", reason="Zoë") for _ in range(22)]
    send()
    [mail] = inbox.got
    assert sorted(mail.rcpt_tos) == ["ada@example.com", "bob@example.com"]
    text = mail.content.decode()
    assert "22 tasks wait: parcel review, team clinic" in text
    assert f"https://onramp.example.com/admin/workflows/manualtask/{tasks[0].pk}/change/" in text
    assert "And 2 more: https://onramp.example.com/admin/needs-a-person/" in text
    assert "@example.com" not in text.replace("onramp@example.com", "")
    assert "May this parcel" not in text
    send()
    assert len(inbox.got) == 1


def test_to_whom_it_goes(inbox: Inbox) -> None:
    ada, lead = somebody("ada"), somebody("lead", "assign_manualtask")
    rows.open_task(rows.waiting(task=False), assignee=ada)
    rows.open_task(rows.waiting(task=False), lead_asked_at=timezone.now(), team="nobody is in it")
    rows.asked_to_correct()
    case = rows.failed()
    cases.ask_lead(case.pk, user=User.objects.create_superuser("root"), reason="Her mother has paid, too.")
    send()
    [asked] = [mail for mail in inbox.got if b"whole workflow" in mail.content]
    assert (asked.rcpt_tos, f"/workflow/{case.pk}/change/" in asked.content.decode()) == ([lead.email], True)
    got = {mail.content.decode().partition("Subject: ")[2].partition(":")[0]: mail.rcpt_tos for mail in inbox.got}
    assert got == {
        "A task is assigned to you": [ada.email],
        "A task waits": [lead.email],  # nobody may decide it
        "A lead is asked for help": [lead.email],
        "A second person is wanted": [lead.email],
    }


def test_mail_about_a_bulk_operation_or_an_erasure_links_to_its_page(inbox: Inbox, client: Client) -> None:
    boss, may = User.objects.create_superuser("root"), ("start_bulkoperation", "erase_workflow")
    bulk, erasure = rows.bulk_operation(boss, state="asked"), rows.erasure(boss)
    people = [somebody(f"{right}-{number}", right) for right in may for number in range(2)]
    send()
    pages = [f"/admin/workflows/bulkoperation/{bulk.pk}/change/", f"/admin/workflows/erasure/{erasure.pk}/change/"]
    client.force_login(boss)
    for mail, page, to in zip(inbox.got, pages, (people[:2], people[2:]), strict=True):
        assert page in mail.content.decode()
        assert mail.rcpt_tos == sorted(each.email for each in to)
        assert client.get(page).status_code == 200
    assert client.get("/admin/workflows/outboxevent/").status_code == 200
    assert client.get(f"/admin/workflows/outboxevent/{OutboxEvent.objects.latest('pk').pk}/change/").status_code == 200


def test_a_team_is_mailed_its_own_cases_and_those_who_may_resume_an_overdue_pause(inbox: Inbox) -> None:
    boss, may = User.objects.create_superuser("root"), ("acknowledge_workflow", "decide_manualtask")
    Group.objects.create(name="clinic")
    team = [somebody(right, right, team="clinic") for right in may]
    somebody("sees", "view_workflow", team="clinic")
    somebody("elsewhere", *may)
    support, case, paused = somebody("support", "run_workflow_now"), rows.failed(), rows.paused(boss, until=-HOUR)
    cases.hand_to_team(case.pk, user=boss, team="clinic", reason="Her mother has paid, too.")
    ManualTask.objects.all().delete()
    send()
    got = {"paused" if "pause" in mail.content.decode() else "handed": mail for mail in inbox.got}
    assert {name: mail.rcpt_tos for name, mail in got.items()} == {
        "handed": [each.email for each in team],
        "paused": [support.email],
    }
    for name, workflow in (("handed", case), ("paused", paused)):
        assert f"/workflow/{workflow.pk}/change/" in got[name].content.decode()
    assert b"A workflow is handed to a team: whole workflow, team clinic" in got["handed"].content


def test_a_deputy_gets_the_mail_and_nobody_who_is_away(inbox: Inbox) -> None:
    may, now = "decide_manualtask", timezone.now()
    ada, bob, lead = somebody("ada", may), somebody("bob", may), somebody("lead", "assign_manualtask")
    Deputy.objects.create(absent=ada, deputy=bob, set_by="ada", begins_at=now - HOUR, ends_at=now + HOUR)
    rows.open_task(rows.waiting(task=False), assignee=ada, claimed_at=now)
    send()
    assert {mail.content.decode().partition("Subject: ")[2][:11]: mail.rcpt_tos for mail in inbox.got} == {
        "A task is a": [bob.email],
        "A task wait": [bob.email],
    }
    assert any(b"a colleague for whom you stand in" in mail.content for mail in inbox.got)
    inbox.got.clear()
    Group.objects.create(name="clinic").user_set.add(ada)
    rows.open_task(rows.waiting(task=False), assignee=ada, team="clinic")
    send()
    assert [mail.rcpt_tos for mail in inbox.got] == [[lead.email]] * 2, "bob is not in the team, and ada is away"
    inbox.got.clear()
    User.objects.filter(pk=lead.pk).update(email="")
    rows.open_task(rows.waiting(task=False), team="clinic", task_type="other")
    send()
    assert [mail.rcpt_tos for mail in inbox.got] == [[ada.email]], "nobody else is left"


def test_whoever_is_no_staff_any_more_gets_nothing_and_a_lead_does(inbox: Inbox) -> None:
    lead, gone = somebody("lead", "assign_manualtask"), somebody("gone", is_active=False)
    other = User.objects.create(username="patient", email="patient@example.com")
    for each in (gone, other):
        rows.open_task(rows.waiting(task=False), assignee=each)
    send()
    assert {address for mail in inbox.got for address in mail.rcpt_tos} == {lead.email}


def test_who_wants_none_gets_none_unless_nobody_else_would(inbox: Inbox, client: Client) -> None:
    for name in ("ada", "bob"):
        client.force_login(somebody(name, "decide_manualtask"))
        assert "Send me no mail" in client.get("/admin/mail/").content.decode()
        page = client.post("/admin/mail/", {"mail": "off"}, follow=True).content.decode()
        assert "Send me mail" in page
    client.post("/admin/mail/", {"mail": "on"})
    for _ in ("only bob has it on", "nobody has"):
        rows.waiting()
        send()
        client.post("/admin/mail/", {"mail": "off"})
        Notice.objects.update(mailed_at=F("mailed_at") - timedelta(hours=1))
    assert [sorted(mail.rcpt_tos) for mail in inbox.got] == [
        ["bob@example.com"],
        ["ada@example.com", "bob@example.com"],
    ]


def test_what_can_wait_comes_in_the_teams_hours_and_money_at_any_time(inbox: Inbox, settings: Settings) -> None:
    now = datetime.now(UTC)
    closed = {"zone": "UTC", "days": [f"{now + timedelta(days=3):%a}".lower()], "from": "00:00", "to": "23:59"}
    always = {**closed, "days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"], "to": "00:00", "from": "00:01"}
    set_hours(settings, **{"": closed, "night": always})
    somebody("root", is_superuser=True)
    for team in ("clinic", "night"):
        rows.open_task(rows.waiting(task=False), team=team)
    rows.unclear_charge()
    send()
    assert sorted(OutboxEvent.objects.values_list("topic", flat=True)) == ["task.opened"] * 2
    assert Notice.objects.get(mailed_at=None).team == "clinic"
    set_hours(settings, **{"": always})
    send()
    assert len(inbox.got) == 3


def test_a_mail_server_that_is_down_is_tried_again(inbox: Inbox, settings: Settings) -> None:
    somebody("root", is_superuser=True)
    rows.waiting()
    settings.EMAIL_PORT, port = 9, settings.EMAIL_PORT
    send()
    assert OutboxEvent.objects.get().error == "ConnectionRefusedError"
    settings.EMAIL_PORT = port
    OutboxEvent.objects.update(due_at=timezone.now())
    send()
    assert len(inbox.got) == 1


@pytest.mark.parametrize(
    ("at", "works"),
    [
        ("2026-11-27T12:59:59Z", False),  # Friday, 07:59:59 in New York
        ("2026-11-27T13:00:00Z", True),
        ("2026-11-27T23:00:00Z", False),
        ("2026-07-03T12:00:00Z", True),  # summer time
        ("2026-11-28T15:00:00Z", False),  # Saturday
    ],
)
def test_hours_are_those_of_the_teams_zone(at: str, works: bool) -> None:
    assert Hours.of(CLINIC).has(datetime.fromisoformat(at)) == works


@pytest.mark.parametrize(
    ("at", "works"), [("27T23:00", True), ("28T05:59", True), ("28T06:00", False), ("28T23:00", False)]
)
def test_a_night_shift_ends_on_the_next_day(at: str, works: bool) -> None:
    night = Hours.of({"zone": "UTC", "days": ["fri"], "from": "22:00", "to": "06:00"})
    assert night.has(datetime.fromisoformat(f"2026-11-{at}:00+00:00")) == works


@pytest.mark.parametrize(
    ("at", "works"), [("26T23:59:59", False), ("27T00:00", True), ("27T23:59:59.999999", True), ("28T00:00", False)]
)
def test_hours_may_be_the_whole_day(at: str, works: bool) -> None:
    friday = Hours.of({"zone": "UTC", "days": ["fri"], "from": "00:00", "to": "24:00"})
    assert friday.has(datetime.fromisoformat(f"2026-11-{at}+00:00")) == works


@pytest.mark.parametrize(
    "wrong",
    [
        {"email": "nobody"},
        {"email": 5},
        {"email": "a@example.com", "digest_minutes": 0},
        {"email": "a@example.com", "digest_minutes": "5"},
        {"email": "a@example.com", "hours": []},
        {"email": "a@example.com", "hours": {"clinic": {**CLINIC, "zone": "Mars"}}},
        {"email": "a@example.com", "hours": {"clinic": {**CLINIC, "days": ["friday"]}}},
        {"email": "a@example.com", "hours": {"clinic": {**CLINIC, "to": "8"}}},
        {"email": "a@example.com", "hours": {"clinic": {**CLINIC, "from": "24:00"}}},
        {"email": "a@example.com", "hours": {"clinic": {**CLINIC, "to": CLINIC["from"]}}},
        {"email": "a@example.com", "url": "https://crm.example.com"},
    ],
)
def test_a_wrong_setting_says_so(settings: Settings, wrong: Any) -> None:
    settings.OUTBOX_DESTINATIONS = json.dumps({"desk": {"topics": ["*"], **wrong}})
    with pytest.raises(ImproperlyConfigured, match="'desk'"):
        destinations()


def test_mail_without_links_is_warned_of(inbox: Inbox, settings: Settings) -> None:
    assert list(check_notices()) == []
    settings.CONSOLE_URL = ""
    assert [each.id for each in check_notices()] == ["workflows.W048"]


def test_its_subject_says_what_waits_as_the_pages_do() -> None:
    about = {"number": 1, "code": "undo_in_doubt", "team": "operations"}
    assert subject("task.opened", about) == "A task waits: failed reversal, team operations"
