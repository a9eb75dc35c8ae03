from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import Start
from tests.acceptance.faults.harness import System
from tests.sandbox_process import SandboxProcess


@pytest.fixture
def system(tmp_path: Path, runworker: Start, seed: int) -> Iterator[System]:
    """A sandbox of its own, whose log is about nothing else, and no worker yet."""
    sandbox = SandboxProcess(tmp_path / "sandbox")
    yield System(sandbox, runworker, seed)
    sandbox.kill()
