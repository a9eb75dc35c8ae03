"""The trace of a workflow: all that is done for it, whoever does it, and what it hands on to others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests import engine
from tests.engine import Context, define, submit, worker
from tests.workflows.undoing import World, fail
from workflows import trace_context
from workflows.errors import RetryableStepError
from workflows.models import Attempt, Workflow
from workflows.outages import call_to
from workflows.waits import Child, wait_for_children

memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

pytestmark = engine.ENGINE

TRACE, CLIENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SENT = f"00-{TRACE}-{CLIENT}-01"
Spans = list[Any]
Traced = Callable[[], Spans]


@pytest.fixture
def traced() -> Traced:
    """Works until nothing is due, and returns the spans of that."""
    from workflows.features.traces.spans import Spans

    def run() -> list[Any]:
        exporter = memory.InMemorySpanExporter()
        spans = Spans(exporter)
        this = worker(onlookers=[spans])
        while this.process_next() or this.process_from_sources():
            pass
        spans.end()
        return list(exporter.get_finished_spans())

    return run


def tree(spans: Spans) -> dict[str, list[str]]:
    """The names of the spans below each."""
    names = {span.context.span_id: span.name for span in spans}
    found: dict[str, list[str]] = {}
    for span in sorted(spans, key=lambda span: span.start_time):
        above = names.get(span.parent.span_id, f"{span.parent.span_id:016x}") if span.parent else ""
        found.setdefault(above, []).append(span.name)
    return found


def trace_ids(spans: Spans) -> set[str]:
    return {f"{span.context.trace_id:032x}" for span in spans}


@pytest.fixture
def world() -> World:
    return World()


def test_attempts_undos_and_what_a_service_does_are_in_the_trace_of_the_submission(
    world: World, traced: Traced
) -> None:
    heard = []

    def tell(*, workflow: Workflow, context: Context) -> None:
        for _ in range(2):
            with call_to("letters") as call:
                heard.append(call.trace_headers["traceparent"])

    define([world.step("charge"), tell, fail])
    submit(traceparent=SENT)
    spans = traced()
    assert trace_ids(spans) == {TRACE}
    assert tree(spans) == {
        CLIENT: ["submission test"],
        "submission test": ["attempt test", "attempt test"],
        "attempt test": ["charge", "tell", "fail", "charge"],  # the last one is its undo
        "tell": ["call letters", "call letters"],
    }
    calls = [f"00-{TRACE}-{span.context.span_id:016x}-01" for span in spans if span.name == "call letters"]
    assert heard == calls, "each call has its own span"


def test_children_are_in_the_trace_below_the_attempt_that_started_them(traced: Traced) -> None:
    def fan_out(*, workflow: Workflow, context: Context) -> None:
        if workflow.parent_id is None:
            wait_for_children(workflow, "checks", [Child("test", {})], timeout=timedelta(hours=1))

    define([fan_out])
    submit(traceparent=SENT, given_request_id="shop-7")
    spans = traced()
    assert trace_ids(spans) == {TRACE}
    parents = {span.context.span_id: span for span in spans}
    _, child = sorted((span for span in spans if span.name == "submission test"), key=lambda span: span.start_time)
    starter = parents[child.parent.span_id]
    assert (starter.name, starter.attributes["onramp.attempt"]) == ("attempt test", 1)


@pytest.mark.parametrize(
    ("fields", "trace"),
    [
        ({}, "3f0c8f0e9c3e4f6e8a510d3c6a3a9b11"),  # the key's own digits
        ({"given_request_id": TRACE}, TRACE),  # stored while nothing was traced
        ({"given_request_id": "shop-7"}, None),
        ({"given_request_id": "0" * 32}, None),
    ],
)
def test_without_a_clients_it_is_named_by_the_request_or_the_key(
    fields: dict[str, str], trace: str | None, traced: Traced
) -> None:
    define([fail])
    submit(idempotency_key=UUID("3f0c8f0e-9c3e-4f6e-8a51-0d3c6a3a9b11"), **fields)
    spans = traced()
    (found,) = trace_ids(spans)
    assert found == (trace or found)
    assert tree(spans)[""] == ["submission test"]
    assert int(found, 16)


@pytest.mark.parametrize(("sampler", "kept"), [("parentbased_always_on", 0), ("always_on", 3)])
def test_a_client_that_keeps_no_trace_has_none_kept_and_the_services_are_told(
    sampler: str, kept: int, traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    heard = []

    def tell(*, workflow: Workflow, context: Context) -> None:
        with call_to("letters") as call:
            heard.append(call.trace_headers["traceparent"])

    define([tell])
    submit(traceparent=f"00-{TRACE}-{CLIENT}-00")
    assert len([span for span in traced() if not span.name.startswith("call")]) == kept
    assert [(each[:36], each[-2:]) for each in heard] == [(f"00-{TRACE}-", "01" if kept else "00")]


def test_of_the_thousandth_attempt_only_what_failed_has_spans(traced: Traced) -> None:
    def go_on(*, workflow: Workflow, context: Context) -> None:
        with call_to("letters"):
            pass

    def try_in_vain(*, workflow: Workflow, context: Context) -> None:
        with call_to("payments") as call:
            call.unavailable()
            raise RetryableStepError("Not now.", base_delay=60)

    define([go_on, try_in_vain])
    workflow = submit(traceparent=SENT, begun=True)
    last = {"number": 999, "outcome": Attempt.Outcome.RETRY, "closed_at": workflow.created_at}
    Attempt.objects.create(workflow=workflow, **last)
    assert tree(traced()) == {
        f"{trace_context.hash_of(workflow.idempotency_key)[1]:016x}": ["attempt test"],
        "attempt test": ["try_in_vain"],
        "try_in_vain": ["call payments"],
    }


def test_where_nothing_is_traced_no_call_says_so() -> None:
    heard = []

    def tell(*, workflow: Workflow, context: Context) -> None:
        with call_to("letters") as call:
            heard.append(call.trace_headers)

    define([tell])
    submit(traceparent=SENT)
    assert worker().process_next()
    assert heard == [{}]
