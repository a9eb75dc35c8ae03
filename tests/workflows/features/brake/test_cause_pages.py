"""Steps where many fail: what people see of them, and who may do what about it."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from onboarding.samples import Kind, sample
from tests.engine import again
from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_, parcels
from tests.workflows.admin.tasks import words
from tests.workflows.features.brake.causes import open_cause
from tests.workflows.features.brake.test_brake import Program, braked
from tests.workflows.features.outages.services import circuit, open_circuit, trial_is_due
from tests.workflows.features.outages.test_service_pages import SERVICES, at, shown
from workflows.features.brake import operations
from workflows.features.outages import health
from workflows.models import CircuitEvent, Effect, Service, Workflow
from workflows.telling.words import day

__all__ = ["as_", "parcels"]

WORKFLOWS = "/admin/workflows/workflow/"
CAUSE = "onboarding/enroll_in_program: TypeError"
UNDO = "undo execute_checkout"
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def page_of(name: str = CAUSE, page: str = "change") -> str:
    return reverse(f"admin:workflows_service_{page}", args=[quote(name)])


def sentence(client: Client, name: str = CAUSE) -> str:
    said: str = client.get(page_of(name)).context["standing"]
    return said


def parked(count: int = 1, on: str = CAUSE, **fields: Any) -> list[Workflow]:
    given = {"workflow_type": "onboarding", "parked_on": on, "current_step": "enroll_in_program", **fields}
    return [rows.parked(**given) for _ in range(count)]


def charged(row: Workflow, state: str = "done") -> None:
    payload = sample(Kind.NET_NEW).payload
    payload["checkout"] |= {"amount_cents": 14500, "currency": "usd"}
    Workflow.objects.filter(pk=row.pk).update(payload=payload)
    key = f"{row.key}:execute_checkout"
    result = {"charge_id": "ch_1"} if state == "done" else None
    Effect.objects.create(
        workflow=row, step="execute_checkout", state=state, result=result, attempt=1, idempotency_key=key
    )


# --- The list, and the page -----------------------------------------------------------------------


def test_a_cause_stands_apart_from_the_services_and_a_suspected_one_nowhere(as_: Login) -> None:
    service = open_cause()
    open_cause(code="KeyError", opened_at=None, since=timezone.now())
    open_cause(code="IndexError", opened_at=None, closed_at=timezone.now() - 2 * DAY)
    lately = open_cause(code="ValueError", opened_at=None, closed_at=timezone.now() - MINUTE)
    waited_for = open_cause(code="AttributeError", opened_at=None, closed_at=timezone.now() - 2 * DAY)
    parked(on=waited_for.pk)
    open_circuit()
    context = as_("support").get(SERVICES).context
    assert [line["row"].pk for line in context["lines"]] == ["programs"]
    assert [line["row"].pk for line in context["causes"]] == [service.pk, waited_for.pk, lately.pk]
    html = as_("support").get(SERVICES).content.decode()
    assert f'<a href="{page_of()}"' in html
    assert "Steps where many fail" in words(html)
    assert "“Enrol in the program” Onboarding Stopped" in words(html)


def test_its_page_says_since_when_in_which_release_and_what_waits(as_: Login) -> None:
    service = open_cause()
    parked(2)
    client = as_("support")
    assert sentence(client) == (
        f"Many workflows have failed at “Enrol in the program” since {at(service.opened_at)}, in release r7 "
        f"(TypeError). 2 workflows wait for the mend. A workflow tries the step at {at(service.retry_at)}."
    )
    trial_is_due(CAUSE)
    assert sentence(client).endswith("A trial is due: a parked workflow makes it.")
    Service.objects.update(elsewhere=True)
    assert sentence(client).endswith(
        "Workers of another release go on with the step, and those that have met the failure leave it alone."
    )
    Service.objects.update(elsewhere=False, retry_at=None)
    assert sentence(client).endswith("The step stops its workers, so none of this release tries it again by itself.")
    Service.objects.update(opened_at=None, closed_at=service.opened_at)
    assert sentence(client) == f"Workflows go on since {at(service.opened_at)}. 2 workflows are being released."


def test_only_who_may_see_attempts_sees_where_in_the_code_it_fails(as_: Login) -> None:
    open_cause(traceback="File programs.py, in enroll")
    assert "in enroll" in shown(as_("engineer"), page_of())
    assert "in enroll" not in shown(as_("support"), page_of())


def failed_before(client: Client, name: str, **also: str) -> list[int]:
    return [row.pk for row in client.get(WORKFLOWS, {"cause": name, **also}).context["cl"].result_list]


def test_what_failed_before_the_brake_came_on_is_listed_and_nothing_else(as_: Login) -> None:
    first, second, other = rows.failed(), rows.failed(), rows.failed()
    open_cause(judged=[first.pk, second.pk])
    client = as_("support")
    (link,) = re.findall(r'href="([^"]*\?cause=[^"]*)">2<', client.get(page_of()).content.decode())
    assert [row.pk for row in client.get(unescape(link)).context["cl"].result_list] == [second.pk, first.pk]
    assert failed_before(client, CAUSE, state="complete") == []
    for unknown in ("", "onboarding", "programs"):
        assert failed_before(client, unknown) == []
    assert failed_before(as_("approver"), CAUSE) == [], "who may not see services"
    Service.objects.update(judged=[])
    assert failed_before(client, CAUSE) == []
    assert other.pk in [row.pk for row in client.get(WORKFLOWS).context["cl"].result_list]


@pytest.mark.django_db(transaction=True, databases=["default", "attempt_log"])
@pytest.mark.usefixtures("engine")
def test_from_the_workers_to_the_page(as_: Login) -> None:
    """What the engine has written: the sentence, what failed before, the place, the story, and what is parked."""
    program = Program()
    program.define()
    *judged, fifth = braked(program)
    client = as_("engineer")
    name = fifth.parked_on
    html = words(client.get(page_of(name)).content.decode())
    assert "Many workflows have failed at “Enroll” since" in html
    assert "Failed before it was stopped 4" in html
    assert "in enroll" in html
    assert f"Stopped {CircuitEvent.objects.get().reason}" in html
    assert failed_before(client, name) == [each.pk for each in reversed(judged)]
    assert fifth.waiting_for == again(fifth).waiting_for == "the mend of “Enroll”, where many fail"
    page = words(client.get(f"{WORKFLOWS}{fifth.pk}/change/").content.decode())
    assert f"Waiting since {at(fifth.parked_at)} for the mend of “Enroll”, where many fail." in page
    assert "Enroll: it waits for the mend of “Enroll”, where many fail." in page
    assert "which is down" not in page


# --- Home, and what needs a person ----------------------------------------------------------------


def test_home_is_in_trouble_and_says_so_to_everybody_who_sees_it(as_: Login) -> None:
    service = open_cause()
    rows.worker()
    parked(3)
    assert service.opened_at
    told = f"“Enrol in the program” has failed for many since {service.opened_at:%H:%M} UTC (TypeError), 3 parked"
    for role, follows in (("support", True), ("approver", False)):
        html = as_(role).get("/admin/").content.decode()
        assert f"In trouble: {told}" in words(html).replace(" ,", ",")
        assert (f'href="{page_of()}"' in html, SERVICES in html) == (follows, follows)


def test_what_needs_a_person_counts_and_names_the_causes_for_who_may_see_services(as_: Login) -> None:
    open_cause()
    open_cause(code="KeyError", opened_at=None, since=timezone.now())
    open_cause(code="IndexError", opened_at=None, closed_at=timezone.now())
    rows.failed()
    listed = "/admin/needs-a-person/"
    for role, number in (("support", "2"), ("approver", "0")):
        client = as_(role)
        assert client.get("/admin/").context["needs_a_person"] == number
        causes = client.get(listed).context["causes"]
        assert ["failed at “Enrol in the program”" in said for _, said in causes] == [True] * (number == "2")
    for query in ("?kind=failed", "?whose=mine"):
        assert "Enrol in the program" not in shown(as_("support"), listed + query)


# --- A workflow that is parked on it ----------------------------------------------------------------


def test_the_patient_is_told_that_it_goes_on_and_what_becomes_of_the_payment(as_: Login) -> None:
    open_cause()
    support, today = as_("support"), day(timezone.now())
    for state, money in {
        "": "",
        "done": f" Your card was charged $145.00 on {today}; your enrolment in the body program is still being set up. "
        "If we cannot go on, you get your money back.",
        "unknown": f" Your card may have been charged $145.00 on {today}; we are finding out. Your enrolment in the "
        "body program is still being set up. If we cannot go on, you get your money back.",
    }.items():
        (row,) = parked()
        if state:
            charged(row, state)
        assert support.get(f"{WORKFLOWS}{row.pk}/change/").context["to_tell"] == (
            "There is a technical problem on our side, and we go on when it is mended. You do not need to do anything."
            f"{money}"
        )


def test_a_workflow_that_is_reversed_waits_for_the_mend_and_links_to_it(as_: Login) -> None:
    name = open_cause(UNDO).pk
    (row,) = parked(on=name, compensating=True, waiting_for="the mend of the reversal")
    client = as_("support")
    assert "1 workflow waits to be reversed, and for refunds, until that is mended." in sentence(client, name)
    html = client.get(f"{WORKFLOWS}{row.pk}/change/").content.decode()
    assert "It waits for the mend of the reversal of “Charge the card”, where many fail, and goes on" in words(html)
    assert f'<a href="{page_of(name)}">What is done about it</a>' in html
    (other,) = parked(on="payments")
    assert "A system that we need is down." in client.get(f"{WORKFLOWS}{other.pk}/change/").context["to_tell"]
    assert page_of(name) not in as_("approver").get(f"{WORKFLOWS}{row.pk}/change/").content.decode()


# --- Verbs ------------------------------------------------------------------------------------------


def offered(client: Client, name: str = CAUSE) -> list[str]:
    return [verb.label for verb, _ in client.get(page_of(name)).context["verbs"]]


def test_who_may_do_what(as_: Login) -> None:
    open_cause()
    parked()
    all_of_them = {"engineer": ["Try now", "Hold", "Let fail"], "support lead": ["Let fail"], "support": []}
    assert {role: offered(as_(role)) for role in all_of_them} == all_of_them
    Service.objects.update(elsewhere=True)
    assert offered(as_("engineer")) == ["Hold", "Let fail"], "a trial would do nothing: others take what is parked"
    Workflow.objects.update(parked_on="")
    assert offered(as_("support lead")) == []
    assert "Let fail: Nothing that could fail is parked on it" in shown(as_("support lead"), page_of())
    Service.objects.update(opened_at=None, closed_at=timezone.now())
    assert "Let fail:" not in shown(as_("support lead"), page_of())


def test_its_page_says_who_has_what_it_advises_where_there_is_no_such_button(as_: Login) -> None:
    open_cause()
    trial, end = "which an engineer has, if it is mended", "which a support lead or an engineer has, if it cannot"
    told = {role: shown(as_(role), page_of()) for role in ("support", "support lead", "engineer")}
    assert {role: (trial in page, end in page) for role, page in told.items()} == {
        "support": (True, True),
        "support lead": (True, False),
        "engineer": (False, False),
    }


def test_a_hold_and_a_trial_say_what_they_do_to_a_step(as_: Login) -> None:
    service = open_cause()
    client = as_("engineer")
    said = shown(client, page_of(page="hold"))
    assert "Hold “Enrol in the program” ?" in said.replace("program”?", "program” ?")
    assert "Workers of another release go on all the same." in said
    assert "service before" not in said
    Service.objects.update(releases=[""])
    assert "another release" not in shown(client, page_of(page="hold"))
    assert "in release" not in sentence(client), "its workers name none"
    said = shown(client, page_of(page="try_now"))
    assert "Have “Enrol in the program” tried now?" in said
    assert f"One workflow that is parked tries the step at once instead of at {at(service.retry_at)}." in said
    crash = open_cause(code="worker_crashed", retry_at=None).pk
    assert "It may stop one more worker" in shown(client, page_of(crash, "try_now"))
    assert "that trial may cost one more" in shown(client, page_of(crash, "hold"))


def test_to_let_a_few_fail_says_what_is_given_back_and_does_it(as_: Login) -> None:
    open_cause()
    first, second = parked(2)
    charged(first)
    charged(second, "unknown")
    parked(compensating=True)
    client = as_("support lead")
    url = page_of(page="let_fail")
    said = shown(client, url)
    for each in (
        "Let fail what is parked at “Enrol in the program”?",
        "The 2 workflows that are parked by then fail. What parks later still waits.",
        "$145.00 is given back, for 1 of them.",
        "Of 1 a call is unclear. That is found out",
    ):
        assert each in said
    done = client.post(url, {"reason": "They are told.", "decides": "1"}, follow=True).content.decode()
    assert "They fail now, and what they have done is reversed." in done
    assert circuit(CAUSE).let_fail_by == "some-support lead"
    assert "fails just now, as some-support lead has said: They are told." in sentence(client)
    assert offered(client) == []


def test_to_let_many_fail_another_has_to_say_so_and_the_first_is_told(as_: Login) -> None:
    open_cause()
    parked(operations.ALONE + 1)
    lead, engineer = as_("support lead"), as_("engineer")
    url = page_of(page="let_fail")
    assert "Nothing happens yet: for more than 20 workflows another user has to say so, too." in shown(lead, url)
    assert '<input type="hidden" name="decides" value="0">' in lead.get(url).content.decode()
    said = lead.post(url, {"reason": "They are told.", "decides": "0"}, follow=True)
    assert "You have asked for it. They fail when another user says so, too." in said.content.decode()
    asked_at = at(circuit(CAUSE).asked_at)
    told = (
        f"some-support lead asked at {asked_at} to let fail what is parked: They are told. Another user has to say so"
    )
    for client in (lead, engineer, as_("support")):
        assert told in shown(client, page_of())
    assert "Let fail: You have asked for this yourself" in shown(lead, page_of())
    assert offered(lead) == []
    again = lead.post(url, {"reason": "Do it."}, follow=True).content.decode()
    assert "You have asked for this yourself" in again
    assert f"some-support lead asked for this at {asked_at}: They are told. You decide." in shown(engineer, url)
    assert '<input type="hidden" name="decides" value="1">' in engineer.get(url).content.decode()
    refused = engineer.post(url, {"reason": "Yes.", "decides": "0"}, follow=True).content.decode()
    assert "It would happen at once now" in refused, "their page was made before the lead asked"
    engineer.post(url, {"reason": "Yes.", "decides": "1"})
    assert (circuit(CAUSE).let_fail_by, circuit(CAUSE).asked_by) == ("some-engineer", "")
    assert [event.kind for event in CircuitEvent.objects.order_by("id")] == ["asked", "let_fail"]


def test_more_than_are_looked_through_have_no_sum(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.telling.consequences.LOOKED_THROUGH", 1)
    open_cause()
    for row in parked(2):
        charged(row)
    said = shown(as_("engineer"), page_of(page="let_fail"))
    assert "What was charged is given back where it can be." in said
    assert "$" not in said


def test_a_service_is_not_let_fail(as_: Login) -> None:
    open_circuit()
    rows.parked(parked_on="programs")
    client = as_("engineer")
    assert offered(client, "programs") == ["Try now", "Hold"]
    said = client.post(f"{SERVICES}programs/let_fail/", {"reason": "Now."}, follow=True).content.decode()
    assert "a service comes back" in said
    assert health.standing("programs").service.let_fail_until is None  # type: ignore[union-attr]
    assert User.objects.count() == 1
