"""The measures by name, and what those say that find one figure, or one for each of many events."""

from __future__ import annotations

from collections.abc import Callable
from statistics import quantiles
from typing import NamedTuple

from tests.benchmark import claim, drain, footprint, idle, intake, memory, pickup, takeover, waking
from tests.benchmark.findings import Finding, Report, table_of
from tests.benchmark.setting import Setting

# Bytes of tables and of WAL for a plain onboarding.
TABLES_GOAL, WAL_GOAL = 3_500, 10_000
MANY = 1_000  # onboardings
OF_FEW = (
    "tables grow by whole pages and extents, and a page is written whole to the WAL the first time after a checkpoint: "
    f"of fewer than {MANY:,} onboardings that weighs more than they do (--onboardings)"
)


class Measure(NamedTuple):
    what: str  # in a line, for --help
    report: Callable[[Setting], Report]


def of_takeover(setting: Setting) -> Report:
    sizes = setting.sizes
    seconds = takeover.measure(
        setting.database,
        setting.folder,
        kills=sizes.kills,
        processes=max(2, sizes.processes),
        track=setting.track,
    )
    title = f"{sizes.kills} kills"
    found = [Finding("takeover", "SIGKILL to held again", [each * 1000 for each in seconds], "ms")]
    return Report("takeover", title, [table_of(found)], found, {"seconds": seconds})


def of_waking(setting: Setting) -> Report:
    sizes = setting.sizes
    seconds = waking.measure(
        setting.database,
        setting.folder,
        signals=sizes.signals,
        backlog=sizes.backlog,
        processes=sizes.processes,
        track=setting.track,
    )
    worst = quantiles([*seconds, *seconds], n=100)[-1]  # it needs two values
    found = [
        Finding("waking", "signal to taken up again", [each * 1000 for each in seconds], "ms"),
        Finding("waking", "99th percentile", [worst * 1000], "ms", at_most=waking.GOAL * 1000),
    ]
    title = f"{sizes.signals} signals behind a backlog of {sizes.backlog:,}"
    return Report("waking", title, [table_of(found)], found, {"seconds": seconds})


def of_idle(setting: Setting) -> Report:
    sizes = setting.sizes
    seconds = idle.measure(setting.database, workers=sizes.idle, drained=sizes.drained)
    found = [Finding("idle", what, [taken * 1000], "ms") for what, taken in seconds.items()]
    title = f"what {sizes.idle} workers take of each second, {sizes.drained:,} workflows drained and not vacuumed"
    return Report("idle", title, [table_of(found, "each second")], found, {"seconds_of_each_second": seconds})


def of_bytes(setting: Setting) -> Report:
    sizes = setting.sizes
    weighed = footprint.weigh(setting, sizes.onboardings, sizes.processes)
    told = footprint.figures(*weighed, sizes.onboardings)
    found = [
        Finding("bytes", "tables and indexes of an onboarding", [told["bytes"]], "bytes", at_most=TABLES_GOAL),
        Finding("bytes", "WAL of an onboarding", [told["wal"]], "bytes", at_most=WAL_GOAL),
        Finding("bytes", "transaction ids of an onboarding", [told["xids"]]),
    ]
    table = footprint.table(*weighed, sizes.onboardings)
    notes = [OF_FEW] if sizes.onboardings < MANY else []
    return Report("bytes", "what an onboarding leaves in PostgreSQL", [table, table_of(found)], found, told, notes)


MEASURES = {
    "intake": Measure("submissions a second over HTTP, beside a Django view with one INSERT", intake.report),
    "drain": Measure("workflows a second, of plain and of recorded steps, beside bare loops", drain.report),
    "pickup": Measure(
        "how soon an idle worker takes up a submission, and what it costs while it is idle", pickup.report
    ),
    "claim": Measure(
        "what a claim costs with millions of rows due, waiting, finished, or drained and not vacuumed", claim.report
    ),
    "idle": Measure("what the looks and heartbeats of many idle workers take of each second", of_idle),
    "takeover": Measure("from the SIGKILL of a worker until another one holds its row", of_takeover),
    "waking": Measure("how soon a signal is acted on behind a backlog", of_waking),
    "memory": Measure("the memory of one more worker process", memory.report),
    "bytes": Measure("bytes, WAL and transaction ids of an onboarding", of_bytes),
}
