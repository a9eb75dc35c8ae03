"""A step that waits for signals, and what tells it of them."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from workflows.definition import WorkflowStep
from workflows.errors import RetryableStepError
from workflows.models import Workflow
from workflows.signals import store
from workflows.waits import wait_for_signal

HOUR = timedelta(hours=1)
Look = Callable[[], dict[str, Any] | None]


def fail_until(mended: list[bool]) -> WorkflowStep:
    """A step that fails, and may be tried again, until it is mended."""

    def fail_at_first(*, workflow: Workflow, context: Any) -> None:
        if not mended:
            raise RetryableStepError

    return fail_at_first


def await_signals(
    names: str | Sequence[str],
    wait: str = "payment",
    *,
    timeout: timedelta = HOUR,
    look: Look | None = None,
    look_every: timedelta = timedelta(minutes=1),
) -> WorkflowStep:
    """A step that waits, and keeps the name and the number of the signal that came."""

    def await_signal(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        told = wait_for_signal(workflow, wait, names, timeout=timeout, look=look, look_every=look_every)
        return {"text": told.name, "number": told.payload.get("n"), "tags": [*context.tags, told.source]}

    return await_signal


def tell(
    workflow: Workflow | None,
    name: str,
    n: int = 1,
    *,
    key: str = "",
    linking_id: str | None = None,
    source: str = "shop",
) -> bool:
    address = {"linking_id": linking_id} if workflow is None else {"workflow_id": workflow.pk}
    return store.send(source=source, dedupe_key=key or f"{name}:{n}", name=name, payload={"n": n}, **address)  # type: ignore[arg-type]
