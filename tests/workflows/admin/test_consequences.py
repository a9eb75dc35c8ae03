"""Before somebody confirms: what will happen to this very workflow."""

from __future__ import annotations

from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import words
from tests.workflows.admin.test_patient import PAYLOAD
from workflows.models import Event, ManualTask, Wait, Workflow
from workflows.telling.consequences import may_run_early, of_cancel, of_retry

pytestmark = pytest.mark.django_db

LATER = timedelta(hours=3)


def onboarding(**fields: Any) -> Workflow:
    return rows.workflow(workflow_type="onboarding", payload=PAYLOAD, **fields)


def failed(**fields: Any) -> Workflow:
    return onboarding(status="FAILED", completed_at=timezone.now(), **fields)


def call(row: Workflow, step: str, state: str = "done", generation: int = 1, **result: Any) -> None:
    key = f"{row.key}:{step}:{generation}"
    row.effects.create(
        step=step, state=state, generation=generation, attempt=1, idempotency_key=key, result=result or {}
    )


def test_a_retry_tells_which_calls_are_on_record_and_which_are_made() -> None:
    row = failed(last_error_code="program_full")
    call(row, "create_account")
    call(row, "execute_checkout", "undone", charge_id="ch_1")
    call(row, "enroll_in_program", "not_done")
    call(row, "start_visit", "unknown")
    told = list(of_retry(row))
    assert "1 call is on record and not made again: “Create the account”." in told
    checked = "We don't know yet whether this went through; it is checked automatically, and not done twice"
    assert f"{checked}: “Start the visit”." in told
    assert "Reversed before, and done again: “Charge the card”." in told
    (made,) = [line for line in told if line.startswith("Made where it applies")]
    assert "“Enrol in the program”" in made
    assert "“Charge the card”" not in made
    assert "Why it failed: The program is full. A retry alone may not fix that." in told


def test_a_step_that_is_not_kept_on_record_is_no_call_that_is_made() -> None:
    (made,) = [line for line in of_retry(failed()) if line.startswith("Made where it applies")]
    assert "“Create the account”" in made
    assert "“Get access to the account”" not in made


def test_cancelling_tells_what_is_given_back_what_is_reversed_and_what_stays() -> None:
    row = onboarding()
    call(row, "create_account")
    call(row, "start_visit")
    call(row, "execute_checkout", charge_id="ch_1")
    call(row, "enroll_in_program", "intent")
    told = list(of_cancel(row))
    assert "$145.00 is given back." in told
    assert "Reversed: “Charge the card”." in told
    assert "This stays: “Create the account”, “Start the visit”." in told
    assert "Unclear: “Enrol in the program”. That is found out, and what happened is reversed where it can be." in told


def test_what_is_decided_about_a_parent_or_a_child_tells_what_becomes_of_the_other(as_: Login) -> None:
    parent = rows.waiting()
    child = {"parent": parent, "parent_wait": "parcels"}
    rows.workflow(**child, child_key="a")
    rows.complete(**child, child_key="b")
    failed = rows.failed(**child, child_key="c")
    told = list(of_cancel(parent))
    assert "1 workflow that it has started is cancelled with it: what that has done" in " ".join(told)
    assert "1 workflow that it has started is complete: what was done there stays." in told
    assert not any(line.startswith("No call that") for line in told)
    task = f"/admin/workflows/manualtask/{ManualTask.objects.get(workflow=parent).pk}/change/"
    assert "since it asked" not in words(as_("support").get(task).content.decode())
    read = {"workflow": parent, "name": "parcels", "kind": "children", "outcome": "ended"}
    now = timezone.now()
    Wait.objects.create(**read, waiting_for="them", deadline=now, resolved_at=now)
    Workflow.objects.filter(parent=parent).update(completed_at=now - timedelta(hours=1), status="FAILED")
    assert "It goes on with that, whatever the retry does." in list(of_retry(failed))[-1]
    assert "since it asked" not in words(as_("support").get(task).content.decode())
    Workflow.objects.filter(pk=failed.pk).update(status="COMPLETE", completed_at=now + timedelta(hours=1))
    assert "1 workflow that it has started is under way again, or finished, since it asked." in words(
        as_("support").get(task).content.decode()
    )


def test_a_type_that_this_release_does_not_know_can_still_be_cancelled() -> None:
    row = rows.workflow(workflow_type="stranger")
    call(row, "charge")
    assert "This stays: “Charge”." in list(of_cancel(row))
    assert list(of_retry(row))


# --- Run now --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "deadline", "over", "may"),
    [
        ("signal", LATER, {}, True),  # it looks for itself meanwhile
        ("signal", LATER, {"superseded": True}, False),
        ("signal", LATER, {"outcome": "received"}, False),
        *((kind, timedelta(0), {}, False) for kind in ("approval", "time", "children", "signal")),
        *((kind, LATER, {}, False) for kind in ("approval", "time", "children")),
    ],
)
def test_run_now_is_offered_where_a_wait_may_have_ended(
    kind: str, deadline: timedelta, over: dict[str, Any], may: bool
) -> None:
    row = asleep(waiting_for="it")
    row.waits.create(kind=kind, name="it", waiting_for="it", deadline=row.invisible_until + deadline, **over)
    assert may_run_early(row) == may


def test_an_early_run_says_that_a_call_that_may_have_happened_is_not_made_twice(as_: Login) -> None:
    row = asleep(retry_count=5)
    call(row, "execute_checkout", "unknown")
    told = as_("support").get(f"/admin/workflows/workflow/{row.pk}/run_now/").context["consequences"]
    assert "and not done twice: “Charge the card”." in told[1]
    Workflow.objects.update(compensating=True)
    told = as_("support").get(f"/admin/workflows/workflow/{row.pk}/run_now/").context["consequences"]
    assert "three failures a person is asked, or after 45 at a service that does not answer" in told[2]


def asleep(**fields: Any) -> Workflow:
    return onboarding(invisible_until=timezone.now() + LATER, **fields)


# --- Reasons --------------------------------------------------------------------------------------------


def post(client: Any, row: Workflow, verb: str, **data: str) -> str:
    response = client.post(f"/admin/workflows/workflow/{row.pk}/{verb}/", data, follow=True)
    return unescape(response.content.decode())


def test_a_retry_has_the_usual_reasons_and_none_is_chosen_for_anybody(as_: Login) -> None:
    row, client = failed(last_error_code="program_full"), as_("support")
    page = unescape(client.get(f"/admin/workflows/workflow/{row.pk}/retry/").content.decode())
    assert "The cause is mended." in page
    assert " checked" not in page
    assert "This field is required" in post(client, row, "retry")
    assert "Say why." in post(client, row, "retry", why="other", reason=" ")
    assert not Event.objects.exists()
    post(client, row, "retry", why="The cause is mended.", reason="Ticket 12.")
    assert Event.objects.get(kind="retried").detail["reason"] == "The cause is mended. Ticket 12."
