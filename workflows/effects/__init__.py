"""EFFECTS: what a step's author needs from the ledger: the idempotency key, and what is known about a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, NamedTuple

from workflows.models import Effect, Workflow

DONE, INTENT, NOT_DONE = Effect.State.DONE, Effect.State.INTENT, Effect.State.NOT_DONE
SKIPPED, UNKNOWN = Effect.State.SKIPPED, Effect.State.UNKNOWN
UNDONE, KEPT = Effect.State.UNDONE, Effect.State.KEPT
IN_DOUBT = (INTENT, UNKNOWN)
MAY_HAVE_HAPPENED = (*IN_DOUBT, DONE)


def is_unclear(effect: Effect) -> bool:
    """Whether nobody knows if the call happened; a person may nevertheless have left it as it is."""
    return effect.state in IN_DOUBT or (effect.state == KEPT and effect.result is None)


class KnownEffect(NamedTuple):
    """What the ledger knows of an effect; lookups and undos get it. Ages are seconds, by the database's clock.

    `undoes` is the id of the effect that this undo undoes. `undo_failures` counts failures of the effect's own undo,
    without those at an unavailable service (`undo_unavailable`). `asked_if_gone`: a person was asked whether the step
    was removed on purpose. `call_number` grows from call to call, whatever the clock says. `by_hand` is the reference
    of a call that a person has made outside: its key was never sent, and a person has said its result.
    """

    id: int
    step: str
    generation: int
    state: str
    idempotency_key: str
    result: dict[str, Any] | None
    key_age: float
    call_age: float
    seen_at: float  # by this process's clock
    has_undo: bool = False
    undo_failures: int = 0
    undo_unavailable: int = 0
    error: str = ""
    error_code: str = ""
    asked_if_gone: bool = False
    call_number: int = 0
    by_hand: str = ""
    undoes: int | None = None

    @property
    def undo_key(self) -> str:
        """The idempotency key of its undo."""
        return f"{self.idempotency_key}:undo"

    def since_key(self) -> float:
        """Seconds since its key was first sent."""
        return self.key_age + monotonic() - self.seen_at

    def since_call(self) -> float:
        """Seconds since the call was last started."""
        return self.call_age + monotonic() - self.seen_at


def key_for(workflow: Workflow, step: str) -> str:
    """The idempotency key for a step's call: in a `once` step the key of its effect, otherwise one of the same form.

    The key contains the workflow, the step (by its oldest name) and the generation; never an attempt, a position in the
    list or a release.
    """
    if in_use := keys_in_use.get(workflow.pk):
        in_use.requested = True
        return in_use.key
    if key_requested_outside_once:
        key_requested_outside_once(workflow)
    return key_of(workflow, step, 1)


def key_in_use(workflow: Workflow) -> str:
    """The idempotency key of the call that the workflow is making now; empty if it makes none."""
    in_use = keys_in_use.get(workflow.pk)
    return in_use.key if in_use else ""


# Called with the workflow when a step that is not `once` asks for a key. For `workflows.testing` only.
key_requested_outside_once: Callable[[Workflow], None] | None = None


@dataclass(slots=True)
class KeyInUse:
    """The idempotency key of a current call, and whether its step has asked for the key or called a service."""

    key: str
    requested: bool = False
    called: bool = False


# By workflow. A ContextVar would not reach a step's own threads: they would get generation 1's key.
keys_in_use: dict[int, KeyInUse] = {}


def key_of(workflow: Workflow, step: str, generation: int) -> str:
    return f"{workflow.key}:{step}" if generation == 1 else f"{workflow.key}:{step}:{generation}"


def recorded_key(workflow: Workflow, effect: Effect) -> str:
    """The idempotency key of a row of the ledger, also of one that leaves it out because it follows from the row."""
    derived = key_of(workflow, effect.step, effect.generation)
    return effect.idempotency_key or (f"{derived}:undo" if effect.undo else derived)
