"""`manage.py workflow`: of one workflow, and of many, what the console does; in whose name, and what it ends with."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import transaction
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.test_consequences import call, onboarding
from tests.workflows.operations.test_bulk import member, slice_after
from workflows import times
from workflows.models import Access, BulkItem, BulkOperation, Event, Pause, Workflow
from workflows.telling import consequences

pytestmark = pytest.mark.django_db(transaction=True)

WHY = ("--reason", "The bank is back.")


def run(*arguments: object, actor: User) -> Any:
    out = StringIO()
    call_command("workflow", *map(str, arguments), "--actor", actor.get_username(), "--json", stdout=out)
    return json.loads(out.getvalue())


def failed(**fields: Any) -> Workflow:
    return onboarding(status="FAILED", completed_at=timezone.now(), current_step="execute_checkout", **fields)


def refunded() -> Workflow:
    row = failed(last_error_code="program_full")
    call(row, "execute_checkout", "undone", charge_id="ch_1")
    return row


def status_of(row: Workflow) -> str:
    return Workflow.objects.values_list("status", flat=True).get(pk=row.pk)


@pytest.fixture
def lead() -> User:
    return member("support lead")


def test_it_shows_what_the_page_says_by_number_and_by_key_and_nothing_of_the_patient() -> None:
    row = refunded()
    rows.event(row, "retried", actor="ada", detail={"reason": "Once more."})
    told = run("show", row.pk, actor=member("auditor"))
    assert told == run("show", row.key, actor=User.objects.get())
    assert (told["workflow"], told["state"]) == (row.pk, "failed")
    assert told["stands"].startswith("Failed at “Charge the card”: The program is full.")
    assert "$145.00 charged" in told["money"]
    assert [(each["what"], each["by"], each["text"]) for each in told["history"]] == [("Retried", "ada", "Once more.")]
    assert not [part for part in row.payload["patient"].values() if str(part) in json.dumps(told)]


def test_a_retry_says_first_what_is_charged_again_and_then_asks_for_it(lead: User) -> None:
    row = refunded()
    would = run("retry", row.pk, *WHY, "--dry-run", actor=lead)["what_happens"]
    assert "The card will be charged again: $145.00." in would
    assert (status_of(row), Event.objects.count()) == ("FAILED", 0)
    assert Access.objects.values_list("workflow", "actor", "kind").get() == (row.pk, lead.username, "viewed")
    assert run("retry", row.pk, *WHY, actor=lead)["what_happens"] == would
    assert would[0] == "Nothing happens yet: another user has to confirm it."
    assert status_of(row) == "FAILED"
    assert Event.objects.values_list("kind", "actor", "detail__reason").get() == (
        "confirmation_asked",
        lead.username,
        WHY[1],
    )


def test_a_cancellation_says_what_is_given_back(lead: User) -> None:
    row = onboarding(current_step="enroll_in_program")
    call(row, "execute_checkout", charge_id="ch_1")
    assert "$145.00 is given back." in run("cancel", row.pk, *WHY, "--dry-run", actor=lead)["what_happens"]
    assert status_of(row) == "PENDING"
    assert run("cancel", row.pk, *WHY, actor=lead)["done"].startswith("It is cancelled; a worker now reverses")
    assert Workflow.objects.get().compensating


@pytest.mark.parametrize("verb", ["retry", "cancel"])
def test_what_has_changed_since_it_was_told_is_refused(verb: str, lead: User, monkeypatch: pytest.MonkeyPatch) -> None:
    row = refunded() if verb == "retry" else onboarding(current_step="enroll_in_program")
    tell = getattr(consequences, f"of_{verb}")

    def told_late(of: Workflow) -> Any:
        yield from tell(of)
        if verb == "retry":
            Workflow.objects.update(completed_at=timezone.now())
        else:
            call(row, "execute_checkout", charge_id="ch_1")

    monkeypatch.setattr(consequences, f"of_{verb}", told_late)
    with pytest.raises(CommandError, match="since you looked"):
        run(verb, row.pk, *WHY, actor=lead)


def test_what_waits_is_run_now(lead: User) -> None:
    row = rows.retrying()
    run("run-now", row.pk, actor=lead)
    assert Workflow.objects.due().get() == row


def test_it_is_paused_prolonged_and_resumed(lead: User) -> None:
    row = rows.waiting()
    would = run("pause", row.pk, "--until", "4h", *WHY, "--dry-run", actor=lead)
    assert "It does not go on by itself: when the time is over, it is overdue in “For you”." in would["what_happens"]
    assert not Pause.objects.exists()
    for hours in (4, 8):
        done = run("pause", row.pk, "--until", f"{hours}h", *WHY, actor=lead)["done"]
        pause = Pause.objects.get()
        assert abs(pause.until - timezone.now() - timedelta(hours=hours)) < timedelta(minutes=5)
        assert done == f"It is paused until {times.both(pause.until)}."
    run("resume", row.pk, actor=lead)
    assert (Pause.objects.count(), Workflow.objects.due().get()) == (0, row)
    assert list(Event.objects.order_by("pk").values_list("kind", flat=True)) == ["paused", "paused", "resumed"]
    for arguments, why in (
        (["resume"], "has paused or resumed it since"),
        (["pause", "--until", "8d", *WHY], "for 7 days at the most"),
        (["pause", "--until", "1h"], "a pause needs a reason"),
    ):
        with pytest.raises(CommandError, match=why):
            run(arguments[0], row.pk, *arguments[1:], actor=lead)
    with pytest.raises(CommandError, match="lacks the right"):
        run("pause", row.pk, "--until", "1h", *WHY, actor=member("approver"))


def test_who_may_not_is_refused_as_in_the_console() -> None:
    paid, support, approver = refunded(), member("support"), member("approver")
    nobody = User.objects.create_user("nobody")
    gone = User.objects.create_superuser("gone", is_active=False)
    for who, why in (
        (support, "a retry charges again"),
        (approver, "lacks the right workflows.retry_workflow"),
        (nobody, "no active user nobody"),
        (gone, "no active user gone"),
        (User(username="who"), "no active user who"),
    ):
        for dry_run in ([], ["--dry-run"]):
            with pytest.raises(CommandError, match=why):
                run("retry", paid.pk, *WHY, *dry_run, actor=who)
    support.user_permissions.clear()
    support.groups.clear()
    with pytest.raises(CommandError, match="lacks the right workflows"):
        run("show", paid.pk, actor=support)
    assert status_of(paid) == "FAILED"


def test_an_unknown_workflow_is_said_to_be_none(lead: User) -> None:
    for given in ("0", "9" * 30, "٣", "3f0c8f0e-9c3e-4f6e-8a51-0d3c6a3a9b11", "4711; drop"):
        with pytest.raises(CommandError, match="There is no workflow"):
            run("show", given, actor=lead)


# --- Many -----------------------------------------------------------------------------------------------


def working(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the command waits, a worker carries out a slice."""

    @transaction.atomic
    def work(seconds: float) -> None:
        slice_after(BulkOperation.objects.get(), 1)

    monkeypatch.setattr("workflows.features.bulk.command.sleep", work)


def test_those_of_a_cause_are_retried_and_no_others(lead: User, monkeypatch: pytest.MonkeyPatch) -> None:
    working(monkeypatch)
    row = failed(last_error_code="program_full")
    others = [failed(last_error_code="card_declined"), rows.failed(last_error_code="program_full")]
    acknowledged = failed(last_error_code="program_full")
    Workflow.objects.filter(pk=acknowledged.pk).update(acknowledged_failure=acknowledged.completed_at)
    cause = ("--type", "onboarding", "--step", "execute_checkout", "--code", "program_full")
    assert run("bulk", "retry", *cause, *WHY, "--dry-run", actor=lead)["chosen"] == 1
    assert not BulkOperation.objects.exists()
    told = run("bulk", "retry", *cause, *WHY, "--pace", 50, actor=lead)
    assert (told["selected"], told["accepted"], told["state"], told["pace"]) == (1, 1, "carried_out", 50)
    assert (told["stands"], told["became"]) == (
        "It is retried. 0 complete, 1 under way.",
        [{"what": "under way", "number": 1}],
    )
    assert run("bulk", "list", actor=lead)["bulk_operations"][0]["became"] == "0 complete, 1 under way"
    assert [status_of(each) for each in (row, *others, acknowledged)] == ["PENDING", *["FAILED"] * 3]
    assert run("bulk", "show", told["bulk"], actor=lead)["chosen_by"] == (
        "type: onboarding; step: execute_checkout; code: program_full; urgency: failed and not acknowledged"
    )


def test_the_failures_of_a_time_are_chosen_though_acknowledged(lead: User) -> None:
    rows.failed(completed_at=timezone.now() - timedelta(hours=5))
    recent = rows.failed(completed_at=timezone.now() - timedelta(hours=2))
    run("bulk", "acknowledge", "--since", "3h", "--until", "1h", *WHY, "--detach", actor=lead)
    assert BulkItem.objects.get().row == recent.pk


def test_what_is_parked_is_cancelled_and_what_is_skipped_shows_in_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    working(monkeypatch)
    support = member("support")
    parked = rows.parked()
    paid = onboarding(parked_on=parked.parked_on, invisible_until=parked.invisible_until)
    call(paid, "execute_checkout", charge_id="ch_1")
    with pytest.raises(SystemExit) as ended:
        run("bulk", "cancel", "--parked-on", "payments", *WHY, actor=support)
    assert ended.value.code == 3
    assert [status_of(parked), status_of(paid)] == ["FAILED", "PENDING"]
    assert "1 is left alone: It has been charged, or may have been" in capsys.readouterr().err


def test_ctrl_c_leaves_it_running(
    lead: User, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("workflows.features.bulk.command.sleep", interrupt)
    rows.failed()
    with pytest.raises(SystemExit) as ended:
        run("bulk", "retry", "--type", rows.failed().workflow_type, *WHY, actor=lead)
    made = BulkOperation.objects.get()
    assert (ended.value.code, made.state) == (130, "running")
    assert f"bulk stop {made.pk}" in capsys.readouterr().err


def test_it_is_paused_resumed_and_stopped(lead: User) -> None:
    made = rows.bulk_operation(lead, rows.failed(), state="running")
    assert [run("bulk", verb, made.pk, actor=lead)["state"] for verb in ("pause", "resume", "stop")] == [
        *("paused", "running", "cancelled"),
    ]
    assert [each["bulk"] for each in run("bulk", "list", actor=lead)["bulk_operations"]] == [made.pk]


def test_many_wait_for_another_user(lead: User) -> None:
    for _ in range(21):
        rows.failed(last_error_code="unreachable")
    with pytest.raises(SystemExit) as ended:
        run("bulk", "retry", "--code", "unreachable", *WHY, actor=member("support"))
    made = BulkOperation.objects.get()
    assert (ended.value.code, made.state) == (3, "asked")
    assert run("bulk", "approve", made.pk, actor=lead)["state"] == "running"


def test_what_makes_no_sense_is_refused(lead: User) -> None:
    rows.failed(last_error_code="boom")
    wrong = [
        (["retry"], "at least one filter"),
        (["cancel", "--type", "onboarding"], "or --parked-on"),
        (["cancel", "12"], "bulk stop"),
        (["retry", "--type", "shipping"], "no type shipping"),
        (["retry", "--code", "none_has_it"], "no row matches"),
        (["retry", "--until", "1h"], "--since, too"),
        (["retry", "--code", "x", "--since", "yesterday"], "is not a time"),
        (["run-now", "--state", "failed"], "invalid choice"),
        (["show", "12"], "no bulk operation 12"),
        (["stop", "x"], "no bulk operation 'x'"),
        (["retry", "--code", "boom", "--pace", "0"], "between 1 and 50"),
    ]
    for given, why in wrong:
        with pytest.raises(CommandError, match=why):
            run("bulk", *given, *(WHY if given[0] != "show" else ()), actor=lead)
    assert not BulkOperation.objects.exclude(state="draft").exists()
