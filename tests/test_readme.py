"""What the README shows is what happens: its commands, run by a shell, against real processes."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from django.conf import settings

from tests.acceptance.conftest import Start, runworker, started
from tests.sandbox_process import SandboxProcess
from tests.servers import bash, gunicorn
from workflows.models import Workflow

__all__ = ["runworker", "started"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

EFFECTS = {
    ("accounts", "create_account"),
    ("visits", "start_visit"),
    ("profiles", "update_personal_information"),
    ("profiles", "update_phone_number"),
    ("profiles", "update_address"),
    ("visits", "save_questionnaire"),
    ("payments", "attach_card"),
    ("payments", "configure_billing"),
    ("messages", "set_communication_preferences"),
    ("payments", "charge"),
    ("programs", "enroll"),
    ("messages", "send_confirmation"),
}


def commands_of_the_readme() -> str:
    """The README's commands to send a submission."""
    (block,) = re.findall(r"```sh\n(.*?)```", (settings.BASE_DIR / "README.md").read_text(), flags=re.S)
    return str(block)


UNTIL_COMPLETE = """
for _ in $(seq 300); do
    curl -s http://127.0.0.1:8000/v1/submissions/$ID -H "Authorization: Bearer $KEY" | grep -q COMPLETE && break
    sleep 0.1
done
"""


def test_the_submission_of_the_readme_becomes_an_onboarded_patient(runworker: Start, tmp_path: Path) -> None:
    sandbox = SandboxProcess(tmp_path / "sandbox")
    try:
        runworker(SERVICES_URL=sandbox.url, WORKFLOWS="onboarding.workflow.ONBOARDING")
        with gunicorn("config.intake", tmp_path) as intake:
            script = commands_of_the_readme().replace(".venv/bin/python", sys.executable)
            script = script.replace("\nsleep 2\n", UNTIL_COMPLETE)  # on a busy machine it takes longer
            script = script.replace("127.0.0.1:8000", f"127.0.0.1:{intake.port}").replace(
                "http://127.0.0.1:8100", sandbox.url
            )
            printed = bash(script)
        effects = sandbox.effects()
    finally:
        sandbox.kill()

    workflow = Workflow.objects.get()
    assert "202 Accepted" in printed
    assert '"state": "queued"' in printed
    status = re.search(r'^\{"id": \d+, "status": "COMPLETE".*\}$', printed, flags=re.M)
    assert status, printed
    assert json.loads(status[0])["id"] == workflow.pk
    performed = [(effect["service"], effect["operation"]) for effect in effects]
    assert set(performed) == EFFECTS
    assert len(performed) == len(EFFECTS), "each of them once"
    assert printed.count(workflow.key) >= len(EFFECTS), "the last command lists them"
