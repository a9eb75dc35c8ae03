"""REQUEST ID: the one name of a request, in its answer, in log lines, in the calls to services, on the workflow's page.

It is the client's, if it sends one that is fit for all of these; it names nothing uniquely, and decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar
from uuid import uuid4

from workflows import trace_context

HEADER = "X-Request-ID"

# Of the request that is being answered, or of the workflow that this worker runs. A step's own threads do not have it.
current: ContextVar[str] = ContextVar("request_id", default="")

# No spaces, quotes, line ends or `@`; a UUID and what proxies make (nginx, Envoy, X-Ray) fit.
LONGEST = 64
_FIT = re.compile(rf"[A-Za-z0-9._-]{{1,{LONGEST}}}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def of(headers: Mapping[str, str]) -> str:
    """The id of a request, by its headers (names in lower case, or a mapping that ignores case).

    The first of these that is there, and as it should be: its X-Request-ID; the trace id of its `traceparent`; the 32
    digits of its Idempotency-Key; new ones. No request is refused for its name.
    """
    if _FIT.fullmatch(sent := headers.get("x-request-id", "")):
        return sent
    if (traced := headers.get(trace_context.HEADER)) and (parent := trace_context.parent_in(traced)):
        return f"{parent.trace_id:032x}"
    if _UUID.fullmatch(key := headers.get("idempotency-key", "")):
        return key.replace("-", "").lower()  # three microseconds less than `UUID(key).hex`
    return uuid4().hex
