"""The clients of docs/examples send a submission to a real intake, and hear of its end from it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.acceptance.conftest import Start
from tests.sandbox_process import PROJECT, SandboxProcess
from tests.servers import database_url, gunicorn
from workflows.ingress import api_keys

pytestmark = pytest.mark.django_db(transaction=True)
EXAMPLES = PROJECT / "docs" / "examples"


@pytest.mark.parametrize("application", ["config.intake", "config.wsgi"])  # the console does not wait
@pytest.mark.parametrize(("program", "file"), [(sys.executable, "client.py"), ("node", "client.mjs")])
def test_a_client_hears_of_the_end_and_asks_every_five_seconds_at_most(
    program: str, file: str, application: str, runworker: Start, sandbox: SandboxProcess, tmp_path: Path
) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program} here")
    (broken := tmp_path / "broken.json").write_text("{}")
    asked = tmp_path / "asked.log"
    logged = {"GUNICORN_CMD_ARGS": f"--access-logfile={asked}"}
    with gunicorn(application, tmp_path, url=database_url(), **logged) as server:
        began = time.monotonic()
        runs = [
            subprocess.Popen(
                [program, EXAMPLES / file, f"http://127.0.0.1:{server.port}", api_keys.create("shop"), sent],
                stdout=subprocess.PIPE,
                text=True,
            )
            for sent in (EXAMPLES / "net_new.json", broken)
        ]
        runworker(WORKFLOWS="onboarding.workflow.ONBOARDING", SERVICES_URL=sandbox.url)
        complete, failed = (run.communicate(timeout=60)[0].splitlines()[-1] for run in runs)
    in_turns_of_five = (time.monotonic() - began) / 5 + 2
    assert 2 < asked.read_text().count("/v1/submissions") <= len(runs) * (1 + in_turns_of_five)
    assert complete.split() == ["COMPLETE", *["Everything", "is", "done."]]
    assert failed.startswith("FAILED invalid_payload The details that we were sent")
