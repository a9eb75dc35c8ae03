"""Services that fail in every way they can; and of a call in doubt, every way to find out whether it has happened."""

from collections import Counter
from typing import Any

import pytest

from onboarding.samples import Kind
from tests.acceptance.faults import definitions
from tests.acceptance.faults.doubts import how_doubts_ended
from tests.acceptance.faults.harness import STEADY, System, assert_nothing_twice, fired, of
from tests.acceptance.outside import attempts
from workflows.models import Attempt, Event, FollowUp, Workflow

pytestmark = pytest.mark.django_db(transaction=True)

EACH = 2  # times that each fault strikes

# Seconds: longer than a call waits for its answer.
PAST_THE_TIMEOUT = 2.5
# Seconds for an answer, where no other call may be in doubt, however busy the machine is: below `settle`.
PATIENT = {"SERVICES_TIMEOUT": "2.8"}

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
    ways = how_doubts_ended(system)
    # At least: on a busy machine other calls may have to wait too long for their answers.
    assert ways["create_account", "looked up, found"] >= EACH
    assert ways["start_visit", "repeated under its key"] >= 1
    assert ways["enroll_in_program", "looked up, found"] >= EACH
    assert ways["execute_checkout", "looked up, not found, called again"] >= 1
    failed = Event.objects.filter(kind__in=("best_effort_failed", "follow_up_failed"))
    assert Counter(failed.values_list("step", flat=True))["send_confirmation"] >= EACH
    assert not FollowUp.objects.exists()


def keys_of(workflow: Workflow, operation: str, system: System) -> list[str]:
    own = of(workflow, system.sandbox.effects())
    return [effect["idempotency_key"] for effect in own if effect["operation"] == operation]


def run_one(system: System, kind: str, **more: Any) -> Workflow:
    """A charge that nobody but a person can tell about, and a fault in its midst."""
    fault = system.sandbox.fault("payments", "charge", kind, count=1, **more)["id"]
    workflow = system.enter("asked")
    system.work("ASKED", **PATIENT)
    system.wait_until_at_rest()
    system.stop()
    assert fired(system.sandbox)[fault] == 1
    assert_nothing_twice(system, definitions.ASKED)
    *unsettled, waited, completed = attempts(workflow)
    assert (set(unsettled), waited, completed) == ({"retry"}, "waiting", "complete")
    return workflow


def test_of_a_call_in_doubt_a_person_says_that_it_happened(system: System) -> None:
    workflow = run_one(system, "drop_after")
    assert how_doubts_ended(system) == {("charge", "a person's yes"): 1}
    assert keys_of(workflow, "charge", system) == [f"{workflow.key}:charge"]
    charged = system.performed_under(f"{workflow.key}:charge")
    assert charged
    assert Workflow.objects.get(pk=workflow.pk).context["charge_id"] == charged["charge_id"]


@pytest.mark.parametrize(("kind", "more"), [("status", {"status": 500}), ("replay_500", {})])
def test_of_a_call_in_doubt_a_person_says_that_it_did_not_happen(
    system: System, kind: str, more: dict[str, Any]
) -> None:
    """It gets a new key. A service that has stored its 500 would answer the old one with it for ever."""
    workflow = run_one(system, kind, **more)
    assert how_doubts_ended(system) == {("charge", "a person's no, called again under a new key"): 1}
    assert keys_of(workflow, "charge", system) == [f"{workflow.key}:charge:2"]


def test_a_stored_500_that_is_replayed_is_asked_about_until_the_service_is_mended(system: System) -> None:
    fault = system.sandbox.fault("payments", "charge", "replay_500", count=1)["id"]
    workflow = system.enter("paid")
    system.work("PAID", **PATIENT)

    def asked_again() -> bool:
        failures = [entry for each in Attempt.objects.filter(workflow=workflow) for entry in each.steps]
        return len([entry for entry in failures if entry.get("error_class", "").endswith("UnknownOutcome")]) > 1

    system.wait_until(asked_again)
    assert fired(system.sandbox)[fault] == 1, "the others were answered from memory"
    system.sandbox.clear_faults()
    system.wait_until_at_rest()
    system.stop()
    assert how_doubts_ended(system) == {("charge", "looked up, not found, called again"): 1}
    assert keys_of(workflow, "charge", system) == [f"{workflow.key}:charge"]
    assert_nothing_twice(system, definitions.PAID)
