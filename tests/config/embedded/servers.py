"""What the tests of the embedded server ask of one, and what they do to it."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

from config.embedded.accounts import account_of, run_as
from config.embedded.server import PORT, USER, Server
from tests.postgres import connect

# Makes a server at a home that has its data already.
Prepare = Callable[[Path], Server]


@contextmanager
def a_folder_that_all_can_enter() -> Iterator[Path]:
    """Pytest's own folders are closed, also to the account that the server of root runs as."""
    folder = Path(tempfile.mkdtemp(prefix="onramp-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def base_backup(of: Server, home: Path, *how: str) -> Server:
    """A server on a base backup of another one, not started yet; `how` are options of pg_basebackup."""
    server = Server(home)
    server._make_folders()
    source = ["-h", str(of.socket_folder()), "-p", str(PORT), "-U", USER, "-D", str(server.data), "-c", "fast"]
    done = run_as(account_of(server.cluster), of.program("pg_basebackup"), *source, *how)
    assert done.returncode == 0, done.stderr
    return server


def ask(server: Server, query: str) -> object:
    with connect(server) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def elsewhere(home: Path, code: str, before: str = "") -> subprocess.Popen[str]:
    """A process that does this with a `server` of the home; `before` comes before anything is imported."""
    server = f"import pathlib\nfrom config.embedded.server import Server\nserver = Server(pathlib.Path({str(home)!r}))"
    return subprocess.Popen(
        [sys.executable, "-c", f"import sys\n{before}\n{server}\n{code}"],
        cwd=settings.BASE_DIR,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", "DEBUG": "1", "DATABASE_URL": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
