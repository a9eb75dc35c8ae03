"""What Prometheus is told of rates: what the rollup has counted, by labels that alerts ask for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests.engine import ENGINE, define, make_due, submit, work
from tests.rollup import added_up
from tests.workflows import rows
from tests.workflows.api.test_metrics import _in_debug, told
from workflows.definition import Slo, Step
from workflows.errors import RetryableStepError, StepError
from workflows.features.trends.rates import EPOCH
from workflows.models import Workflow
from workflows.models.rollup import Grain, Metric, Rollup
from workflows.wording import CodeWords, Wording

pytestmark = [*ENGINE, pytest.mark.usefixtures(_in_debug.__name__)]

DAY = timedelta(days=1)
SLO = Slo(p95=timedelta(seconds=3), completed=0.999, longest=10 * DAY)
DECLINES = Wording(codes={"declined": CodeWords("No.", "No."), "rotated": CodeWords("No.", "No.", ours=True)})


def charge(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    if code := workflow.payload.get("code"):
        raise StepError("No.", code=code)
    if workflow.payload.get("again") and workflow.retry_count == 0:
        raise RetryableStepError("Not now.", code="busy")
    return {}


def test_it_tells_what_came_ran_failed_and_ended(client: Client) -> None:
    define([Step(charge)], wording=DECLINES, slo=SLO)
    for payload in ({}, {"again": True}, {"code": "declined"}, {"code": "rotated"}):
        work(submit(payload))
    make_due(Workflow.objects.get(status="PENDING"))
    work(Workflow.objects.get(status="PENDING"))
    before = told(client)
    added_up()
    samples = told(client)

    def of(name: str) -> dict[str, float]:
        found = {labels: value for (family, labels), value in samples.items() if family == name and value}
        return {
            "/".join(label for label in labels if label not in ("test", "charge")): value
            for labels, value in found.items()
        }

    assert of("workflow_started_total") == {"": 4}
    told_before = {name for name in before if name[0].endswith("_total")}
    told_since = {name for name in samples if name[0].endswith("_total")} - told_before
    assert told_since == {
        ("workflow_step_failures_total", (code, explained, "charge", "test"))
        for code, explained in (("busy", "false"), ("declined", "true"), ("rotated", "false"))
    }, "an alert would miss the first ones: none asks for the rate of a code"
    assert {before[name] for name in told_before} == {0}
    reruns, undone = (
        ("workflow_redundant_reruns_total", ("charge", "test")),
        ("undone", "undo_failed", "not_done", "kept"),
    )
    assert told_before >= {reruns, *(("workflow_compensations_total", (outcome, "test")) for outcome in undone)}
    assert of("workflow_finished_total") == {"false/false/COMPLETE": 2, "false/true/FAILED": 1, "false/false/FAILED": 1}
    assert of("workflow_attempts_total") == {"complete": 2, "retry": 1, "failed": 2}
    assert of("workflow_steps_total") == {"ran": 2, "failed": 3}
    assert of("workflow_step_failures_total") == {"busy/false": 1, "declined/true": 1, "rotated/false": 1}
    assert of("workflow_failed_runs_total") == {"false": 2, "true": 1}
    assert of("workflow_active_seconds_bucket")["600.0"] == of("workflow_active_seconds_count")[""] == 4
    assert of("workflow_step_duration_seconds_count") == {"": 5}


def test_a_counter_does_not_go_down_when_more_is_known_of_an_attempt_that_vanished(client: Client) -> None:
    define([Step(charge)])
    labels = {"at": EPOCH, "workflow_type": "test", "step": "", "code": "", "seconds": 0, "buckets": []}
    Rollup.objects.create(grain=Grain.TOTAL, metric=Metric.ATTEMPT, outcome="vanished", count=2, **labels)
    Rollup.objects.create(grain=Grain.TOTAL, metric=Metric.CORRECTED, outcome="", count=1, **labels)
    Rollup.objects.create(
        grain=Grain.TOTAL,
        metric=Metric.STEP,
        outcome="recorded",
        count=1,
        **{**labels, "step": "charge", "buckets": [1, *[0] * 9]},
    )
    samples = told(client)
    assert samples["workflow_attempts_total", ("vanished", "test")] == 3
    assert ("workflow_step_duration_seconds_count", ("charge", "test")) not in samples, "a replay is not a run"


def test_what_has_not_ended_within_its_limit_is_stuck_in_whatever_state(client: Client) -> None:
    define([Step(charge)], slo=SLO)
    for age in (9 * DAY, 11 * DAY):
        old = {"created_at": timezone.now() - age}
        for make in (rows.workflow, rows.retrying, rows.waiting, rows.parked, rows.failed):
            make(workflow_type="test", **old)
    rows.workflow(workflow_type="unknown", created_at=timezone.now() - 11 * DAY)
    samples = told(client)
    assert samples["workflow_stuck", ("test",)] == 4
    assert samples["workflow_slo_seconds", ("test",)] == 3
    assert samples["workflow_slo_ratio", ("test",)] == 0.999


@pytest.mark.parametrize("wrong", [{"p95": 11 * DAY}, {"p95": 0 * DAY}, {"completed": 1.0}, {"completed": 0.0}])
def test_an_slo_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="An SLO"):
        Slo(**{"p95": timedelta(seconds=3), "completed": 0.9, "longest": 10 * DAY, **wrong})
