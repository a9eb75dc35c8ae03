"""What the looks and heartbeats of many idle workers take of each second."""

from __future__ import annotations

from tests.benchmark.findings import Finding, Report
from tests.benchmark.inside import Inside
from tests.benchmark.setting import Setting


def report(setting: Setting) -> Report:
    """With drained rows in the way."""
    database, sizes = setting.database, setting.sizes
    database.begin_anew()
    database.execute("ALTER TABLE workflows_workflow SET (autovacuum_enabled = off)")
    database.submit("no_ops", sizes.drained)
    database.execute("UPDATE workflows_workflow SET status = 'COMPLETE', completed_at = now()")
    with Inside(database.url, "tests.benchmark.worker:idle") as idle:
        seconds = idle(sizes.idle)
    database.execute("ALTER TABLE workflows_workflow RESET (autovacuum_enabled)")
    found = [Finding("idle", what, [taken * 1000], "ms") for what, taken in seconds.items()]
    title = f"what {sizes.idle} workers take of each second, {sizes.drained:,} workflows drained and not vacuumed"
    return Report(title, found, {"seconds_of_each_second": seconds})
