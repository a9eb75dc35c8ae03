"""An event is stored if the run that published it completes the workflow: once, and for each destination."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from tests.engine import ENGINE, again, define, expire, submit, work
from tests.workflows.features.outbox.conftest import SECRET
from tests.workflows.undoing import World
from workflows import outbox
from workflows.definition import Retry, Step, definitions
from workflows.errors import PublishError, RetryableStepError, StepError
from workflows.features.doctor.replay import replay
from workflows.features.outbox import events
from workflows.features.outbox.checks import check_outbox
from workflows.features.outbox.destinations import destinations as read
from workflows.models import OutboxEvent, Workflow
from workflows.postgres.jsonb import Unstorable
from workflows.sealing import whole
from workflows.waits import wait_for_time

pytestmark = [*ENGINE, pytest.mark.usefixtures("destinations")]

Does = Callable[[], Any]


def publishing(topic: str = "order.paid", **more: Any) -> Step:
    def publish(*, workflow: Workflow, context: Any) -> None:
        outbox.publish(topic, {"order": 7}, **more)

    return Step(publish)


def then(does: Does, **options: Any) -> Step:
    def do(*, workflow: Workflow, context: Any) -> None:
        does()

    return Step(do, **options)


def stored() -> list[tuple[str, str]]:
    return list(OutboxEvent.objects.order_by("id").values_list("destination", "topic"))


def test_it_commits_with_the_workflow_for_each_destination_that_takes_the_topic() -> None:
    define([publishing(), publishing("patient.seen")])
    assert work(submit()).status == "COMPLETE"
    assert stored() == [("crm", "order.paid"), ("lake", "order.paid"), ("crm", "patient.seen")]
    first, second, other = OutboxEvent.objects.order_by("id")
    assert first.event_id == second.event_id != other.event_id
    assert whole.unseal(first, first.body) == {"order": 7}


@pytest.mark.parametrize("error", [StepError("no"), RetryableStepError("later"), ValueError("a mistake")])
def test_a_run_that_fails_publishes_nothing(error: Exception) -> None:
    def fail() -> None:
        raise error

    define([publishing(), then(fail)])
    work(submit())
    assert stored() == []


def test_a_run_that_waits_publishes_nothing_and_the_next_one_publishes_once() -> None:
    def wait(*, workflow: Workflow, context: Any) -> None:
        wait_for_time(workflow, "night", timedelta(seconds=30))

    define([publishing(), wait])
    workflow = work(submit())
    assert (workflow.status, stored()) == ("PENDING", [])
    expire(workflow)
    assert work(workflow).status == "COMPLETE"
    assert stored() == [("crm", "order.paid"), ("lake", "order.paid")]


def test_a_best_effort_step_that_fails_after_it_has_published_leaves_nothing() -> None:
    def publish_and_fail(*, workflow: Workflow, context: Any) -> None:
        outbox.publish("order.paid", {})
        raise StepError("no")

    define([Step(publish_and_fail, best_effort=True, repeatable=True), publishing("order.sent")])
    work(submit())
    assert {topic for _, topic in stored()} == {"order.sent"}


def test_the_same_topic_and_key_of_a_workflow_are_one_event() -> None:
    define([publishing(key="a"), publishing(key="b"), publishing(key="a")])
    for _ in range(2):
        work(submit())
    ids = set(OutboxEvent.objects.filter(destination="crm").values_list("event_id", flat=True))
    assert (len(ids), OutboxEvent.objects.filter(destination="crm").count()) == (4, 4)


def test_an_event_has_the_same_id_in_each_run() -> None:
    failures = [RetryableStepError("later")]
    seen = []

    def look() -> None:
        seen.append(OutboxEvent.objects.values_list("event_id", flat=True)[0])
        if failures:
            raise failures.pop()

    define([publishing(), then(look)], retry=Retry(base_delay=0))
    again_later = work(submit())
    assert again(again_later).status == "COMPLETE"
    assert seen[0] == seen[1] == OutboxEvent.objects.all()[0].event_id


@pytest.mark.parametrize("place", ["once", "undo"])
def test_where_the_call_stands_whatever_becomes_of_the_run_nothing_is_published(place: str, world: World) -> None:
    """Neither is the call taken for one that did not happen."""

    def publish(*, workflow: Workflow, context: Any, effect: Any = None) -> dict[str, Any]:
        outbox.publish("order.paid", {})
        return {}

    def refuse() -> None:
        raise StepError("no")

    if place == "once":
        define([Step(publish, once=True, key_ttl=timedelta(hours=1))])
    else:
        define([world.step("charge", undo=publish), then(refuse)])
    workflow = work(submit())
    if place == "undo":
        again(workflow)
    effect = workflow.effects.get(undo=place == "undo")
    assert (effect.state, effect.error_class) == ("unknown", "workflows.errors.PublishError")
    assert stored() == []


CANNOT_BE_SENT: list[tuple[str, dict[str, Any], str, str]] = [
    ("workflow.completed", {}, "", "does not start"),
    ("t" * 101, {}, "", "lower-case"),
    ("order.paid", {}, "k" * 201, "key"),
    ("order.paid", {}, "\x00", "printed"),
    ("order.paid", {"text": "a\x00b"}, "", "PostgreSQL cannot keep"),
    ("order.paid", {"text": "x" * 256 * 1024}, "", "The body of an event"),
]


def test_what_cannot_be_sent_fails_the_step() -> None:
    def try_each() -> None:
        for topic, body, key, says in CANNOT_BE_SENT:
            with pytest.raises((PublishError, Unstorable), match=says):
                outbox.publish(topic, body, key=key)
        outbox.publish("Order", {})

    define([then(try_each)])
    workflow = work(submit())
    assert (workflow.status, stored()) == ("FAILED", [])
    assert "lower-case" in workflow.last_error_message


def test_a_replay_publishes_nothing() -> None:
    define([publishing()])
    row = work(submit())
    OutboxEvent.objects.all().delete()
    assert replay(row.pk, definitions()["test"]).ends == "COMPLETE"
    assert stored() == []


def test_outside_a_step_nothing_is_published() -> None:
    with pytest.raises(RuntimeError, match="inside a step"):
        outbox.publish("order.paid", {})


def test_a_topic_that_no_destination_takes_costs_no_statement(destinations: Callable[..., None]) -> None:
    destinations(lake={"kafka": "events", "topics": ["other"]})
    with CaptureQueriesContext(connection) as queries:
        events.store(1, "order.paid", {}, key="")
    assert (len(queries), stored()) == (0, [])


# --- The setting --------------------------------------------------------------------------------

WEBHOOK = {"url": "https://crm.example.com/in", "secrets": [SECRET], "topics": ["*"]}


def test_destinations_are_read_from_the_setting(destinations: Callable[..., None]) -> None:
    destinations(crm={**WEBHOOK, "secrets": [SECRET, SECRET]}, lake={"kafka": "events", "topics": ["a", "b.*"]})
    crm, lake = read().values()
    assert (crm.url, crm.keys, crm.kafka) == (WEBHOOK["url"], (b"k" * 32, b"k" * 32), "")
    assert (lake.kafka, [lake.takes(topic) for topic in ("a", "b.c", "ab", "c")]) == (
        "events",
        [True, True, False, False],
    )
    assert SECRET not in repr(crm)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"CRM!": WEBHOOK}, "name"),
        ({"crm": {**WEBHOOK, "topic": "*"}}, "no others"),
        ({"crm": {**WEBHOOK, "kafka": "events"}}, "either"),
        ({"crm": {**WEBHOOK, "topics": []}}, "topics"),
        ({"crm": {**WEBHOOK, "topics": "*"}}, "topics"),
        ({"crm": {**WEBHOOK, "secrets": []}}, "no secrets"),
        ({"crm": {**WEBHOOK, "secrets": ["whsec_c2hvcnQ="]}}, "wrong secret"),
        ({"crm": {**WEBHOOK, "url": "http://crm.example.com/in"}}, "not https"),
        ({"crm": {**WEBHOOK, "url": "https://u:p@crm.example.com/in"}}, "password"),
        ({"crm": {**WEBHOOK, "url": "ftp://crm.example.com/in"}}, "not an address"),
        ({"crm": {**WEBHOOK, "url": "https://crm.example.com:x/in"}}, "cannot be read"),
        ({"lake": {"kafka": "a topic", "topics": ["*"]}}, "Kafka"),
        ({"lake": 7}, "either"),
    ],
)
def test_a_slip_in_the_setting_is_refused_without_its_secrets(
    said: dict[str, Any], why: str, destinations: Callable[..., None], settings: Settings
) -> None:
    settings.DEBUG = False
    destinations(**said)
    (found,) = check_outbox()
    assert (found.id, why in found.msg, SECRET in found.msg) == ("workflows.E015", True, False)


def test_http_is_for_this_machine_and_for_debug(destinations: Callable[..., None], settings: Settings) -> None:
    destinations(crm={**WEBHOOK, "url": "http://127.0.0.1:1/"}, erp={**WEBHOOK, "url": "http://localhost/"})
    settings.DEBUG = False
    assert set(read()) == {"crm", "erp"}


def test_a_setting_that_is_no_object_is_refused(settings: Settings) -> None:
    for text in ("[]", "{", "7"):
        settings.OUTBOX_DESTINATIONS = text
        with pytest.raises(ImproperlyConfigured, match="not a JSON object"):
            read()
