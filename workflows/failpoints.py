"""FAILPOINTS: where tests let a worker die, at the boundaries at which a crash could do something twice or forget it.

    ONRAMP_FAILPOINT="after_call:execute_checkout,before_commit"    which; without a step, the boundary of every step
    ONRAMP_FAILPOINT_ONCE=<folder>                                  each only once, of all processes that share it

| boundary | where |
|---|---|
| `before_intent`, `after_intent` | around the ledger's line of a once step's call |
| `after_call` | the call has returned, or failed; no other process knows |
| `after_result` | the call's outcome is on the ledger |
| `before_commit`, `after_commit` | of the claim's transaction; `before_commit:complete` names what was decided |
| `after_commit:message` | of a message's signal, by `consumekafka`: its offset is not committed yet |
| `after_commit:refused` | of a submission that the door of a queue has refused: the broker still has it |
| `before_release`, `after_release` | around the statement that makes a `trial` or a `cohort` of the parked due |
| `after_take`, `after_send` | a relay has taken events of the outbox; has sent them, and marked none yet |
| `in_chore` | a slice has begun; `in_chore:wake expired` names its task |
| `before_chore`, `after_chore` | around the commit of a slice with changes; `before_chore:release parked` names it |

The process that gets there ends by SIGKILL, as by a power cut. For tests: refused unless DEBUG is on.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

# Of an attempt, and of what maintenance does beside them.
BOUNDARIES = ("before_intent", "after_intent", "after_call", "after_result", "before_commit", "after_commit")
OF_MAINTENANCE = ("before_release", "after_release", "in_chore", "before_chore", "after_chore")
OF_RELAYS = ("after_take", "after_send")
KNOWN = (*BOUNDARIES, *OF_MAINTENANCE, *OF_RELAYS)

_armed: dict[str, Callable[[], None]] = {}
_once = os.environ.get("ONRAMP_FAILPOINT_ONCE", "")
_when_written: tuple[str, str] | None = None


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


_armed |= {name.strip(): _die for name in os.environ.get("ONRAMP_FAILPOINT", "").split(",") if name.strip()}
if _armed and not settings.DEBUG:
    raise ImproperlyConfigured("ONRAMP_FAILPOINT kills workers, for tests. Unset it, or set DEBUG=1.")
if unknown := {name.partition(":")[0] for name in _armed} - {*KNOWN}:
    raise ImproperlyConfigured(f"ONRAMP_FAILPOINT knows no {', '.join(sorted(unknown))}: {', '.join(KNOWN)}.")


def reach(boundary: str, at: str = "") -> None:
    """Die if this boundary is armed, for all or for `at`: a step's name, or what was decided."""
    if not _armed:
        return
    for name in (boundary, f"{boundary}:{at}"):
        if name in _armed and _is_first(name):
            _armed[name]()


@contextmanager
def armed(name: str, action: Callable[[], None]) -> Iterator[None]:
    """Arm a failpoint in this process only: it calls `action`. For `workflows.testing`."""
    _armed[name] = action
    try:
        yield
    finally:
        del _armed[name]


def reach_when_written(boundary: str, at: str) -> None:
    """Call `reach` as soon as the statement that was just held back is written (see `held_back_written`)."""
    global _when_written
    if _armed:
        _when_written = (boundary, at)


def held_back_written() -> None:
    """The statement that was held back is written."""
    global _when_written
    if _when_written:
        (boundary, at), _when_written = _when_written, None
        reach(boundary, at)


def _is_first(name: str) -> bool:
    """Whether no other process has been here before. The file that shows it outlives the process."""
    if not _once:
        return True
    try:
        os.close(os.open(Path(_once, name), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
