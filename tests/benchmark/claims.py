"""python -m tests.benchmark.claims: for each number on stdin claim so many rows as a worker does; print what it took.

In a process of its own with the settings of production: a worker's own function and statement, prepared on a connection
that is new each time, from the first claim on. A row that is claimed is made COMPLETE, as in a drain; that is not
timed. When none is due any more, as many looks that find nothing are timed, too.
"""

from __future__ import annotations

import json
import os
import sys
from time import perf_counter
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

from django.db import connections, transaction  # noqa: E402 (needs the settings)
from django.db.models.functions import Now  # noqa: E402

from tests.benchmark.claim import EXPLAINED, FIRST  # noqa: E402
from tests.plans import Plan, explained  # noqa: E402
from workflows.engine.claim import DueWorkflows  # noqa: E402
from workflows.models import Workflow  # noqa: E402


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(measure(int(line))), flush=True)  # noqa: T201 (what the benchmark reads)


def measure(count: int) -> dict[str, Any]:
    connections.close_all()
    (full,) = _explained(DueWorkflows("default"), 1)
    full_seconds, _ = _claim(DueWorkflows("default"))
    due = DueWorkflows("default")
    claims = [_claim(due) for _ in range(FIRST + count)]
    plans = _explained(due, EXPLAINED)
    found = {
        "full_look_buffers": full.buffers,
        "full_look_seconds": full_seconds,
        "buffers": [plan.buffers for plan in plans if not _is_full(plan)],
        "seconds": [seconds for seconds, _ in claims[FIRST:]],
    }
    assert all(is_one for _, is_one in claims), "fewer are due"
    if _claim(due)[1]:
        return found
    looks = [_claim(due)[0] for _ in range(FIRST + count)]
    plans = _explained(due, EXPLAINED)
    return {
        **found,
        "nothing_buffers": [plan.buffers for plan in plans if not _is_full(plan)],
        "nothing_seconds": looks[FIRST:],
    }


def _claim(due: DueWorkflows) -> tuple[float, bool]:
    """The seconds that it takes, with the BEGIN that travels with it; and whether it has claimed one."""
    with transaction.atomic(durable=True):
        began = perf_counter()
        claim = due.claim_next(thorough=False)
        seconds = perf_counter() - began
        if claim:
            Workflow.objects.filter(pk=claim.workflow.pk).update(status="COMPLETE", completed_at=Now())
    return seconds, claim is not None


def _explained(due: DueWorkflows, times: int) -> list[Plan]:
    plans: list[Plan] = []
    for _ in range(times):
        with explained(plans, which=lambda sql: "looked_at" in sql):
            _claim(due)
    return plans


def _is_full(plan: Plan) -> bool:
    """Whether it has looked from the very start, which one of all workers does four times a second."""
    return all(value == "-infinity" for name, value in plan.parameters.items() if name.endswith("_due"))


if __name__ == "__main__":
    main()
