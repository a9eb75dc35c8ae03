"""Services that fail in every way they can: onboarding completes all the same, and does nothing twice."""

from collections import Counter
from typing import Any

import pytest

from onboarding.samples import Kind
from tests.acceptance.faults.harness import STEADY, System, assert_nothing_twice, fired
from workflows.models import Effect, Event, FollowUp

pytestmark = pytest.mark.django_db(transaction=True)

EACH = 2  # times that each fault strikes

# Seconds: longer than a call waits for its answer.
PAST_THE_TIMEOUT = 2.5

FAULTS: list[tuple[str, str, str, dict[str, Any]]] = [
    # In doubt afterwards: a once step's.
    ("accounts", "create_account", "timeout_after", {}),
    ("visits", "start_visit", "half", {}),
    ("payments", "charge", "status", {"status": 500}),
    ("payments", "find_charge", "status", {"status": 503}),
    ("programs", "enroll", "drop_after", {}),
    # Refused, or harmless to repeat.
    ("accounts", "find_account", "drop_after", {}),
    ("tokens", "issue_token", "half", {}),
    ("profiles", "update_personal_information", "status", {"status": 500}),
    ("profiles", "update_phone_number", "timeout_after", {}),
    ("profiles", "update_address", "slow", {"delay_s": PAST_THE_TIMEOUT}),
    ("insurance", "save_insurance", "status", {"status": 429}),
    ("visits", "save_questionnaire", "drop_after", {}),
    ("payments", "configure_billing", "half", {}),
    # Best effort: failed, and passed over.
    ("insurance", "verify_insurance", "status", {"status": 500}),
    ("messages", "send_confirmation", "drop_after", {}),
]


def test_onboarding_completes_whatever_its_services_do(system: System) -> None:
    armed = {
        system.sandbox.fault(service, operation, kind, count=EACH, **more)["id"]: (service, operation, kind)
        for service, operation, kind, more in FAULTS
    }
    # One whose enrolment is refused, and the answer lost, has none to be found.
    system.submit(16, STEADY - {Kind.PROGRAM_FULL})
    system.work(processes=3)
    system.wait_until_at_rest()
    system.stop()
    assert {armed[id]: times for id, times in fired(system.sandbox).items()} == dict.fromkeys(armed.values(), EACH)
    assert_nothing_twice(system)
    looked_up = Counter(Effect.objects.filter(settled_by="lookup").values_list("step", flat=True))
    # At least: on a busy machine other calls may have to wait too long for their answers.
    assert min(looked_up["create_account"], looked_up["enroll_in_program"]) >= EACH
    failed = Event.objects.filter(kind__in=("best_effort_failed", "follow_up_failed"))
    assert Counter(failed.values_list("step", flat=True))["send_confirmation"] >= EACH
    assert not FollowUp.objects.exists()
