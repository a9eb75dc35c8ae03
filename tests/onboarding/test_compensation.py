"""Whatever fails in an onboarding, waits, or kills its worker: what the services have done is right in the end."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from onboarding.samples import Kind, Sample, samples
from onboarding.workflow import ONBOARDING
from tests.sandbox_process import SandboxProcess
from workflows import testing
from workflows.models import Attempt, Effect, ManualTask

pytestmark = [testing.databases(), pytest.mark.slow]

# Its call only asks: the services' log knows nothing of it.
LOOKED_UP = "look_up_account"


@pytest.fixture
def sample(seed: int, sandbox: SandboxProcess, request: pytest.FixtureRequest) -> Sample:
    """Another one for each test, that needs every step; the header of the run tells the seed that makes it again.

    For `look_up_account` it is an existing patient's: for a new patient that step has no call to make.
    """
    kind = Kind.EXISTING if LOOKED_UP in request.node.name else Kind.NET_NEW
    sample = fullest(kind, random.Random(f"{seed} {request.node.name}").randrange(10**9))
    if sample.account:
        sandbox.account(**sample.account)
    return sample


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


@pytest.mark.slow
@testing.every_crash(ONBOARDING)
def test_wherever_its_worker_dies_nothing_is_done_twice(boundary: str, sample: Sample, sandbox: SandboxProcess) -> None:
    run = testing.run(ONBOARDING, sample.payload, crash=boundary)
    assert run.crashed
    assert run.status == "COMPLETE"
    assert sorted(sandbox.effects_of(run.workflow.key)) == sorted(sample.effects)
    done = Effect.objects.filter(workflow=run.workflow.pk, state="done")
    assert set(done.values_list("step", flat=True)) == once_steps_of(sample)
    recorded = done.exclude(step=LOOKED_UP).values_list("idempotency_key", flat=True)
    assert set(recorded) <= {effect["idempotency_key"] for effect in sandbox.effects()}
    assert len(recorded) == len(once_steps_of(sample) - {LOOKED_UP})


def once_steps_of(sample: Sample) -> set[str]:
    """Those that a submission of this kind goes through: it has one way to its account."""
    others = {Kind.NET_NEW: {LOOKED_UP}, Kind.EXISTING: {"create_account"}}[sample.kind]
    return {step.name for step in ONBOARDING.steps if step.once} - others


# Of a new patient's submission the step makes no call; a worker can die before that is known.
@pytest.mark.parametrize(
    ("boundary", "kind"),
    [("after_intent", Kind.NET_NEW), ("after_intent", Kind.EXISTING), ("after_call", Kind.EXISTING)],
)
def test_a_death_while_the_session_is_checked_asks_nobody_and_waits_for_nothing(
    boundary: str, kind: Kind, seed: int, sandbox: SandboxProcess
) -> None:
    sample = fullest(kind, random.Random(f"{seed} {boundary}").randrange(10**9))
    if sample.account:
        sandbox.account(**sample.account)
    run = testing.run(ONBOARDING, sample.payload, crash=f"{boundary}:{LOOKED_UP}")
    assert run.crashed
    assert run.status == "COMPLETE"
    assert Attempt.objects.filter(workflow=run.workflow.pk).count() == 2
    assert not ManualTask.objects.filter(workflow=run.workflow.pk).exists()


def test_a_clinicians_review_repeats_no_call_but_the_repeatable_ones(seed: int, sandbox: SandboxProcess) -> None:
    """Days may pass until then, in which the patient moves, or opts out of what we send."""
    sample = fullest(Kind.CLINICAL_REVIEW, seed)
    run = testing.run(ONBOARDING, sample.payload)
    assert run.status == "COMPLETE"
    assert sandbox.effects_of(run.workflow.key) == list(sample.effects)
    changing = [step.name for step in ONBOARDING.steps if step.once or step.repeatable]
    assert {name: run.called(name) for name in changing} == dict.fromkeys(changing, 1) | {
        "save_questionnaire": 2,
        LOOKED_UP: 2,  # which does not apply, and says so each time
    }
