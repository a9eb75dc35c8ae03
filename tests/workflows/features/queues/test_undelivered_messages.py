"""The list of undelivered messages: what did a topic say that no workflow could be told, and why?"""

from __future__ import annotations

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_, parcels
from workflows.features.queues.undelivered import FOUND
from workflows.models import UndeliveredMessage
from workflows.models.undelivered_message import REFUSED

__all__ = ["as_", "parcels"]

UNDELIVERED = "/admin/workflows/undeliveredmessage/"


def test_its_page_shows_the_same_and_nothing_of_what_it_says(as_: Login) -> None:
    row = rows.undelivered_message(headers=[["canary", "canary"]])
    with CaptureQueriesContext(connection) as captured:
        html = as_("auditor").get(f"{UNDELIVERED}{row.pk}/change/").content.decode()
    for shown in ("facts 2:7", "<dd>field_unknown</dd>", "<dd>No such field.</dd>"):
        assert shown in html
    assert "canary" not in html
    assert "What it says is kept, and shown nowhere" in html
    assert not any('undeliveredmessage"."content"' in query["sql"] for query in captured), "it is not even read"


def test_the_page_of_a_settled_one_says_that_its_content_is_gone(as_: Login) -> None:
    row = rows.undelivered_message(state="discarded", content=[])
    html = as_("auditor").get(f"{UNDELIVERED}{row.pk}/change/").content.decode()
    assert ("What it said is deleted" in html, "is kept" in html) == (True, False)


def test_they_are_counted_by_topic_and_source_where_people_look_and_for_alerts(as_: Login, settings: Settings) -> None:
    for number, topic in enumerate(["facts", "webhook:payments", "webhook:payments"]):
        rows.undelivered_message(number, topic=topic)
    rows.undelivered_message(9, topic="settled", state="discarded")
    html = as_("engineer").get("/admin/needs-a-person/").content.decode()
    assert "1 message of the topic facts could not be delivered." in html
    assert "2 messages of the source payments could not be delivered." in html
    assert f"{UNDELIVERED}?state=open" in html
    assert "settled" not in html
    assert "could not be delivered" not in as_("approver").get("/admin/needs-a-person/").content.decode()
    settings.METRICS_TOKEN = "token"
    text = Client().get("/metrics", headers={"Authorization": "Bearer token"}).content.decode()
    assert 'onramp_undelivered_messages{topic="webhook:payments"} 2.0' in text
    assert 'topic="settled"' not in text


def test_home_counts_what_only_the_broker_has_as_the_list_does(as_: Login) -> None:
    rows.undelivered_message()
    rows.undelivered_message(-1, topic=f"{REFUSED}orders", partition=-1, left_with_broker=3, content=[])
    engineer = as_("engineer")
    said = engineer.get("/admin/").context["needs_a_person"], engineer.get("/admin/needs-a-person/").context["number"]
    assert said == ("2", "2")


def test_what_is_settled_is_not_read_to_count_what_is_open(db: None) -> None:
    UndeliveredMessage.objects.bulk_create(
        UndeliveredMessage(topic="facts", partition=0, offset=number, code="x", reason="x", state=state)
        for number, state in enumerate(["discarded"] * 2000 + [""])
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE workflows_undeliveredmessage")
        cursor.execute(f"EXPLAIN {FOUND}", {"limit": 10})
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "undelivered_open" in plan
    assert "Seq Scan" not in plan
