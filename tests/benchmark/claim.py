"""What a claim costs, whatever else is in the table: the pages that the server reads, and the time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from statistics import median
from typing import Any, NamedTuple

import psycopg
from rich.table import Table

from tests.benchmark.database import PAYLOAD, BenchmarkError, Database, production, throwaway_database
from tests.benchmark.findings import Finding, Report, number, ratios
from tests.benchmark.setting import Setting
from tests.processes import Runworker
from tests.servers import ROOT

# Pages of 8 kB, and times as long as on the empty table.
BUFFERS_GOAL, TIME_GOAL = 12, 1.5
# So many full looks are made first; so many claims are not counted, in which plans are made; and so many are explained
# by the server, and not timed.
FULL, FIRST, EXPLAINED = 2, 5, 20
PIECE = 100_000
# As many a second as two processes may drain, so that rows are left.
DRAINED_A_SECOND = 2_000

_FAR = "now() + interval '1 year'"
_COLUMNS = {
    "due": {"invisible_until": "now() - interval '1 hour' + n * interval '1 microsecond'"},
    "waiting": {"invisible_until": _FAR, "waiting_for": "'the signal news'", "wake_on": "ARRAY['news']"},
    "finished": {"status": "'COMPLETE'", "completed_at": "now()"},
}


class State(NamedTuple):
    """What the table holds besides the rows that are claimed."""

    name: str
    holding: Callable[[Setting], AbstractContextManager[str]]  # with what there is to say of it


def report(setting: Setting) -> Report:
    """In each round the claim on a table that is empty but for what is claimed is the neighbour of each state's."""
    sizes = setting.sizes
    states = [
        State(f"{sizes.due:,} due", lambda each: _filled(each, "due", sizes.due)),
        State(f"{sizes.waiting:,} waiting", lambda each: _filled(each, "waiting", sizes.waiting)),
        State(f"{sizes.finished:,} finished", lambda each: _filled(each, "finished", sizes.finished)),
        State(f"drained for {sizes.open} s beside an open transaction", _drained_beside_an_open_transaction),
    ]
    notes = [
        f"buffers are pages of 8 kB that the claim's statement reads, of {EXPLAINED} claims explained by the server",
        "a full look goes back to the oldest due row: one of all workers makes one each 0.25 s, for what came late",
    ]
    rounds: dict[str, list[dict[str, Any]]] = {}
    with throwaway_database("_empty") as empty, Claimer(empty) as first, Claimer(setting.database) as second:
        for state in states:
            setting.database.begin_anew()
            with state.holding(setting) as said:
                rounds[state.name] = list(_rounds(setting, state, {"empty": first, "state": second}))
            notes += [said] if said else []
        setting.database.begin_anew()
    found = [finding for name, each in rounds.items() for finding in findings(name, each)]
    title = f"{sizes.claims} claims in each state and round"
    return Report("claim", title, [_table(rounds)], found, rounds, notes)


class Claimer:
    """A process that claims on a database as a worker does."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmark.claims"],
            cwd=ROOT,
            env={**os.environ, **production(database.url)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Claimer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def claim(self, count: int) -> dict[str, Any]:
        """What `count` claims took, and as many looks that find nothing, unless others are due."""
        _store(self.database, "due", FULL + FIRST + count + EXPLAINED)
        self.database.execute("ANALYZE workflows_workflow")
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        if not (told := self._process.stdout.readline()):
            raise BenchmarkError("The process that claims has ended.")
        figures: dict[str, Any] = json.loads(told)
        return figures


def _rounds(setting: Setting, state: State, claimers: dict[str, Claimer]) -> Iterator[dict[str, Any]]:
    advance = setting.track(f"claim, {state.name}", setting.sizes.rounds)
    for round_ in range(setting.sizes.rounds):
        claimers["empty"].database.begin_anew()
        names = list(claimers)[:: 1 - round_ % 2 * 2]
        yield {name: claimers[name].claim(setting.sizes.claims) for name in names}
        advance(round_ + 1)


def _store(database: Database, kind: str, count: int, first: int = 1) -> None:
    """What is claimed has the payload of a real submission."""
    columns = {"idempotency_key": "gen_random_uuid()", "workflow_type": "'plain'", **_COLUMNS[kind]}
    database.execute(
        f"INSERT INTO workflows_workflow (payload, {', '.join(columns)}) "
        f"SELECT %s::jsonb, {', '.join(columns.values())} FROM generate_series(%s::bigint, %s::bigint) n",
        *(PAYLOAD.read_text() if kind == "due" else "{}", first, first + count - 1),
    )


@contextmanager
def _filled(setting: Setting, kind: str, count: int) -> Iterator[str]:
    advance = setting.track(f"filling, {kind}", count)
    for first in range(1, count + 1, PIECE):
        _store(setting.database, kind, min(PIECE, count + 1 - first), first)
        advance(first)
    advance(count)
    setting.database.analyze()
    yield ""


@contextmanager
def _drained_beside_an_open_transaction(setting: Setting) -> Iterator[str]:
    """It has seen the table as it was before the drain: so no entry that has died since may be removed."""
    database, sizes = setting.database, setting.sizes
    _store(database, "due", DRAINED_A_SECOND * sizes.open)
    database.analyze()
    with psycopg.connect(database.url) as idle:
        idle.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        idle.execute("SELECT FROM workflows_workflow LIMIT 1")
        options = ("--processes", str(sizes.processes))
        worker = Runworker(setting.folder / "draining.log", (), options, **production(database.url))
        try:
            _wait(setting)
        finally:
            worker.kill()
        drained = database.ask("SELECT count(*) FROM workflows_workflow WHERE status = 'COMPLETE'")
        yield f"{drained:,} workflows were drained beside the open transaction"
        idle.rollback()


def _wait(setting: Setting) -> None:
    advance = setting.track("draining beside an open transaction, s", setting.sizes.open)
    for second in range(setting.sizes.open):
        time.sleep(1)
        advance(second + 1)


def findings(name: str, rounds: list[dict[str, Any]]) -> list[Finding]:
    """The pages of the worst claim in each round, and the medians of the times."""
    measure = f"claim, {name}"
    found = [
        Finding(measure, "buffers", [max(each["state"]["buffers"]) for each in rounds], "pages", at_most=BUFFERS_GOAL),
        Finding(measure, "time / that of the empty table", _times(rounds, "seconds"), at_most=TIME_GOAL),
    ]
    if all("nothing_seconds" in each["state"] for each in rounds):
        buffers = [max(each["state"]["nothing_buffers"]) for each in rounds]
        found += [
            Finding(measure, "buffers of a look that finds nothing", buffers, "pages", at_most=BUFFERS_GOAL),
            Finding(
                measure, "its time / that of the empty table", _times(rounds, "nothing_seconds"), at_most=TIME_GOAL
            ),
        ]
    return found


def _times(rounds: list[dict[str, Any]], which: str) -> list[float]:
    return ratios(*([median(each[name][which]) for each in rounds] for name in ("state", "empty")))


def _table(rounds: Mapping[str, list[dict[str, Any]]]) -> Table:
    """The medians of the rounds."""
    table = Table("besides what is claimed")
    for heading in ("claim: pages", "ms", "times", "finds nothing: pages", "ms", "times", "full look: pages", "ms"):
        table.add_column(heading, justify="right")
    beside_nothing = [each["empty"] for found in rounds.values() for each in found]
    table.add_row("nothing", *_cells(beside_nothing, []))
    for name, found in rounds.items():
        states = [each["state"] for each in found]
        table.add_row(name, *_cells(states, found))
    return table


def _cells(figures: list[dict[str, Any]], pairs: list[dict[str, Any]]) -> Iterator[str]:
    """Of a claim, and of a look that finds nothing: pages, milliseconds, times as long as on the empty table.

    And then pages and milliseconds of a full look.
    """
    for buffers, seconds in ("buffers", "seconds"), ("nothing_buffers", "nothing_seconds"):
        if not all(seconds in each for each in figures):
            yield from ["", "", ""]
            continue
        yield number(median(max(each[buffers]) for each in figures))
        yield number(median(median(each[seconds]) for each in figures) * 1000)
        yield number(median(_times(pairs, seconds))) if pairs else ""
    yield number(median(each["full_look_buffers"] for each in figures))
    yield number(median(each["full_look_seconds"] for each in figures) * 1000)
