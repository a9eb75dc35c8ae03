from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connection
from pytest_django import Settings

from tests.acceptance.conftest import Start
from tests.acceptance.faults import definitions
from tests.acceptance.faults.definitions import SETTLE
from tests.acceptance.faults.harness import System
from tests.acceptance.faults.money import NAMES, OTHERS, Till
from tests.processes import until
from tests.rollup import added_up, plain
from tests.sandbox_process import SandboxProcess
from workflows.definition import definitions as known


@pytest.fixture(autouse=True)
def console(settings: Settings) -> Iterator[None]:
    """Where people answer: it knows what the workers know, for an answer is checked by what a step returns."""
    names = ("ONBOARDING", "PAID", "PAID_AND_WAITS", "ASKED", *NAMES, *OTHERS)
    settings.WORKFLOWS = [f"{definitions.__name__}.{name}" for name in names]
    known.cache_clear()
    yield
    known.cache_clear()


@pytest.fixture(autouse=True)
def counted(transactional_db: None) -> Iterator[None]:
    """Whatever died when: in the end the rollup says what a count of the rows says. Ends after the workers."""
    yield
    # The server may let the last statement of a session whose client was killed commit a moment later.
    until(lambda: added_up() == plain(), seconds=10, what=lambda: (added_up() - plain(), plain() - added_up()))


@pytest.fixture
def system(sandbox: SandboxProcess, runworker: Start, seed: int) -> System:
    """No worker yet."""
    return System(sandbox, runworker, seed)


@pytest.fixture
def till(tmp_path: Path, runworker: Start, seed: int) -> Iterator[Till]:
    """Services that forget their keys, for workflows that pay, and no worker yet."""
    till = Till(tmp_path / "forgetful", runworker, seed)
    yield till
    till.sandbox.kill()


@pytest.fixture
def slow_disk(transactional_db: None) -> Iterator[None]:
    """One commit of the attempt log in ten takes up to 0.2 s: the next worker comes by in the midst of it."""
    tables = ("attempt", "effect", "wait", "manualtask", "signal")
    with slow_commits("PERFORM pg_sleep(random() * 0.2) WHERE random() < 0.1", *tables):
        yield


@pytest.fixture
def stalled_intent(transactional_db: None) -> Iterator[None]:
    """The commit of the first INTENT of `collect` takes longer than `settle`: a disk, or a replica, that stalls."""
    first = "TG_OP = 'INSERT' AND NEW.step = 'collect' AND NEW.generation = 1 AND NOT NEW.undo"
    with slow_commits(f"PERFORM pg_sleep({SETTLE + 0.5}) WHERE {first}", "effect"):
        yield


@contextmanager
def slow_commits(what: str, *tables: str) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE FUNCTION slow_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {what}; RETURN NULL; END $$"
        )
        for table in tables:
            cursor.execute(
                f"""CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT OR UPDATE ON workflows_{table}
                    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow_commit()"""
            )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION slow_commit CASCADE")
