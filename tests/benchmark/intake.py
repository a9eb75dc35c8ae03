"""python -m tests.benchmark.intake: what the search keys cost the intake, over real HTTP."""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from uuid import uuid4

from rich.console import Console
from rich.table import Table

from tests.benchmark.command import at_least, parser, run_to_the_end
from tests.benchmark.database import PAYLOAD, BenchmarkError, Database, manage, production, throwaway_database
from tests.benchmark.processor import seconds_used
from tests.benchmark.progress import Track, tracking
from tests.servers import Gunicorn

GOAL = 0.85

DESCRIPTION = f"""\
What do the search keys cost the intake? Two of it run with the settings of production, on one
database: one enters submissions of a definition without search keys, the other of the same with
an e-mail address and a phone number. Submissions are sent to them in turns, over HTTP and
connections that stay open, and each round's ratio is of two neighbours. The goal is {GOAL} at
the least. Beside it stands the processor time of a submission, in the intake and in its sessions
on the server, which other work on the machine disturbs less. The database is one of its own,
which is dropped at the end.
"""

EPILOG = """\
examples:
  make bench-intake
  make bench-intake ARGS="--rounds 30 --stored 1000000"
"""

NAMES = ("entered", "entered_with_keys")


def main() -> int:
    arguments = parse_arguments()
    return run_to_the_end(lambda: run(arguments))


def parse_arguments() -> argparse.Namespace:
    arguments = parser("python -m tests.benchmark.intake", description=DESCRIPTION, epilog=EPILOG)
    for name, default, least, what in (
        ("submissions", 2000, 1, "submissions in each round, to each of the two"),
        ("rounds", 15, 1, "rounds"),
        ("connections", 8, 1, "connections that send at a time"),
        ("stored", 200_000, 0, "workflows that are stored before, each with two search keys"),
    ):
        arguments.add_argument(
            f"--{name}", type=at_least(least), default=default, metavar="N", help=f"{what} (default: {default})"
        )
    return arguments.parse_args()


def run(arguments: argparse.Namespace) -> None:
    with TemporaryDirectory() as folder, tracking() as track, throwaway_database() as database, ExitStack() as stack:
        _store(database, arguments.stored)
        key = manage(database.url, "createapikey", "benchmark").split()[-1]
        intakes = [stack.enter_context(_intake(database.url, Path(folder), name)) for name in NAMES]
        for intake in intakes:  # the first requests of a process import, connect and prepare
            _send(intake.port, key, 200, arguments.connections)
        rates = list(_rounds(database, intakes, key, arguments, track))
        _check(database)
    console = Console()
    console.print(
        f"\n{arguments.submissions} submissions a round and intake over {arguments.connections} connections, "
        f"{arguments.stored:,} workflows stored before"
    )
    console.print(_table(rates))


def _intake(url: str, folder: Path, name: str) -> Gunicorn:
    environment = {
        **production(url),
        "SUBMISSION_WORKFLOW": name,
        "SEARCH_KEYS": "k" * 43,
        "ALLOWED_HOSTS": "localhost",
    }
    environment["WORKFLOWS"] = "tests.benchmark.definitions.ENTERED,tests.benchmark.definitions.ENTERED_WITH_KEYS"
    return Gunicorn("config.intake", folder / f"{name}.log", url, **environment)


def _store(database: Database, count: int) -> None:
    database.execute(
        """INSERT INTO workflows_workflow (idempotency_key, workflow_type, payload, status, completed_at)
           SELECT gen_random_uuid(), 'entered', '{}', 'COMPLETE', now() FROM generate_series(1, %s)""",
        count,
    )
    database.execute(
        """INSERT INTO workflows_searchkey (hash, workflow_id, key_id)
           SELECT uuid_send(gen_random_uuid()), id, 1 FROM workflows_workflow, generate_series(1, 2)"""
    )
    database.analyze()


class Speed(NamedTuple):
    """Submissions a second; and milliseconds of processor time for each, of the intake and of its server sessions."""

    rate: float
    cpu: float


def _rounds(
    database: Database, intakes: Sequence[Gunicorn], key: str, arguments: argparse.Namespace, track: Track
) -> Iterator[tuple[Speed, Speed]]:
    """The speed without and with search keys. Each is the first of the two in every other round."""
    advance = track("rounds", arguments.rounds)
    for number in range(arguments.rounds):
        speed = {}
        for each in (0, 1) if number % 2 else (1, 0):
            before = seconds_used(database, intakes[each])
            rate = _send(intakes[each].port, key, arguments.submissions, arguments.connections)
            speed[each] = Speed(rate, (seconds_used(database, intakes[each]) - before) / arguments.submissions * 1000)
        advance(number + 1)
        yield speed[0], speed[1]


def _send(port: int, key: str, count: int, connections: int) -> float:
    """Submissions a second. What is sent is made before the clock starts."""
    sample = json.loads(PAYLOAD.read_text())
    shares = [[_request(sample, key) for _ in range(share, count, connections)] for share in range(connections)]
    with ThreadPoolExecutor(connections) as pool:
        began = time.monotonic()
        list(pool.map(lambda share: _send_all(port, share), shares))
        return count / (time.monotonic() - began)


def _request(sample: dict[str, Any], key: str) -> bytes:
    name = uuid4()
    patient = {**sample["patient"], "email": f"{name}@example.com", "phone": f"+1555{name.int % 10**7:07}"}
    body = json.dumps({**sample, "patient": patient}).encode()
    head = (
        f"POST /v1/submissions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
        f"Idempotency-Key: {name}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _send_all(port: int, requests: Sequence[bytes]) -> None:
    """One after the other on one connection. An answer is short, and whole when its body ends: `}`."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        for request in requests:
            sock.sendall(request)
            answer = b""
            while not answer.endswith(b"}"):
                received = sock.recv(65536)
                answer += received
                if not received:
                    break
            if not answer.startswith(b"HTTP/1.1 202"):
                raise BenchmarkError(f"The intake answered: {answer[:300]!r}")


def _check(database: Database) -> None:
    """The one has stored search keys, the other none."""
    for name, keys in zip(NAMES, (0, 2), strict=True):
        stored = database.ask(
            """SELECT avg((SELECT count(*) FROM workflows_searchkey WHERE workflow_id = w.id))
                 FROM (SELECT id FROM workflows_workflow WHERE workflow_type = %s AND status = 'PENDING' LIMIT 3) w""",
            name,
        )
        if stored != keys:
            raise BenchmarkError(f"Submissions of {name} have {stored} search keys, not {keys}.")


def _table(speeds: Sequence[tuple[Speed, Speed]]) -> Table:
    table = Table("submissions/s")
    for heading in ("without", "with keys", "ratio", "CPU ms", "with keys", "ratio"):
        table.add_column(heading, justify="right")
    rows = [(a.rate, b.rate, b.rate / a.rate, a.cpu, b.cpu, a.cpu / b.cpu) for a, b in speeds]
    medians = tuple(median(column) for column in zip(*rows, strict=True))
    for label, row in [*((f"round {number}", row) for number, row in enumerate(rows, 1)), ("median", medians)]:
        rate, with_keys, ratio, cpu, cpu_with_keys, cpu_ratio = row
        table.add_row(
            label,
            *(f"{rate:.0f}", f"{with_keys:.0f}", f"{ratio:.2f}"),
            *(f"{cpu:.2f}", f"{cpu_with_keys:.2f}"),
            f"{cpu_ratio:.2f}",
        )
    table.add_row("goal", "", "", f"{GOAL:.2f}")
    return table


if __name__ == "__main__":
    sys.exit(main())
