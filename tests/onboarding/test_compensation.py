"""Whatever fails in an onboarding, waits, or kills its worker: what the services have done is right in the end."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from onboarding.samples import Kind, Sample, samples
from onboarding.workflow import ONBOARDING
from tests.sandbox_process import SandboxProcess
from workflows import testing
from workflows.models import Effect

pytestmark = testing.databases()


@pytest.fixture
def sample(seed: int, request: pytest.FixtureRequest) -> Sample:
    """Another one for each test, that needs every step; the header of the run tells the seed that makes it again."""
    return fullest(Kind.NET_NEW, random.Random(f"{seed} {request.node.name}").randrange(10**9))


def fullest(kind: Kind, seed: int) -> Sample:
    """A submission with insurance, preferences and an identity verification: every once step has a call to make."""
    return max((each for each in samples(300, seed) if each.kind is kind), key=lambda each: len(each.effects))


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
    assert len(recorded) == sum(step.once for step in ONBOARDING.steps)


def test_a_clinicians_review_repeats_no_call_but_the_repeatable_ones(seed: int, sandbox: SandboxProcess) -> None:
    """Days may pass until then, in which the patient moves, or opts out of what we send."""
    sample = fullest(Kind.CLINICAL_REVIEW, seed)
    run = testing.run(ONBOARDING, sample.payload)
    assert run.status == "COMPLETE"
    assert sandbox.effects_of(run.workflow.key) == list(sample.effects)
    changing = [step.name for step in ONBOARDING.steps if step.once or step.repeatable]
    assert {name: run.called(name) for name in changing} == dict.fromkeys(changing, 1) | {"save_questionnaire": 2}
