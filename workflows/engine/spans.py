"""The spans of an attempt, made from its record once it is decided: live ones cost as much as a step (docs/adr/0023).

They say which step took how long and how it ended; never a value, an error's message or a statement.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from hashlib import blake2b
from random import getrandbits
from threading import Thread
from time import monotonic, time_ns

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from workflows.models import Attempt, Workflow
from workflows.outages.calls import Made
from workflows.state.attempt_log import OpenAttempt

logger = logging.getLogger(__name__)

# Seconds, when the process stops, for the spans that are not sent yet.
LAST_SPANS_SECONDS = 3.0

_SCOPE = InstrumentationScope("onramp")
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_Facts = dict[str, str | int]
_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")
_FAILURES = (Attempt.Outcome.RETRY, Attempt.Outcome.FAILED, Attempt.Outcome.FOLLOW_UP_FAILED)


class Spans:
    """Sampler, resource, batches and exporter are as OpenTelemetry's variables say. A thread of its own exports."""

    def __init__(self) -> None:
        provider = TracerProvider(shutdown_on_exit=False)
        self._sampler, self._resource = provider.sampler, provider.resource
        self._processor = BatchSpanProcessor(OTLPSpanExporter())
        # One line for a batch that is lost, and none for each try to send it.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.ERROR)

    def record(self, workflow: Workflow, attempt: OpenAttempt, calls: Sequence[Made], ended: Attempt.Outcome) -> None:
        """Make the spans of an attempt that is decided, unless its workflow is not sampled. `workflow` as claimed."""
        try:
            self._record(workflow, attempt, calls, ended)
        except Exception:  # the attempt is committed: this is not a failure of the engine
            logger.exception("workflow %s: there is no trace of its last attempt", workflow.pk)

    def _record(self, workflow: Workflow, attempt: OpenAttempt, calls: Sequence[Made], ended: Attempt.Outcome) -> None:
        # A UUID has fixed bits where a sampler looks. By the key: all attempts of a workflow are sampled, or none.
        digest = blake2b(workflow.idempotency_key.bytes, digest_size=24).digest()
        sampled_by = int.from_bytes(digest[:16])
        sampled = self._sampler.should_sample(None, sampled_by, workflow.workflow_type)
        if sampled.decision is not Decision.RECORD_AND_SAMPLE:
            return
        request_id = workflow.request_id
        trace_id = int(request_id, 16) if _TRACE_ID.fullmatch(request_id) else sampled_by
        submission = _context(trace_id, int.from_bytes(digest[16:]))
        # The steps' clock is the monotonic one.
        now, now_ns = monotonic(), time_ns()
        opened_ns = now_ns - int((now - attempt.opened_at) * 1e9)
        common: _Facts = {"onramp.workflow_id": workflow.pk, "onramp.request_id": request_id}
        if len(attempt.past) == attempt.number - 1:  # no earlier one was decided
            entered_ns = min(int(workflow.created_at.timestamp() * 1e9), opened_ns)
            name = f"submission {workflow.workflow_type}"
            self._add(name, submission, None, entered_ns, opened_ns, common, kind=SpanKind.PRODUCER)
        root = _context(getrandbits(128), getrandbits(64))
        parents = [(attempt.opened_at, root)]  # of a call: what began last before it
        for entry, started in zip(attempt.steps, attempt.steps_started_at, strict=False):
            started_ns = now_ns - int((now - started) * 1e9)
            facts: _Facts = {"onramp.outcome": str(entry["outcome"])}
            if error := entry.get("error_class"):
                facts |= {"error.type": error, "onramp.error_code": entry.get("error_code", "")}
            context, ended_ns = _context(root.trace_id, getrandbits(64)), started_ns + int(entry["ms"] * 1e6)
            self._add(entry["step"], context, root, started_ns, ended_ns, facts, failed=bool(error))
            parents.append((started, context))
        for call in list(calls):  # a step may have left a thread that goes on calling
            parent = next(context for since, context in reversed(parents) if since <= call.began)
            began_ns, ended_ns = (now_ns - int((now - moment) * 1e9) for moment in (call.began, call.ended))
            context = _context(root.trace_id, getrandbits(64))
            failed, kind = call.unavailable, SpanKind.CLIENT
            self._add(f"call {call.service}", context, parent, began_ns, ended_ns, {}, kind=kind, failed=failed)
        facts = common | {"onramp.attempt": attempt.number, "onramp.outcome": str(ended)}
        self._add(
            f"attempt {workflow.workflow_type}",
            *(root, None, opened_ns, now_ns, facts),
            kind=SpanKind.CONSUMER,
            links=(Link(submission),),
            failed=ended in _FAILURES,
        )

    def end(self) -> None:
        """Send what is left, if the collector takes it in time; else it is lost."""
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
        links: tuple[Link, ...] = (),
        failed: bool = False,
    ) -> None:
        # Not by a tracer: its spans are live, locked and copied, and cost ten times as much.
        span = ReadableSpan(
            name,
            context,
            parent,
            self._resource,
            attributes,
            links=links,
            kind=kind,
            status=Status(StatusCode.ERROR if failed else StatusCode.UNSET),
            start_time=start_ns,
            end_time=end_ns,
            instrumentation_scope=_SCOPE,
        )
        self._processor.on_end(span)


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=_SAMPLED)
