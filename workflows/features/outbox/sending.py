"""SENDING: the form in which a destination gets an event, and the outcome.

A CloudEvent 1.0 in structured JSON
(https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md), with the same bytes each time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from pydantic_core import to_json

from workflows import trace_context
from workflows.models import OutboxEvent
from workflows.sealing import whole
from workflows.trace_context import Trace

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"


class Taken(NamedTuple):
    """An event that a relay has taken. `subject` is the submission's idempotency key, None without a workflow.

    `body` is JSON: sealed as it is stored, or clear once it is `opened`.
    """

    id: int
    tries: int
    workflow_id: int | None
    event_id: UUID
    topic: str
    at: datetime
    subject: UUID | None
    body: str
    workflow_type: str = ""
    request_id: str = ""
    traceparent: str = ""  # what the submission came with
    trace: Trace | None = None  # if its sending is traced

    @property
    def trace_headers(self) -> dict[str, str]:
        """The headers that continue the workflow's trace at the receiver. Each try has its own span."""
        return {trace_context.HEADER: self.trace.traceparent()} if self.trace else {}

    def opened(self) -> Taken:
        """The event with its body in clear. Raises Unreadable."""
        event = OutboxEvent(workflow_id=self.workflow_id, topic=self.topic)
        return self._replace(body=to_json(whole.unseal(event, json.loads(self.body))).decode())

    def as_cloud_event(self) -> bytes:
        attributes = {
            "specversion": "1.0",
            "id": str(self.event_id),
            "source": settings.OUTBOX_SOURCE,
            "type": self.topic,
            **({"subject": str(self.subject)} if self.subject else {}),
            "time": self.at.astimezone(UTC).isoformat(),
            "datacontenttype": "application/json",
        }
        return to_json(attributes)[:-1] + b',"data":' + self.body.encode() + b"}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of sending an event. It was sent if `error` is empty; `error` never quotes the receiver.

    `retry_after`: seconds that the receiver asks for. `is_gone`: it wants no more events. `is_untried`: this relay did
    not send it, because it is stopping or its lease is nearly over. `is_service`: it says something about the
    destination. `seconds`: the duration, if known.
    """

    error: str = ""
    retry_after: float = 0.0
    is_gone: bool = False
    is_untried: bool = False
    is_service: bool = True
    seconds: float = field(default=0.0, compare=False)


SENT, UNTRIED = Outcome(), Outcome("not sent", is_untried=True)
NO_ANSWER = Outcome("no answer in time")

# Sends the events, starts none once the second argument returns True, and returns each outcome. Raises nothing.
Send = Callable[[Sequence[Taken], Callable[[], bool]], Sequence[Outcome]]
