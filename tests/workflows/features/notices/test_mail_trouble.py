"""Mail that meets trouble: addresses and servers that are wrong hold back nothing else, and nobody gets it twice."""

from __future__ import annotations

import json
from asyncio import sleep
from datetime import timedelta
from threading import Event
from time import monotonic
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from pytest_django import Settings

from tests.engine import do_chore
from tests.workflows import rows
from tests.workflows.features.notices.test_mail import Inbox, inbox, send, set_hours, somebody
from workflows.features.notices import mail
from workflows.features.notices.mail import Mail
from workflows.features.outbox.checks import check_outbox
from workflows.features.outbox.destinations import destinations
from workflows.features.outbox.relay import LAST_BEGIN, LEASE, Relay
from workflows.features.outbox.sending import NO_ANSWER
from workflows.models import ManualTask, MutedMail, OutboxEvent, Service

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["inbox"]


def once() -> None:
    desk = destinations()["desk"]
    Relay(desk, Mail(desk), Event()).send_next()


@pytest.mark.parametrize(
    "address", ["bob@example.com\nBcc: eve@example.com", "no address", "a b@example.com", "ü@example.com"]
)
def test_an_address_that_is_none_keeps_no_mail_from_the_others(inbox: Inbox, address: str) -> None:
    for name in ("ada", "bob"):
        somebody(name, is_superuser=True)
    User.objects.filter(username="bob").update(email=address)
    rows.unclear_charge()
    do_chore("tell of what waits")
    once()
    assert [each.rcpt_tos for each in inbox.got] == [["ada@example.com"]]


def test_a_line_break_in_a_team_is_no_header(inbox: Inbox) -> None:
    somebody("root", is_superuser=True)
    rows.open_task(rows.waiting(task=False), team="clinic\r\nBcc: eve@example.com\u2028x")
    do_chore("tell of what waits")
    once()
    [got] = inbox.got
    assert got.rcpt_tos == ["root@example.com"]
    assert "\nBcc" not in got.content.decode()


class Slow(Inbox):
    """Answers each recipient after a while, and takes no more than a hundred (RFC 5321, 4.5.3.1.8)."""

    seconds = 0.0

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:  # noqa: N802
        await sleep(self.seconds)
        if len(envelope.rcpt_tos) == 100:
            return "452 Too many recipients"
        envelope.rcpt_tos.append(address)
        return "250 OK"


@pytest.mark.parametrize("inbox", [Slow], indirect=True)
def test_a_server_that_takes_a_hundred_recipients_at_a_time_gets_more_messages(inbox: Inbox) -> None:
    for number in range(201):
        somebody(f"user{number}", is_superuser=True)
    rows.waiting()
    send()
    assert sorted(len(each.rcpt_tos) for each in inbox.got) == [1, 100, 100]


@pytest.mark.parametrize("inbox", [Slow], indirect=True)
def test_a_server_that_answers_too_slowly_is_cut_off_before_another_relay_sends(inbox: Slow) -> None:
    inbox.seconds = 0.3
    for number in range(9):
        somebody(f"user{number}", is_superuser=True)
    rows.waiting()
    do_chore("tell of what waits")
    began, desk = monotonic(), destinations()["desk"]
    Relay(desk, Mail(desk, total=1.0), Event()).send_next()
    assert monotonic() - began < 2
    assert inbox.got == []
    assert OutboxEvent.objects.get().error == NO_ANSWER.error
    assert mail.TOTAL + LAST_BEGIN <= LEASE


def test_a_destination_is_not_down_because_nobody_has_an_address(inbox: Inbox) -> None:
    for _ in range(6):
        rows.open_task(rows.waiting(task=False), team=f"team {_}")
    send()
    assert {each.error for each in OutboxEvent.objects.all()} == {mail.NOBODY.error}
    assert not Service.objects.exists()


def test_mail_that_cannot_be_sent_holds_back_no_other_of_its_workflow(inbox: Inbox) -> None:
    somebody("root", is_superuser=True)
    row = rows.waiting()
    do_chore("tell of what waits")
    OutboxEvent.objects.update(state="given_up")
    rows.outbox_event(row, destination="desk")
    ManualTask.objects.update(lead_asked_at=timezone.now())
    do_chore("tell of what waits")
    once()
    assert len(inbox.got) == 1
    OutboxEvent.objects.filter(topic="order.paid").update(state="")
    once()
    assert OutboxEvent.objects.get(topic="order.paid").tries == 1


def test_a_second_person_is_told_even_if_the_first_is_the_only_lead(inbox: Inbox) -> None:
    somebody("root", is_superuser=True)
    User.objects.filter(username="root").update(email="")
    lead, other = somebody("lead", "assign_manualtask"), somebody("other", "assign_manualtask")
    MutedMail.objects.create(user=other)
    rows.to_confirm(lead, rows.refunded())
    send()
    assert [each.rcpt_tos for each in inbox.got] == [[lead.email, other.email]]


def test_four_eyes_of_one_task_keep_no_other_task_from_them(inbox: Inbox) -> None:
    ada, bob = (somebody(each, "decide_manualtask") for each in ("ada", "bob"))
    for each in (ada, bob):
        rows.open_task(rows.waiting(task=False), four_eyes=True, requested_by=each)
    send()
    assert [each.rcpt_tos for each in inbox.got] == [[ada.email, bob.email]]


def test_the_assignee_is_deleted_and_the_tasks_are_gone_when_the_mail_is_sent(inbox: Inbox) -> None:
    root = somebody("root", is_superuser=True)
    gone = somebody("gone", "decide_manualtask")
    rows.open_task(rows.waiting(task=False), assignee=gone)
    do_chore("tell of what waits")
    ManualTask.objects.all().delete()
    gone.delete()
    send()
    assert [each.rcpt_tos for each in inbox.got] == [[root.email]] * 2


def test_one_destination_sends_the_mail_of_a_topic_in_its_own_hours(inbox: Inbox, settings: Settings) -> None:
    desk = {"email": "onramp@example.com", "topics": ["task.*"]}
    never = {
        "": {
            "zone": "UTC",
            "days": [f"{timezone.now() + timedelta(days=3):%a}".lower()],
            "from": "00:00",
            "to": "23:59",
        }
    }
    leads = {**desk, "topics": ["lead.*"], "hours": never}
    settings.OUTBOX_DESTINATIONS = json.dumps({"desk": desk, "leads": leads})
    rows.waiting()
    do_chore("tell of what waits")
    assert OutboxEvent.objects.get().destination == "desk"
    settings.OUTBOX_DESTINATIONS = json.dumps({"desk": desk, "leads": {**leads, "topics": ["*"]}})
    with pytest.raises(ImproperlyConfigured, match="desk and leads"):
        destinations()


def test_mail_tells_nobody_what_a_definition_publishes(settings: Settings) -> None:
    set_hours(settings)
    [said] = check_outbox()
    assert said.id == "workflows.W025"
