"""python -m tests.benchmark.maintenance: do all tasks; print rows changed, seconds, the longest slice."""

from __future__ import annotations

import json
import os
from time import monotonic

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

from workflows.engine import maintenance  # noqa: E402 (needs the settings)
from workflows.engine.maintenance import MAINTENANCE_TASKS  # noqa: E402


def main() -> tuple[int, float, float]:
    rows, longest, begun = 0, 0.0, monotonic()
    for task in MAINTENANCE_TASKS.values():
        after = 0
        while True:
            started = monotonic()
            changed, after, _ = maintenance.do_slice(task, after)
            longest = max(longest, monotonic() - started)
            rows += changed
            if not changed and not after:
                break
    return rows, monotonic() - begun, longest


if __name__ == "__main__":
    print(json.dumps(main()))  # noqa: T201 (what the benchmark reads)
