"""Whatever fails in an onboarding, and wherever its worker dies: what the services have done is right in the end."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from onboarding.samples import Sample, samples
from onboarding.workflow import ONBOARDING
from tests.sandbox_process import SandboxProcess
from workflows import testing
from workflows.models import Effect

pytestmark = testing.databases()


@pytest.fixture
def sample(seed: int, request: pytest.FixtureRequest) -> Sample:
    """Another one for each test; the header of the run tells the seed that makes it again."""
    return next(samples(1, random.Random(f"{seed} {request.node.name}").randrange(10**9)))


@testing.every_failure(ONBOARDING)
def test_whatever_fails_is_undone(failure: testing.Failure, sample: Sample, sandbox: SandboxProcess) -> None:
    run = testing.check_compensation(ONBOARDING, sample.payload, failure)
    assert run.status == "FAILED"
    performed = Counter(sandbox.effects_of(run.workflow.key))
    assert performed["payments", "charge"] == performed["payments", "refund"]
    assert performed["programs", "enroll"] == performed["programs", "withdraw"]
    assert max(performed.values(), default=1) == 1


@testing.every_crash(ONBOARDING)
def test_wherever_its_worker_dies_nothing_is_done_twice(boundary: str, sample: Sample, sandbox: SandboxProcess) -> None:
    run = testing.run(ONBOARDING, sample.payload, crash=boundary)
    assert run.crashed
    assert run.status == "COMPLETE"
    assert sorted(sandbox.effects_of(run.workflow.key)) == sorted(sample.effects)
    recorded = Effect.objects.filter(workflow=run.workflow.pk, state="done").values_list("idempotency_key", flat=True)
    assert set(recorded) <= {effect["idempotency_key"] for effect in sandbox.effects()}
    assert len(recorded) == 6
