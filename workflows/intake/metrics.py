"""METRICS of the intake. Each process counts in its own files, and any process adds them all up: see gunicorn.conf.py.

That costs 9 microseconds a submission. A shared array would cost a tenth, but we would have to maintain it.
https://prometheus.github.io/client_python/multiprocess/
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING or find_spec("prometheus_client"):
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
    from prometheus_client.multiprocess import MultiProcessCollector
else:  # nothing is counted, and no view asks for metrics: `api.urls`
    from workflows.intake.uncounted import Uncounted as Counter
    from workflows.intake.uncounted import Uncounted as Gauge
    from workflows.intake.uncounted import Uncounted as Histogram

_ANSWERS = Counter(
    "onramp_intake_answers", "Answers to requests about submissions, and to what is no HTTP, by status.", ["status"]
)
_of_status = cache(_ANSWERS.labels)
for _status in ("202", "500", "503"):
    _of_status(_status)  # starts at 0, because otherwise Prometheus would miss the first ones

REQUEST_SECONDS = Histogram(
    "onramp_intake_request_seconds", "From the headers of a request about submissions to its answer."
)
GROUP_SIZE = Histogram(
    "onramp_intake_group_size", "Submissions that one statement stored.", buckets=(1, 2, 5, 10, 25, 50, 100, 250)
)
QUEUE = Gauge("onramp_intake_queue", "Submissions that wait to be stored.", multiprocess_mode="livesum")


def count_answer(status: int) -> None:
    _of_status(str(int(status))).inc()


def exposition() -> bytes:
    """The counts of all processes of this gunicorn, in Prometheus' text format."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)
