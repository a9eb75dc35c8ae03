"""What came, or completed, between two times is found by the ids, without an index on the times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from workflows.health import bounded, by_time
from workflows.models import Event, Workflow
from workflows.models.xids import CurrentTransactionId

pytestmark = pytest.mark.django_db

AT, HOUR = datetime(2026, 5, 20, 12, tzinfo=UTC), timedelta(hours=1)


def some(number: int, *, gap: int = 1) -> list[Workflow]:
    """Workflows that came an hour after each other, and completed with the next; ids have gaps."""
    Workflow.objects.bulk_create(
        Workflow(pk=n * gap, idempotency_key=f"00000000-0000-0000-0000-{n:012}", workflow_type="parcel", payload={})
        for n in range(1, number + 1)
    )
    found = list(Workflow.objects.order_by("pk"))
    for n, row in enumerate(found):
        Workflow.objects.filter(pk=row.pk).update(created_at=AT + n * HOUR)
        finished = {"finished_xid": CurrentTransactionId()}
        Event.objects.create(workflow=row, kind="completed", at=AT + (n + 1) * HOUR, **finished)
    return found


def test_it_finds_those_of_the_time_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_time, "SLACK", 0)
    found = [each.pk for each in some(50, gap=7)]
    every = Workflow.objects.order_by("pk")
    assert list(by_time.came(every, AT, AT + 3 * HOUR).values_list("pk", flat=True)) == found[:3]
    assert list(by_time.came(every, AT + 48 * HOUR, AT + 99 * HOUR).values_list("pk", flat=True)) == found[48:]
    assert (
        list(by_time.came(every, AT - 2 * HOUR, AT)) == list(by_time.came(every, AT + 90 * HOUR, AT + 91 * HOUR)) == []
    )
    assert by_time.completed(AT + HOUR, AT + 3 * HOUR) == (found[1::-1], True)
    assert by_time.completed(AT + 2 * HOUR, AT + 9 * HOUR, "onboarding") == ([], True)
    with bounded.counting_to(3):
        assert by_time.completed(AT, AT + 99 * HOUR, "parcel").ids == found[:-5:-1]
        assert by_time.completed(AT, AT + 99 * HOUR) == (found[:-5:-1], False)
    monkeypatch.setattr(by_time, "EXAMINED", 5)
    assert by_time.completed(AT, AT + 99 * HOUR, "onboarding") == ([], False), "not all were looked at"
    span = by_time._ids("workflows_workflow", "created_at", AT + 10 * HOUR, AT + 12 * HOUR)
    assert span == (found[9], found[12])  # that is all that is read


def test_rows_that_were_stored_in_another_order_are_found() -> None:
    late = some(20, gap=5_000)[-1]
    Workflow.objects.filter(pk=late.pk).update(created_at=AT + HOUR)
    assert late in by_time.came(Workflow.objects.all(), AT, AT + 2 * HOUR)
