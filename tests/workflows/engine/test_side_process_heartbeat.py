"""Consumers and relays say that they live: on which host, what they take, and when they had their last message."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from tests import engine
from tests.workflows import rows
from workflows.engine import heartbeat
from workflows.engine.side_process_heartbeat import SideHeartbeat
from workflows.features.doctor import installation
from workflows.health import side_processes, surroundings
from workflows.health.counts import read
from workflows.health.health import judge
from workflows.models import SideProcess
from workflows.postgres.deadlines import DatabaseUnavailable

pytestmark = engine.ENGINE


def beats(this: SideHeartbeat) -> SideProcess:
    """The row after its next beat, a second later."""
    this._next = float("-inf")
    this.beat()
    return SideProcess.objects.get(name=this.name)


def consumer(*takes: str, **fields: Any) -> SideProcess:
    this = SideHeartbeat("consumer", takes)
    row = beats(this)
    SideProcess.objects.filter(pk=row.pk).update(**fields)
    row.refresh_from_db()
    return row


def missed() -> list[str]:
    return [str(each) for each in side_processes.unattended(timezone.now())]


def ago(**how_long: float) -> Any:
    return timezone.now() - timedelta(**how_long)


def test_it_says_who_takes_what_and_when_the_last_message_came(settings: Settings) -> None:
    settings.RELEASE = "r7"
    this, twin = SideHeartbeat("consumer", ["orders"]), SideHeartbeat("consumer", ["orders"])
    row = beats(this)
    assert (row.release, row.kind, row.takes, row.last_message_at) == ("r7", "consumer", ["orders"], None)
    assert row.name.startswith(f"{row.host}/")
    assert row.name.endswith(f":{row.pid}")
    assert beats(twin).pk != row.pk, "of one host and process, as containers are"
    this.message()
    again = beats(this)
    assert again.pk == row.pk
    assert again.last_message_at is not None
    assert again.last_seen > row.last_seen
    before = SideProcess.objects.get(pk=row.pk).last_seen
    this.beat()
    assert SideProcess.objects.get(pk=row.pk).last_seen == before, "once a second"
    this.stop()
    stopped = SideProcess.objects.get(pk=row.pk)
    assert (stopped.stopped_at is not None, stopped.ended_how) == (True, "")


def test_a_row_that_is_gone_or_another_s_after_a_failover_is_made_anew() -> None:
    this = SideHeartbeat("relay", ["crm"])
    SideProcess.objects.filter(pk=beats(this).pk).update(name="another")
    assert beats(this).takes == ["crm"]
    assert SideProcess.objects.get(name="another").stopped_at is None
    SideProcess.objects.all().delete()
    assert beats(this)


def test_a_beat_that_fails_disturbs_nobody_and_is_not_tried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def away(*_: Any, **__: Any) -> Any:
        tried.append(1)
        raise DatabaseUnavailable

    monkeypatch.setattr("workflows.engine.side_process_heartbeat.query_in_time", away)
    this = SideHeartbeat("consumer", ["orders"])
    for _ in range(3):
        this.beat()
    this.stop()
    assert len(tried) == 1


@pytest.mark.parametrize("column", ["last_seen", "stopped_at"])
def test_maintenance_forgets_them_after_a_day(column: str) -> None:
    consumer("old", **{column: ago(hours=25)})
    new = consumer("new", **{column: ago(hours=23)})
    assert heartbeat.delete_stale().changed == 1
    assert SideProcess.objects.get() == new


# --- What nobody takes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, ""),
        ({"last_seen": 30}, ""),
        ({"last_seen": 70}, "fell silent"),
        ({"stopped_at": 70}, ""),
        ({"stopped_at": 5, "ended_how": "KafkaFailed"}, "ended by KafkaFailed"),
    ],
)
def test_a_topic_whose_consumer_died_is_told_until_another_takes_it(fields: dict[str, Any], told: str) -> None:
    consumer("orders", **{name: ago(seconds=of) if isinstance(of, int) else of for name, of in fields.items()})
    assert [told in each and "no consumer is running for orders, although" in each for each in missed()] == (
        [True] if told else []
    )
    consumer("orders", "facts")
    assert missed() == []


@pytest.mark.parametrize(
    ("setting", "value"),
    [("KAFKA_TOPICS", ["orders"]), ("KAFKA_SUBMISSIONS", ["orders=shop"]), ("SQS_QUEUE_URL", "https://sqs/1/orders")],
)
def test_a_topic_that_a_setting_names_is_told_though_none_ever_took_it(
    setting: str, value: Any, settings: Settings
) -> None:
    setattr(settings, setting, value)
    assert missed() == [f"no consumer is running for orders, although {setting} names it"]
    row = consumer("orders", stopped_at=ago(seconds=30))
    assert missed() == [], "a release replaces it"
    SideProcess.objects.filter(pk=row.pk).update(stopped_at=ago(seconds=70))
    assert len(missed()) == 1


def test_events_that_wait_without_a_relay_are_told(settings: Settings) -> None:
    settings.OUTBOX_DESTINATIONS = '{"crm": {"url": "https://crm.example.com", "secrets": ["%s"], "topics": ["*"]}}' % (
        "whsec_" + "A" * 43 + "="
    )
    rows.outbox_event(destination="crm", state="", since=ago(seconds=30))
    assert missed() == []
    rows.outbox_event(destination="crm", state="", since=ago(seconds=70))
    assert missed() == ["no relay is running for the destination crm, although 2 events wait"]
    consumer("crm")
    assert len(missed()) == 1, "that takes a topic of this name"
    beats(SideHeartbeat("relay", ["crm"]))
    assert missed() == []


def test_people_are_told(settings: Settings, client: Client) -> None:
    settings.KAFKA_TOPICS = ["orders"]
    gone = consumer("facts", last_seen=ago(minutes=5))
    client.force_login(User.objects.create_superuser("boss"))
    page = client.get("/admin/workflows/workerprocess/").content.decode()
    for shown in (gone.name, "Consumes facts", ">Silent</span>", "None yet", "No consumer is running for orders"):
        assert shown in page
    assert "no consumer is running for orders, although KAFKA_TOPICS names it" in str(judge(read()))
    assert [each.about for each in installation.consumers()] == ["consumer", "consumer"]
    settings.METRICS_TOKEN = "token"
    metrics = Client().get("/metrics", headers={"Authorization": "Bearer token"}).content.decode()
    assert 'onramp_unattended{kind="consumer",name="orders"} 1.0' in metrics


def test_a_vanished_host_is_told_unless_another_process_there_took_over() -> None:
    gone = consumer("orders", last_seen=ago(minutes=5))
    consumer("old", last_seen=ago(minutes=61))
    consumer("ended", last_seen=ago(minutes=5), stopped_at=ago(minutes=5))
    assert surroundings.lost_workers() == {gone.host: 1}
    elsewhere = consumer("orders", host="elsewhere")
    assert surroundings.lost_workers() == {gone.host: 1}
    SideProcess.objects.filter(pk=elsewhere.pk).update(host=gone.host)
    assert surroundings.lost_workers() == {}
