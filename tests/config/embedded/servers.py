"""What the tests of the embedded server ask of one, and what they do to it."""

import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

from config.embedded.server import Server
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


def ask(server: Server, query: str) -> object:
    with connect(server) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


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
