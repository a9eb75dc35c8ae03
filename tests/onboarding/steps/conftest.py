from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zlib import crc32

import pytest

from onboarding.context import OnboardingContext
from onboarding.payload import submission_of
from onboarding.samples import Kind, sample
from onboarding.services import tokens, visits
from tests.sandbox_process import SandboxProcess
from workflows.models import Workflow

Prepare = Callable[..., tuple[Workflow, OnboardingContext]]


@pytest.fixture
def prepare(sandbox: SandboxProcess, new_workflow: Callable[..., Workflow], request: pytest.FixtureRequest) -> Prepare:
    """A workflow of a kind whose patient has an account, a token and a visit: what a step in mid-list finds.

    `changes` replaces parts of the payload.
    """

    def prepare(kind: Kind = Kind.NET_NEW, **changes: Any) -> tuple[Workflow, OnboardingContext]:
        submission = sample(kind, seed=crc32(request.node.name.encode()))
        workflow = new_workflow(submission.payload | changes)
        email = f"{workflow.key}@example.com"
        account = sandbox.account(**(submission.account or {}) | {"email": email})
        workflow.payload["patient"]["email"] = email
        token = tokens.issue(account["patient_uuid"])  # type: ignore[arg-type]
        context = OnboardingContext(patient_uuid=token.patient_uuid, access_token=token.access_token)
        program = submission_of(workflow).checkout.program
        context.visit_uuid = visits.start(context.patient, program, token=context.token, idempotency_key=workflow.key)
        return workflow, context

    return prepare
