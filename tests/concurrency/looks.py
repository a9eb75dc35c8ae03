"""What a look at the queue costs: the very statement that the worker runs, explained by the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.engine import worker
from tests.plans import Plan
from tests.plans import explained as plans_of


class Look(NamedTuple):
    """One run of the claim's statement."""

    buffers: int
    indexes: list[str]
    from_watermark: bool


@contextmanager
def explained(looks: list[Look]) -> Iterator[None]:
    """Have the server explain each claim just before it is made, in the claim's own transaction."""
    plans: list[Plan] = []
    with plans_of(plans, which=lambda sql: "looked_at" in sql):
        yield
    looks += [Look(plan.buffers, plan.indexes, _is_from_watermark(plan)) for plan in plans]


def _is_from_watermark(plan: Plan) -> bool:
    return any(name.endswith("_due") and due != "-infinity" for name, due in plan.parameters.items())


def look_once() -> Look:
    """The claim of a worker that has just started: from the oldest due row on."""
    looks: list[Look] = []
    with explained(looks):
        assert worker().process_next()
    return looks[0]
