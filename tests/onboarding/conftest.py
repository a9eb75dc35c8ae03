from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onboarding.services import http
from tests.sandbox_process import SandboxProcess, SandboxThread


@pytest.fixture(scope="session")
def sandbox_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxProcess]:
    sandbox = SandboxThread(tmp_path_factory.mktemp("sandbox"))
    yield sandbox
    http.close()
    sandbox.end()


@pytest.fixture
def sandbox(sandbox_process: SandboxProcess, settings: Any) -> Iterator[SandboxProcess]:
    """The sandbox, without faults, as the services that onboarding calls."""
    settings.SERVICES = sandbox_process.services()
    settings.SERVICES_TIMEOUT = 3  # on a busy machine an answer takes a second or two at times
    yield sandbox_process
    sandbox_process.clear_faults()


@pytest.fixture
def own_sandbox(tmp_path: Path) -> Iterator[SandboxProcess]:
    """A sandbox that a test may kill."""
    process = SandboxProcess(tmp_path / "state")
    yield process
    if process.process.poll() is None:
        process.kill()
