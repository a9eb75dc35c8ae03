"""What a claim costs with millions of rows due, waiting, finished, or drained and not vacuumed: pages, and time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

import psycopg
from rich.table import Table

from tests.benchmark.database import PAYLOAD, Database, throwaway_database
from tests.benchmark.findings import Finding, Report, grid, in_turns, ratios, track
from tests.benchmark.inside import Inside
from tests.benchmark.setting import Setting

# Pages of 8 kB, and times as long as on the empty table.
BUFFERS_GOAL, TIME_GOAL = 12, 1.5
# So many full looks are made first; so many claims are not counted, in which plans are made; and so many are explained
# by the server, and not timed.
FULL, FIRST, EXPLAINED = 2, 5, 20
# As many a second as two processes may drain, so that rows are left.
DRAINED_A_SECOND = 2_000

_COLUMNS = {
    "due": {"invisible_until": "now() - interval '1 hour' + n * interval '1 microsecond'"},
    "waiting": {
        "invisible_until": "now() + interval '1 year'",
        "waiting_for": "'the signal news'",
        "wake_on": "ARRAY['news']",
    },
    "finished": {"status": "'COMPLETE'", "completed_at": "now()"},
}
# What has goals; a full look has none.
JUDGED = ("claim", "look that finds nothing")
# Of each: pages of the worst, and milliseconds.
Costs = dict[str, tuple[float, float]]
Round = dict[str, Costs]


def report(setting: Setting) -> Report:
    """In each round the claim on a table that is empty but for what is claimed is the neighbour of each state's."""
    sizes, database = setting.sizes, setting.database
    states = {
        f"{count:,} {kind}": partial(_fill, database, kind, count)
        for kind, count in (("due", sizes.due), ("waiting", sizes.waiting), ("finished", sizes.finished))
    }
    rounds: dict[str, list[Round]] = {}
    function = "tests.benchmark.worker:claims"
    with (
        throwaway_database("_empty") as empty,
        Inside(empty.url, function) as first,
        Inside(database.url, function) as second,
    ):

        def on_empty() -> Costs:
            empty.begin_anew()
            return _claim(empty, first, sizes.claims)

        def measure(name: str) -> None:
            on_state = partial(_claim, database, second, sizes.claims)
            rounds[name] = in_turns({"empty": on_empty, "state": on_state}, sizes.rounds, f"claim, {name}")

        for name, fill in states.items():
            database.begin_anew()
            fill()
            measure(name)
        database.begin_anew()
        with _drained_beside_an_open_transaction(setting) as drained:
            measure(f"{drained:,} drained in {sizes.open} s beside an open transaction")
    found = [finding for name, each in rounds.items() for finding in findings(name, each)]
    notes = [
        f"pages of 8 kB that the claim's statement reads, of {EXPLAINED} claims explained by the server",
        "a full look goes back to the oldest due row: one of all workers makes one each 0.25 s, for what came late",
    ]
    return Report(f"{sizes.claims} claims in each state and round", found, rounds, [_table(rounds)], notes)


def _claim(database: Database, claims: Callable[[int], Any], count: int) -> Costs:
    """What so many claims took, and as many looks that find nothing, unless others are due."""
    statement, payload = _insert("due")
    database.execute(statement, payload=payload, first=1, last=FULL + FIRST + count + EXPLAINED)
    database.execute("ANALYZE workflows_workflow")
    costs: Costs = claims(count)
    return costs


def _fill(database: Database, kind: str, count: int) -> None:
    statement, payload = _insert(kind)
    database.fill(kind, count, statement, payload=payload)
    database.analyze()


def _insert(kind: str) -> tuple[str, str]:
    """A statement that stores rows of a kind, and their payload: what is claimed has that of a real submission."""
    columns = {"idempotency_key": "gen_random_uuid()", "workflow_type": "'plain'", **_COLUMNS[kind]}
    statement = (
        f"INSERT INTO workflows_workflow (payload, {', '.join(columns)}) "
        f"SELECT %(payload)s::jsonb, {', '.join(columns.values())} FROM generate_series(%(first)s, %(last)s) n"
    )
    return statement, PAYLOAD.read_text() if kind == "due" else "{}"


@contextmanager
def _drained_beside_an_open_transaction(setting: Setting) -> Iterator[int]:
    """It has seen the table as it was before the drain: so no entry that has died since may be removed."""
    database, sizes = setting.database, setting.sizes
    _fill(database, "due", DRAINED_A_SECOND * sizes.open)
    with psycopg.connect(database.url) as idle:
        idle.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        idle.execute("SELECT FROM workflows_workflow LIMIT 1")
        with setting.working():
            for _ in track(range(sizes.open), "draining beside an open transaction, s"):
                time.sleep(1)
        yield database.count("status = 'COMPLETE'")
        idle.rollback()


def findings(name: str, rounds: list[Round]) -> list[Finding]:
    found, measure = [], f"claim, {name}"
    for kind in JUDGED:
        if kind in rounds[0]["state"]:
            pages = [each["state"][kind][0] for each in rounds]
            found += [
                Finding(measure, f"{kind}: pages", pages, "pages", at_most=BUFFERS_GOAL),
                Finding(measure, f"{kind}: time / that on the empty table", _times(rounds, kind), at_most=TIME_GOAL),
            ]
    return found


def _times(rounds: list[Round], kind: str) -> list[float]:
    state, empty = ([each[name][kind][1] for each in rounds] for name in ("state", "empty"))
    return ratios(state, empty)


def _table(rounds: dict[str, list[Round]]) -> Table:
    """The medians of the rounds."""
    rows = {"nothing": _cells([each["empty"] for found in rounds.values() for each in found])}
    for name, found in rounds.items():
        times = {f"{kind}: times": median(_times(found, kind)) for kind in JUDGED if kind in found[0]["state"]}
        rows[name] = _cells([each["state"] for each in found]) | times
    return grid("besides what is claimed", rows.items())


def _cells(rounds: list[Costs]) -> dict[str, float]:
    return {
        f"{kind}: {figure}": median(each[kind][place] for each in rounds)
        for kind in rounds[0]
        for place, figure in enumerate(("pages", "ms"))
    }
