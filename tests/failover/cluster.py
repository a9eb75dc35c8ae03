"""THE CLUSTER: three PostgreSQL under Patroni, with etcd, each in a network namespace; HAProxy before them.

The nodes' data are on small tmpfs, so that a disk can be full. All that runs in a namespace is ours, and is ended by
its id: `end`, and `begin` for what a killed run has left.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psycopg

from tests.failover import network
from tests.failover.network import NODES, PREFIX, Missing

T = TypeVar("T")

HAPROXY_PORT = 15432
PG_BIN = Path("/usr/lib/postgresql/15/bin")
PACKAGES = {
    "patroni": "patroni",
    "etcd": "etcd-server",
    "haproxy": "haproxy",
    str(PG_BIN / "postgres"): "postgresql-15",
    "ip": "iproute2",
}
DATABASE = "onramp"
# Megabytes of a node's data, and how many submissions need one more. Seconds: how long Patroni's leader may be silent,
# its loop, its patience with etcd.
DISK, TO_A_MEGABYTE, TTL, LOOP, RETRY = 512, 8, 10, 1, 3


class Void(Exception):
    """An election without a fault of ours: the run shows nothing."""


def require() -> None:
    """Raise Missing unless this is root, with network namespaces and the packages."""
    if os.geteuid() != 0:
        raise Missing("make test-failover needs root: it makes network namespaces, and runs PostgreSQL in them.")
    missing = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    if missing:
        raise Missing(
            f"make test-failover needs Debian's packages {', '.join(missing)}:\n"
            f"  apt-get update && apt-get install --no-install-recommends {' '.join(missing)}"
        )
    if other := network.other_run():
        raise Missing(f"Another run of make test-failover is under way (process {other}): wait for it.")


@dataclass
class Node:
    number: int
    folder: Path
    patroni: subprocess.Popen[bytes] | None = None
    etcd: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return f"node{self.number}"

    @property
    def address(self) -> str:
        return network.address(self.number)

    @property
    def data(self) -> Path:
        return self.folder / "disk" / "data"

    def run(self, *command: str) -> subprocess.Popen[bytes]:
        """Start it in the namespace as PostgreSQL's user; it dies with this process.

        It comes before all else, because a busy machine would cause elections.
        """
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--pdeathsig=KILL"]
        first = ["nice", "--adjustment=-10"]
        with (self.folder / f"{Path(command[0]).name}.log").open("ab") as log:
            return subprocess.Popen(
                ["ip", "netns", "exec", network.namespace(self.number), *first, *as_user, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "LANG": "C.UTF-8"},
                start_new_session=True,
            )

    def pids(self) -> list[int]:
        """All processes in the namespace, but etcd."""
        found = network.pids_in(network.namespace(self.number))
        return [pid for pid in found if self.etcd is None or pid != self.etcd.pid]

    def signal(self, number: signal.Signals, *pids: int) -> None:
        for pid in pids or self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def asks(self, path: str, body: dict[str, Any] | None = None, *, seconds: float = 2.0) -> tuple[int, str]:
        """What its Patroni answers: a status, 0 for no answer, and the text."""
        method = "GET" if body is None else "POST"
        with suppress(httpx.HTTPError):
            answer = httpx.request(
                method, f"http://{self.address}:8008/{path}", json=body, timeout=seconds, trust_env=False
            )
            return answer.status_code, answer.text
        return 0, ""

    def connect(self, database: str = DATABASE, **parameters: Any) -> psycopg.Connection[Any]:
        given = {"connect_timeout": 2, "autocommit": True, **parameters}
        return psycopg.connect(host=self.address, user="postgres", dbname=database, **given)


@dataclass
class Cluster:
    folder: Path
    strict: bool = True
    disk: int = DISK
    nodes: list[Node] = field(default_factory=list)
    haproxy: subprocess.Popen[bytes] | None = None
    leader: Node | None = None  # as our last fault, or the start, has left it
    timeline: int = 0

    # --- Its life ---------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Make the network, start everything, and wait until a standby is synchronous. Some 20 seconds."""
        network.build()
        self.folder.chmod(0o755)
        (self.folder / "histories").mkdir()
        shutil.chown(self.folder / "histories", "postgres", "postgres")
        self.nodes = [Node(number, self.folder / f"node{number}") for number in NODES]
        for node in self.nodes:
            self._make_folders(node)
        for node in self.nodes:
            node.etcd = self._start_etcd(node)
        for node in self.nodes:
            self.start(node)
        wait_until(self._has_started, seconds=90, what=lambda: f"the cluster is whole: {self.members()}")
        self.settle()
        self.haproxy = self._start_haproxy()
        with self.primary().connect("postgres") as database:
            database.execute(f"CREATE DATABASE {DATABASE}")

    def end(self) -> None:
        if self.haproxy is not None:
            self.haproxy.kill()
            self.haproxy.wait()
        network.sweep()
        for node in self.nodes:
            for process in (node.patroni, node.etcd):
                if process is not None:
                    process.wait()
            for disk in ("disk", "etcd"):
                network.run("umount", "--lazy", str(node.folder / disk), check=False)

    def start(self, node: Node) -> None:
        """Start a node's Patroni, which starts its PostgreSQL."""
        node.patroni = node.run("patroni", str(node.folder / "patroni.json"))

    def _make_folders(self, node: Node) -> None:
        for disk, size in (("disk", self.disk), ("etcd", 128)):
            folder = node.folder / disk
            folder.mkdir(parents=True)
            network.run("mount", "-t", "tmpfs", "-o", f"size={size}m", "onramp-failover", str(folder))
            shutil.chown(folder, "postgres", "postgres")
        shutil.chown(node.folder, "postgres", "postgres")
        node.data.mkdir(0o700)
        shutil.chown(node.data, "postgres", "postgres")
        (node.folder / "patroni.json").write_text(json.dumps(self._settings(node)))

    def _settings(self, node: Node) -> dict[str, Any]:
        """Patroni's file, as JSON, which is YAML."""
        parameters = {
            "shared_buffers": "64MB",
            "max_connections": 120,
            "max_wal_size": "128MB",
            "min_wal_size": "32MB",
            "wal_log_hints": "on",
            "wal_sender_timeout": "3s",
            "wal_receiver_timeout": "3s",
            "log_parameter_max_length": 0,
            "log_parameter_max_length_on_error": 0,
            "log_error_verbosity": "terse",
            # Whoever is promoted looks here which timelines there are. Otherwise a first primary that leads again may
            # take the number that the second took while it was away; the second then follows it without a rewind, and
            # its data are a mixture of both.
            "archive_mode": "on",
            "archive_command": f"case %f in *.history) cp %p {self.folder}/histories/%f;; esac",
            "restore_command": f"cp {self.folder}/histories/%f %p",
        }
        users = {each: {"username": "postgres", "password": "not-asked"} for each in ("superuser", "replication")}
        postgresql = {
            "listen": f"{node.address}:5432",
            "connect_address": f"{node.address}:5432",
            "data_dir": str(node.data),
            "bin_dir": str(PG_BIN),
            "basebackup": [{"checkpoint": "fast"}],  # otherwise a standby that is made anew waits 270 s for one
            "authentication": users,
            "pgpass": str(node.folder / "pgpass"),
            "parameters": {"unix_socket_directories": str(node.folder)},
            "pg_hba": [f"host {which} all {PREFIX}.0/24 trust" for which in ("all", "replication")]
            + ["local all all trust"],
        }
        rules = {
            "ttl": TTL,
            "loop_wait": LOOP,
            "retry_timeout": RETRY,
            "primary_start_timeout": 0,  # otherwise Patroni restarts a PostgreSQL that died alone, for up to 300 s
            "master_start_timeout": 0,  # its name before Patroni 4
            "maximum_lag_on_failover": 2**30,  # by default a standby that is 1 MiB behind takes over nothing
            "synchronous_mode": self.strict,
            "synchronous_mode_strict": self.strict,
            "postgresql": {"use_pg_rewind": True, "use_slots": True, "parameters": parameters},
        }
        return {
            "scope": "onramp",
            "name": node.name,
            "restapi": {"listen": f"{node.address}:8008", "connect_address": f"{node.address}:8008"},
            _etcd_section(): {"hosts": [f"{each.address}:2379" for each in self.nodes]},
            "bootstrap": {"dcs": rules, "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, "data-checksums"]},
            "postgresql": postgresql,
        }

    def _start_etcd(self, node: Node) -> subprocess.Popen[bytes]:
        everybody = ",".join(f"{each.name}=http://{each.address}:2380" for each in self.nodes)
        flags = {
            "name": node.name,
            "data-dir": str(node.folder / "etcd" / "data"),
            "listen-client-urls": f"http://{node.address}:2379",
            "advertise-client-urls": f"http://{node.address}:2379",
            "listen-peer-urls": f"http://{node.address}:2380",
            "initial-advertise-peer-urls": f"http://{node.address}:2380",
            "initial-cluster": everybody,
            "initial-cluster-state": "new",
            **({"enable-v2": "true"} if _etcd_section() == "etcd" else {}),
        }
        return node.run("etcd", *(f"--{name}={value}" for name, value in flags.items()))

    def _start_haproxy(self) -> subprocess.Popen[bytes]:
        """As docs/deployment.md has it: it asks each Patroni which node is the primary, and ends sessions of others."""
        servers = "\n".join(f"    server {node.name} {node.address}:5432 check port 8008" for node in self.nodes)
        file = self.folder / "haproxy.cfg"
        file.write_text(
            f"""global
    maxconn 500
defaults
    mode tcp
    timeout connect 2s
    timeout client 1d
    timeout server 1d
    retries 0
listen postgresql
    bind 127.0.0.1:{HAPROXY_PORT}
    option httpchk OPTIONS /primary
    http-check expect status 200
    default-server inter 1s downinter 500ms fall 2 rise 1 on-marked-down shutdown-sessions
{servers}
"""
        )
        with (self.folder / "haproxy.log").open("wb") as log:
            return subprocess.Popen(["haproxy", "-db", "-f", str(file)], stdout=log, stderr=log, start_new_session=True)

    # --- What it says -----------------------------------------------------------------------------------

    def url(self, *, haproxy: bool) -> str:
        if haproxy:
            return f"postgres://postgres@127.0.0.1:{HAPROXY_PORT}/{DATABASE}"
        hosts = ",".join(f"{node.address}:5432" for node in self.nodes)
        return f"postgres://postgres@{hosts}/{DATABASE}?target_session_attrs=read-write"

    def _has_started(self) -> bool:
        for node in self.nodes:
            if node.patroni is not None and node.patroni.poll() is not None:
                raise Missing(f"Patroni did not start:\n{(node.folder / 'patroni.log').read_text()[-2000:]}")
        return self.is_whole()

    def members(self) -> list[dict[str, Any]]:
        """The members as the first Patroni that answers knows them."""
        for node in self.nodes:
            status, text = node.asks("cluster")
            if status == 200:
                found: list[dict[str, Any]] = json.loads(text)["members"]
                return found
        return []

    def primary(self) -> Node:
        """The node that leads. Raises AssertionError if none does."""
        leaders = [each for each in self.members() if each["role"] == "leader" and each["state"] == "running"]
        assert leaders, "no node leads"
        return next(node for node in self.nodes if leaders[0]["name"] == node.name)

    def is_whole(self) -> bool:
        """Whether each node says so: one leads, two follow it, and one of them is synchronous (in strict mode)."""
        wanted = ["leader", "replica", "sync_standby"] if self.strict else ["leader", "replica", "replica"]
        seen = set()
        for node in self.nodes:
            status, text = node.asks("cluster")
            members = json.loads(text)["members"] if status == 200 else []
            up = [each for each in members if each["state"] in ("running", "streaming")]
            lags = [each.get("lag", 0) for each in up]
            if sorted(each["role"] for each in up) != wanted or not all(isinstance(lag, int) for lag in lags):
                return False
            seen.add(tuple(sorted((each["name"], each["role"], each["timeline"]) for each in up)))
        if len(seen) != 1 or len({timeline for _, _, timeline in seen.pop()}) != 1:
            return False
        with self.primary().connect("postgres") as database:
            standbys = database.execute("SELECT state FROM pg_stat_replication").fetchall()
        return standbys == [("streaming",)] * 2

    def settle(self, *, seconds: float = 120.0) -> None:
        """Wait until the cluster is whole, and remember who leads.

        A standby may have got more than the one that was promoted, if nobody waits for any. Patroni 3.0.2 leaves it so.
        """
        with suppress(AssertionError):
            wait_until(self.is_whole, seconds=seconds / 4, what=lambda: "it is not whole")
        members = {each["name"]: each.get("timeline", 0) for each in self.members()}
        for node in self.nodes:
            if not self.strict and members.get(node.name, 0) < max(members.values(), default=0):
                node.asks("reinitialize", {"force": True})
        wait_until(self.is_whole, seconds=seconds, what=lambda: f"the cluster is whole: {self.members()}")
        self.leader, self.timeline = self.primary(), int(self.members()[0]["timeline"])

    def require_no_election(self) -> None:
        """Raise Void if another node leads than we left, or the same on another timeline."""
        now, timeline = self.primary(), max(int(each.get("timeline", 0)) for each in self.members())
        if (now, timeline) != (self.leader, self.timeline):
            raise Void(f"{now.name} leads on timeline {timeline}, without a fault of ours.")


@cache
def _etcd_section() -> str:
    """Patroni before 3.0.3 lets a node that was cut off overwrite the key of the new leader in etcd's API of version 3.

    The node then leads a second time, and what the new leader had committed is lost: https://github.com/patroni/patroni/pull/2689
    """
    said = subprocess.run(["patroni", "--version"], capture_output=True, text=True, check=True).stdout
    version = tuple(int(part) for part in said.split()[-1].split(".")[:3])
    return "etcd3" if version >= (3, 0, 3) else "etcd"


def wait_until(look: Callable[[], T | None], *, seconds: float, what: Callable[[], str]) -> T:
    """What `look` returns as soon as that is true; AssertionError after `seconds`."""
    give_up_at = time.monotonic() + seconds
    while True:
        with suppress(AssertionError, OSError):
            if found := look():
                return found
        assert time.monotonic() < give_up_at, f"not within {seconds:.0f} s: {what()}"
        time.sleep(0.1)
