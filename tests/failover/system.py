"""THE SYSTEM: all processes of Onramp on the cluster, the services, a receiver, and a client that keeps its answers."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psycopg

from onboarding.samples import Kind, Sample, samples
from tests.failover.cluster import Cluster, Node, wait_until
from tests.sandbox_process import SandboxProcess
from tests.servers import ROOT, Gunicorn
from tests.workflows.features.outbox.receiver import Receiver, receiver

KINDS = {Kind.NET_NEW, Kind.EXISTING, Kind.CARD_INVALID, Kind.PROGRAM_FULL}  # none waits for a person or a signal
SENDERS, WORKERS = 4, 2
# How many submissions may be under way: what waits for workers would only lengthen the run.
UNDER_WAY = 60
# Seconds: between two submissions of a sender, from a refusal to the repeat, for an answer.
PAUSE, AGAIN, PATIENCE = 0.6, 0.2, 15.0


class Client:
    """Sends submissions all the while, each until it is answered with 202; keeps what it was told, and when."""

    def __init__(self, url: str, key: str, sandbox: SandboxProcess, told: list[Any], seed: int) -> None:
        self.sent: dict[str, Sample] = {}
        self.accepted: dict[str, float] = {}  # idempotency keys, with the time of their 202
        self.refused: Counter[str] = Counter()
        self._samples = (each for each in samples(10**6, seed) if each.kind in KINDS)
        self._lock, self._ends, self._gives_up = threading.Lock(), threading.Event(), threading.Event()
        self._http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE)
        self._sandbox, self._told = sandbox, told
        self._threads = [threading.Thread(target=self._send_all) for _ in range(SENDERS)]
        for thread in self._threads:
            thread.start()

    def end(self, *, gives_up: bool = False) -> None:
        """Send nothing new. What was sent is repeated until it is accepted, unless the client gives up."""
        self._ends.set()
        if gives_up:
            self._gives_up.set()
        for thread in self._threads:
            thread.join()

    def longest_refusal(self, since: float) -> float:
        """Seconds: the longest time without a 202 from this moment on."""
        times = sorted(at for at in self.accepted.values() if at >= since)
        return max((later - earlier for earlier, later in itertools.pairwise([since, *times])), default=0.0)

    def _send_all(self) -> None:
        while not self._ends.wait(PAUSE):
            if len(self.accepted) - len(self._told) > UNDER_WAY:
                continue
            with self._lock:
                sample = next(self._samples)
            if sample.account:
                self._sandbox.account(**sample.account)
            key = str(sample.idempotency_key)
            self.sent[key] = sample
            while not self._is_accepted(key, sample.payload) and not self._gives_up.wait(AGAIN):
                pass

    def _is_accepted(self, key: str, payload: dict[str, Any]) -> bool:
        try:
            answer = self._http.post("/v1/submissions", json=payload, headers={"Idempotency-Key": key})
            told = str(answer.status_code)
        except httpx.HTTPError as error:
            told = type(error).__name__
        if told == "202":
            self.accepted[key] = time.time()
        else:
            self.refused[told] += 1
        return told == "202"


class Probe:
    """Asks again and again whether something works, in a thread, and keeps when it did."""

    def __init__(self, works: Callable[[], bool]) -> None:
        self.times: list[float] = []
        self._works, self._ends = works, threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def end(self) -> None:
        self._ends.set()

    def first(self, since: float) -> float:
        return next((at for at in self.times if at > since), float("inf"))

    def _run(self) -> None:
        while not self._ends.wait(0.05):
            with suppress(psycopg.Error, httpx.HTTPError, OSError):
                if self._works():
                    self.times.append(time.time())


_COMMITS = "SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_logical_emit_message(true, 'probe', '') END"


def commits(node: Node) -> Callable[[], bool]:
    """Whether a node takes writes: whether a commit succeeds on it, in strict mode a synchronous one."""
    kept: list[psycopg.Connection[Any]] = []

    def commit() -> bool:
        try:
            if not kept:
                kept.append(node.connect(keepalives_idle=2, keepalives_interval=1, tcp_user_timeout=3000))
            notices: list[Any] = []
            kept[0].add_notice_handler(notices.append)
            (at,) = kept[0].execute(_COMMITS).fetchone() or (None,)
            kept[0].remove_notice_handler(notices.append)
            return at is not None and not notices
        except psycopg.Error:
            for each in kept:
                each.close()
            kept.clear()
            raise

    return commit


class System:
    """Everything of Onramp, on a cluster, through HAProxy or by several hosts."""

    def __init__(self, cluster: Cluster, folder: Path, *, haproxy: bool, seed: int) -> None:
        self.cluster, self._folder, self._seed = cluster, folder, seed
        self.url = cluster.url(haproxy=haproxy)
        self._stack = ExitStack()
        self.probes: dict[str, Probe] = {}

    def __enter__(self) -> System:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for probe in self.probes.values():
            probe.end()
        self._stack.close()

    def _start(self) -> None:
        self.sandbox = SandboxProcess(self._folder / "sandbox")
        self._stack.callback(self.sandbox.kill)
        self.receiver: Receiver = self._stack.enter_context(receiver())
        secret = "whsec_" + "c2VjcmV0IG9mIHRoZSB0ZXN0IG9mIGZhaWxvdmVycw=="
        crm = {"url": self.receiver.url, "secrets": [secret], "topics": ["workflow.*"]}
        self._environ = {
            "DEBUG": "1",
            "DATABASE_URL": self.url,
            "SERVICES_URL": self.sandbox.url,
            "OUTBOX_DESTINATIONS": json.dumps({"crm": crm}),
        }
        self.manage("migrate", "--verbosity", "0")
        key = self.manage("createapikey", "shop").split()[-1]
        self.console, self.intake = self._server("console", "config.wsgi"), self._server("intake", "config.intake")
        self._stack.enter_context(self._process("runworker", "--processes", str(WORKERS)))
        self._stack.enter_context(self._process("relayoutbox"))
        self.client = Client(f"http://127.0.0.1:{self.intake.port}", key, self.sandbox, self.receiver.got, self._seed)
        self._stack.callback(self.client.end, gives_up=True)
        for node in self.cluster.nodes:
            self.probes[node.name] = Probe(commits(node))
        self.probes["console"] = Probe(self._reads(key))
        wait_until(
            lambda: len(self.client.accepted) > 20 and self.receiver.got, seconds=60, what=lambda: "work is done"
        )

    def manage(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env={**os.environ, **self._environ},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _server(self, name: str, application: str) -> Gunicorn:
        environ = {name: value for name, value in self._environ.items() if name not in ("DEBUG", "DATABASE_URL")}
        server = Gunicorn(application, self._folder / f"{name}.log", self.url, **environ)
        self._stack.push(server)  # before it has started: the run may be ended while it waits for that
        return server.__enter__()

    @contextmanager
    def _process(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        with (self._folder / f"{arguments[0]}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "manage.py", *arguments],
                cwd=ROOT,
                env={**os.environ, **self._environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            yield process
            assert process.poll() is None, f"{arguments[0]} has ended by itself: {process.returncode}"
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _reads(self, key: str) -> Callable[[], bool]:
        """Whether the console answers a question about a submission."""
        http = httpx.Client(base_url=f"http://127.0.0.1:{self.console.port}", timeout=PATIENCE)
        headers = {"Authorization": f"Bearer {key}"}

        def read() -> bool:
            known = next(iter(self.client.accepted), None)
            return known is not None and http.get(f"/v1/submissions/{known}", headers=headers).status_code == 200

        return read

    # --- What came of it --------------------------------------------------------------------------------

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self.cluster.primary().connect() as database:
            return database.execute(sql, parameters).fetchall()

    def first_commit(self, since: float, *, but: Node | None) -> float:
        """When another node first took a write."""
        return min(self.probes[node.name].first(since) for node in self.cluster.nodes if node is not but)

    def first_attempts(self, since: float) -> list[float]:
        """When each worker process first opened an attempt after that moment."""
        found = self.rows(
            """SELECT extract(epoch FROM min(opened_at))::float FROM workflows_attempt
                WHERE opened_at > to_timestamp(%s) GROUP BY worker""",
            since,
        )
        return [at for (at,) in found]

    def first_sent(self, since: float) -> float | None:
        """When the relay first marked an event as sent after that moment."""
        sql = """SELECT extract(epoch FROM min(settled_at))::float FROM workflows_outboxevent
                  WHERE settled_at > to_timestamp(%s)"""
        found: float | None = self.rows(sql, since)[0][0]
        return found

    def finish(self, *, seconds: float = 600) -> None:
        """Send nothing new, and wait until everything is worked off and told."""
        self.client.end()
        pending = "SELECT count(*) FROM workflows_workflow WHERE status = 'PENDING'"
        wait_until(lambda: self.rows(pending) == [(0,)], seconds=seconds, what=lambda: "everything is worked off")
        unsent = "SELECT count(*) FROM workflows_outboxevent WHERE state = ''"
        wait_until(lambda: self.rows(unsent) == [(0,)], seconds=seconds, what=lambda: "every event is sent")

    def wrongs(self) -> list[str]:
        """What was lost, doubled, or told of somebody else; a line for each."""
        stored = {
            str(key): status for key, status in self.rows("SELECT idempotency_key, status FROM workflows_workflow")
        }
        found = [f"lost: {key} was answered with 202" for key in self.client.accepted if key not in stored]
        found += [f"unknown: {key} was never sent" for key in stored if key not in self.client.sent]
        made: dict[str, Counter[str]] = {}
        for (key, operation), times in Counter(
            (each["idempotency_key"], each["operation"]) for each in self.sandbox.effects()
        ).items():
            made.setdefault(key.partition(":")[0], Counter())[operation] += 1
            if times > 1:
                found.append(f"doubled: {operation} under {key}, {times} times")
        for key, sample in self.client.sent.items():
            if key in stored and (made.get(key) or Counter()) != Counter(operation for _, operation in sample.effects):
                found.append(f"other calls: {key} ({sample.kind}) has {dict(made.get(key) or {})}")
            if key in stored and stored[key] != sample.status:
                found.append(f"other end: {key} ({sample.kind}) is {stored[key]}")
        told = {(event["subject"], event["type"]) for event in self.receiver.got}
        ends = {
            (key, "workflow.completed" if status == "COMPLETE" else "workflow.failed") for key, status in stored.items()
        }
        found += [f"not told: {key} {topic}" for key, topic in ends - told]
        found += [f"told without cause: {key} {topic}" for key, topic in told - ends]
        return found
