"""What a measure is given: a database, a folder for logs, the sizes that were asked for, workers, an intake."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx

from tests.benchmark.command import at_least
from tests.benchmark.database import ONBOARDING, BenchmarkError, Database, manage, production
from tests.benchmark.peers.contest import Contestant
from tests.processes import Runworker
from tests.servers import Gunicorn


class Size(NamedTuple):
    """How many of something: by default, and with --quick."""

    name: str
    default: int
    quick: int
    what: str


SIZES = (
    Size("rounds", 7, 2, "rounds, in which all that are compared take turns: many, for noise comes and goes"),
    Size("processes", 2, 2, "processes of each that is measured"),
    Size("seconds", 3, 1, "seconds of each intake in a round"),
    Size("slow", 200, 200, "clients beside that are idle or trickle, half of each"),
    Size("flood", 500, 500, "connections of a client over its limit, each of which sends again when it is refused"),
    Size("workflows", 400, 50, "workflows of recorded steps in a round; of plain steps ten times as many"),
    Size("submissions", 300, 24, "submissions to idle workers"),
    Size("every", 200, 60, "milliseconds between two of these, in the mean"),
    Size("rest", 20, 3, "seconds in which idle workers are watched"),
    Size("claims", 300, 100, "claims that are timed in each state of the table"),
    Size("due", 1_000_000, 50_000, "workflows that are due, for the claim"),
    Size("waiting", 1_000_000, 50_000, "workflows that wait, for the claim"),
    Size("finished", 5_000_000, 50_000, "workflows that are finished, for the claim"),
    Size("open", 60, 5, "seconds of draining beside an open transaction, for the claim"),
    Size("idle", 200, 50, "idle workers whose looks are timed"),
    Size("drained", 700_000, 50_000, "workflows drained, and not vacuumed, before they look"),
    Size("kills", 20, 3, "workers to kill"),
    Size("signals", 200, 20, "signals to send"),
    Size("backlog", 10_000, 1_000, "fresh submissions that are due while they are sent"),
    Size("onboardings", 2_000, 40, "onboardings to weigh"),
)


def add_sizes(arguments: argparse.ArgumentParser) -> None:
    for size in SIZES:
        arguments.add_argument(
            f"--{size.name}",
            type=at_least(1),
            metavar="N",
            help=f"{size.what} (default: {size.default:,}; --quick: {size.quick:,})",
        )


def chosen_sizes(arguments: argparse.Namespace) -> dict[str, int]:
    """What was asked for, and else the default."""
    return {
        size.name: getattr(arguments, size.name) or (size.quick if arguments.quick else size.default) for size in SIZES
    }


@dataclass
class Setting:
    database: Database
    folder: Path
    sizes: argparse.Namespace
    peers: Sequence[Contestant] = ()
    missing: dict[str, str] = field(default_factory=dict)  # peers that cannot be had, or broke, and how

    def leave_out(self, peer: str, why: str) -> None:
        self.peers = [each for each in self.peers if each.name != peer]
        self.missing[peer] = why

    @cached_property
    def key(self) -> str:
        """An API key of the intake's."""
        return manage(self.database.url, "createapikey", "benchmark").split()[-1]

    @contextmanager
    def working(self, *options: str, processes: int = 0, **environment: str) -> Iterator[Runworker]:
        """`manage.py runworker`, killed at the end."""
        options = ("--processes", str(processes or self.sizes.processes), *options)
        environment = {**production(self.database.url, ONBOARDING), **environment}
        worker = Runworker(self.folder / "worker.log", (), options, **environment)
        try:
            yield worker
        finally:
            worker.kill()

    def serving(self, definition: str, application: str = "config.intake", **environment: str) -> Gunicorn:
        """An intake whose submissions are of this definition. It is entered to wait for it, and left to stop it."""
        environment = {
            **production(self.database.url, ONBOARDING),
            "SUBMISSION_WORKFLOW": definition,
            "WEB_CONCURRENCY": str(self.sizes.processes),
            **environment,
        }
        log = self.folder / f"{definition}-{application}.log"
        return Gunicorn(application, log, self.database.url, **environment)

    def submit(self, port: int, payloads: Iterable[Any], every_ms: float = 0) -> None:
        """Send these to the intake, one every so many milliseconds, in the mean."""
        headers = {"Authorization": f"Bearer {self.key}"}
        with httpx.Client(base_url=f"http://localhost:{port}", headers=headers) as client:
            for payload in payloads:
                answer = client.post("/v1/submissions", json=payload, headers={"Idempotency-Key": str(uuid4())})
                if answer.status_code != 202:
                    raise BenchmarkError(f"The intake answered {answer.status_code}: {answer.text[:300]}")
                time.sleep(every_ms / 1000 * random.uniform(0.5, 1.5))
