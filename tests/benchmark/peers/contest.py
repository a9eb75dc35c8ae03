"""A peer beside the engine: its database, its worker processes, its thin view, and what its tables say."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.benchmark.database import BenchmarkError, Database
from tests.benchmark.peers import PEERS, Peer
from tests.benchmark.peers.venv import PYTHON, install
from tests.servers import ROOT, Gunicorn, empty_database

# Seconds to give up after: some to start, and many times what a slow machine needs for a job.
PATIENCE, PATIENCE_PER_JOB = 60.0, 0.5


class PeerError(BenchmarkError):
    """A peer broke; `why` in one line, and with all that it `printed` in the message."""

    def __init__(self, peer: str, how: str, printed: str) -> None:
        super().__init__(f"{peer} {how}\n{printed}")
        self.peer, self.why = peer, ": ".join([how, *printed.splitlines()[-1:]])


class Contestant:
    """A peer with a database of its own."""

    def __init__(self, peer: Peer, url: str, folder: Path) -> None:
        self.peer, self._url, self._folder = peer, url, folder
        self.name = peer.name
        self._environment = {**os.environ, **_environment(peer, url)}
        for arguments in peer.prepare:
            self._run(*arguments)
        self._connection = psycopg.connect(url, autocommit=True)
        self.database = Database(url, self._connection)

    def close(self) -> None:
        self._connection.close()

    def begin_anew(self) -> None:
        self.database.execute(f"TRUNCATE {self.peer.tables} CASCADE")

    def drain(self, count: int, processes: int) -> float:
        """Store so many jobs, and have so many workers do them; jobs a second from the start of the first on.

        Of those that do many at a time the first ends as late as many others.
        """
        self.begin_anew()
        self._run("-m", "tests.benchmark.peers", self.name, "fill", str(count))
        self.database.analyze()
        with self.working(processes) as started:
            give_up_at = time.monotonic() + PATIENCE + PATIENCE_PER_JOB * count
            while (done := self._done())[0] < count:
                if time.monotonic() > give_up_at or any(each.poll() is not None for each in started):
                    raise PeerError(self.name, f"has done {done[0]} of {count} jobs", self._printed())
                time.sleep(0.1)
        return count / float(done[1])

    @contextmanager
    def working(self, processes: int) -> Iterator[list[subprocess.Popen[bytes]]]:
        """So many worker processes, that wait when there is nothing to do."""
        started: list[subprocess.Popen[bytes]] = []
        try:
            with self._log.open("wb") as log:
                for _ in range(processes):
                    started.append(
                        subprocess.Popen(
                            [str(PYTHON), *self.peer.worker],
                            cwd=ROOT,
                            env=self._environment,
                            stdin=subprocess.DEVNULL,
                            stdout=log,
                            stderr=log,
                        )
                    )
            yield started
        finally:
            for process in started:
                process.kill()
                process.wait()

    def serve(self, processes: int) -> PeersGunicorn:
        """Its thin view, not started yet."""
        environment = {**_environment(self.peer, self._url), "WEB_CONCURRENCY": str(processes)}
        flags = ("--config", "tests/benchmark/peers/server.py")
        log = self._folder / f"{self.name}-view.log"
        return PeersGunicorn("tests.benchmark.peers.view:application", log, self._url, *flags, **environment)

    def pace(self, count: int, every_ms: int) -> list[float]:
        """Store so many jobs, one now and then; the milliseconds of each until a worker took it, the shortest first."""
        self.begin_anew()
        self._run("-m", "tests.benchmark.peers", self.name, "pace", str(count), str(every_ms))
        give_up_at = time.monotonic() + PATIENCE
        while self._done()[0] < count:
            if time.monotonic() > give_up_at:
                raise PeerError(self.name, f"has done {self._done()[0]} of {count} jobs", self._printed())
            time.sleep(0.1)
        row = self._connection.execute(self.peer.taken).fetchone()
        assert row
        return sorted(row[0])

    def _done(self) -> tuple[int, Any]:
        row = self._connection.execute(self.peer.done).fetchone()
        assert row
        return row[0], row[1]

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            [str(PYTHON), *arguments],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise PeerError(self.name, f"failed at {' '.join(arguments)}", done.stderr[-2000:])

    @property
    def _log(self) -> Path:
        return self._folder / f"{self.name}.log"

    def _printed(self) -> str:
        return self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""


class PeersGunicorn(Gunicorn):
    python = str(PYTHON)


@contextmanager
def contestants(names: list[str], folder: Path) -> Iterator[tuple[list[Contestant], dict[str, str]]]:
    """Those of these peers that can be had, and why the others cannot. Their databases are dropped at the end."""
    found, missing = [], {}
    with ExitStack() as stack:
        for name in names:
            if why_not := install(PEERS[name]):
                missing[name] = why_not
                continue
            url = stack.enter_context(empty_database(f"onramp_benchmark_{os.getpid()}_{name}"))
            try:
                contestant = Contestant(PEERS[name], url, folder)
            except PeerError as error:
                missing[name] = error.why
                continue
            stack.callback(contestant.close)
            found.append(contestant)
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
