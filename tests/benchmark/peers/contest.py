"""A peer beside the engine: its database, its worker processes, its thin view, and what its tables say."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from tests.benchmark.database import BenchmarkError, connected
from tests.benchmark.peers import PEERS, Peer
from tests.benchmark.peers.venv import PYTHON, install
from tests.servers import ROOT, Gunicorn, empty_database

# Seconds to give up after: some to start, and many times what a slow machine needs for a job.
PATIENCE, PATIENCE_PER_JOB = 60.0, 0.5

Processes = list[subprocess.Popen[bytes]]


class PeerError(BenchmarkError):
    """A peer broke; `why` in one line, and with all that it `printed` in the message."""

    def __init__(self, peer: str, how: str, printed: str) -> None:
        super().__init__(f"{peer} {how}\n{printed}")
        self.peer, self.why = peer, ": ".join([how, *printed.splitlines()[-1:]])


class Contestant:
    """A peer with a database of its own."""

    def __init__(self, peer: Peer, url: str, folder: Path, stack: ExitStack) -> None:
        self.peer, self.name, self._url = peer, peer.name, url
        self._folder, self._log = folder, folder / f"{peer.name}.log"
        self._environment = {**os.environ, **_environment(peer, url)}
        for arguments in peer.prepare:
            self._run(arguments)
        self.database = stack.enter_context(connected(url))

    def drain(self, count: int, processes: int) -> float:
        """Store so many jobs, and have so many workers do them; jobs a second from the start of the first on.

        Of those that do many at a time the first ends as late as many others.
        """
        self.database.begin_anew(self.peer.tables)
        self._run(f"-m tests.benchmark.peers {self.name} store {count} 0", PGOPTIONS="-c synchronous_commit=off")
        self.database.analyze()
        with self.working(processes) as started:
            return count / self._seconds_until_done(count, started)

    def pace(self, count: int, every_ms: int) -> list[float]:
        """Store so many jobs, one now and then; the milliseconds of each until a worker took it, in order."""
        self.database.begin_anew(self.peer.tables)
        self._run(f"-m tests.benchmark.peers {self.name} store {count} {every_ms}")
        self._seconds_until_done(count)
        return sorted(self.database.ask(self.peer.taken))

    def working(self, processes: int) -> AbstractContextManager[Processes]:
        """So many worker processes, that wait when there is nothing to do."""
        return running([str(PYTHON), *self.peer.worker.split()], processes, self._log, self._environment)

    def serving(self, processes: int) -> Gunicorn:
        """Its thin view."""
        environment = {**_environment(self.peer, self._url), "WEB_CONCURRENCY": str(processes)}
        flags = ("--config", "tests/benchmark/peers/server.py")
        log = self._folder / f"{self.name}-view.log"
        return PeersGunicorn("tests.benchmark.peers.view:application", log, self._url, *flags, **environment)

    def _seconds_until_done(self, count: int, started: Processes | None = None) -> float:
        give_up_at = time.monotonic() + PATIENCE + PATIENCE_PER_JOB * count
        while (row := self.database.row(self.peer.done))[0] < count:
            if time.monotonic() > give_up_at or any(each.poll() is not None for each in started or ()):
                printed = self._log.read_text(errors="replace")[-2000:]
                raise PeerError(self.name, f"has done {row[0]} of {count} jobs", printed)
            time.sleep(0.1)
        return float(row[1])

    def _run(self, arguments: str, **environment: str) -> None:
        done = subprocess.run(
            [str(PYTHON), *arguments.split()],
            cwd=ROOT,
            env={**self._environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise PeerError(self.name, f"failed at {arguments}", done.stderr[-2000:])


class PeersGunicorn(Gunicorn):
    python = str(PYTHON)


@contextmanager
def running(
    command: Sequence[str], processes: int, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Processes]:
    """So many processes, killed at the end."""
    started: Processes = []
    try:
        with log.open("wb") as output:
            for _ in range(processes):
                started.append(
                    subprocess.Popen(
                        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
                    )
                )
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextmanager
def contestants(names: list[str], folder: Path) -> Iterator[tuple[list[Contestant], dict[str, str]]]:
    """Those of these peers that can be had, and why the others cannot. Their databases are dropped at the end."""
    found, missing = [], {}
    with ExitStack() as stack:
        for name in names:
            if why_not := install(name):
                missing[name] = why_not
                continue
            url = stack.enter_context(empty_database(f"onramp_benchmark_{os.getpid()}_{name}"))
            try:
                found.append(Contestant(PEERS[name], url, folder, stack))
            except PeerError as error:
                missing[name] = error.why
        yield found, missing


def _environment(peer: Peer, url: str) -> Mapping[str, str]:
    """What tells all of them where the database is: libpq's variables, which each of their drivers reads."""
    info = conninfo_to_dict(url)
    return {
        "PGHOST": str(info["host"]),
        "PGPORT": str(info["port"]),
        "PGUSER": str(info["user"]),
        "PGPASSWORD": str(info.get("password", "")),
        "PGDATABASE": str(info["dbname"]),
        "PEER": peer.name,
        "PEER_APPS": peer.apps,
        "DJANGO_SETTINGS_MODULE": "tests.benchmark.peers.settings",
        "PYTHONPATH": str(ROOT),
    }
