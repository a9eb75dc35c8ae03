"""TRACE CONTEXT: the trace that a workflow is in, as `traceparent` hands it on (docs/adr/0023).

https://www.w3.org/TR/trace-context/. Nothing here needs OpenTelemetry. Without a collector nothing is stored or sent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from hashlib import blake2b
from random import getrandbits
from typing import NamedTuple
from uuid import UUID

HEADER = "traceparent"
LONGEST = 55

# Version, trace id, parent id, flags. An id of zeros only is none, and there is no version ff. A later version than 00
# may go on behind a dash: what is known of it is read, and no more.
_SENT = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})(?P<trace>[0-9a-f]{32})-(?!0{16})(?P<span>[0-9a-f]{16})"
    r"-(?P<flags>[0-9a-f]{2})(?P<more>-[!-~]{0,200})?"
)
_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")
_SAMPLED = 1


class Parent(NamedTuple):
    """The span that a `traceparent` names, and whether its trace is kept."""

    trace_id: int
    span_id: int
    sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.sampled:02x}"


class Trace(NamedTuple):
    """The trace of a workflow, its submission's span, and the span that is under way in it: an attempt, or a sending.

    `parent`: what the client sent, if it sent any.
    """

    id: int
    submission: int
    span: int
    sampled: bool
    parent: Parent | None = None

    def traceparent(self, span_id: int = 0) -> str:
        """The header for what the span causes; by default it is the one that is under way."""
        return str(Parent(self.id, span_id or self.span, self.sampled))


def is_on() -> bool:
    """Whether OpenTelemetry's variables name a collector."""
    endpoints = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not disabled and os.environ.get("OTEL_TRACES_EXPORTER") != "none" and any(map(os.environ.get, endpoints))


def parent_in(sent: str) -> Parent | None:
    """The parent that a `traceparent` names; None for one that is not valid, which nobody is refused for."""
    found = _SENT.fullmatch(sent)
    if found is None or (found["version"] == "00" and found["more"] is not None):
        return None
    return Parent(int(found["trace"], 16), int(found["span"], 16), bool(int(found["flags"], 16) & _SAMPLED))


def to_store(headers: Mapping[str, str]) -> str:
    """The `traceparent` that a submission keeps, by its headers; empty if it has no valid one, or nothing is traced."""
    sent = headers.get(HEADER, "")
    parent = parent_in(sent) if sent and is_on() else None
    return str(parent) if parent else ""


def hash_of(key: UUID) -> tuple[int, int]:
    """The trace id of a workflow that has no other, and the span id of its submission: always the same of a key.

    A UUID has fixed bits where a sampler looks.
    """
    digest = blake2b(key.bytes, digest_size=24).digest()
    return int.from_bytes(digest[:16]), int.from_bytes(digest[16:])


def trace_id_of(request_id: str) -> int | None:
    """The trace id that a request id is; None if it is none."""
    return int(request_id, 16) if _TRACE_ID.fullmatch(request_id) else None


def new_span_id() -> int:
    return getrandbits(64) or 1
