"""Spans of an attempt, made from its record after its decision: live ones cost as much as a step (docs/adr/0023).

All spans of a workflow are in one trace, below its submission's span. They have the duration and outcome of each step,
but never a value, an error's message or a statement.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from threading import Thread
from time import monotonic, time_ns
from uuid import UUID

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from workflows import trace_context
from workflows.engine.claim import Claim
from workflows.engine.extension import Onlooker
from workflows.models import Attempt, Workflow
from workflows.state.attempt_log import OpenAttempt
from workflows.trace_context import Trace

logger = logging.getLogger(__name__)

# Seconds that a stopping process spends on spans that are not sent yet.
LAST_SPANS_SECONDS = 3.0
# The first so many attempts of a workflow have spans of all steps and calls; later ones only of failures. A backend
# that takes 5 MB a trace, at 500 bytes a span, has room for 10,000.
DETAILED = 100

_SCOPE = InstrumentationScope("onramp")
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_Facts = dict[str, str | int]
_FAILURES = (Attempt.Outcome.RETRY, Attempt.Outcome.FAILED, Attempt.Outcome.FOLLOW_UP_FAILED)


class Spans(Onlooker):
    """OpenTelemetry's variables define sampler, resource, batches and exporter. A thread of its own exports."""

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        provider = TracerProvider(shutdown_on_exit=False)
        self._sampler, self._resource = provider.sampler, provider.resource
        self._processor = BatchSpanProcessor(exporter or OTLPSpanExporter())
        # Log a lost batch once, not each try to send it.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.ERROR)

    def begin(self, claim: Claim, attempt: OpenAttempt) -> None:
        workflow = claim.workflow
        attempt.trace = self.trace_of(
            workflow.idempotency_key, workflow.workflow_type, workflow.request_id, claim.traceparent
        )

    def trace_of(self, key: UUID, workflow_type: str, request_id: str, traceparent: str) -> Trace | None:
        """The trace of a workflow, with a span that begins now; None if that fails. `traceparent` is as stored.

        The trace's id comes from the `traceparent`, else from the request id if it fits, else from a hash of the key.
        """
        try:
            return self._trace(key, workflow_type, request_id, traceparent)
        except Exception:  # the work goes on without a span
            logger.exception("the workflow with the key %s is not traced", key)
            return None

    def _trace(self, key: UUID, workflow_type: str, request_id: str, traceparent: str) -> Trace:
        parent, (hashed, submission) = trace_context.parent_in(traceparent), trace_context.hash_of(key)
        context, sampled_by = None, hashed
        if parent:
            flags, sampled_by = TraceFlags(parent.sampled), parent.trace_id
            remote = SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=flags)
            context = set_span_in_context(NonRecordingSpan(remote))
        # Samples by a value that never changes for a workflow: all its attempts are sampled, or none.
        decision = self._sampler.should_sample(context, sampled_by, workflow_type).decision
        trace_id = parent.trace_id if parent else trace_context.trace_id_of(request_id) or hashed
        is_sampled = decision is Decision.RECORD_AND_SAMPLE
        return Trace(trace_id, submission, trace_context.new_span_id(), is_sampled, parent)

    def record(self, workflow: Workflow, attempt: OpenAttempt, ended: Attempt.Outcome) -> None:
        """Make the spans of an attempt, unless its workflow is not sampled."""
        try:
            if attempt.trace and attempt.trace.sampled:
                self._record(workflow, attempt, attempt.trace, ended)
        except Exception:  # the attempt is committed: this is not a failure of the engine
            logger.exception("workflow %s: there is no trace of its last attempt", workflow.pk)

    def _record(self, workflow: Workflow, attempt: OpenAttempt, trace: Trace, ended: Attempt.Outcome) -> None:
        submission, root = _context(trace.id, trace.submission), _context(trace.id, trace.span)
        # The steps' times are of the monotonic clock.
        now, now_ns = monotonic(), time_ns()
        opened_ns = now_ns - int((now - attempt.opened_at) * 1e9)
        common: _Facts = {"onramp.workflow_id": workflow.pk, "onramp.request_id": workflow.request_id}
        if len(attempt.past) == attempt.number - 1:  # no earlier attempt was decided
            entered_ns = min(int(workflow.created_at.timestamp() * 1e9), opened_ns)
            client = _context(trace.id, trace.parent.span_id, is_remote=True) if trace.parent else None
            name = f"submission {workflow.workflow_type}"
            self._add(name, submission, client, entered_ns, opened_ns, common, kind=SpanKind.PRODUCER)
        in_short = attempt.number > DETAILED
        parents = [(attempt.opened_at, root)]  # a call's parent is the last that began before it
        for entry, started in zip(attempt.steps, attempt.steps_started_at, strict=False):
            error = entry.get("error_class")
            if in_short and not error:
                continue
            started_ns = now_ns - int((now - started) * 1e9)
            facts: _Facts = {"onramp.outcome": str(entry["outcome"])}
            if error:
                facts |= {"error.type": error, "onramp.error_code": entry.get("error_code", "")}
            context, ended_ns = _context(trace.id), started_ns + int(entry["ms"] * 1e6)
            self._add(entry["step"], context, root, started_ns, ended_ns, facts, failed=bool(error))
            parents.append((started, context))
        for call in list(attempt.made):  # a copy: a thread that a step left behind may still add calls
            if in_short and not call.unavailable:
                continue
            parent = next(context for since, context in reversed(parents) if since <= call.began)
            began_ns, ended_ns = (now_ns - int((now - moment) * 1e9) for moment in (call.began, call.ended))
            context = _context(trace.id, call.span_id)
            failed, kind = call.unavailable, SpanKind.CLIENT
            self._add(f"call {call.service}", context, parent, began_ns, ended_ns, {}, kind=kind, failed=failed)
        facts = common | {"onramp.attempt": attempt.number, "onramp.outcome": str(ended)}
        name, failed = f"attempt {workflow.workflow_type}", ended in _FAILURES
        self._add(name, root, submission, opened_ns, now_ns, facts, kind=SpanKind.CONSUMER, failed=failed)

    def record_sending(
        self, trace: Trace, to: str, facts: Mapping[str, str | int], *, error: str, began: float, seconds: float
    ) -> None:
        """Make the span of one try to send an event; `began` is by the monotonic clock.

        https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/
        """
        if not trace.sampled:
            return
        began_ns = time_ns() - int((monotonic() - began) * 1e9)
        try:
            self._add(
                f"send {to}",
                *(_context(trace.id, trace.span), _context(trace.id, trace.submission)),
                *(began_ns, began_ns + int(seconds * 1e9)),
                {"messaging.operation.type": "send", **facts, **({"error.type": error} if error else {})},
                kind=SpanKind.PRODUCER,
                failed=bool(error),
            )
        except Exception:  # what was sent is on record: this is not a failure of the relay
            logger.exception("there is no trace of what was sent to %s", to)

    def end(self) -> None:
        """Send the remaining spans. They are lost if the collector does not take them in time."""
        last = Thread(target=self._processor.shutdown, daemon=True)
        last.start()
        last.join(LAST_SPANS_SECONDS)

    def _add(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        start_ns: int,
        end_ns: int,
        attributes: _Facts,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        failed: bool = False,
    ) -> None:
        # Without a tracer, whose spans are live, locked and copied, and cost ten times as much.
        span = ReadableSpan(
            name,
            context,
            parent,
            self._resource,
            attributes,
            kind=kind,
            status=Status(StatusCode.ERROR if failed else StatusCode.UNSET),
            start_time=start_ns,
            end_time=end_ns,
            instrumentation_scope=_SCOPE,
        )
        self._processor.on_end(span)


def _context(trace_id: int, span_id: int = 0, *, is_remote: bool = False) -> SpanContext:
    """The context of a span: of a new one by default."""
    return SpanContext(trace_id, span_id or trace_context.new_span_id(), is_remote=is_remote, trace_flags=_SAMPLED)
