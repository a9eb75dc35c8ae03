"""Signals that no step waits for just now: how they end a back-off, and how long they are kept."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.utils import timezone

from tests import engine
from tests.engine import define, do_maintenance, elsewhere, submit, work, worker
from tests.workflows.waits.signals import await_signals, tell
from workflows import operations
from workflows.errors import ClaimLost, RetryableStepError
from workflows.models import Attempt, Signal, Workflow
from workflows.postgres.statements import execute

pytestmark = engine.ENGINE


# --- A retry ------------------------------------------------------------------------------------------


def fail_until_told(*, workflow: Workflow, context: Any) -> None:
    raise RetryableStepError("Not yet.", wake_on="account.created", base_delay=300)


@pytest.mark.parametrize("linked", [False, True])
def test_a_retry_is_cut_short_by_a_signal_that_its_error_names_and_its_attempt_has_not_seen(linked: bool) -> None:
    define([fail_until_told])
    workflow = submit(linking_id="acc-1")
    address = None if linked else workflow
    tell(address, "account.created", 1, linking_id="acc-1")
    workflow = work(workflow)
    do_maintenance()
    assert worker().process_next() is False, "an old signal would wake it in a hot loop"
    tell(address, "account.updated", 2, linking_id="acc-1")
    do_maintenance()
    assert worker().process_next() is False, "it is not what it waits for"
    tell(address, "account.created", 2, linking_id="acc-1")
    workflow = work(workflow)
    assert workflow.retry_count == 2
    do_maintenance()
    assert worker().process_next() is False


def test_a_signal_does_not_wake_what_is_rescheduled_because_its_claim_is_lost_again_and_again() -> None:
    def lose_the_claim(*, workflow: Workflow, context: Any) -> None:
        if Attempt.objects.filter(workflow=workflow.pk).count() > 1:
            execute("SELECT pg_terminate_backend(pg_backend_pid())")

    define([lose_the_claim, await_signals("paid")])
    workflow = work(submit())
    tell(workflow, "paid")
    this = worker()
    for _ in range(2):
        with pytest.raises((ClaimLost, OperationalError)):
            this.process_next()
        this.in_hand.close_lost()
    do_maintenance()
    assert this.process_next() is False
    workflow.refresh_from_db()
    assert workflow.invisible_until > timezone.now()


@pytest.mark.parametrize("linked", [False, True])
def test_a_signal_that_came_with_a_copy_of_the_database_wakes_no_retry_in_a_hot_loop(linked: bool) -> None:
    """Restored into another cluster, the numbers of its transactions are of no meaning, and may be far ahead."""
    define([fail_until_told])
    workflow = submit(linking_id="acc-1")
    tell(None if linked else workflow, "account.created", 1, linking_id="acc-1")
    execute("UPDATE workflows_signal SET stored_in = (stored_in::text::bigint + 1000000)::text::xid8")
    work(workflow)
    do_maintenance()
    assert worker().process_next() is False


# --- The end of a workflow ----------------------------------------------------------------------------


def test_a_signal_for_a_workflow_that_has_ended_is_stored_and_ignored() -> None:
    define([await_signals("paid")])
    workflow = submit()
    tell(workflow, "paid")
    workflow = work(workflow)
    tell(workflow, "paid", 2)
    late = Signal.objects.get(dedupe_key="paid:2")
    assert late.ignored
    assert late.closed_at is not None
    assert worker().process_next() is False


def test_what_nobody_has_used_is_put_aside_as_the_workflow_ends_and_heeded_again_when_it_is_retried() -> None:
    mended: list[bool] = []

    def fail_at_first(*, workflow: Workflow, context: Any) -> None:
        if not mended:
            raise ValueError

    define([fail_at_first, await_signals("paid")])
    workflow = submit()
    tell(workflow, "paid", 1)
    assert work(workflow).status == "FAILED"
    assert Signal.objects.get().ignored
    mended.append(True)
    operations.retry(workflow.pk, user=User.objects.create(username="boss", is_superuser=True))
    assert work(workflow).context["number"] == 1
    assert not Signal.objects.get().ignored


def test_one_that_comes_in_the_moment_of_the_end_is_put_aside_by_maintenance() -> None:
    def be_told(*, workflow: Workflow, context: Any) -> None:
        elsewhere(lambda: tell(workflow, "paid"))

    define([be_told])
    assert work(submit()).status == "COMPLETE"
    assert not Signal.objects.get().ignored
    do_maintenance()
    assert Signal.objects.get().ignored


# --- Linking ids --------------------------------------------------------------------------------------


def age(signal: Signal, days: int) -> None:
    Signal.objects.filter(pk=signal.pk).update(created_at=timezone.now() - timedelta(days=days))


def test_one_of_a_linking_id_is_kept_as_long_as_a_workflow_that_has_it_is_under_way() -> None:
    define([await_signals("account.created")])
    submit(linking_id="acc-1", invisible_until=timezone.now() + timedelta(days=1))
    tell(None, "account.created", 1, linking_id="acc-1")
    tell(None, "account.created", 2, linking_id="acc-2")
    for signal in Signal.objects.all():
        age(signal, 31)
    do_maintenance()
    assert list(Signal.objects.order_by("id").values_list("ignored", flat=True)) == [False, True]


def test_one_of_a_linking_id_that_nobody_has_yet_is_kept_for_a_month() -> None:
    tell(None, "account.created", 1, linking_id="acc-1")
    age(Signal.objects.get(), 29)
    do_maintenance()
    assert Signal.objects.get().closed_at is None
