"""Submissions a second over HTTP, beside the least that a Django view can do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.table import Table

from tests.benchmark.clients import Round, send
from tests.benchmark.database import TABLES, BenchmarkError, Database, production
from tests.benchmark.findings import Finding, Report, number, ratios, table_of
from tests.benchmark.processor import seconds_used
from tests.benchmark.setting import Setting
from tests.servers import Gunicorn

FLOOR, OURS, WITHOUT_KEYS = "one INSERT", "intake", "without search keys"
ENTRIES = {
    FLOOR: "tests.benchmark.views:one_insert",
    "Django view": "tests.benchmark.views:django_view",
    OURS: "config.intake",
    WITHOUT_KEYS: "config.intake",
}
# Of the rate of an intake that stores no search keys.
WITH_KEYS = 0.85


class Goal(NamedTuple):
    """Of the intake: the ratio to the floor, milliseconds of the 99th percentile, submissions a second when quiet."""

    ratio: float
    p99: float
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

    def begin_anew(self) -> None:
        self.database.execute(f"TRUNCATE {self.tables} CASCADE")


def report(setting: Setting) -> Report:
    """In turns: a Django view that parses the body and inserts a row; our Django view, with the whole contract (API
    key, limits, duplicates, search keys, time limits); the intake, with the same contract; and without search keys.
    """
    sizes, _ = setting.sizes, setting.key  # which is made before the servers start
    with ExitStack() as stack:
        entries = _entries(setting, stack)
        for entry in entries.values():  # the first requests of a process import and connect
            send(entry.server.port, setting.key, seconds=0.5, connections=16)
            entry.begin_anew()
        measured = {count: list(_rounds(setting, entries, count)) for count in sizes.connections}
        beside = list(_beside_slow(setting, entries[OURS]))
    shown, every = [], []
    for count, rounds in measured.items():
        found = findings(count, rounds)
        shown += [_table(count, rounds), table_of(found, f"{count} connections")]
        every += found
    kept = Finding(
        f"intake, {BESIDE_SLOW} connections",
        f"of its rate beside {sizes.slow} idle and trickling clients",
        ratios([slow.rate for _, slow in beside], [alone.rate for alone, _ in beside]),
        at_least=KEEPS,
    )
    every.append(kept)
    shown.append(table_of([kept]))
    figures = {
        "by_connections": {
            count: [{name: _figures(each) for name, each in found.items()} for found in rounds]
            for count, rounds in measured.items()
        },
        "beside_slow_clients": [{"alone": _figures(alone), "beside": _figures(slow)} for alone, slow in beside],
    }
    title = f"over HTTP, {sizes.processes} processes, {sizes.seconds} s each a round"
    return Report("intake", title, shown, every, figures)


def _entries(setting: Setting, stack: ExitStack) -> dict[str, Entry]:
    """All that are measured, each with its server running: ours, and a thin Django view of each peer's."""
    processes, database = setting.sizes.processes, setting.database
    entries: dict[str, Entry] = {}

    def add(name: str, server: Gunicorn, database: Database, tables: str) -> None:
        stack.push(server)  # which starts, and ends with the others whatever happens
        entries[name] = Entry(server, database, tables)

    for name, entry in ENTRIES.items():
        add(name, _serve(name, entry, database.url, setting.folder, processes), database, TABLES)
    for each in setting.peers:
        add(each.name, each.serve(processes), each.database, each.peer.tables)
    for started in entries.values():
        started.server.__enter__()
    return entries


def _serve(name: str, entry: str, url: str, folder: Path, processes: int) -> Gunicorn:
    definition = "ENTERED" if name == WITHOUT_KEYS else "ENTERED_WITH_KEYS"
    environment = {
        **production(url),
        "WORKFLOWS": f"tests.benchmark.definitions.{definition}",
        "SUBMISSION_WORKFLOW": definition.lower(),
        "SEARCH_KEYS": "k" * 43,
        "ALLOWED_HOSTS": "localhost",
        "WEB_CONCURRENCY": str(processes),
    }
    return Gunicorn(entry, folder / f"{name}.log", url, **environment)


def _rounds(setting: Setting, entries: Mapping[str, Entry], connections: int) -> Iterator[Mapping[str, Round]]:
    """One round after the other. Each is the first, and the last, in turn."""
    advance = setting.track(f"{connections} connections", setting.sizes.rounds)
    names = list(entries)
    for round_ in range(setting.sizes.rounds):
        first = round_ % len(names)
        found = {name: _send(setting, entries[name], connections) for name in names[first:] + names[:first]}
        advance(round_ + 1)
        yield {name: found[name] for name in names}


def _beside_slow(setting: Setting, intake: Entry) -> Iterator[tuple[Round, Round]]:
    """The intake alone, and beside clients that are idle or trickle, in turns."""
    advance = setting.track("beside slow clients", setting.sizes.rounds)
    for round_ in range(setting.sizes.rounds):
        order = (False, True)[:: 1 - round_ % 2 * 2]
        found = {slow: _send(setting, intake, BESIDE_SLOW, setting.sizes.slow if slow else 0) for slow in order}
        advance(round_ + 1)
        yield found[False], found[True]


def _send(setting: Setting, entry: Entry, connections: int, slow: int = 0) -> Round:
    """Send to it, and empty its table. Raises BenchmarkError when fewer are stored than were answered."""
    before = seconds_used(entry.database, entry.server)
    sent = send(
        entry.server.port,
        setting.key,
        seconds=setting.sizes.seconds,
        connections=connections,
        idle=slow // 2,
        trickling=slow - slow // 2,
    )
    sent.processor = seconds_used(entry.database, entry.server) - before
    stored = entry.database.ask(f"SELECT count(*) FROM {entry.tables.partition(',')[0]}")
    if stored < len(sent.latencies):
        printed = entry.server.printed()[-2000:]
        raise BenchmarkError(f"{len(sent.latencies)} were answered and {stored} are stored.\n{printed}")
    entry.begin_anew()
    return sent


def findings(connections: int, rounds: Rounds) -> list[Finding]:
    """Of the intake: its ratio to each of the others, and what it does by itself."""
    measure, goal = f"intake, {connections} connections", GOALS.get(connections, Goal(0, 0))
    rates = {name: [each[name].rate for each in rounds] for name in rounds[0]}
    goals = {FLOOR: goal.ratio or None, WITHOUT_KEYS: WITH_KEYS}
    p99 = [each[OURS].percentile(99) * 1000 for each in rounds]
    return [
        *(
            Finding(measure, f"intake / {name}", ratios(rates[OURS], rate), at_least=goals.get(name))
            for name, rate in rates.items()
            if name != OURS
        ),
        Finding(measure, "submissions/s, when quiet", rates[OURS], "/s", at_least=goal.rate),
        Finding(measure, "99th percentile", p99, "ms", at_most=goal.p99 or None),
    ]


def _table(connections: int, rounds: Rounds) -> Table:
    """The medians of the rounds, and the ratios to the floor with their spread."""
    table = Table(f"{connections} connections")
    for heading in ("submissions/s", "ratio", "least", "most", "p50 ms", "p99 ms", "CPU ms"):
        table.add_column(heading, justify="right")
    floor = [each[FLOOR].rate for each in rounds]
    for name in rounds[0]:
        each = [found[name] for found in rounds]
        to_floor = ratios([one.rate for one in each], floor)
        table.add_row(
            name,
            number(median(one.rate for one in each)),
            *([number(of(to_floor)) for of in (median, min, max)] if to_floor else [""] * 3),
            *(number(median(one.percentile(percent) for one in each) * 1000) for percent in (50, 99)),
            number(median(one.cost for one in each) * 1000),
        )
    return table


def _figures(found: Round) -> dict[str, float]:
    return {
        "rate": found.rate,
        "p50_ms": found.percentile(50) * 1000,
        "p99_ms": found.percentile(99) * 1000,
        "processor_ms": found.cost * 1000,
    }
