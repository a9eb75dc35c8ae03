"""What relays, chores and pages ask of a large outbox is found by its indexes."""

from __future__ import annotations

import re

import pytest
from django.db import connection, transaction

from workflows.features.outbox import chores, relay
from workflows.postgres.statements import fetch_all

pytestmark = pytest.mark.django_db(transaction=True)

# 30,000 events of 10,000 workflows for two destinations: most were sent, many wait for later, some are given up. The
# dead rows of earlier tests are pages, too.
FILL = """
    TRUNCATE workflows_outboxevent;
    INSERT INTO workflows_workflow (idempotency_key, workflow_type, payload)
    SELECT gen_random_uuid(), 'test', '{}' FROM generate_series(1, 10000);
    INSERT INTO workflows_outboxevent (event_id, workflow_id, destination, topic, body, state, due_at, settled_at)
    SELECT gen_random_uuid(), w.id, CASE n WHEN 3 THEN 'lake' ELSE 'crm' END, 'paid', '{}',
           CASE WHEN w.id % 20 < 15 THEN 'sent' WHEN w.id % 20 = 15 THEN 'given_up' ELSE '' END,
           now() + CASE WHEN w.id % 20 < 19 THEN interval '1 hour' ELSE interval '-1 second' * (w.id % 100) END, now()
      FROM workflows_workflow w CROSS JOIN generate_series(1, 3) n ORDER BY w.id, n;
    ANALYZE workflows_outboxevent; ANALYZE workflows_workflow"""


@pytest.fixture
def _large() -> None:
    with connection.cursor() as cursor:
        for statement in FILL.split(";"):
            cursor.execute(statement)


@pytest.mark.usefixtures("_large")
def test_the_statements_read_few_pages() -> None:
    common = {"destination": "crm", "lease": 60.0}
    assert _pages(relay._TAKE, {**common, "limit": 16, "even_later": False}, "outbox_due") < 600
    assert _pages(relay._TAKE, {**common, "limit": 1, "even_later": True}, "outbox_due") < 40
    given_up = {"kept": 86_400.0, "lease": 60.0, "size": 500}
    assert _pages(chores._GIVE_UP, given_up, "outbox_oldest") < 40
    assert _pages(chores._PAGE, {"kept": 86_400.0, "after": 10_000, "size": 500}, "workflows_outboxevent_pkey") < 40


def _pages(sql: str, parameters: dict[str, object], index: str) -> int:
    """How many pages of 8 kB a statement reads, that it uses this index, and reads no large table from end to end."""
    with transaction.atomic():
        lines = [line for (line,) in fetch_all(f"EXPLAIN (ANALYZE, BUFFERS) {sql}", parameters)]
        transaction.set_rollback(True)
    text = "\n".join(lines)
    assert index in text, text
    assert not re.search(r"Seq Scan on workflows_(outboxevent|workflow)\b", text), text
    return sum(map(int, re.findall(r"(?:hit|read)=(\d+)", next(line for line in lines if "Buffers" in line))))
