"""Spans of a real worker, as a collector gets them by OTLP/HTTP."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tests.acceptance.conftest import Start
from tests.acceptance.outside import now
from tests.acceptance.outside import submit as submit_with
from tests.acceptance.test_outbox import StartRelay, destinations, relayoutbox
from tests.engine import submit
from tests.processes import until
from tests.workflows.features.outbox.receiver import receiver
from workflows.models import Attempt

otlp = pytest.importorskip(
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="the extra `traces` is not installed"
)

__all__ = ["relayoutbox"]

pytestmark = pytest.mark.django_db(transaction=True)

TRACE, CLIENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector(ThreadingHTTPServer):
    """Keeps the bodies that are sent to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Collecting)
        self.bodies: list[bytes] = []

    @property
    def environment(self) -> dict[str, str]:
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.server_port}", "OTEL_SERVICE_NAME": "worker"}

    def spans(self) -> list[Any]:
        requests = [otlp.ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        resources = [each for request in requests for each in request.resource_spans]
        assert all(str(each.resource).count('string_value: "worker"') == 1 for each in resources)
        return [span for each in resources for scope in each.scope_spans for span in scope.spans]


class Collecting(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """The test's output is for the test."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def facts(span: Any) -> dict[str, Any]:
    return {each.key: each.value.int_value or each.value.string_value for each in span.attributes}


def test_all_attempts_of_a_workflow_are_in_one_trace_the_clients_own(
    runworker: Start, effects: Path, collector: Collector
) -> None:
    sent = {"given_request_id": "shop-7", "traceparent": f"00-{TRACE}-{CLIENT}-01"}
    workflow = submit_with("failing_at_first", effects, {"name": "Ada Quill"}, **sent)
    worker = runworker("FAILING_AT_FIRST", arguments=("--processes", "2"), **collector.environment)
    until(lambda: now(workflow).status == "COMPLETE", what=lambda: worker.output)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.output

    spans = sorted(collector.spans(), key=lambda span: (span.start_time_unix_nano, -span.end_time_unix_nano))
    assert {span.trace_id.hex() for span in spans} == {TRACE}, "one search finds all"
    (submission,) = [span for span in spans if span.parent_span_id.hex() == CLIENT]
    attempts = [span for span in spans if span.parent_span_id == submission.span_id]
    assert [each.name for each in (submission, *attempts)] == [
        "submission failing_at_first",
        "attempt failing_at_first",
        "attempt failing_at_first",
    ]
    common = {"onramp.workflow_id": workflow.pk, "onramp.request_id": "shop-7"}
    assert facts(submission) == common
    assert [facts(each) for each in attempts] == [
        {**common, "onramp.attempt": 1, "onramp.outcome": "retry"},
        {**common, "onramp.attempt": 2, "onramp.outcome": "complete"},
    ]
    assert [each.status.code for each in attempts] == [2, 0], "an error, and none"
    rows = Attempt.objects.filter(workflow=workflow.pk).order_by("number")
    for row, root in zip(rows, attempts, strict=True):
        steps = [span for span in spans if span.parent_span_id == root.span_id]
        assert [step.name for step in steps] == [entry["step"] for entry in row.steps]
        assert [facts(step)["onramp.outcome"] for step in steps] == [entry["outcome"] for entry in row.steps]
        assert [round(lasted(step) / 1e6, 1) for step in steps] == [entry["ms"] for entry in row.steps]
        assert root.start_time_unix_nano <= steps[0].start_time_unix_nano
    calls = [span for span in spans if span.name == "call letters"]
    makers = [span for span in spans if span.name == "fail_at_first"]
    assert [call.parent_span_id for call in calls] == [each.span_id for each in makers]
    assert [call.status.code for call in calls] == [2, 0]
    failed = makers[0]
    assert (facts(failed)["error.type"], facts(failed)["onramp.error_code"]) == (
        "workflows.errors.RetryableStepError",
        "not_now",
    )
    sent = b"".join(collector.bodies)
    assert b"Quill" not in sent
    assert b"SELECT" not in sent


def test_an_event_is_sent_in_the_trace_of_its_workflow_and_hands_it_on(
    runworker: Start, relayoutbox: StartRelay, collector: Collector
) -> None:
    submit({"number": 3}, workflow_type="told", traceparent=f"00-{TRACE}-{CLIENT}-01")
    with receiver(answers=lambda event: 500 if event["type"] == "order.paid" else 204) as crm:
        environ = {**destinations(crm=crm), **collector.environment}
        assert runworker("TOLD", arguments=("--drain",), **environ).wait() == 0
        assert relayoutbox("--drain", **environ).wait() == 0
    spans = collector.spans()
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    (submission,) = [span for span in spans if span.name == "submission told"]
    sendings = sorted((span for span in spans if span.name == "send crm"), key=lambda span: span.start_time_unix_nano)
    assert [span.parent_span_id for span in sendings] == [submission.span_id] * 2
    assert [(facts(span)["onramp.topic"], facts(span).get("error.type")) for span in sendings] == [
        ("order.opened", None),
        ("order.paid", "HTTP 500"),
    ]
    assert [facts(span)["messaging.message.id"] for span in sendings] == crm.ids
    assert [headers["traceparent"] for headers, _ in crm.requests] == [
        f"00-{TRACE}-{span.span_id.hex()}-01" for span in sendings
    ]


def lasted(span: Any) -> int:
    return int(span.end_time_unix_nano - span.start_time_unix_nano)


def test_a_name_that_is_no_trace_id_and_a_clock_that_is_ahead_make_sound_spans(
    runworker: Start, effects: Path, collector: Collector
) -> None:
    submit_with("counted", effects, given_request_id="0" * 32, created_at=timezone.now() + timedelta(minutes=1))
    assert runworker("COUNTED", arguments=("--drain",), **collector.environment).wait() == 0
    (submission,) = [span for span in collector.spans() if span.name == "submission counted"]
    assert any(submission.trace_id)
    assert lasted(submission) == 0


def test_a_collector_that_is_away_costs_a_line_in_the_log(runworker: Start, effects: Path) -> None:
    workflow = submit_with("counted", effects)
    away = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_BSP_SCHEDULE_DELAY": "10"}
    worker = runworker("COUNTED", **away)
    until(lambda: "opentelemetry" in worker.output, what=lambda: worker.output)
    assert now(workflow).status == "COMPLETE"
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.output
    assert "Traceback" not in worker.output
