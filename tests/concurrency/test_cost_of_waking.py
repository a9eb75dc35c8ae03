"""What it costs to wake a workflow, whatever else waits: the pages that the server reads for it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from django.db import connection

from tests import engine
from tests.concurrency.backlogs import WAITING, analyze, say_one, store
from tests.engine import define, sweep
from tests.plans import Plan, explained
from workflows.models import Signal, Workflow
from workflows.postgres.statements import execute
from workflows.signals import store as inbox
from workflows.signals import waking

pytestmark = engine.ENGINE


def buffers_of(what: Callable[[], Any]) -> int:
    """How many pages `what` reads by its statements on the claim's connection."""
    plans: list[Plan] = []
    with explained(plans, which=lambda sql: True):
        what()
    return sum(plan.buffers for plan in plans)


def test_waking_reads_a_few_pages_whatever_waits(no_vacuum: None) -> None:
    """100,000 listen for the signals of their linking ids; 2,000 signals are there that nobody has asked for."""
    define([say_one])
    listening = {"wake_on": "ARRAY['paid']", "linking_id": "'acc-' || n", "waiting_for": "'a signal'"}
    store(WAITING, payload="'{}'", invisible_until="now() + interval '1 day'", **listening)
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO workflows_signal (source, dedupe_key, name, workflow_id, linking_id)
               SELECT 'shop', n, 'shipped', CASE WHEN n % 2 = 0 THEN n END, CASE WHEN n % 2 = 1 THEN 'acc-' || n END
                 FROM generate_series(1, 2000) n"""
        )
        cursor.execute("ANALYZE workflows_signal")
    analyze()
    signal = Signal.objects.get(linking_id="acc-7").pk
    assert buffers_of(lambda: waking.wake_for(signal)) <= 15
    last = Workflow.objects.latest("id").pk
    assert buffers_of(lambda: waking.wake(last)) <= 15
    # 3,000 signals are compared, the newest twice: each is counted with who listens, and then looked up.
    assert buffers_of(sweep) <= 3000 * 8, "a few for each signal, and none for what waits"


def test_waking_reads_a_few_pages_however_many_of_a_linking_id_do_not_listen(no_vacuum: None) -> None:
    """An account's workflows of all years: they have ended, or wait for something else."""
    define([say_one])
    store(1, payload="'{}'", linking_id="'acc'", wake_on="ARRAY['paid']", invisible_until="now() + interval '1 day'")
    inbox.store(source="shop", dedupe_key="1", name="shipped", linking_id="acc", payload={})
    others = {"payload": "'{}'", "linking_id": "'acc'", "invisible_until": "now() + interval '1 day'"}
    store(10_000, **others)
    store(10_000, status="'COMPLETE'", completed_at="now()", **others)
    execute("ANALYZE workflows_workflow, workflows_signal")
    signal = Signal.objects.get().pk
    assert buffers_of(lambda: waking.wake_for(signal)) <= 15
    assert buffers_of(sweep) <= 30


def test_a_long_payload_is_read_once_however_many_wait(no_vacuum: None) -> None:
    """It is kept beside the table, on pages of its own, and a thousand wait for another."""
    define([say_one])
    other = {"wake_on": "ARRAY['paid']", "wake_matching": """'{"n": 7}'"""}
    store(1000, payload="'{}'", linking_id="'acc'", invisible_until="now() + interval '1 day'", **other)
    noise = "".join(random.Random(1).choices("0123456789abcdef", k=100_000))
    inbox.store(source="shop", dedupe_key="1", name="paid", linking_id="acc", payload={"noise": noise})
    execute("ANALYZE workflows_workflow, workflows_signal")
    signal = Signal.objects.get().pk
    assert buffers_of(lambda: waking.wake_for(signal)) <= 200


def test_old_signals_of_a_linking_id_are_ignored_by_one_look_at_its_workflows(no_vacuum: None) -> None:
    """An account's workflows of all years have finished: 1,000 signals and 100,000 of these took 18 s."""
    define([say_one])
    store(2_000, payload="'{}'", linking_id="'acc'", status="'COMPLETE'", completed_at="now()")
    store(20_000, payload="'{}'", linking_id="'other-' || n", invisible_until="now() + interval '1 day'")
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO workflows_signal (source, dedupe_key, name, linking_id, created_at)
               SELECT 'shop', n, 'paid', 'acc', now() - interval '31 days' FROM generate_series(1, 100) n"""
        )
        cursor.execute("ANALYZE workflows_workflow, workflows_signal")
    assert buffers_of(inbox.ignore_late_signals) <= 3_000, "and not as often as there are signals"
    assert Signal.objects.filter(ignored=True).count() == 100
