"""Submissions a second over HTTP, beside a Django view with one INSERT and thin views of the peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from rich.table import Table

from tests.benchmark.clients import Round, send
from tests.benchmark.database import TABLES, BenchmarkError, Database
from tests.benchmark.findings import Finding, Report, grid, in_turns, number, percentile, ratios, tables_of
from tests.benchmark.processor import seconds_used
from tests.benchmark.setting import Setting
from tests.servers import Gunicorn

FLOOR, OURS, WITHOUT_KEYS, WITHOUT_SECRETS = "one INSERT", "intake", "without search keys", "without secrets"
# What of ours is measured: the definition of its submissions, and what serves it.
ENTRIES = {
    FLOOR: ("entered_with_secrets", "tests.benchmark.views:one_insert"),
    "Django view": ("entered_with_secrets", "tests.benchmark.views:django_view"),
    OURS: ("entered_with_secrets", "config.intake"),
    WITHOUT_SECRETS: ("entered_with_keys", "config.intake"),
    WITHOUT_KEYS: ("entered", "config.intake"),
}
# Of the rate of an intake that seals nothing, and of one that stores no search keys either.
WITH_SECRETS, WITH_KEYS_AND_SECRETS = 0.95, 0.8


class Goal(NamedTuple):
    """Of the intake: the ratio to the floor, milliseconds of the 99th percentile, submissions a second when quiet."""

    ratio: float | None = None
    p99: float | None = None
    rate: float | None = None


# By connections.
GOALS = {16: Goal(2.0, 15, 4000), 64: Goal(3.0, 90, 6000), 256: Goal(3.0, 300)}
# Beside clients that are idle or trickle: connections, and the share of its rate that the intake keeps at least. They
# take of the machine what it takes to send two bytes a second each.
BESIDE_SLOW, KEEPS = 64, 0.9

Rounds = Sequence[Mapping[str, Round]]


class Entry(NamedTuple):
    """One of those that are measured: its server, its database, and its tables, that of what it stores first."""

    server: Gunicorn
    database: Database
    tables: str


def report(setting: Setting) -> Report:
    """In turns: a Django view that parses the body and inserts a row; our Django view, with the whole contract (API
    key, limits, duplicates, search keys, secrets, time limits); the intake, with the same contract; without
    secrets; and without search keys, too.
    """
    sizes, _ = setting.sizes, setting.key  # which is made before the servers start
    with ExitStack() as stack:
        entries = _entries(setting, stack)
        for entry in entries.values():  # the first requests of a process import and connect
            send(entry.server.port, setting.key, seconds=0.5, connections=16)
            entry.database.begin_anew(entry.tables)
        measured = {count: _measure(setting, entries, count) for count in sizes.connections}
        beside_slow = {slow: partial(_send, setting, entries[OURS], BESIDE_SLOW, slow) for slow in (0, sizes.slow)}
        beside = in_turns(beside_slow, sizes.rounds, "beside slow clients")
    found = [finding for count, rounds in measured.items() for finding in findings(count, rounds)]
    kept = Finding(
        f"intake, {BESIDE_SLOW} connections",
        f"of its rate beside {sizes.slow} idle and trickling clients",
        ratios([each[sizes.slow].rate for each in beside], [each[0].rate for each in beside]),
        at_least=KEEPS,
    )
    figures = {
        "by_connections": {count: [_as_json(each) for each in rounds] for count, rounds in measured.items()},
        "beside_slow_clients": [_as_json(each) for each in beside],
    }
    shown = [_table(count, rounds) for count, rounds in measured.items()] + tables_of([*found, kept])
    title = f"over HTTP, {sizes.processes} processes, {sizes.seconds} s each a round"
    return Report(title, [*found, kept], figures, shown)


def _entries(setting: Setting, stack: ExitStack) -> dict[str, Entry]:
    """All that are measured, each with its server running: ours, and a thin Django view of each peer's."""
    enter, processes = stack.enter_context, setting.sizes.processes
    ours = {name: Entry(enter(setting.serving(*served)), setting.database, TABLES) for name, served in ENTRIES.items()}
    peers = {
        each.name: Entry(enter(each.serving(processes)), each.database, each.peer.tables) for each in setting.peers
    }
    return ours | peers


def _measure(setting: Setting, entries: Mapping[str, Entry], connections: int) -> Rounds:
    contestants = {name: partial(_send, setting, entry, connections) for name, entry in entries.items()}
    return in_turns(contestants, setting.sizes.rounds, f"{connections} connections")


def _send(setting: Setting, entry: Entry, connections: int, slow: int = 0) -> Round:
    """Send to it, and empty its table. Raises BenchmarkError when fewer are stored than were answered."""
    before = seconds_used(entry.database, entry.server)
    seconds = setting.sizes.seconds
    sent = send(entry.server.port, setting.key, seconds=seconds, connections=connections, slow=slow)
    sent.processor = seconds_used(entry.database, entry.server) - before
    stored = entry.database.ask(f"SELECT count(*) FROM {entry.tables.partition(',')[0]}")
    if stored < len(sent.latencies):
        printed = entry.server.printed()[-2000:]
        raise BenchmarkError(f"{len(sent.latencies)} were answered and {stored} are stored.\n{printed}")
    entry.database.begin_anew(entry.tables)
    return sent


def findings(connections: int, rounds: Rounds) -> list[Finding]:
    """Of the intake: its ratio to each of the others, and what it does by itself."""
    measure, goal = f"intake, {connections} connections", GOALS.get(connections, Goal())
    rates = {name: [each[name].rate for each in rounds] for name in rounds[0]}
    goals = {FLOOR: goal.ratio, WITHOUT_SECRETS: WITH_SECRETS, WITHOUT_KEYS: WITH_KEYS_AND_SECRETS}
    p99 = [_figures(each[OURS])["p99 ms"] for each in rounds]
    return [
        *(
            Finding(measure, f"intake / {name}", ratios(rates[OURS], rate), at_least=goals.get(name))
            for name, rate in rates.items()
            if name != OURS
        ),
        Finding(measure, "submissions/s, when quiet", rates[OURS], "/s", at_least=goal.rate),
        Finding(measure, "99th percentile", p99, "ms", at_most=goal.p99),
    ]


def _table(connections: int, rounds: Rounds) -> Table:
    """The medians of the rounds, and the ratios to the floor with their spread."""
    rows: dict[str, dict[str, float | str]] = {}
    for name in rounds[0]:
        each = [_figures(found[name]) for found in rounds]
        rows[name] = {figure: median(one[figure] for one in each) for figure in each[0]}
        if to_floor := ratios([found[name].rate for found in rounds], [found[FLOOR].rate for found in rounds]):
            spread = f"{number(min(to_floor))} - {number(max(to_floor))}"
            rows[name] |= {"ratio": median(to_floor), "least - most": spread}
    return grid(f"{connections} connections", rows.items())


def _figures(found: Round) -> dict[str, float]:
    """Of a round without an answer, its whole length."""
    p50, p99 = (percentile(found.latencies or [found.seconds], percent) * 1000 for percent in (50, 99))
    cpu = found.processor / max(len(found.latencies), 1) * 1000
    return {"submissions/s": found.rate, "p50 ms": p50, "p99 ms": p99, "CPU ms": cpu}


def _as_json(round_: Mapping[Any, Round]) -> dict[str, dict[str, float]]:
    return {str(name): _figures(found) for name, found in round_.items()}
