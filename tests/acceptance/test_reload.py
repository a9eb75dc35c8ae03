"""`manage.py runworker --reload`, while somebody edits a step."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from tests import engine
from tests.acceptance.conftest import Start
from tests.acceptance.outside import now
from tests.processes import until
from tests.servers import ROOT
from workflows.management import reloading

pytestmark = pytest.mark.django_db(transaction=True)

DEFINITION = """
from pydantic import BaseModel
from workflows.definition import WorkflowDefinition
class Context(BaseModel):
    said: str = ""
def say(*, workflow, context):
    return {"said": "first"}
EDITED = WorkflowDefinition(name="edited", steps=[say], context_class=Context)
"""


def test_each_change_starts_a_worker_anew_also_after_one_that_cannot_start(runworker: Start, tmp_path: Path) -> None:
    module = tmp_path / "edited.py"
    module.write_text(DEFINITION)
    worker = runworker("edited.EDITED", arguments=("--reload",), PYTHONPATH=str(tmp_path))

    def run() -> str:
        workflow = engine.submit({}, workflow_type="edited")
        until(lambda: now(workflow).status == "COMPLETE", what=lambda: worker.output)
        return str(now(workflow).context["said"])

    assert run() == "first"
    module.write_text(DEFINITION.replace("def say(", "def say(("))
    until(lambda: "SyntaxError" in worker.output, what=lambda: worker.output)
    module.write_text(DEFINITION.replace('"first"', '"second"'))
    assert run() == "second"
    assert worker.output.count(f"{module} has changed") == 2
    worker.interrupt()
    assert worker.wait() == 0
    assert "Traceback" not in worker.output


def test_new_modules_of_the_project_are_watched_and_installed_packages_are_not() -> None:
    folders = set(reloading._folders())
    assert {ROOT / "config", ROOT / "onboarding"} <= folders
    assert not [each for each in folders if "site-packages" in each.parts]


def test_outside_debug_it_is_refused() -> None:
    with pytest.raises(CommandError, match="--reload is for development"):
        call_command("runworker", "--reload")
