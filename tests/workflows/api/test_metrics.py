"""What Prometheus is told: by the text that it reads, of rows as the engine leaves them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from tests.servers import connecting_to
from tests.workflows import rows
from tests.workflows.features.brake.causes import open_cause
from tests.workflows.features.outages.services import open_circuit
from workflows.api import metrics, urls
from workflows.health import series
from workflows.health.families import Family, Histogram
from workflows.models import Chore, Workflow

MINUTE = timedelta(minutes=1)

Samples = Mapping[tuple[str, tuple[str, ...]], float]


@pytest.fixture(autouse=True)
def _in_debug(settings: Any) -> None:
    settings.DEBUG = True


def told(client: Client, **headers: str) -> Samples:
    """Each sample by its name and the values of its labels."""
    response = client.get("/metrics", headers=headers)
    assert (response.status_code, response.headers["Content-Type"].split(";")[0]) == (200, "text/plain")
    return {
        (sample.name.removeprefix("onramp_"), tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(response.content.decode())
        for sample in family.samples
    }


@pytest.mark.django_db
def test_of_an_empty_database_each_number_is_there_and_none_is_not_zero(client: Client) -> None:
    """An alarm on what is absent would be one on nothing."""
    samples = told(client)
    assert {name for name, _ in samples} >= {
        *("workflows", "oldest_due_seconds", "failed_last_hour", "unacknowledged_failures", "follow_ups_given_up"),
        *("open_tasks", "overdue_tasks", "overdue_waits", "hidden_workflows"),
    }
    assert {value for (name, _), value in samples.items() if not name.startswith("workflow_slo_")} == {0.0}


@pytest.mark.django_db
def test_no_statement_of_a_second_scrape_is_built_by_django(client: Client) -> None:
    """To build them took Django longer than PostgreSQL takes to run them."""
    rows.worker(41), open_circuit("payments"), open_cause()
    told(client)
    with CaptureQueriesContext(connection) as captured:
        told(client)
    assert captured.captured_queries == []


@pytest.mark.django_db
def test_it_counts_what_has_not_ended_by_state(client: Client) -> None:
    for make in (
        rows.workflow,
        rows.workflow,
        rows.running,
        rows.retrying,
        rows.waiting,
        rows.parked,
        rows.compensating,
    ):
        make()
    for end in (rows.complete, rows.failed, rows.cancelled):
        end()
    states = Counter[str]()
    for (name, labels), number in told(client).items():
        states[labels[0] if name == "workflows" else ""] += number if name == "workflows" else 0
    assert +states == {"queued": 2, "running": 1, "retrying": 1, "waiting": 1, "parked": 1, "compensating": 1}


@pytest.mark.django_db
def test_it_tells_states_and_the_oldest_due_by_type_and_all_unknown_types_as_one(client: Client) -> None:
    now = timezone.now()
    rows.worker(41)
    rows.worker(42, queue="undoing", only="compensation")
    for minutes, workflow_type, queue in (
        (9, "onboarding", "deserted"),
        (4, "onboarding", "default"),
        (2, "gone", "default"),
        (3, "other", "default"),
        (1, "other", "default"),
    ):
        rows.workflow(workflow_type=workflow_type, queue=queue, invisible_until=now - minutes * MINUTE)
    rows.held_queue("type:held")
    rows.workflow(workflow_type="held", invisible_until=now - 7 * MINUTE)
    rows.parked(workflow_type="other")
    samples = told(client)
    states = {labels: number for (name, labels), number in samples.items() if name == "workflows" and number}
    assert states == {("queued", "onboarding"): 2, ("queued", "unknown"): 4, ("parked", "unknown"): 1}
    assert samples["workflows", ("running", "onboarding")] == 0
    oldest = {labels: number // 60 for (name, labels), number in samples.items() if name == "oldest_due_seconds"}
    assert oldest == {("onboarding",): 4, ("unknown",): 3}
    rows.compensating(workflow_type="onboarding", begun=True, queue="undoing", invisible_until=now - 8 * MINUTE)
    rows.workflow(workflow_type="held", begun=True, invisible_until=now - 6 * MINUTE)
    samples = told(client)
    oldest = {labels: number // 60 for (name, labels), number in samples.items() if name == "oldest_due_seconds"}
    assert oldest == {("onboarding",): 8, ("unknown",): 6}
    rows.compensating(workflow_type="other", begun=True, queue="undoing", invisible_until=now - 7 * MINUTE)
    rows.workflow(workflow_type="other", queue="undoing", invisible_until=now - 9 * MINUTE)  # nobody takes it
    assert told(client)["oldest_due_seconds", ("unknown",)] // 60 == 7


@pytest.mark.django_db
def test_of_a_backlog_no_more_is_read_and_the_oldest_of_all_is_told(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "COUNT_LIMIT", 2)
    now = timezone.now()
    rows.worker(41, only="compensation")
    for minutes in (9, 8, 7):
        rows.workflow(begun=True, invisible_until=now - minutes * MINUTE)
    rows.compensating(workflow_type="onboarding", begun=True, invisible_until=now - 4 * MINUTE)
    samples = told(client)
    assert sum(number for (name, labels), number in samples.items() if name == "workflows" and "queued" in labels) == 3
    assert samples["oldest_due_seconds", ("onboarding",)] // 60 == 4


@pytest.mark.django_db
def test_it_tells_what_waits_for_a_person_and_what_has_failed(client: Client) -> None:
    now = timezone.now()
    rows.failed()
    acknowledged = rows.failed(completed_at=now)
    Workflow.objects.filter(pk=acknowledged.pk).update(acknowledged_failure=now)
    rows.failed(completed_at=now - timedelta(hours=2))
    rows.given_up()
    rows.waiting()
    rows.open_task(rows.waiting(task=False), due_at=now - MINUTE)
    for _ in range(3):
        rows.overdue_wait()
    samples = told(client)
    names = ("failed_last_hour", "unacknowledged_failures", "follow_ups_given_up", "open_tasks", "overdue_tasks")
    assert [samples[name, ()] for name in (*names, "overdue_waits")] == [2, 2, 1, 2, 1, 3]


@pytest.mark.django_db
def test_it_tells_how_long_the_oldest_has_been_due_and_of_a_queue_that_nobody_works_on(client: Client) -> None:
    now = timezone.now()
    rows.worker(41)
    rows.worker(42)
    rows.worker(43, only="compensation")
    rows.worker(44, stopped_at=now)
    rows.workflow(invisible_until=now - 2 * MINUTE)
    rows.workflow(invisible_until=now - 3 * MINUTE, queue="nightly")
    samples = told(client)
    assert 120 <= samples["oldest_due_seconds", ("unknown",)] < 150
    assert 180 <= samples["deserted_due_seconds", ("nightly",)] < 210
    workers = {labels: number for (name, labels), number in samples.items() if name == "workers"}
    assert workers == {("default", "everything"): 2, ("default", "compensation"): 1}


@pytest.mark.django_db
def test_it_tells_of_services_maintenance_and_a_clock_that_was_set_back(client: Client) -> None:
    now = timezone.now()
    open_circuit("programs")
    rows.parked(parked_on="programs")
    Chore.objects.create(name="wake expired", failing_since=now - MINUTE)
    rows.workflow(created_at=now + 10 * MINUTE, invisible_until=now + 10 * MINUTE)
    samples = told(client)
    assert samples["service_called", ("programs",)] == 0
    assert samples["parked_workflows", ("programs",)] == 1
    assert 60 <= samples["chore_failing_seconds", ("wake expired",)] < 90
    assert samples["hidden_workflows", ()] == 1


@pytest.mark.django_db
def test_a_step_where_many_fail_is_no_service(client: Client) -> None:
    cause = open_cause(judged=[1, 2, 3, 4])
    open_cause(code="KeyError", opened_at=None, closed_at=timezone.now())
    rows.parked(parked_on=cause.pk)
    samples = told(client)
    of, ended = ((code, "enroll_in_program", "onboarding") for code in ("TypeError", "KeyError"))
    assert [samples["brake_on", of], samples["brake_on", ended]] == [1, 0]
    assert [samples["brake_parked_workflows", of], samples["brake_failed_workflows", of]] == [1, 4]
    assert not {name for name, _ in samples} & {"service_called", "parked_workflows"}


@pytest.mark.django_db
def test_no_family_has_more_series_than_prometheus_can_keep(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_SERIES", 6)
    for number in range(8):
        rows.worker(number, queue=f"queue {number}")
    samples = told(client)
    assert len([labels for name, labels in samples if name == "workers"]) == 6
    assert samples["series_left_out", ("onramp_workers",)] == 2


def test_the_buckets_of_a_histogram_are_one_series_and_any_label_is_read_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(series, "MOST_SERIES", 1)
    odd = 'a "b" \\n \\ \n c, {d}="e" \u00e9'
    took = [([step], [("1", 2), ("+Inf", 3)], 4.5) for step in (odd, "enroll")]
    counted = Family("ran", 'How "often"\nit ran.', ["step"], [([odd], 2.0**60)], is_counter=True)
    text = series.text([Histogram("took_seconds", "How long.", ["step"], took), counted])
    timed, ran, left_out = text_string_to_metric_families(text)
    assert [(each.name, each.labels, each.value) for each in timed.samples] == [
        ("took_seconds_bucket", {"step": odd, "le": "1"}, 2),
        ("took_seconds_bucket", {"step": odd, "le": "+Inf"}, 3),
        ("took_seconds_count", {"step": odd}, 3),
        ("took_seconds_sum", {"step": odd}, 4.5),
    ]
    assert [(each.name, each.labels, each.value) for each in ran.samples] == [("ran_total", {"step": odd}, 2.0**60)]
    assert (timed.type, ran.type, ran.documentation) == ("histogram", "counter", 'How "often"\nit ran.')
    assert left_out.samples[0].value == 1


# --- Who may ask ----------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_server_tells_whoever_sends_the_token_and_nobody_else(client: Client, settings: Any) -> None:
    settings.METRICS_TOKEN = "a long one"
    assert told(client, authorization="Bearer a long one")
    for authorization in ({}, {"authorization": "Bearer another"}, {"authorization": "Basic a long one"}):
        response = client.get("/metrics", headers=authorization)
        assert (response.status_code, response.json()["code"]) == (401, "metrics_token_invalid")
        assert response.headers["WWW-Authenticate"] == "Bearer"


def test_a_server_without_a_token_tells_nobody(client: Client, settings: Any) -> None:
    settings.DEBUG = False
    response = client.get("/metrics", headers={"authorization": "Bearer "})
    assert (response.status_code, response.json()["code"]) == (403, "metrics_closed")
    assert "METRICS_TOKEN" in response.json()["detail"]


@pytest.mark.django_db(transaction=True)
def test_without_a_database_it_says_so_in_time(client: Client) -> None:
    with connecting_to(port=1):
        response = client.get("/metrics")
    assert (response.status_code, response.json()["code"]) == (503, "database_unavailable")


def test_without_the_extra_it_says_what_to_install(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "workflows.api.metrics")
    answer = urls._metrics("metrics")(RequestFactory().get("/metrics"))
    assert answer.status_code == 501
    assert "pip install 'django-onramp[metrics]'" in answer.content.decode()
