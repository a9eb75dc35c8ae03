"""Two submissions of one patient under two keys, as two tabs send them: one is done, however workers die meanwhile."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from itertools import islice
from uuid import uuid4

import pytest

from onboarding.samples import Kind, samples
from tests.acceptance.faults.harness import System, assert_nothing_twice
from workflows.models import Effect, Workflow

pytestmark = pytest.mark.django_db(transaction=True)

PAIRS = 20
WORKERS = 6


def test_of_two_submissions_of_one_patient_one_is_charged(system: System) -> None:
    existing = (each for each in samples(PAIRS * 20, system.seed) if each.kind is Kind.EXISTING)
    for sample in islice(existing, PAIRS):
        first = system._enter(sample)
        second = system._enter(replace(sample, account=None, idempotency_key=uuid4()))
        system.given |= {first.pk: None, second.pk: None}  # either may be the one that is done
    system.work(processes=WORKERS)

    def at_rest_but_for_losses() -> bool:
        time.sleep(0.5)
        if system.met["a worker lost"] < PAIRS:
            system.lose_a_worker()
        return system.at_rest()

    system.wait_until(at_rest_but_for_losses)
    system.stop()
    ended = Counter(Workflow.objects.values_list("status", "last_error_code"))
    assert ended == {("COMPLETE", ""): PAIRS, ("FAILED", "duplicate_of"): PAIRS}
    assert not Effect.objects.filter(workflow__status="FAILED").exists(), "a duplicate calls nothing"
    for operation in ("charge", "enroll"):
        patients = [each["patient_uuid"] for each in system.sandbox.effects() if each["operation"] == operation]
        assert Counter(Counter(patients).values()) == {1: PAIRS}
    assert_nothing_twice(system)
