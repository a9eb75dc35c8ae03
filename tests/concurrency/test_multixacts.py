"""No session shares a row with another: a multixact would keep dead index entries in the way of every claim."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group

from tests import engine
from tests.concurrency.backlogs import drain
from tests.engine import define, submit
from workflows.models import ManualTask, Workflow
from workflows.signals import waking
from workflows.waits import require_approval

pytestmark = engine.ENGINE


def ask(*, workflow: Workflow, context: Any) -> None:
    require_approval(workflow, "review", question="May it go on?", timeout=timedelta(hours=1))


def next_multixact() -> int:
    """The number of a multixact made just now, by two sessions that share a row."""
    group = Group.objects.get_or_create(name="shared")[0]
    share = "SELECT xmax::text::bigint FROM auth_group WHERE id = %s FOR SHARE"
    with (
        engine.another_connection() as one,
        engine.another_connection() as two,
        one.transaction(),
        two.transaction(),
    ):
        one.execute(share, [group.pk])
        two.execute(share, [group.pk])
        row = two.execute("SELECT xmax::text::bigint FROM auth_group WHERE id = %s", [group.pk]).fetchone()
    assert row is not None
    return int(row[0])


def multixacts_made_by(what: Any) -> int:
    """How many multixacts `what` makes: the least of three rounds, for other databases of the server make some too."""
    made = []
    for _ in range(3):
        before = next_multixact()
        what()
        made.append(next_multixact() - before - 1)
        if made[-1] == 0:
            break
    return min(made)


@pytest.mark.alone
def test_waits_and_their_signals_make_no_multixacts(no_vacuum: None) -> None:
    """Attempts, waits, tasks and signals are written by other sessions while the row is held."""

    def ask_and_be_told_at_once(*, workflow: Workflow, context: Any) -> None:
        """The signal comes while the row is held, as from a webhook: the sender cannot wake it."""
        ask_for_it_again = ManualTask.objects.using("attempt_log").filter(workflow=workflow).first()
        if ask_for_it_again and workflow.payload.get("at_once"):
            tell(ask_for_it_again)
        ask(workflow=workflow, context=context)

    def tell(task: ManualTask) -> None:
        with engine.another_connection() as other:
            other.execute(
                "INSERT INTO workflows_signal (source, dedupe_key, name, workflow_id, payload)"
                ' VALUES (\'console\', %s, %s, %s, \'{"approved": true, "by": "ada", "reason": ""}\')'
                " ON CONFLICT (source, dedupe_key) DO NOTHING",
                [task.signal_name, task.signal_name, task.workflow_id],
            )

    def ask_answer_and_drain() -> None:
        for _ in range(50):
            submit({"at_once": True})
        drain()
        for task in ManualTask.objects.filter(state="open")[:25]:
            tell(task)
            assert waking.wake(task.workflow_id)
        for task in ManualTask.objects.filter(state="open")[25:]:
            engine.make_due(task.workflow)
        drain()
        ManualTask.objects.update(state="expired")
        assert not Workflow.objects.filter(status="PENDING").exists()

    define([ask_and_be_told_at_once])
    assert multixacts_made_by(ask_answer_and_drain) == 0
    assert set(Workflow.objects.values_list("status", flat=True)) == {"COMPLETE"}
