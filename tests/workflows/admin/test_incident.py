"""The page of a cause: what changed meanwhile, and what became of retries."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.features.brake.causes import open_cause
from tests.workflows.features.outages.services import open_circuit
from tests.workflows.operations.test_bulk import carry_out
from workflows.console.links import incident, query
from workflows.health.failures import ends
from workflows.models import BulkOperation, CircuitEvent, Effect, Pace, Workflow
from workflows.models.failure import Cause
from workflows.models.rollup import Grain, Metric, Rollup
from workflows.models.xids import CurrentTransactionId

REASON = {"reason": "It is mended.", "pace": "50"}
HOUR = timedelta(hours=1)
CAUSE = Cause("parcel", "charge", "card_declined")


def changed(name: str, kind: str, at: datetime, **fields: Any) -> None:
    CircuitEvent.objects.create(service=name, kind=kind, at=at, reason="Because.", **fields)


def test_its_chart_marks_new_releases_outages_and_holds(as_: Login) -> None:
    now = timezone.now()
    no_labels = {"workflow_type": "", "step": "", "outcome": "", "count": 1, "seconds": 0, "buckets": []}
    for release, ago in ("r1", timedelta(days=3)), ("r1", timedelta(hours=2)), ("r2", timedelta(hours=1)):
        for grain in Grain.MINUTE, Grain.HOUR:
            Rollup.objects.create(grain=grain, metric=Metric.RELEASE, at=now - ago, code=release, **no_labels)
    open_circuit("payments")
    Pace.objects.create(key="queue:slow")
    changed("payments", "opened", now - timedelta(hours=30))
    changed("payments", "opened", now - timedelta(hours=5))
    changed("payments", "tried", now - timedelta(hours=4))
    changed(CAUSE.name, "opened", now - timedelta(hours=3))
    changed("type:parcel", "held", now - timedelta(minutes=50), actor="ada")
    changed("type:onboarding", "held", now - timedelta(minutes=40))
    changed("queue:slow", "released", now - timedelta(minutes=30))
    page = as_("support lead").get(incident(CAUSE, "24h")).context
    assert [(mark.told, mark.tone) for mark, _ in page["marks"]] == [
        ("Queue slow: released. Because.", "good"),
        ("Parcel: held by ada. Because.", "wait"),
        ("Release r2 is at work", "busy"),
        ("This step was stopped. Because.", "bad"),
        ("Service payments: down. Because.", "bad"),
    ]
    assert [url for _, url in page["marks"]][-1] == "/admin/workflows/service/payments/change/"
    (chart,) = page["trends"]["charts"]
    places = [x for x, _ in chart.moments]
    assert places == sorted(places)
    assert all(0 < x < 240 for x in places)
    seen = [mark.told for mark, _ in as_("approver").get(incident(CAUSE, "7d")).context["marks"]]
    assert seen == ["Release r2 is at work", "Release r1 is at work"], "without a right to services, none is named"


def test_it_says_what_became_of_those_that_were_retried_from_there(as_: Login) -> None:
    made = [rows.failed() for _ in range(4)]
    rows.failed(current_step="reserve")
    lead = as_("support lead")
    left = lead.get(incident(CAUSE)).context["list_url"]
    start = lead.post(left, {"bulk_all": "retry"}, follow=True)
    assert "became" not in lead.get(incident(CAUSE)).content.decode(), "a draft has done nothing"
    lead.post(start.wsgi_request.path, REASON)
    carry_out(BulkOperation.objects.get())
    done = Workflow.objects.filter(pk__in=[row.pk for row in made])
    done.filter(pk=made[0].pk).update(status="COMPLETE", completed_at=timezone.now())
    done.filter(pk=made[1].pk).update(status="FAILED", completed_at=timezone.now())
    page = lead.get(incident(CAUSE)).content.decode()
    shown = re.findall(r'<a class="count[^"]*" href="([^"]*)"><strong>(\d+)</strong> ([^<]*)</a>', page)
    assert [(number, label) for _, number, label in shown] == [
        ("4", "Retried"),
        ("1", "Complete"),
        ("2", "Under way"),
        ("1", "Failed again"),
    ]
    for url, number, label in shown:
        items = [item.row for item, _ in lead.get(url).context["items"]]
        assert len(items) == int(number), label
    assert items == [made[1].pk]
    assert "became" not in as_("approver").get(incident(CAUSE)).content.decode(), "who may see no bulk operations"
    assert "became" not in lead.get(incident(CAUSE._replace(step="reserve"))).content.decode()


def test_colleagues_leave_notes_on_a_cause(as_: Login) -> None:
    rows.failed()
    support, auditor = as_("support"), as_("auditor")
    add = f"/admin/incident-note/?{query(CAUSE)}"
    assert add in unescape(support.get(incident(CAUSE)).content.decode())
    for text in "The bank mends it <by> noon.", "The bank mends it <by> noon.", "It is mended.":
        assert support.post(add, {"reason": text}, follow=True).wsgi_request.path == "/admin/incident/"
    assert support.post(add, {"reason": " "}).status_code == 200
    page = auditor.get(incident(CAUSE)).content.decode()
    told = re.findall(r'<div class="told">([^<]*)</div>', page)
    assert told == ["It is mended.", "The bank mends it &lt;by&gt; noon."], "sent twice, it is one note"
    assert "Add a note" not in page
    assert auditor.post(add, {"reason": "Mine."}).status_code == 403
    assert "It is mended." not in support.get(incident(CAUSE._replace(code="lost"))).content.decode()


def test_it_names_the_services_that_its_workflows_waited_for(as_: Login) -> None:
    first, second = rows.failed(), rows.failed()
    for row, service in (first, "payments"), (first, "payments"), (second, "payments"), (second, "mail"):
        rows.event(row, "parked", step="charge", detail={"service": service})
    rows.event(first, "parked", step="charge", detail={"service": CAUSE.name, "mend": "a deploy"})
    rows.event(rows.failed(last_error_code="lost"), "parked", detail={"service": "insurer"})
    services = as_("support lead").get(incident(CAUSE)).context["services"]
    assert [(name, number) for name, number, _ in services] == [("mail", 1), ("payments", 2)]
    assert as_("approver").get(incident(CAUSE)).context["services"] == []


def test_an_incident_has_its_own_failures_alone(as_: Login) -> None:
    now = timezone.now()

    def ended(kind: str = "failed", row: Workflow | None = None, step: str = "charge", code: str = CAUSE.code) -> None:
        told = {"step": step, "detail": {"error_code": code}, "finished_xid": CurrentTransactionId()}
        rows.event(row or rows.failed(), kind, at=now, **told)

    ended()
    ended(row=rows.complete())
    ended(row=rows.cancelled())
    ended(code="lost")
    ended(step="reserve")
    ended(row=rows.failed(workflow_type="onboarding"))
    ended("cancelled")
    page = as_("support").get(incident(CAUSE)).context
    assert page["ended"] == "3 failures of 3 workflows"
    assert [(bar.label, bar.told) for bar in page["bars"]] == [("Complete", "1"), ("Failed", "1"), ("Cancelled", "1")]
    assert sum(ends(now - HOUR, now + HOUR, CAUSE).workflows.values()) == 1
    twice = Cause("parcel", "charge", "duplicate_of")
    ended("duplicate", code=twice.code)
    assert as_("support lead").get(incident(twice)).context["ended"] == "0 failures of 0 workflows"


def test_the_money_of_an_incident_is_that_of_its_own_workflows(as_: Login) -> None:
    def charged(**fields: Any) -> Workflow:
        row = rows.failed(
            **{"workflow_type": "onboarding", "current_step": of.step, "last_error_code": of.code, **fields}
        )
        Effect.objects.create(workflow=row, **charge, idempotency_key=f"{row.pk}")
        return row

    of = Cause("onboarding", "enroll_in_program", "program_full")
    charge = {"step": "execute_checkout", "state": "done", "result": {"charge_id": "ch_1"}, "attempt": 1}
    charged()
    charged(current_step="start_visit")
    charged(last_error_code="lost")
    seen_to = charged()
    Workflow.objects.filter(pk=seen_to.pk).update(acknowledged_failure=F("completed_at"))
    left, still = as_("support").get(incident(of)).context["rows"]
    assert (left.number, left.held, still.number, still.held) == ("1", "1", "2", "2")


def test_it_says_that_its_brake_is_on_and_what_is_parked(as_: Login) -> None:
    cause = open_cause()
    rows.parked(parked_on=cause.name)
    of = Cause("onboarding", cause.step, cause.code)
    page = as_("support lead").get(incident(of))
    assert "1 workflow waits for the mend." in page.content.decode()
    assert [(row.label, row.number) for row in page.context["rows"]] == [("Parked here, until it is mended", "1")]
    assert "waits for the mend." not in as_("approver").get(incident(of)).content.decode()


def test_a_button_takes_no_more_than_a_bulk_operation_does(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    [rows.failed() for _ in range(3)]
    support = as_("support")
    assert "Retry these 3<" in support.get(incident(CAUSE)).content.decode()
    monkeypatch.setattr("workflows.console.incident.MOST", 2)
    assert "Retry 2 of these<" in support.get(incident(CAUSE)).content.decode()


def test_a_retry_that_charges_each_of_them_again_is_offered_to_leads_alone(as_: Login) -> None:
    def offered(group: str) -> tuple[bool, bool]:
        page = as_(group).get(incident(Cause("onboarding", "charge", "card_declined"))).content.decode()
        return 'value="retry"' in page, "charges again what was refunded, so only a support lead" in page

    for _ in range(2):
        rows.refunded()
    assert offered("support") == (False, True)
    assert offered("support lead") == (True, False)
    rows.failed(workflow_type="onboarding")
    assert offered("support") == (True, False), "the others are left out, and the preview says so"
