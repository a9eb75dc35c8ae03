"""The clients of docs/examples send a submission to a real intake, and hear of its end from it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.conftest import Start
from tests.sandbox_process import PROJECT, SandboxProcess
from tests.servers import database_url, gunicorn
from workflows.ingress import api_keys

pytestmark = pytest.mark.django_db(transaction=True)
EXAMPLES = PROJECT / "docs" / "examples"


@pytest.mark.parametrize(("program", "file"), [(sys.executable, "client.py"), ("node", "client.mjs")])
def test_a_client_hears_of_the_end(
    program: str, file: str, runworker: Start, sandbox: SandboxProcess, tmp_path: Path
) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program} here")
    runworker(WORKFLOWS="onboarding.workflow.ONBOARDING", SERVICES_URL=sandbox.url)
    (broken := tmp_path / "broken.json").write_text("{}")
    with gunicorn("config.intake", tmp_path, url=database_url()) as server:
        runs = [
            subprocess.Popen(
                [program, EXAMPLES / file, f"http://127.0.0.1:{server.port}", api_keys.create("shop"), sent],
                stdout=subprocess.PIPE,
                text=True,
            )
            for sent in (EXAMPLES / "net_new.json", broken)
        ]
        complete, failed = (run.communicate(timeout=60)[0].splitlines()[-1] for run in runs)
    assert complete.split() == ["COMPLETE", *["Everything", "is", "done."]]
    assert failed.startswith("FAILED invalid_payload The details that we were sent")
