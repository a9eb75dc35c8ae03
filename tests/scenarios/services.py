"""What the scenarios' steps call: services that honour idempotency keys, remember everything, and are down at times.

All of them keep one append-only log, the file SCENARIOS_LOG, a JSON object a line: `{"asked": ...}` for each request,
`{"done": ...}` for what it changed. A key that is sent again is answered as the first time, and changes nothing. Like
the clients of real services they raise our errors.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from workflows.errors import RetryableStepError, StepError


def request(what: str, about: str, *, idempotency_key: str, **told: Any) -> str:
    """Do `what` about somebody or something, once for each key. Returns the receipt."""
    asked(what, about, idempotency_key)
    return perform(what, about, idempotency_key=idempotency_key, **told)


def asked(what: str, about: str, key: str) -> None:
    with _locked() as log:
        _append(log, asked=what, about=about, key=key)


def perform(what: str, about: str, *, idempotency_key: str, **told: Any) -> str:
    with _locked() as log:
        lines = log.readlines()
        if (receipt := _receipt(lines, idempotency_key)) is None:
            receipt = f"{what}-{len(lines)}"
            _append(log, done=what, about=about, key=idempotency_key, receipt=receipt, **told)
    return receipt


def find(idempotency_key: str) -> str | None:
    """The receipt of what was done under this key, if anything was."""
    with _locked() as log:
        return _receipt(log.readlines(), idempotency_key)


def entries() -> list[dict[str, Any]]:
    """The log, oldest line first."""
    with _locked() as log:
        return [json.loads(line) for line in log]


def note(**entry: Any) -> None:
    """Add a line that is not a request."""
    with _locked() as log:
        _append(log, **entry)


def log_is_free() -> bool:
    """Whether nobody is writing to the log, or stopped in doing so."""
    with open(os.environ["SCENARIOS_LOG"]) as log:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@contextmanager
def _locked() -> Iterator[TextIO]:
    """The log, for this process alone; the kernel lets go of it when the process dies."""
    with open(os.environ["SCENARIOS_LOG"], "a+") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        log.seek(0)
        yield log


def _append(log: TextIO, **entry: Any) -> None:
    log.write(json.dumps({**entry, "pid": os.getpid()}) + "\n")
    log.flush()


def _receipt(lines: list[str], key: str) -> str | None:
    return next((entry["receipt"] for entry in _of(key, lines) if "done" in entry), None)


def _of(key: str, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in lines if json.dumps(key) in line)


# --- What is particular about some of them ------------------------------------------------------------


def ship(order: str, address: str, *, idempotency_key: str) -> str:
    """Book a parcel. Raises StepError when the carrier does not go there."""
    from workflows.outages import call_to  # the job runner uses this module too, and knows nothing of Django

    with call_to("carrier") as call:
        asked("ship", order, idempotency_key)
        if address == "nowhere":
            call.answered()
            raise StepError("The carrier does not go there.", code="no_such_address")
        return perform("ship", order, idempotency_key=idempotency_key)


# Seconds that an insurer takes to find out, and again to answer: long enough for two to be asked at once.
INSURER_TAKES = 0.015


def verify_policy(policy: str, *, idempotency_key: str) -> str:
    """Ask the insurer whether a policy covers. Some of them are busy when first asked, and some know no such policy."""
    with _locked() as log:
        first = not any(_of(idempotency_key, log))
        _append(log, begun="verify", about=policy)
    try:
        asked("verify", policy, idempotency_key)
        time.sleep(INSURER_TAKES)
        if policy.startswith("busy") and first:
            raise RetryableStepError("The insurer is busy.", code="insurer_busy")
        if policy.startswith("unknown"):
            raise StepError("The insurer knows no such policy.", code="unknown_policy")
        receipt = perform("verify", policy, idempotency_key=idempotency_key)
        time.sleep(INSURER_TAKES)
        return receipt
    finally:
        note(ended="verify", about=policy)
