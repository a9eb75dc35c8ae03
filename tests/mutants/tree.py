"""A copy of the tree to change and to test, with a PostgreSQL of its own: the checkout is never touched."""

from __future__ import annotations

import compileall
import os
import py_compile
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import NamedTuple

from config.embedded.server import Server

NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", ".env", "var", "staticfiles", "__pycache__", "*.egg-info", ".*_cache"
)
# What of the caller's environment the tests get: no other database, and no settings of a test that runs this.
PASSED_ON = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL")
PASSED, FAILED = 0, 1  # pytest's exit codes

# In pytest's summary; a parameter may have spaces in it.
FAILED_TEST = re.compile(r"^(FAILED|ERROR) (\S+\.py(?:::.+?)?)(?: - .*)?$", re.MULTILINE)


class TreeError(Exception):
    """The tests cannot be run at all; the message says why."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One small change that takes something away: `new` stands in `file` from `start` to `end`.

    `tests` are pytest's node ids; a mutant of the list has its own, and the others get theirs from the map.
    """

    name: str
    file: str
    lines: range
    start: int
    end: int
    new: str
    tests: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}:{self.lines[0]}: {self.name}"

    def applied_to(self, source: str) -> str:
        """The file with the mutant in it. Raises SyntaxError when that is no Python."""
        mutated = source[: self.start] + self.new + source[self.end :]
        compile(mutated, self.file, "exec", dont_inherit=True)
        return mutated


class Run(NamedTuple):
    """One run of pytest: its exit code (None: it took too long, and was killed), its output, and how long it took."""

    code: int | None
    output: str
    seconds: float

    @property
    def failed(self) -> list[str]:
        """The node ids of the tests that failed. Those where only the set-up or the clean-up did come last."""
        found = sorted(FAILED_TEST.findall(self.output), key=lambda line: line[0] != "FAILED")
        return [test for _, test in found]


class Tree:
    """The copy. `run` runs tests in it, and `mutated` changes one of its files for a while."""

    def __init__(self, root: Path, server: Server | None = None) -> None:
        self.root = root
        self._server = server

    def run(self, arguments: Sequence[str], *, timeout: float) -> Run:
        """Run pytest, for so many seconds at most.

        On a new database: what a mutant has left in the last one must not fail the tests of the next mutant.
        """
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        log = self.root / "mutants.log"
        with log.open("wb") as output:
            started = monotonic()
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                code: int | None = process.wait(timeout)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                seconds = monotonic() - started
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)  # and what it has started
                    process.wait()
        if code is None and self._server:
            self._server.restart("immediate")  # it would keep the locks of those that were killed for a while
        return Run(code, log.read_text(errors="replace"), seconds)

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """The copy with the mutant in it."""
        path = self.root / mutant.file
        source = path.read_text()
        path.write_text(mutant.applied_to(source))
        try:
            yield
        finally:
            path.write_text(source)


@contextmanager
def copied(root: Path, *, with_server: bool = True) -> Iterator[Tree]:
    """A copy of `root` in a temporary folder; with a running PostgreSQL, which is removed with it.

    The modules are compiled once, into caches that Python checks by the source and not by its age: a mutant is as long
    as what it replaces at times, and written in the same second.
    """
    with TemporaryDirectory(prefix="onramp-mutants-") as folder, ExitStack() as stack:
        copy = Path(folder) / "tree"
        shutil.copytree(root, copy, ignore=NOT_COPIED)
        compileall.compile_dir(copy, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
        server = Server(copy / "var" / "postgres") if with_server else None
        if server:
            stack.callback(server.remove)
            server.start()
        yield Tree(copy, server)


def _environment() -> dict[str, str]:
    given = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {**given, "DEBUG": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", "COLUMNS": "500"}
