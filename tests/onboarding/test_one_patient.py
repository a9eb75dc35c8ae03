"""A second submission for one address and program: the same again, another person, or another day."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db.models import F

from onboarding.samples import Kind, sample
from tests.engine import work
from tests.onboarding.test_end_to_end import _connections_are_closed as _connections_are_closed
from tests.onboarding.test_end_to_end import enter
from tests.sandbox_process import SandboxProcess
from workflows.models import ManualTask, Workflow
from workflows.models.clock import ClockTimestamp

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "attempt_log"])


@pytest.mark.parametrize(
    ("days", "patient", "becomes"),
    [
        (0, {}, ("FAILED", "duplicate_of")),
        (7, {}, ("COMPLETE", "")),
        (0, {"first_name": "Beatrix", "date_of_birth": "2001-09-09"}, ("COMPLETE", "")),
        (0, {"first_name": "Beatrix"}, ("PENDING", "")),
    ],
    ids=["another tab", "a week later", "another person", "a typo"],
)
def test_each_is_charged_once_or_asked_about(
    sandbox: SandboxProcess, days: int, patient: dict[str, Any], becomes: tuple[str, str]
) -> None:
    sent = sample(Kind.EXISTING, seed=int(uuid4()))
    assert sent.account
    sandbox.account(**sent.account)
    first = work(enter(sent))
    assert first.status == "COMPLETE"
    ago = timedelta(days=days)
    Workflow.objects.filter(pk=first.pk).update(created_at=F("created_at") - ago, completed_at=ClockTimestamp() - ago)
    payload = deepcopy(sent.payload)
    payload["patient"] |= patient
    payload["payment"]["card_token"] = f"tok_{uuid4().hex}"
    second = work(enter(replace(sent, payload=payload, idempotency_key=uuid4())))
    assert (second.status, second.last_error_code) == becomes
    charged = [key for key in (first.key, second.key) if "payments charge" in effects(sandbox, key)]
    assert charged == [first.key, second.key][: 1 + (becomes[0] == "COMPLETE")]
    assert ManualTask.objects.filter(workflow=second).exists() == (becomes[0] == "PENDING")


def effects(sandbox: SandboxProcess, key: str) -> list[str]:
    return [" ".join(each) for each in sandbox.effects_of(key)]
