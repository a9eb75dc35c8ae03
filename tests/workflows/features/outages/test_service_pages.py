"""The services: which are down, what waits for them, what was done about it, and who may do what?"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_, parcels
from tests.workflows.admin.tasks import words
from tests.workflows.features.brake.causes import open_cause
from tests.workflows.features.operator_api.people import Program
from tests.workflows.features.outages.services import circuit, open_circuit, trial_is_due
from workflows import times
from workflows.console.time_filters import UNKNOWN
from workflows.features.outages import health as services
from workflows.features.outages import service_page as page_module
from workflows.models import CircuitEvent, Service, Workflow
from workflows.state.parking import turn_at

__all__ = ["as_", "parcels"]

SERVICES = "/admin/workflows/service/"
PROGRAMS = f"{SERVICES}programs/change/"
MINUTE = timedelta(minutes=1)


def shown(client: Client, url: str = PROGRAMS) -> str:
    response = client.get(url)
    assert response.status_code == 200
    return words(response.content.decode())


def sentence(client: Client) -> str:
    said: str = client.get(PROGRAMS).context["standing"]
    return said


def sentence_of(client: Client, url: str) -> str:
    return str(client.get(url).context["standing"])


def at(moment: datetime | None) -> str:
    """As the pages write it, on any day of the test."""
    return page_module.words.clock(moment)


def parked(count: int = 1, **fields: Any) -> list[Workflow]:
    return [rows.parked(**{"parked_on": "programs", **fields}) for _ in range(count)]


def told(kind: str = "opened", reason: str = "The last 5 calls failed.", **fields: Any) -> CircuitEvent:
    return CircuitEvent.objects.create(**{"service": "programs", "kind": kind, "reason": reason, **fields})


# --- The first sentence -------------------------------------------------------------------------


def test_an_open_circuit_says_since_when_why_what_waits_and_when_it_is_tried(as_: Login) -> None:
    service = open_circuit()
    for number, waiting in enumerate(("No workflow waits", "1 workflow waits", "2 workflows wait")):
        parked(min(number, 1))
        assert sentence(as_("support")) == (
            f"Down since {at(service.opened_at)}: the last 5 calls failed. {waiting} for it. "
            f"The next trial is at {at(service.retry_at)}."
        )


def test_a_trial_is_due_and_then_under_way(as_: Login) -> None:
    open_circuit()
    trial_is_due()
    client, now = as_("support"), timezone.now()
    assert "A trial is due: the next workflow that needs it makes it." in sentence(client)
    for tried in ({"released_at": now}, {"released_at": None, "trial_until": now + MINUTE}):
        Service.objects.update(**tried)
        assert "A workflow tries it just now." in sentence(client)
    Service.objects.update(trial_until=now - MINUTE)  # its worker is dead
    assert "A trial is due" in sentence(client)


def test_a_hold_says_whose_it_is_and_why_and_until_when(as_: Login) -> None:
    service = open_circuit(trial_in=3600)
    Service.objects.update(held_by="ada", held_reason="They migrate", failed=0)
    assert sentence(as_("support")) == (
        f"Held by ada until {times.both(service.retry_at)}: They migrate. No workflow waits for it. "
        "It is tried when the hold is over."
    )
    trial_is_due()
    assert sentence(as_("support")).startswith(f"Down since {at(service.opened_at)}. No workflow waits for it. A trial")


def test_what_has_no_row_has_a_page_as_long_as_something_is_parked_on_it(as_: Login) -> None:
    client = as_("engineer")
    assert client.get(PROGRAMS).status_code == 404
    (row,) = parked()
    assert sentence(client) == "Up. 1 workflow is being released."
    assert "programs" in shown(client, SERVICES)
    Workflow.objects.filter(pk=row.pk).update(status="COMPLETE")
    assert client.get(PROGRAMS).status_code == 404
    assert not Service.objects.exists()


def test_a_service_may_have_any_name(as_: Login) -> None:
    name = "_5F/ÄÖ%00?x=1&y"
    open_circuit(name)
    client = as_("engineer")
    (url,) = re.findall(rf'<a href="({SERVICES}[^"]*change/)"', client.get(SERVICES).content.decode())
    assert f"Service {name}" in shown(client, url)
    client.post(url.replace("change", "try_now"), {"reason": "It is back."})
    assert circuit(name).retry_at <= timezone.now()  # type: ignore[operator]


def test_a_name_that_no_service_can_have_is_not_found(as_: Login) -> None:
    for page in ("%00/change", "x%00/hold", f"{'9' * 300}/hold"):
        assert as_("superuser").get(f"{SERVICES}{page}/").status_code == 404


# --- The page and the list ----------------------------------------------------------------------


def test_the_story_is_newest_first_and_has_older_pages(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "EVENTS_SHOWN", 2)
    open_circuit()
    told()
    told("held", "Until 14:00. They migrate.", actor="ada")
    told("closed", "A call was answered.")
    CircuitEvent.objects.create(service="payments", kind="opened", reason="Another's.")
    client = as_("support")
    html = client.get(PROGRAMS).content.decode()
    first = words(html)
    assert first.index("A call was answered.") < first.index("Held by ada Until 14:00. They migrate.")
    assert "calls failed. Older" not in first
    (older,) = re.findall(r'href="(\?before=\d+)"', html)
    story = client.get(PROGRAMS + older).context["story"]
    assert [event.kind for event, _ in story] == ["opened"]
    assert len(client.get(PROGRAMS + "?before=x").context["story"]) == 2
    assert client.get(PROGRAMS + "?before=" + "9" * 30).status_code == 200


def test_the_list_has_those_in_trouble_first_and_the_last_word_of_each(as_: Login) -> None:
    Service.objects.create(name="accounts", closed_at=timezone.now())
    Service.objects.create(name="tokens", since=timezone.now(), failed=1)
    parked(2, parked_on="payments")
    open_circuit()
    told()
    told("tried", "It is back.", actor="ada")
    page = as_("support").get(SERVICES)
    html = page.content.decode()
    assert [line["row"].pk for line in page.context["lines"]] == ["programs", "tokens", "payments", "accounts"]
    assert "To be tried by ada at" in words(html)
    assert "5 of 5" in words(html)
    for label in ("Down", "Maybe down", "Up"):
        assert f">{label}</span>" in html


def test_the_one_that_has_been_parked_the_longest_is_not_the_one_that_is_released_first(as_: Login) -> None:
    """One that parked again keeps its time, and goes to the end."""
    open_circuit()
    now = timezone.now()
    parked(parked_at=now - 10 * MINUTE, invisible_until=now + 50 * MINUTE)
    (oldest,) = parked(parked_at=now - 30 * MINUTE, invisible_until=now + 59 * MINUTE)
    parked(parked_at=now - 90 * MINUTE, parked_on="payments")
    parked(parked_at=now - 90 * MINUTE, status="COMPLETE")
    text = f"workflow {oldest.pk} , since {at(now - 30 * MINUTE)}"
    assert text in shown(as_("support"))
    assert text in shown(as_("support"), SERVICES)


def test_what_is_parked_is_counted_along_its_index(db: None) -> None:
    open_circuit()
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO workflows_workflow (idempotency_key, workflow_type, payload, parked_on, parked_at)
               SELECT gen_random_uuid(), 'parcel', '{}', CASE n % 50 WHEN 0 THEN 'programs' ELSE '' END, now()
                 FROM generate_series(1, 5000) n"""
        )
        cursor.execute("ANALYZE workflows_workflow")
    reads = "SELECT coalesce(sum(idx_scan), 0) FROM pg_stat_xact_user_tables WHERE relname = 'workflows_workflow'"
    scans = "SELECT coalesce(sum(seq_scan), 0) FROM pg_stat_xact_user_tables WHERE relname = 'workflows_workflow'"

    def counted(sql: str) -> int:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return int(cursor.fetchone()[0])  # type: ignore[index]

    before = counted(scans), counted(reads)
    assert services.standings()[0].parked.number == 100
    assert counted(scans) == before[0]
    assert counted(reads) > before[1]


def test_the_list_of_workflows_is_filtered_by_the_service_that_they_are_parked_on(as_: Login) -> None:
    (waits,), _ = parked(), parked(parked_on="payments")
    parked(status="COMPLETE")
    client = as_("support")
    listed = "/admin/workflows/workflow/?parked_on="
    page = client.get(listed + "programs")
    assert [row.pk for row in page.context["cl"].result_list] == [waits.pk]
    assert '<a href="?parked_on=payments">' in page.content.decode()
    assert list(client.get(listed + "tokens").context["cl"].result_list) == [], "a link that is too old shows none"
    assert f'href="{listed}programs"' in client.get(PROGRAMS).content.decode()


def test_users_who_may_not_see_the_services_read_no_name_of_one(as_: Login) -> None:
    name = "xyzzy"
    cause = open_cause()
    on = {"parked_on": name, "waiting_for": f"the service {name}, which is unavailable"}
    row, _ = (
        rows.parked(**on, linking_id="both"),
        rows.parked(**{**on, "waiting_for": turn_at(name)}, linking_id="both"),
    )
    before = rows.attempt(row, outcome="waiting", steps=[{"step": "charge", "outcome": "failed", "ms": 1}])
    rows.event(row, "parked", step="charge", attempt=before.number, detail={"service": name})
    rows.event(row, "parked", step="charge", attempt=before.number, detail={"service": name, "mend": turn_at(name)})
    of_cause = rows.parked(parked_on=cause.name, workflow_type="onboarding")
    listed, page = "/admin/workflows/workflow/", f"/admin/workflows/workflow/{row.pk}/change/"

    def read(client: Client) -> list[str]:
        found = client.post("/admin/find/", {"q": "both"})["Location"]
        return [client.get(url).content.decode() for url in (listed, page, found)]

    assert all(name in html for html in read(as_("support")))
    approver = as_("approver")
    assert not [html for html in read(approver) if name in html]
    assert "for a service, which is down" in sentence_of(approver, page)
    assert list(approver.get(f"{listed}?parked_on={name}").context["cl"].result_list) == []
    assert UNKNOWN in approver.get(f"{listed}?parked_on={name}").content.decode()
    kept = approver.get(f"{listed}?parked_on={quote(cause.name)}").context["cl"].result_list
    assert [each.pk for each in kept] == [of_cause.pk], "a cause is named by its step"
    Workflow.objects.filter(pk=of_cause.pk).update(parked_on="")
    assert list(approver.get(f"{listed}?parked_on={name}").context["cl"].result_list) == [], "with no choice, neither"
    program = Program(User.objects.get(username="some-approver"))
    assert name not in str([program.get(each) for each in ("workflows", f"workflows/{row.pk}/history")])
    assert name not in str(program.post("workflows/find", {"text": "both"}, 200))


# --- Home ---------------------------------------------------------------------------------------


def test_home_has_a_line_for_each_service_in_trouble_and_for_no_other(as_: Login) -> None:
    service = open_circuit()
    parked(3)
    Service.objects.create(name="tokens", since=timezone.now(), failed=1)
    Service.objects.create(name="accounts", closed_at=timezone.now())
    Service.objects.create(name="profiles", closed_at=timezone.now())
    parked(1, parked_on="profiles")
    html = as_("support").get("/admin/").content.decode()
    said = words(html)
    assert f"programs : Down since {service.opened_at:%Y-%m-%d %H:%M:%S} UTC, 3 parked" in said
    assert "tokens :" not in said
    assert "profiles : Up since" in said
    assert "accounts" not in said
    assert f'<a href="{PROGRAMS}">programs</a>' in html
    assert 'href="/admin/workflows/workflow/?parked_on=programs"' in html


# --- Verbs --------------------------------------------------------------------------------------


def test_the_buttons_follow_the_circuit_and_the_permissions(as_: Login) -> None:
    open_circuit()
    states: list[tuple[str, dict[str, Any], list[str]]] = [
        ("engineer", {"held_by": "ada"}, ["Try now", "Hold"]),
        ("engineer", {"retry_at": timezone.now() - MINUTE}, ["Hold"]),
        ("engineer", {"opened_at": None}, ["Hold"]),
        ("support", {}, []),
    ]
    for role, state, offered in states:
        Service.objects.update(**state)
        assert [verb.label for verb, _ in as_(role).get(PROGRAMS).context["verbs"]] == offered


def test_a_hold_and_a_trial_say_what_they_do(as_: Login) -> None:
    service = open_circuit()
    client, hold = as_("engineer"), f"{SERVICES}programs/hold/"
    assert "counts no failure, however long that is" in shown(client, hold)
    client.post(hold, {"how_long": "60", "reason": "They migrate."})
    assert circuit().held_by == "some-engineer"
    assert "This takes the place of the hold of some-engineer." in shown(client, hold)
    Service.objects.update(retry_at=service.retry_at)
    said = shown(client, f"{SERVICES}programs/try_now/")
    assert f"One workflow calls programs at once instead of at {at(service.retry_at)}." in said
    assert "The hold of some-engineer ends." in said


def test_a_parked_workflow_has_no_next_attempt_of_its_own_and_run_now_says_what_it_does_not_do(as_: Login) -> None:
    (row,), support = parked(), as_("support")
    listed = " ".join(support.get("/admin/workflows/workflow/").content.decode().split())
    assert 'field-next_attempt">after that' in listed
    program = Program(User.objects.get(username="some-support"))
    assert program.get("workflows")["workflows"][0]["next_attempt_at"] is None
    asked = support.get(f"/admin/workflows/workflow/{row.pk}/run_now/").context["consequences"]
    assert asked[0] == "A worker takes it up at once."
    assert "While the programs service counts as down, no call is made" in asked[1]
    assert "An engineer has “Try now”, on the page of the service." in asked[1]
    done = support.post(f"/admin/workflows/workflow/{row.pk}/run_now/", follow=True).content.decode()
    assert "A worker was told to take it up now." in done
    (turn,) = parked(waiting_for=turn_at("programs"))
    told = support.get(f"/admin/workflows/workflow/{turn.pk}/run_now/").context["consequences"]
    assert "no place for another call" in told[1]
