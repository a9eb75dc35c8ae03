"""A replay of onboardings, against the services' own log: it calls none of them, and finds nothing that differs."""

from __future__ import annotations

import random

import pytest

from onboarding.samples import Kind
from onboarding.workflow import ONBOARDING
from tests.onboarding.test_compensation import fullest
from tests.sandbox_process import SandboxProcess
from workflows import testing
from workflows.features.doctor.replay import replay

pytestmark = testing.databases()


@pytest.mark.parametrize("step", ["", "request_clinical_review", "enroll_in_program"])
def test_the_list_that_it_ran_on_does_the_same_and_calls_no_service(
    step: str, seed: int, sandbox: SandboxProcess
) -> None:
    kind = Kind.CLINICAL_REVIEW if step == "request_clinical_review" else Kind.NET_NEW
    sample = fullest(kind, random.Random(f"{seed} {step}").randrange(10**9))
    fails = testing.Failure(step) if step and step != "request_clinical_review" else None
    run = testing.run(ONBOARDING, sample.payload, failure=fails, decide=lambda task: False)
    assert run.status == ("FAILED" if step else "COMPLETE")
    before = sandbox.effects()
    found = replay(run.workflow.pk, ONBOARDING)
    assert sandbox.effects() == before
    assert found.ends == found.history_ends, found.told()
    assert not found.differs, found.told()
