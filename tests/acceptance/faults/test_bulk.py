"""Bulk and single operations at random, while workers are killed: each item has one outcome, and nobody pays twice."""

from __future__ import annotations

import random
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from tests.acceptance.faults.audit import of
from tests.acceptance.faults.harness import System, assert_each_key_once, send
from tests.processes import meanwhile
from workflows import operations
from workflows.errors import NotAllowed
from workflows.features.bulk import operations as bulk
from workflows.models import BulkItem, BulkOperation, Event, Workflow
from workflows.signals import store

pytestmark = pytest.mark.django_db(transaction=True)

CHOSEN_FROM, LEFT_ALONE = 250, 20
BULKS, SINGLES = 20, 1000
KILLS = 40
FAILPOINTS = ("before_chore:bulk operations", "after_chore:bulk operations")
VERBS = ("retry", "retry", "run_now", "cancel", "acknowledge")


def test_each_item_has_one_outcome_and_nothing_else_is_touched(system: System, tmp_path: Path) -> None:
    (reached := tmp_path / "reached").mkdir()
    randomly = random.Random(system.seed)
    given = [system.enter("paid_and_waits").pk for _ in range(CHOSEN_FROM + LEFT_ALONE)]
    # They have failed before they paid. What is retried pays, and then waits: so it can be cancelled, and retried.
    Workflow.objects.filter(pk__in=given).update(status="FAILED", completed_at=Now(), current_step="attach")
    among, alone = given[:CHOSEN_FROM], given[CHOSEN_FROM:]

    def single() -> None:
        row = randomly.choice(among)
        with suppress(NotAllowed):
            match randomly.choice(("retry", "run_now", "cancel")):
                case "retry":
                    operations.retry(row, user=system.person)
                case "run_now":
                    operations.run_now(row, user=system.person)
                case "cancel":
                    operations.cancel(row, user=system.person, reason="At random.")

    def fail_some() -> None:
        """As if they had failed by themselves: what a person has cancelled is not retried in bulk."""
        cancelled = Workflow.objects.filter(status="FAILED", cancelled_at__isnull=False, pk__in=among)
        cancelled.filter(pk__in=randomly.sample(among, CHOSEN_FROM // 2)).update(cancelled_at=None)

    def in_bulk(verb: str) -> None:
        ids = randomly.sample(among, randomly.randint(60, CHOSEN_FROM))
        chosen = Workflow.objects.filter(pk__in=ids).order_by().values("pk")
        made = bulk.choose(verb, chosen, user=system.person, chosen_by="at random")
        bulk.start(made.pk, user=system.person, reason="At random.", pace=bulk.FASTEST)
        if bulk.why_four_eyes(made, system.person):
            bulk.approve(made.pk, user=system.another_person)

    def kill_one() -> None:
        children = [child for worker in system.workers for child in worker.children()]
        if children:
            system.met["killed"] += send(randomly.choice(children), signal.SIGKILL)

    for _ in range(2):
        armed = {"ONRAMP_FAILPOINT": ",".join(FAILPOINTS), "ONRAMP_FAILPOINT_ONCE": str(reached)}
        system.work("PAID_AND_WAITS", processes=2, **armed)
    with meanwhile(kill_one, every=1.0, times=KILLS):
        for number in range(SINGLES):
            if number % (SINGLES // BULKS) == 0:
                system.wait_until(lambda: under_way().count() < 3)
                fail_some()
                in_bulk(randomly.choice(VERBS))
            single()
        system.wait_until(lambda: not under_way().exists())
    for pk in among:
        store.send(source="test", dedupe_key=str(pk), name="go", workflow_id=pk, payload={})
    for row in Workflow.objects.filter(pk__in=among, status="FAILED"):
        operations.retry(row.pk, user=system.person)
    system.wait_until(lambda: system.hurry() or system.at_rest())
    system.stop()

    print(f"seed {system.seed}: {told()}, {system.met['killed']} killed")  # noqa: T201 (the figures, for -s)
    assert {each.name for each in reached.iterdir()} == set(FAILPOINTS)
    for made in BulkOperation.objects.all():
        counted = bulk.outcomes(made)[made.pk]
        assert (counted.pop(""), counted["failed"], sum(counted.values())) == (0, 0, made.selected)
        done = Counter(made.items.filter(outcome="done").values_list("row", flat=True))
        events = Event.objects.filter(detail__bulk=made.pk)
        assert Counter(events.values_list("workflow", flat=True)) == done, (made.verb, "each once, and no other")
    untouched = Workflow.objects.filter(pk__in=alone, status="FAILED", completed_at__lt=timezone.now())
    assert (untouched.count(), Event.objects.filter(workflow__in=alone).count()) == (LEFT_ALONE, 0)
    log = system.sandbox.effects()
    assert_each_key_once(log)
    charges = {pk: [line["operation"] for line in of(row, log)].count("charge") for pk, row in rows(given).items()}
    assert set(Workflow.objects.filter(pk__in=among).values_list("status", flat=True)) == {"COMPLETE"}
    assert {charges[pk] for pk in among} == {1}
    assert {charges[pk] for pk in alone} == {0}


def under_way() -> QuerySet[BulkOperation]:
    return BulkOperation.objects.exclude(state="done")


def rows(ids: list[int]) -> dict[int, Workflow]:
    return Workflow.objects.in_bulk(ids)


def told() -> dict[str, int]:
    return dict(Counter(BulkItem.objects.values_list("outcome", flat=True)))
