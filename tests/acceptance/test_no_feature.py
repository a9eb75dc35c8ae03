"""With no feature a workflow with all that the engine has runs through `runworker` and the console."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.acceptance.conftest import Start
from tests.acceptance.outside import now, submit
from tests.processes import until
from workflows.models import Attempt, Chore, Effect, ManualTask, Wait
from workflows.signals import store

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(("fails", "status", "effect"), [(False, "COMPLETE", "done"), (True, "FAILED", "undone")])
def test_retries_calls_waits_approvals_and_undos_need_no_feature(
    runworker: Start, effects: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool, status: str, effect: str
) -> None:
    row = submit("all_kinds", effects, {"fails": fails})
    worker = runworker("tests.acceptance.without_features.ALL_KINDS")
    until(Wait.objects.filter(workflow=row, outcome="").exists, what=lambda: worker.output)
    store.send(source="test", dedupe_key="1", name="paid", workflow_id=row.pk, payload={})
    until(ManualTask.objects.open().filter(workflow=row).exists, what=lambda: worker.output)
    monkeypatch.setattr("workflows.features.installed.EXTENSIONS", ())
    console = Client()
    console.force_login(User.objects.create_superuser("boss"))
    assert console.get(f"/admin/workflows/workflow/{row.pk}/change/").status_code == 200
    task = ManualTask.objects.get(workflow=row)
    console.post(f"/admin/workflows/manualtask/{task.pk}/decide/", {"decision": "approve", "reason": ""})
    until(lambda: now(row).status == status, what=lambda: worker.output)
    assert Effect.objects.get(workflow=row, undo=False).state == effect
    assert Attempt.objects.filter(workflow=row).order_by("id").values_list("outcome", flat=True)[0] == "retry"
    assert not Chore.objects.filter(name="release parked").exists(), "the worker has a feature"
