"""What people see of events that are not sent, and what they may do."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_
from tests.workflows.features.outages.services import open_circuit
from tests.workflows.features.outbox.receiver import Receiver
from tests.workflows.features.outbox.test_relay import Told, crm, later, now, relay
from tests.workflows.operations.conftest import boss
from tests.workflows.operations.test_bulk import carry_out
from workflows.errors import NotAllowed
from workflows.features.bulk import operations as bulk
from workflows.features.bulk import previews as bulk_previews
from workflows.features.outbox import health as outbox
from workflows.features.outbox import operations as outbox_operations
from workflows.health import counts
from workflows.health.health import judge
from workflows.models import BulkItem, OutboxEvent, Service

__all__ = ["as_", "boss", "crm"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("destinations")]

EVENTS = "/admin/workflows/outboxevent/"
SERVICE = "/admin/workflows/service/outbox crm/"
HOUR = 3600


def test_an_event_that_was_given_up_is_sent_after_all_and_then_what_waited_for_it(crm: Receiver, boss: User) -> None:
    given_up = rows.outbox_event(since=later(-99 * HOUR), due_at=later(HOUR), error="HTTP 500", tries=40)
    behind = rows.outbox_event(given_up.workflow, state="")
    told = Told()
    assert relay(told).send_next() is False
    outbox_operations.redeliver_event(given_up.pk, user=boss, reason="It is back.")
    assert timezone.now() - now(given_up).since < timedelta(minutes=1)  # it has its days once more
    while relay(told).send_next():
        pass
    assert told.got == [[given_up.pk], [behind.pk]]
    assert LogEntry.objects.get().change_message == "Redelivered. It is back."
    with pytest.raises(NotAllowed, match="it is sent"):
        outbox_operations.redeliver_event(given_up.pk, user=boss)
    with pytest.raises(NotAllowed, match="it is sent"):
        outbox_operations.discard_event(given_up.pk, user=boss, reason="x")


def test_of_an_event_that_is_discarded_the_destination_is_never_told(crm: Receiver, boss: User) -> None:
    given_up = rows.outbox_event()
    behind = rows.outbox_event(given_up.workflow, state="")
    with pytest.raises(NotAllowed, match="Say why"):
        outbox_operations.discard_event(given_up.pk, user=boss, reason=" ")
    outbox_operations.discard_event(given_up.pk, user=boss, reason="A test.")
    assert (now(given_up).state, now(given_up).settled_at is not None) == ("discarded", True)
    relay().send_next()
    assert crm.ids == [str(behind.event_id)]


@pytest.mark.parametrize(("verb", "then"), [("redeliver_event", ""), ("discard_event", "discarded")])
def test_many_at_once(verb: str, then: str, boss: User) -> None:
    given_up = [rows.outbox_event() for _ in range(3)]
    sent = rows.outbox_event(state="sent")
    made = bulk.choose(verb, OutboxEvent.objects.values("pk"), user=boss, chosen_by="all")
    assert bulk_previews.preview(made, boss) == bulk_previews.Preview(3, [(1, "sent")])
    bulk.start(made.pk, user=boss, reason="It is back.")
    with transaction.atomic():
        carry_out(made)
    assert [now(each).state for each in given_up] == [then] * 3
    assert now(sent).state == "sent"
    assert BulkItem.objects.get(row=sent.pk).outcome == "skipped"


# --- What is told -------------------------------------------------------------------------------


def standing(name: str) -> outbox.Standing:
    return next(each for each in outbox.standings() if each.name == name)


def test_there_is_a_line_for_each_destination_that_is_told_nothing(as_: Login) -> None:
    for number in range(3):
        rows.outbox_event()
        rows.outbox_event(state="", destination="gone" if number else "lake")
    html = as_("engineer").get("/admin/needs-a-person/").content.decode()
    assert "The destination crm: 3 events could not be sent, and were given up." in html
    assert f"{EVENTS}?destination=crm&amp;state=given_up" in html
    assert "No destination is named gone any more, and 2 wait for it." in html
    assert "lake" not in html
    assert "Nothing of this waits" not in html
    assert "The destination" not in as_("approver").get("/admin/needs-a-person/").content.decode()


def test_a_destination_that_answered_410_is_told_until_somebody_has_it_tried(as_: Login) -> None:
    open_circuit("outbox crm")
    Service.objects.update(retry_at=None)
    client = as_("engineer")
    html = client.get("/admin/needs-a-person/").content.decode()
    assert "The destination crm answered that it wants no events any more" in html
    page = client.get(f"{SERVICE}change/").content.decode()
    assert "Its events wait. The next trial: when somebody says so." in page
    assert "A relay sends one event to it." in client.get(f"{SERVICE}try_now/").content.decode()
    assert "No event is sent to it" in client.get(f"{SERVICE}hold/").content.decode()
    Service.objects.update(retry_at=timezone.now())
    assert outbox.need_a_person(outbox.standings()) == []
    Service.objects.update(opened_at=None)
    assert "events are sent to it as usual" in client.get(f"{SERVICE}change/").content.decode()


def test_home_and_metrics_tell_of_each_destination(client: Client, settings: Settings) -> None:
    settings.METRICS_TOKEN = "token"
    rows.outbox_event(state="", since=later(-2 * HOUR))
    rows.outbox_event(destination="gone")
    reasons = str(judge(counts.read()))
    assert "the destination crm has not received an event for 2 h" in reasons
    assert "1 event was given up for the destination gone" in reasons
    text = client.get("/metrics", headers={"Authorization": "Bearer token"}).content.decode()
    for line in (
        'onramp_outbox_waiting_events{destination="crm"} 1.0',
        'onramp_outbox_oldest_seconds{destination="lake"} 0.0',
        'onramp_outbox_given_up_events{destination="gone"} 1.0',
    ):
        assert line in text
    assert 'onramp_outbox_oldest_seconds{destination="crm"} 72' in text


# --- Pages --------------------------------------------------------------------------------------


def test_the_list_has_what_is_asked_for_and_nothing_of_a_body(as_: Login) -> None:
    row = rows.outbox_event(body={"name": "canary"}, error="HTTP 500")
    other = rows.outbox_event(state="sent", destination="lake", settled_at=timezone.now())
    client = as_("engineer")

    def listed(query: str) -> list[int]:
        response = client.get(f"{EVENTS}?{query}")
        assert "canary" not in response.content.decode()
        return [each.pk for each in response.context["cl"].result_list]

    assert listed("") == [other.pk, row.pk]
    assert listed("state=given_up") == listed("destination=crm") == [row.pk]
    assert (listed("state=sent"), listed("state=open"), listed("state=none")) == ([other.pk], [], [])
    html = client.get(f"{EVENTS}{row.pk}/change/").content.decode()
    assert "canary" not in html
    for shown in ("HTTP 500", str(row.event_id), "Redeliver", "Discard"):
        assert shown in html


def test_the_page_of_a_workflow_says_what_others_are_told(as_: Login) -> None:
    row = rows.outbox_event(body={"name": "canary"}, error="HTTP 500")
    page = f"/admin/workflows/workflow/{row.workflow_id}/change/"
    html = as_("engineer").get(page).content.decode()
    assert f"{EVENTS}{row.pk}/change/" in html
    for shown in ("order.paid", "crm", "Given up", "HTTP 500"):
        assert shown in html
    assert "canary" not in html
    assert f"{EVENTS}{row.pk}/change/" not in as_("support").get(page).content.decode()
