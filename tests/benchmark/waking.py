"""How soon a signal is acted on behind a backlog of fresh submissions."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.benchmark.findings import Finding, Report, percentile
from tests.benchmark.inside import Inside
from tests.benchmark.setting import Setting
from tests.processes import until

# Seconds, of the 99th percentile.
GOAL = 1.0
# Milliseconds between two signals: few enough that each finds the workers at the backlog, not at the one before.
EVERY_MS = 50

_SECONDS = """
    SELECT array_agg(extract(epoch FROM a.opened_at - s.created_at)::float)
      FROM workflows_signal s JOIN workflows_attempt a ON a.workflow_id = s.workflow_id AND a.number = 2"""


def report(setting: Setting) -> Report:
    setting.database.begin_anew()
    seconds = measure(setting)
    title = f"{setting.sizes.signals} signals behind a backlog of {setting.sizes.backlog:,}"
    return Report(title, findings(seconds), {"seconds": seconds})


def findings(seconds: list[float]) -> list[Finding]:
    return [
        Finding("waking", "signal to taken up again", seconds, "s"),
        Finding("waking", "99th percentile", [percentile(seconds, 99)], "s", at_most=GOAL),
    ]


def measure(setting: Setting, meanwhile: Callable[[], object] = lambda: None) -> list[float]:
    """Seconds from the storing of each signal to the opening of the attempt that acts on it, by the database's clock.

    Beside the rows that are there, workflows wait; then fresh ones are stored, and while workers drain these the
    signals are sent, and `meanwhile` is done.
    """
    database, signals = setting.database, setting.sizes.signals
    database.submit("awaits", signals)
    awaits = "workflow_type = 'awaits' AND"
    with setting.working() as worker, ThreadPoolExecutor(1) as thread:
        until(lambda: database.count(f"{awaits} waiting_for <> ''") == signals, seconds=120, what=lambda: worker.output)
        database.submit("no_ops", setting.sizes.backlog)
        database.analyze()
        with Inside(database.url, "tests.benchmark.worker:send_signals") as send_signals:
            sent = thread.submit(send_signals, EVERY_MS)
            meanwhile()
            sent.result()
        until(lambda: database.count(f"{awaits} status = 'COMPLETE'") == signals, what=lambda: worker.output)
    left = database.count("workflow_type = 'no_ops' AND status = 'PENDING'")
    assert left > 0, "the backlog was too small: there was none any more"
    return list(database.ask(_SECONDS))
