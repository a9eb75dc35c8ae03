"""THE SYSTEM: all of Onramp on the cluster, the services, receivers, and senders that keep what they were told."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from onboarding.samples import Kind, Sample, sample, samples
from tests.failover.cluster import Cluster, Node, wait_until
from tests.kafka import Cluster as Kafka
from tests.sandbox_process import SandboxProcess
from tests.servers import ROOT, Gunicorn
from tests.workflows.features.outbox.receiver import Receiver, receiver

KINDS = {Kind.NET_NEW, Kind.EXISTING, Kind.CARD_INVALID, Kind.PROGRAM_FULL}  # none waits for a person or a signal
SENDERS, WORKERS = 4, 6
# Topics of Kafka: of submissions, and of events. QUEUE: the client of the first.
ORDERS, EVENTS, QUEUE = "orders", "events", "queue"
# How many submissions may be under way, by whether a standby is waited for: what waits for workers would only lengthen
# the run; and calls are lost together with their submission only if that does not wait.
UNDER_WAY, LOST_AFTER = {True: 100, False: 6}, 20.0
# Seconds: between two submissions of a sender, from a refusal to the repeat, for an answer; and between two when too
# many are under way. While nothing is worked off, intake and consumer would have nothing to take, and look slow.
PAUSE, AGAIN, PATIENCE, AT_LEAST_EVERY = 0.2, 0.2, 15.0, 3.0


class Client:
    """Sends submissions all the while, each until it is answered with 202; keeps what it was told, and when.

    One of its threads sends to Kafka instead: what the broker has is promised, too.
    """

    def __init__(self, url: str, key: str, system: System, seed: int, light: int) -> None:
        self.sent: dict[str, Sample] = {}
        # Idempotency keys, with the time of their 202, or at which the broker had them.
        self.accepted: dict[str, float] = {}
        self.queued: dict[str, float] = {}
        self.refused: Counter[str] = Counter()
        self._samples = _mixed(seed, light)
        self._lock, self._ends, self._gives_up = threading.Lock(), threading.Event(), threading.Event()
        self._http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE)
        self._sandbox, self._events, self._kafka = system.sandbox, system.receiver.got, system.kafka
        self._told: set[str] = set()
        self._read = 0  # of the events
        self._waits_for_standby = system.cluster.strict
        sends = [self._post] * SENDERS + [self._queue]
        self._threads = [threading.Thread(target=self._send_all, args=[send]) for send in sends]
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

    def _send_all(self, send: Callable[[str], None]) -> None:
        sent_at = 0.0
        while not self._ends.wait(PAUSE):
            if self._under_way() > UNDER_WAY[self._waits_for_standby] and time.time() < sent_at + AT_LEAST_EVERY:
                continue
            sent_at = time.time()
            with self._lock:
                sample = next(self._samples)
            if sample.account:
                self._sandbox.account(**sample.account)
            key = str(sample.idempotency_key)
            self.sent[key] = sample
            send(key)

    def _under_way(self) -> int:
        """How many were promised, and nothing is told of them yet; what is older than that may be lost."""
        since = 0.0 if self._waits_for_standby else time.time() - LOST_AFTER
        with self._lock:
            new = self._events[self._read :]
            self._read += len(new)
            self._told.update(event["subject"] for event in new)
        return sum(at > since and key not in self._told for key, at in self._promised().items())

    def promised(self) -> int:
        """How many submissions were answered with 202, or taken by the broker."""
        return len(self._promised())

    def _promised(self) -> dict[str, float]:
        return {**self.accepted, **self.queued}

    def _queue(self, key: str) -> None:
        headers: dict[str, Any] = {"Idempotency-Key": key}
        self._kafka.send(ORDERS, self.sent[key].payload, **headers)
        self.queued[key] = time.time()

    def _post(self, key: str) -> None:
        while not self._is_accepted(key, self.sent[key].payload) and not self._gives_up.wait(AGAIN):
            pass

    def send_again(self, keys: Iterable[str]) -> None:
        """As a client does that is told of a failover: the same keys."""
        for key in keys:
            self._post(key)

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


def _mixed(seed: int, light: int) -> Iterator[Sample]:
    """Submissions; after each one, `light` that the first step refuses."""
    number = itertools.count(10**6)
    for each in samples(10**6, seed):
        if each.kind in KINDS:
            yield each
            yield from (sample(Kind.INVALID, next(number)) for _ in range(light))


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

    def __init__(self, cluster: Cluster, folder: Path, *, haproxy: bool, seed: int, light: int) -> None:
        self.cluster, self._folder, self._seed, self._light = cluster, folder, seed, light
        self.by_haproxy, self.url = haproxy, cluster.url(haproxy=haproxy)
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
        self.kafka = Kafka()
        self._stack.callback(self.kafka.close)
        for topic in (ORDERS, f"{ORDERS}.dead", EVENTS):
            self.kafka.create_topic(topic)
        config = {"bootstrap.servers": self.kafka.brokers, "group.id": "lake", "enable.partition.eof": True}
        self._reader = Consumer({**config, "enable.auto.commit": False, "log_level": 0})
        self._stack.callback(self._reader.close)
        self._reader.assign([TopicPartition(EVENTS, 0, OFFSET_BEGINNING)])
        self._in_topic: list[dict[str, Any]] = []
        self._environ = {
            "DEBUG": "1",
            "DATABASE_URL": self.url,
            "SERVICES_URL": self.sandbox.url,
            "OUTBOX_DESTINATIONS": json.dumps({"crm": crm, "lake": {"kafka": EVENTS, "topics": ["workflow.*"]}}),
            "KAFKA_BROKERS": self.kafka.brokers,
            "KAFKA_OPTIONS": self.kafka.OPTIONS,
            "KAFKA_SUBMISSIONS": f"{ORDERS}={QUEUE}",
            "KAFKA_GROUP": ORDERS,
        }
        self.manage("migrate", "--verbosity", "0")
        self.manage("createapikey", QUEUE)
        key = self.manage("createapikey", "shop").split()[-1]
        self.console, self.intake = self._server("console", "config.wsgi"), self._server("intake", "config.intake")
        self._stack.enter_context(self._process("runworker", "--processes", str(WORKERS)))
        self._stack.enter_context(self._process("relayoutbox"))
        self._stack.enter_context(self._process("consumekafka"))
        self.client = Client(f"http://127.0.0.1:{self.intake.port}", key, self, self._seed, self._light)
        self._stack.callback(self.client.end, gives_up=True)
        for node in self.cluster.nodes:
            self.probes[node.name] = Probe(commits(node))
        self.probes["console"] = Probe(self._reads(key))
        wait_until(
            lambda: len(self.client.accepted) > 20 and self.receiver.got, seconds=60, what=lambda: "work is done"
        )

    def manage(self, *arguments: str, codes: Iterable[int] = (0,)) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env={**os.environ, **self._environ},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in codes, done.stdout + done.stderr
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

    # --- When each works --------------------------------------------------------------------------------

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
        """When the relay had first marked an event as sent after that moment for each destination."""
        sql = """SELECT extract(epoch FROM min(settled_at))::float FROM workflows_outboxevent
                  WHERE settled_at > to_timestamp(%s) GROUP BY destination"""
        found = [at for (at,) in self.rows(sql, since)]
        return max(found) if len(found) == 2 else None

    def first_taken(self, since: float) -> float | None:
        """When the consumer first stored a submission after that moment."""
        sql = """SELECT extract(epoch FROM min(created_at))::float FROM workflows_workflow
                  WHERE created_at > to_timestamp(%s) AND submitted_by = %s"""
        found: float | None = self.rows(sql, since, QUEUE)[0][0]
        return found

    def finish(self, *, seconds: float = 600) -> None:
        """Send nothing new, and wait until everything is worked off, told and counted."""
        self.client.end()
        queued = len(self.client.queued)
        for what, done in {
            "every message is taken": lambda: self.kafka.committed(ORDERS, group=ORDERS) == queued,
            "everything is worked off": lambda: self._none("workflows_workflow WHERE status = 'PENDING'"),
            "every event is sent": lambda: self._none("workflows_outboxevent WHERE state = ''"),
        }.items():
            wait_until(done, seconds=seconds, what=lambda: what)  # noqa: B023 (asked at once)

    def _none(self, what: str) -> bool:
        return self.rows(f"SELECT count(*) FROM {what}") == [(0,)]

    # --- What came of it --------------------------------------------------------------------------------

    def lost(self) -> list[str]:
        """The keys of what was promised, and is not there."""
        stored = {str(key) for (key,) in self.rows("SELECT idempotency_key FROM workflows_workflow")}
        return [key for key in [*self.client.accepted, *self.client.queued] if key not in stored]

    def unnamed(self) -> tuple[int, list[str]]:
        """How many calls `manage.py reconcile` names, and a line for each that it should name, or should not."""
        told = [json.loads(line) for line in self.manage("reconcile", "--json", codes=(0, 1)).splitlines()]
        named = {(each["key"], each["kind"] == "no_submission") for each in told}
        states = {str(key): state for key, state in self.rows("SELECT idempotency_key, state FROM workflows_effect")}
        lost = set(self.lost())
        made = {each["idempotency_key"] for each in self.sandbox.effects() if each["operation"] != "save_questionnaire"}
        differ = {(key, key.partition(":")[0] in lost) for key in made if states.get(key) not in ("done", "undone")}
        return len(told), [f"named, or not: {key}" for key, _ in sorted(named ^ differ)]

    def wrongs(self) -> list[str]:
        """What was lost, doubled, or told of somebody else; a line for each."""
        client = self.client
        stored = {
            str(key): status for key, status in self.rows("SELECT idempotency_key, status FROM workflows_workflow")
        }
        found = [f"lost: {key} was promised" for key in self.lost()]
        found += [f"unknown: {key} was never sent" for key in stored if key not in client.sent]
        made: dict[str, Counter[str]] = {}
        for (key, operation), times in Counter(
            (each["idempotency_key"], each["operation"]) for each in self.sandbox.effects()
        ).items():
            made.setdefault(key.partition(":")[0], Counter())[operation] += 1
            if times > 1:
                found.append(f"doubled: {operation} under {key}, {times} times")
        for key, sent in client.sent.items():
            if key in stored and (made.get(key) or Counter()) != Counter(operation for _, operation in sent.effects):
                found.append(f"other calls: {key} ({sent.kind}) has {dict(made.get(key) or {})}")
            if key in stored and stored[key] != sent.status:
                found.append(f"other end: {key} ({sent.kind}) is {stored[key]}")
        ends = {
            (key, "workflow.completed" if status == "COMPLETE" else "workflow.failed") for key, status in stored.items()
        }
        for to, events in (("the webhook", self.receiver.got), ("the topic", self.read_topic())):
            told = {(event["subject"], event["type"]) for event in events}
            found += [f"not told: {to} of {key} {topic}" for key, topic in ends - told]
            found += [f"told without cause: {to} of {key} {topic}" for key, topic in told - ends]
            meant = {(event["id"], event["subject"], event["type"]) for event in events}
            ids = Counter(id for id, _, _ in meant)
            found += [f"told of two: {to} under {id}" for id, times in ids.items() if times > 1]
        return found + self._miscounted()

    def read_topic(self) -> list[dict[str, Any]]:
        """All events that were ever in the topic. Called after each fault: the broker keeps the newest 5 MB of it."""
        _, end = self._reader.get_watermark_offsets(TopicPartition(EVENTS, 0), timeout=10)
        while len(self._in_topic) < end and (message := self._reader.poll(10)) is not None:
            if not message.error():  # or the end that it had come to by itself
                self._in_topic.append(json.loads(message.value() or b""))
        return self._in_topic

    def _miscounted(self) -> list[str]:
        """Whether the rollup has counted each row once, and each process has one row of its own."""
        counts = """
            SELECT (SELECT coalesce(sum(count), 0)::int FROM workflows_rollup WHERE grain = 'total' AND metric = name),
                   name, rows
              FROM (SELECT 'started', count(*) FROM workflows_workflow UNION ALL
                    SELECT 'finished', count(*) FROM workflows_event WHERE finished_xid IS NOT NULL UNION ALL
                    SELECT 'attempt', count(*) FROM workflows_attempt WHERE closed_at IS NOT NULL) _ (name, rows)"""
        found: list[str] = []
        with suppress(AssertionError):  # it counts every ten seconds
            wait_until(
                lambda: all(counted == rows for counted, _, rows in self.rows(counts)), seconds=60, what=lambda: ""
            )
        found += [f"miscounted: {rows} {name}, and {n} on record" for n, name, rows in self.rows(counts) if n != rows]
        beat = "stopped_at IS NULL AND last_seen > clock_timestamp() - interval '15 s'"
        for table, processes in (("workflows_workerprocess", WORKERS), ("workflows_sideprocess", 2)):
            names = [name for (name,) in self.rows(f"SELECT name FROM {table} WHERE {beat}")]
            if len(names) != processes or len(set(names)) != processes:
                found.append(f"{len(names)} rows of {processes} processes in {table}: {names}")
        return found
