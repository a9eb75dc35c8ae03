"""Bytes, WAL and transaction ids of one onboarding: what it leaves behind in PostgreSQL.

Submissions of new patients are sent to the intake over HTTP, and real workers take them through all 21 steps against
the sandbox: first as many as are measured, then a vacuum, as in a table that has been in use for a while; then those
that are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from onboarding.samples import Kind, sample
from tests.benchmark.database import Database
from tests.benchmark.findings import Finding, Report, grid, tables_of, track
from tests.benchmark.setting import Setting
from tests.processes import until
from tests.sandbox_process import SandboxProcess

# Bytes of tables and of WAL for a plain onboarding.
TABLES_GOAL, WAL_GOAL = 7_000, 14_000
MANY = 1_000  # onboardings
OF_FEW = (
    "tables grow by whole pages and extents, and a page is written whole to the WAL the first time after a checkpoint: "
    f"of fewer than {MANY:,} onboardings that weighs more than they do (--onboardings)"
)
# Seconds to give up after: some to start, and many times what a slow machine needs for a workflow.
PATIENCE, PATIENCE_PER_WORKFLOW = 60.0, 1.0

Figures = dict[str, dict[str, float]]


def report(setting: Setting) -> Report:
    count = setting.sizes.onboardings
    tables, written = _weigh(setting, count)
    total = sum(size["bytes"] for size in tables.values())
    found = [
        Finding("bytes", "tables and indexes of an onboarding", [total], "bytes", at_most=TABLES_GOAL),
        Finding("bytes", "WAL of an onboarding", [written["wal"]], "bytes", at_most=WAL_GOAL),
        Finding("bytes", "full pages in it", [written["full_pages"]]),
        Finding("bytes", "transaction ids of an onboarding", [written["xids"]]),
    ]
    heaviest = sorted(tables.items(), key=lambda item: -item[1]["bytes"])
    shown = [grid(f"of one onboarding ({count:,} measured)", heaviest), *tables_of(found)]
    figures = {"workflows": count, "tables": tables, **written}
    notes = [OF_FEW] if count < MANY else []
    return Report("what an onboarding leaves in PostgreSQL", found, figures, shown, notes)


def _weigh(setting: Setting, count: int) -> tuple[Figures, dict[str, float]]:
    """What the tables have grown by, and what was written, for one onboarding of so many after as many others."""
    database = setting.database
    database.begin_anew()
    with _system(setting) as onboard:
        onboard(count, 0)
        sizes, written = _sizes(database), _written(database)
        onboard(count, count)
        spent, grown = _written(database), _sizes(database)
    tables = {name: _each(size, sizes[name], count) for name, size in grown.items()}
    return {name: size for name, size in tables.items() if size["rows"]}, _each(spent, written, count)


def _each(after: dict[str, float], before: dict[str, float], count: int) -> dict[str, float]:
    return {name: (value - before[name]) / count for name, value in after.items()}


@contextmanager
def _system(setting: Setting) -> Iterator[Callable[[int, int], None]]:
    """Sandbox, intake and workers; the function that has so many submissions onboarded, of the samples from one on."""
    database = setting.database
    with ExitStack() as stack:
        sandbox = SandboxProcess(setting.folder / "sandbox")
        stack.callback(sandbox.kill)
        intake = stack.enter_context(setting.serving("onboarding"))
        worker = stack.enter_context(setting.working(SERVICES_URL=sandbox.url))

        def onboard(count: int, first: int) -> None:
            seeds = track(range(first, first + count), "onboarded")
            setting.submit(intake.port, (sample(Kind.NET_NEW, seed).payload for seed in seeds))
            until(
                lambda: database.count("status = 'COMPLETE'") == first + count,
                seconds=PATIENCE + PATIENCE_PER_WORKFLOW * count,
                what=lambda: worker.output[-2000:],
            )

        yield onboard


def _sizes(database: Database) -> Figures:
    """Of each of our tables, without those in which nothing is. With what is stored out of line, as a long payload."""
    database.analyze()
    found: Figures = database.ask(
        """SELECT json_object_agg(replace(relname, 'workflows_', ''), json_build_object(
                      'rows', greatest(reltuples, 0), 'table', pg_table_size(oid), 'indexes', pg_indexes_size(oid),
                      'bytes', pg_total_relation_size(oid)))
             FROM pg_class WHERE relkind = 'r' AND relname LIKE 'workflows%%'"""
    )
    return found


def _written(database: Database) -> dict[str, float]:
    """So far. Of the whole server: nothing else writes much on one that nobody else uses."""
    database.execute("CHECKPOINT")
    database.execute("SELECT pg_stat_clear_snapshot()")
    found: dict[str, float] = database.ask(
        """SELECT json_build_object('wal', pg_current_wal_insert_lsn() - '0/0'::pg_lsn, 'full_pages', wal_fpi,
                                    'xids', pg_snapshot_xmax(pg_current_snapshot())::text::bigint) FROM pg_stat_wal"""
    )
    return found
