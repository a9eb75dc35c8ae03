from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from onboarding.samples import Kind, sample
from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import words
from workflows.console import workflow_page
from workflows.definition import Step, definitions
from workflows.models import Attempt, Effect, ManualTask, Workflow
from workflows.telling.steps import step_lines


def page(client: Client, row: Workflow, query: str = "") -> str:
    response = client.get(f"/admin/workflows/workflow/{row.pk}/change/{query}")
    assert response.status_code == 200
    return response.content.decode()


def sentence(html: str) -> str:
    found = re.search(r'<p class="standing[^>]*>(.*?)</p>', html, re.DOTALL)
    assert found
    return words(found[1])


def clock(at: Any) -> str:
    return f"{at:%H:%M:%S} UTC" if at.date() == timezone.now().date() else f"{at:%Y-%m-%d %H:%M} UTC"


def test_the_error_of_a_call_is_told_only_while_it_says_something(as_: Login) -> None:
    """Engineers see it also after a person, or a lookup, has said what happened."""
    row, support = rows.workflow(), as_("support")
    own: dict[str, Any] = {"step": "charge", "error_code": "busy", "attempt": 1}
    effect = Effect.objects.create(workflow=row, state="done", settled_by="lead", result={}, **own)

    def told() -> str:
        return words(page(support, row).split('id="effects"')[1].split("</section>")[0])

    for state, failures, is_told in [("done", 0, False), ("done", 1, True), ("undone", 0, False), ("unknown", 0, True)]:
        Effect.objects.filter(pk=effect.pk).update(state=state, undo_failures=failures)
        assert ("Something unforeseen happened." in told()) == is_told
        assert "busy" in told()
    assert f"{row.key}:charge" in told(), "the row leaves out its key"


# --- The sentence -------------------------------------------------------------------------------


STANDINGS: list[tuple[Callable[[], Workflow], str]] = [
    (rows.failed, "Failed at “Charge”: Something unforeseen happened. Ended at {completed}."),
    (
        rows.retrying,
        "“Charge” failed twice in a row. The last reason: Something unforeseen happened. The next try is at {due}.",
    ),
    (rows.waiting, "Waiting until {due}: May this parcel go out? Task {task}: Parcel review"),
    (rows.running, "Running since {opened}."),
    (rows.workflow, "Waiting for a worker since {due}."),
    (rows.complete, "Complete since {completed}."),
    (rows.cancelled, "Cancelled by some-support: Asked for by phone. Ended at {completed}."),
    (
        lambda: rows.cancelled(last_error_message="Cancelled by ada: By phone"),
        "Cancelled by ada: By phone. Ended at {completed}.",
    ),
    (lambda: rows.workflow(invisible_until=timezone.now() + timedelta(minutes=1)), "Paused until {due}."),
]


def test_it_says_where_a_workflow_stands_why_and_what_comes_next(as_: Login) -> None:
    support = as_("support")
    for make, said in STANDINGS:
        row = make()
        row.refresh_from_db()
        html = page(support, row)
        opened = Attempt.objects.filter(workflow=row).values_list("opened_at", flat=True).first()
        task = ManualTask.objects.filter(workflow=row).values_list("pk", flat=True).first()
        moments = {"due": row.invisible_until, "completed": row.completed_at, "opened": opened}
        assert sentence(html) == said.format(task=task, **{name: at and clock(at) for name, at in moments.items()})
        assert task is None or f'href="/admin/workflows/manualtask/{task}/change/"' in html


def test_one_whose_claim_was_lost_says_so(as_: Login) -> None:
    lost = rows.retrying()
    rows.event(lost, "put_back", attempt=2, detail={"reason": "Its claim was lost 3 times in a row."})
    said = f"Paused until {clock(lost.invisible_until)}: Its claim was lost 3 times in a row."
    assert sentence(page(as_("support"), lost)) == said


def test_it_says_why_a_workflow_is_undone_and_what_comes_next(as_: Login) -> None:
    support = as_("support")
    row = rows.compensating()
    why = "It failed at “Charge”: Something unforeseen happened. What it did is being reversed where it can be."
    assert sentence(page(support, row)) == f"{why} A worker does that as soon as one is free."
    Workflow.objects.update(waiting_for="Has someone reversed it?", invisible_until=timezone.now() + timedelta(days=1))
    row.refresh_from_db()
    assert sentence(page(support, row)) == f"{why} It waits for an answer: Has someone reversed it?"
    rows.attempt(row, number=2, closed_at=None)
    assert "A worker has been reversing it since" in sentence(page(support, row))
    tried = rows.compensating(invisible_until=timezone.now() + timedelta(minutes=1))
    undo = {"step": "charge", "undo": True, "outcome": "undo_failed", "error_code": "overdue"}
    rows.attempt(tried, 2, steps=[undo], outcome="retry")
    failed = "The last try, at “Charge”, failed: A step took too long, and was stopped. The next try is at"
    assert failed in sentence(page(support, tried))
    cancelled = page(support, rows.compensating(cancelled_at=timezone.now()))
    assert sentence(cancelled).startswith("It was cancelled. What it did is being reversed where it can be.")


# --- Steps --------------------------------------------------------------------------------------


def test_the_steps_are_those_of_the_run_that_failed_and_not_of_what_came_after(as_: Login) -> None:
    row = rows.failed()
    undone = [{"step": "charge", "undo": True, "outcome": "undone", "ms": 3}]
    rows.attempt(row, number=2, outcome="put_back", steps=[])
    rows.attempt(row, number=3, outcome="compensated", steps=undone)
    for generation, state in ((1, "undone"), (2, "done")):
        Effect.objects.create(workflow=row, step="reserve", state=state, generation=generation, result={}, attempt=1)
    Effect.objects.create(workflow=row, step="charge", state="undone", attempt=1)
    response = as_("support").get(f"/admin/workflows/workflow/{row.pk}/change/")
    assert response.context["attempt"].number == 1
    assert [(line.name, line.label, line.error, line.note) for line in response.context["steps"]] == [
        ("reserve", "Ran", "", ""),
        ("review", "Skipped", "", ""),
        ("charge", "Failed", "Something unforeseen happened.", "reversed since"),
        ("thank", "Not reached", "", ""),
    ]
    assert response.context["standing"].startswith("Failed at “Charge”: ")
    assert response.context["standing"].endswith("\nReversed since: “Charge”.")
    assert response.context["small_print"] == "attempt 1, charge, card_declined: The card was declined."
    (third, steps, _), _ = response.context["attempts"]
    assert (third.attempt.number, steps[0].label) == (3, "Reversed")
    rows.attempt(row, number=4, outcome="killed", died_in="undo charge")
    rows.attempt(row, number=5, outcome="lost", died_in="undo charge", steps=[{**undone[0], "outcome": "undo_failed"}])
    assert as_("support").get(f"/admin/workflows/workflow/{row.pk}/change/").context["attempt"].number == 1


def steps_of(row: Workflow) -> list[tuple[str, str, str]]:
    attempt = Attempt.objects.filter(workflow=row, closed_at__isnull=False).order_by("-number").first()
    lines = step_lines(definitions().get(row.workflow_type), attempt)
    return [(line.name, line.label, line.error or line.note) for line in lines]


def test_a_step_that_failed_and_was_passed_over_is_said_on_top(as_: Login) -> None:
    row = rows.complete()
    failure = {"error_class": "RetryableStepError", "error_code": "", "error_message": "Busy."}
    rows.attempt(
        row, outcome="complete", steps=[{"step": "thank", "outcome": "best_effort_failed", "ms": 1, **failure}]
    )
    assert ("thank", "Failed, and passed over", "Something unforeseen happened.") in steps_of(row)
    assert "went on without it. Thank: Something unforeseen happened." in page(as_("support"), row)


def test_a_step_is_found_under_its_former_name_and_one_that_is_gone_is_kept(
    as_: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed = (*rows.PARCEL.steps[:-1], Step(rows.thank, name="farewell", formerly=("thank",)))
    monkeypatch.setattr(rows.PARCEL, "steps", renamed)
    row = rows.complete()
    rows.attempt(row, steps=[{"step": "thank", "outcome": "ran", "ms": 1}, {"step": "wrap", "outcome": "ran", "ms": 2}])
    assert steps_of(row)[-2:] == [("thank", "Ran", ""), ("wrap", "Ran", "no longer in the list")]


def test_a_traceback_is_for_engineers(as_: Login) -> None:
    row = rows.complete()
    rows.attempt(row, traceback="parcel.py:12 in charge")
    assert "parcel.py:12 in charge" in page(as_("engineer"), row)
    assert "parcel.py:12 in charge" not in page(as_("support"), row)


# --- History ------------------------------------------------------------------------------------


def history(html: str) -> list[str]:
    lines = re.findall(r'<li class="line[^>]*>.*?</time>(.*?)</li>', html, re.DOTALL)
    return [words(line) for line in lines]


def test_the_history_tells_engine_and_people_together_newest_first(as_: Login) -> None:
    row = rows.failed(submitted_by="web")
    at = timezone.now() + timedelta(minutes=1)
    error = {"error_class": "RetryableStepError", "error_code": "busy", "error_message": ""}
    rows.event(row, "waiting", step="review", detail={"waiting_for": "a review", "until": at.isoformat()})
    rows.event(row, "approved", actor="anna", detail={"reason": "Fine.", "task": 1})
    retry = {**error, "failures": 1, "max_attempts": 10, "invisible_until": at.isoformat()}
    rows.event(row, "retry_scheduled", attempt=2, step="charge", detail=retry)
    rows.event(row, "best_effort_failed", step="thank", detail=error)
    rows.event(row, "failed", attempt=3, step="charge", detail=error)
    rows.event(row, "retried", actor="boss", detail={"reason": "Again."})
    assert history(page(as_("support"), row)) == [
        "Retried by boss Again.",
        "Failed attempt 3 Charge: Something unforeseen happened. charge, busy",
        "Best-effort step failed Thank: Something unforeseen happened. thank, busy",
        "Retry scheduled attempt 2 Charge, failure 1 of 10: Something unforeseen happened. "
        f"Next attempt at {clock(at)} charge, busy",
        "Approved by anna Fine.",
        f"Waiting Review, until {clock(at)}: a review review",
        "Submitted by web",
    ]


def test_a_long_history_goes_on_from_the_last_line_shown(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow_page, "EVENTS_SHOWN", 2)
    row = rows.complete()
    events = [rows.event(row, "retried", actor=f"p{number}", detail={}) for number in range(3)]
    first = page(as_("support"), row)
    assert history(first) == ["Retried by p2", "Retried by p1"]
    assert f'href="?before={events[1].pk}"' in first
    assert history(page(as_("support"), row, f"?before={events[1].pk}")) == ["Retried by p0", "Submitted"]


# --- For whoever has the patient on the phone -----------------------------------------------------


def onboarding(**fields: Any) -> Workflow:
    return rows.workflow(workflow_type="onboarding", payload=sample(Kind.PROGRAM_FULL).payload, **fields)


def test_it_says_what_to_tell_the_patient_who_they_are_and_where_their_money_is(as_: Login) -> None:
    row = onboarding(
        status="FAILED", completed_at=timezone.now(), current_step="enroll_in_program", last_error_code="program_full"
    )
    paid = {"charge_id": "ch_1a2b", "payment_status": "paid"}
    for state, undo, result in (("undone", False, paid), ("done", True, {"refund_id": "re_9"})):
        row.effects.create(
            step="execute_checkout",
            undo=undo,
            state=state,
            result=result,
            attempt=1,
            idempotency_key=f"{row.key}{undo}",
            settled_at=timezone.now(),
            settled_by="call",
        )
    html = unescape(page(as_("support"), row))
    assert "The program is full, so we could not enrol you. Your payment was refunded." in html
    assert re.search(r"\$[\d.,]+ charged at \S+ UTC, ch_1a2b; refunded at \S+ UTC, re_9\.", words(html))
    patient = row.payload["patient"]
    assert f"ending {patient['phone'][-2:]}" in html
    for value in (patient["email"], patient["phone"], patient["first_name"] + " "):
        assert value not in html
