"""The bytes, the WAL and the transaction ids of one onboarding: what it leaves behind in PostgreSQL.

Submissions of new patients are sent to the intake over HTTP, and real workers take them through all 21 steps against
the sandbox: first as many as are measured, then a vacuum, as in a table that has been in use for a while; then those
that are measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import httpx
from rich.table import Table

from onboarding.samples import Kind, sample
from tests.benchmark.database import BenchmarkError, Database, production
from tests.benchmark.progress import Track
from tests.benchmark.setting import Setting
from tests.processes import Runworker
from tests.sandbox_process import SandboxProcess
from tests.servers import Gunicorn

# Seconds to give up after: some to start, and many times what a slow machine needs for a workflow.
PATIENCE, PATIENCE_PER_WORKFLOW = 60.0, 1.0


class Size(NamedTuple):
    """Bytes of a table and of its indexes, and its rows."""

    heap: int
    indexes: int
    rows: int


class Written(NamedTuple):
    """What the server has written so far: bytes of WAL, full pages in it, transaction ids."""

    wal: int
    full_pages: int
    xids: int


def weigh(setting: Setting, count: int, processes: int) -> tuple[dict[str, Size], Written]:
    """What the tables have grown by, and what was written, for so many onboardings after as many others."""
    database = setting.database
    database.begin_anew()
    with _system(setting, processes) as onboard:
        onboard(count, 0)
        sizes, written = sizes_of(database), _written(database)
        onboard(count, count)
        spent = Written(*(after - before for after, before in zip(_written(database), written, strict=True)))
    grown = {
        name: Size(*(after - before for after, before in zip(size, sizes[name], strict=True)))
        for name, size in sizes_of(database).items()
    }
    return grown, spent


def figures(grown: dict[str, Size], spent: Written, count: int) -> dict[str, Any]:
    """For one workflow."""
    tables = {name: (size.heap + size.indexes) / count for name, size in grown.items() if size.rows}
    each = {"wal": spent.wal / count, "full_pages": spent.full_pages / count, "xids": spent.xids / count}
    return {"workflows": count, "bytes": sum(tables.values()), **each, "tables": tables}


@contextmanager
def _system(setting: Setting, processes: int) -> Iterator[Callable[[int, int], None]]:
    """Sandbox, intake and workers; the function that has so many submissions onboarded, of the samples from one on."""
    database, folder, track = setting.database, setting.folder, setting.track
    with ExitStack() as stack:
        sandbox = SandboxProcess(folder / "sandbox")
        stack.callback(sandbox.kill)
        environment = {
            **production(database.url),
            "WORKFLOWS": "onboarding.workflow.ONBOARDING",
            "SUBMISSION_WORKFLOW": "onboarding",
            "SEARCH_KEYS": "k" * 43,
            "SERVICES_URL": sandbox.url,
            "ALLOWED_HOSTS": "localhost",
        }
        intake = stack.enter_context(Gunicorn("config.intake", folder / "intake.log", database.url, **environment))
        worker = Runworker(folder / "worker.log", (), ("--processes", str(processes)), **environment)
        stack.callback(worker.kill)

        def onboard(count: int, first: int) -> None:
            _submit(intake.port, setting.key, range(first, first + count), track)
            advance = track("onboarded", count)
            give_up_at = time.monotonic() + PATIENCE + PATIENCE_PER_WORKFLOW * count
            while (done := _complete(database) - first) < count:
                advance(done)
                if time.monotonic() > give_up_at or worker.process.poll() is not None:
                    raise BenchmarkError(f"{done} of {count} are complete.\n{worker.output[-2000:]}")
                time.sleep(0.25)
            advance(count)

        yield onboard


def _submit(port: int, key: str, seeds: range, track: Track) -> None:
    advance = track("submitted", len(seeds))
    with httpx.Client(base_url=f"http://localhost:{port}", headers={"Authorization": f"Bearer {key}"}) as client:
        for number, seed in enumerate(seeds, 1):
            one = sample(Kind.NET_NEW, seed)
            headers = {"Idempotency-Key": str(one.idempotency_key)}
            answer = client.post("/v1/submissions", json=one.payload, headers=headers)
            if answer.status_code != 202:
                raise BenchmarkError(f"The intake answered {answer.status_code}: {answer.text[:300]}")
            advance(number)


def _complete(database: Database) -> int:
    return int(database.ask("SELECT count(*) FROM workflows_workflow WHERE status = 'COMPLETE'"))


def sizes_of(database: Database) -> dict[str, Size]:
    """Of each of our tables. With what is stored out of line, as a long payload is."""
    database.analyze()
    found: list[list[Any]] = database.ask(
        """SELECT coalesce(json_agg(json_build_array(
                      relname, pg_table_size(oid), pg_indexes_size(oid), greatest(reltuples, 0))), '[]')
             FROM pg_class WHERE relkind = 'r' AND relname LIKE 'workflows%%'"""
    )
    return {name: Size(heap, indexes, int(rows)) for name, heap, indexes, rows in found}


def _written(database: Database) -> Written:
    """So far. Of the whole server: nothing else writes much on one that nobody else uses."""
    database.execute("CHECKPOINT")
    database.execute("SELECT pg_stat_clear_snapshot()")
    row: list[int] = database.ask(
        """SELECT json_build_array(pg_current_wal_insert_lsn() - '0/0'::pg_lsn, wal_fpi,
                                   pg_snapshot_xmax(pg_current_snapshot())::text::bigint) FROM pg_stat_wal"""
    )
    return Written(*row)


def table(grown: dict[str, Size], spent: Written, count: int) -> Table:
    shown = Table(f"of one onboarding ({count:,} measured)")
    for heading in ("rows", "table, bytes", "indexes, bytes", "together"):
        shown.add_column(heading, justify="right")
    for name, size in sorted(grown.items(), key=lambda item: -item[1].heap - item[1].indexes):
        if size.rows:
            together = size.heap + size.indexes
            cells = (size.rows / count, size.heap / count, size.indexes / count, together / count)
            shown.add_row(name.removeprefix("workflows_"), f"{cells[0]:.1f}", *(f"{cell:,.0f}" for cell in cells[1:]))
    told = figures(grown, spent, count)
    shown.add_section()
    shown.add_row("all tables", "", "", "", f"{told['bytes']:,.0f}")
    shown.add_row(f"WAL, with {told['full_pages']:.1f} full pages", "", "", "", f"{told['wal']:,.0f}")
    shown.add_row("transaction ids", "", "", "", f"{told['xids']:.1f}")
    return shown
