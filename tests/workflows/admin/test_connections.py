"""The panels of a workflow's page: what it waited for, what it was told, its parent and its children."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from tests.plans import Plan, explained
from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import words
from tests.workflows.admin.test_workflow_page import page
from workflows.console import connections
from workflows.models import Signal, Wait, Workflow


def panel(html: str, name: str) -> str:
    """The words of a panel; empty if the page has none of that name."""
    found = re.search(rf'<section class="panel" aria-labelledby="{name}">(.*?)</section>', html, re.DOTALL)
    return words(found[1]) if found else ""


def wait(row: Workflow, name: str, **fields: Any) -> Wait:
    hour = timezone.now() + timedelta(hours=1)
    return Wait.objects.create(
        **{"workflow": row, "name": name, "kind": "signal", "waiting_for": f"For {name}.", "deadline": hour, **fields}
    )


def signal(row: Workflow | None, key: str, **fields: Any) -> Signal:
    return Signal.objects.create(
        **{"workflow": row, "source": "carrier", "dedupe_key": key, "name": "parcel.sent", **fields}
    )


def child(parent: Workflow, key: str, make: Callable[..., Workflow] = rows.workflow) -> Workflow:
    return make(parent=parent, parent_wait="parcels", child_key=key)


def test_a_wait_tells_its_outcome_and_what_answered_it(as_: Login) -> None:
    row = rows.waiting()
    sent = signal(row, "1", closed_at=timezone.now())
    wait(row, "sent", outcome="received", resolved_at=timezone.now(), signal=sent)
    told = panel(page(as_("support"), row), "waits")
    assert "For sent. (signal) sent Received, at " in told
    assert told.index("parcel.sent from carrier") < told.index("May this parcel go out? (a person's decision) review")
    assert "Waiting" in told


CAME_OF_IT: list[tuple[Callable[..., Workflow], dict[str, Any], str]] = [
    (rows.workflow, {}, "Waiting"),
    (rows.workflow, {"deadline": timezone.now() - timedelta(hours=1)}, "Its time is over"),
    (rows.workflow, {"superseded": True}, "Nobody asks for it any more"),
    (rows.failed, {"superseded": True, "outcome": "rejected"}, "Rejected; a retry waits for it again"),
    (rows.compensating, {"superseded": True, "outcome": "rejected"}, "Rejected; a retry waits for it again"),
    (rows.failed, {"outcome": "rejected"}, "Rejected 20"),
    (rows.complete, {}, "The workflow finished without it"),
    (rows.compensating, {}, "The workflow goes no further"),
]


def test_what_came_of_a_wait_is_said_in_words(as_: Login) -> None:
    support = as_("support")
    for make, fields, said in CAME_OF_IT:
        row = make()
        wait(row, "sent", **fields)
        assert f"(signal) sent {said}" in panel(page(support, row), "waits")


def test_a_signal_is_open_used_or_ignored_and_its_payload_is_not_shown(as_: Login) -> None:
    row = rows.workflow(linking_id="link-4711")
    secret = {"payload": {"secret": "canary"}}
    signal(row, "1", name="a", **secret)
    signal(row, "2", name="b", closed_at=timezone.now(), **secret)
    signal(row, "3", name="c", closed_at=timezone.now(), ignored=True, **secret)
    signal(None, "4", name="d", linking_id="link-4711", **secret)
    used = signal(None, "5", name="e", linking_id="link-4711", **secret)
    wait(row, "e", signal=used, outcome="received")
    signal(None, "6", name="f", linking_id="another", **secret)
    signal(rows.workflow(), "7", name="g", **secret)
    html = page(as_("support"), row)
    lines = re.findall(r'<tr class="signal-(\w+)">\s*<th scope="row">(\w)<', html)
    assert lines == [("used", "e"), ("open", "d"), ("ignored", "c"), ("used", "b"), ("open", "a")]
    assert html.count("(to its linking id)") == 2
    assert "canary" not in html
    assert "link-4711" not in html


def test_a_workflow_that_should_have_a_linking_id_and_has_none_says_so(as_: Login) -> None:
    made = [rows.workflow(workflow_type="onboarding", linking_id=linking_id) for linking_id in (None, "7")]
    told = [panel(page(as_("support"), row), "facts") for row in [*made, rows.workflow()]]
    assert ["Linking id none" in told[0], "Linking id •••• " in told[1], "Linking id" in told[2]] == [True, True, False]


def test_children_are_counted_by_status_and_linked_in_the_order_of_their_keys(as_: Login) -> None:
    row = rows.workflow()
    made = {
        key: child(row, key, make) for key, make in [("b", rows.workflow), ("a", rows.failed), ("c", rows.complete)]
    }
    child(rows.workflow(), "of another")
    html = page(as_("support"), row)
    assert panel(html, "children") == "Children: 1 pending, 1 complete, 1 failed a Failed b Queued c Complete"
    assert re.findall(r'href="/admin/workflows/workflow/(\d+)/change/">(\w)<', html) == [
        (str(made[key].pk), key) for key in "abc"
    ]


def test_many_are_cut_and_the_page_says_so(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WAITS_SHOWN", "SIGNALS_SHOWN", "CHILDREN_SHOWN"):
        monkeypatch.setattr(connections, name, 2)
    row = rows.workflow()
    for number in range(3):
        wait(row, f"{number}")
        signal(row, f"{number}")
        child(row, f"{number}")
    html = page(as_("support"), row)
    assert "And more before these." in panel(html, "waits")
    assert "And more before these." in panel(html, "signals")
    assert "And 1 other." in panel(html, "children")
    monkeypatch.setattr(connections, "COUNT_LIMIT", 2)
    assert "2 pending of the first 10,000" in panel(page(as_("support"), row), "children")


def test_the_signals_of_a_workflow_are_read_off_their_index(as_: Login) -> None:
    client, row = as_("support"), rows.workflow(linking_id="link-4711")
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO workflows_signal (workflow_id, source, dedupe_key, name, closed_at)
               SELECT 1000000 + n, 'x', n, 'x', now() FROM generate_series(1, 5000) n"""
        )
        cursor.execute(
            """INSERT INTO workflows_signal (linking_id, source, dedupe_key, name)
               SELECT n, 'y', n, 'x' FROM generate_series(1, 5000) n"""
        )
        cursor.execute("ANALYZE workflows_signal")
    plans: list[Plan] = []
    with explained(plans, lambda sql: 'FROM "workflows_signal"' in sql):
        page(client, row)
    assert [plan.indexes for plan in plans] == [["signal_of_workflow"], ["signal_open_of_linking_id"]]
    assert max(plan.buffers for plan in plans) < 20
