from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection
from pytest_django import Settings

from tests.acceptance.conftest import Start
from tests.acceptance.faults import definitions as known
from tests.acceptance.faults.harness import System
from tests.sandbox_process import SandboxProcess
from workflows.definition import definitions


@pytest.fixture
def system(tmp_path: Path, runworker: Start, seed: int, settings: Settings) -> Iterator[System]:
    """A sandbox of its own, whose log is about nothing else, and no worker yet.

    The console is this process, and it knows what people are asked about; each worker is told its own definitions.
    """
    settings.WORKFLOWS = [f"{known.__name__}.{name}" for name in ("ONBOARDING", "ASKED")]
    definitions.cache_clear()
    sandbox = SandboxProcess(tmp_path / "sandbox")
    yield System(sandbox, runworker, seed)
    sandbox.kill()
    definitions.cache_clear()


@pytest.fixture
def slow_disk(transactional_db: None) -> Iterator[None]:
    """One commit of the journal in ten takes up to 0.2 s: the next worker comes by in the midst of it."""
    with connection.cursor() as cursor:
        cursor.execute(
            """CREATE FUNCTION slow_disk() RETURNS trigger LANGUAGE plpgsql AS
               $$ BEGIN PERFORM pg_sleep(random() * 0.2) WHERE random() < 0.1; RETURN NULL; END $$"""
        )
        for table in ("attempt", "effect", "wait", "manualtask", "signal"):
            cursor.execute(
                f"""CREATE CONSTRAINT TRIGGER slow_disk AFTER INSERT OR UPDATE ON workflows_{table}
                    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow_disk()"""
            )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION slow_disk CASCADE")
