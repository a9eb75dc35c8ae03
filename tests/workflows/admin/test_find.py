"""Find: a patient's workflow by what staff know, and nothing of it anywhere but in the answer."""

from __future__ import annotations

import logging
import re
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from onboarding.workflow import ONBOARDING
from tests import postgres
from tests.postgres import without_triggers
from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import words
from workflows.console import searches
from workflows.definition import WorkflowDefinition, definitions
from workflows.intake.submissions import enter
from workflows.models import Effect, Search, Workflow
from workflows.postgres.jsonb import document_of
from workflows.sealing.unavailable import AESGCM
from workflows.search import find as finding

pytestmark = pytest.mark.usefixtures("letters")

FIND = "/admin/find/"
# Another type by which the same people are found.
AGAIN = WorkflowDefinition(name="again", steps=[rows.review], search_keys=ONBOARDING.search_keys)
EMAIL = "canary-4c1d@example.com"
PHONE = "+15550102323"


def sent(email: str = EMAIL, phone: str = PHONE) -> int:
    document = document_of({"patient": {"email": email, "phone": phone}})
    return enter(definitions()["keyed"], idempotency_key=uuid.uuid4(), payload=document, submitted_by="web").id


def find(client: Client, text: Any) -> HttpResponse:
    """The answer to a search: the page of a workflow, as a redirect, or what was found."""
    response: Any = client.post(FIND, {"q": text})
    return client.get(url) if (url := response.headers.get("Location", "")).startswith(FIND) else response


def opened(client: Client, text: Any) -> int | None:
    """The workflow that a search opens; None if it opens none."""
    response = find(client, text)
    found = re.fullmatch(r"/admin/workflows/workflow/(\d+)/change/", response.headers.get("Location", ""))
    assert found or response.status_code == 200
    return int(found[1]) if found else None


def listed(client: Client, text: Any) -> list[int]:
    html = find(client, text).content.decode()
    return [int(pk) for pk in re.findall(r'<th scope="row"><a href="/admin/workflows/workflow/(\d+)/change/">', html)]


def said(response: HttpResponse) -> str:
    return words(response.content.decode())


# --- What is found ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [f"  {EMAIL.upper()} ", "(555) 010-2323"])
def test_one_hit_opens_its_page(as_: Login, text: str) -> None:
    mine = sent()
    sent("john@example.com", "+15550109999")
    assert opened(as_("support"), text) == mine


def test_each_kind_of_key_finds_in_full(as_: Login) -> None:
    rows.workflow(linking_id="else")
    row = rows.workflow(business_key="order-7", linking_id="acc-9", given_request_id="shop-7")
    support = as_("support")
    key = row.idempotency_key
    page = f"/admin/workflows/workflow/{row.pk}/change/"
    for text in [
        *(row.pk, f"#{row.pk}", f" # {row.pk} ", f"https://onramp.example.com{page}?before=3#history", page),
        *(key, str(key).upper(), key.hex, f"{key}:charge:2:undo", "order-7", "acc-9", "shop-7"),
    ]:
        assert opened(support, text) == row.pk, text
    for text in ["order", "ORDER-7", str(key)[:8], "9" * 30, "9" * 18, uuid.uuid4(), "%", "x" * 400, "//[", "Jane Doe"]:
        assert opened(support, text) is None, text
    assert "paste the idempotency key that the service shows" in said(find(support, "ch_4711")), "of its call"


def test_a_key_that_looks_like_another_kind_is_found_too(as_: Login) -> None:
    digits = rows.workflow(business_key="4711")
    uuids = rows.workflow(linking_id=str(uuid.uuid4()))
    order = rows.workflow(business_key="2024-001-233")
    support = as_("support")
    assert opened(support, "4711") == digits.pk
    assert opened(support, uuids.linking_id) == uuids.pk
    assert opened(support, "2024-001-233") == order.pk  # it reads as a phone number, too


def test_what_reads_as_an_email_address_is_looked_for_as_nothing_else(as_: Login) -> None:
    """It would be a parameter of a statement, which the server may log."""
    rows.workflow(business_key="order@example.com")
    assert opened(as_("support"), "order@example.com") is None


def test_a_family_that_shares_a_phone_is_told_apart(as_: Login, settings: Any) -> None:
    """In the list, and on the page of one: whom each is about, what was charged, and which key it was found by."""
    settings.WORKFLOWS = ["onboarding.workflow.ONBOARDING", f"{__name__}.AGAIN"]
    definitions.cache_clear()
    jane, john = [
        enter(
            definitions()["onboarding"],
            idempotency_key=uuid.uuid4(),
            payload=document_of(
                {
                    "patient": {"email": email, "phone": PHONE},
                    "checkout": {"program": "sleep", "amount_cents": 14500, "currency": "USD"},
                }
            ),
            submitted_by="web",
        ).id
        for email in (EMAIL, "john@example.com")
    ]
    charge = {"step": "execute_checkout", "state": "done", "result": {"charge_id": "ch_1"}, "attempt": 1}
    Effect.objects.create(workflow_id=john, idempotency_key="k", **charge)
    now = timezone.now()
    Workflow.objects.filter(pk=jane).update(waiting_for="workflow 494", invisible_until=now + timedelta(days=1))
    Workflow.objects.filter(pk=john).update(status="FAILED", last_error_code="duplicate_of", completed_at=now)
    support = as_("support")
    answer = find(support, PHONE)
    told = said(answer)
    assert "Waiting workflow 494" in told
    assert "Duplicate $145.00 charged" in told
    assert [each["by"] for each in answer.context["rows"]] == ["phone number", "phone number"], "both types have one"
    assert "j•••@example.com, ending 23, sleep" in told
    assert "$145.00 charged phone number" in told
    page = support.get(f"/admin/workflows/workflow/{jane}/change/").content.decode()
    others = words(page.partition('<section class="others"')[2].partition("</section>")[0])
    assert "same phone number j•••@example.com, ending 23, sleep; $145.00 charged" in others
    assert EMAIL not in told + others


def test_of_more_than_fifty_the_newest_are_listed_and_it_says_so(as_: Login) -> None:
    made = [sent() for _ in range(51)]
    support = as_("support")
    assert listed(support, EMAIL) == made[:0:-1]
    assert "The newest 50; there are more" in said(find(support, EMAIL))
    assert Search.objects.latest("pk").hits == 51


def test_nothing_found_says_what_was_tried(as_: Login) -> None:
    support = as_("support")
    assert "There is no workflow with this email." in said(find(support, "nobody@example.com"))
    told = said(find(support, "5550109999"))
    assert "with this phone, nor with this number, nor with this business key, nor with this linking id" in told
    assert "nor with this request id" in told
    assert "Names are not searchable" in told


def test_nothing_found_leads_to_the_other_cells_without_what_was_typed(as_: Login, settings: Any) -> None:
    assert "another cell" not in find(as_("support"), "nobody@example.com").content.decode()
    settings.CELLS = {"b": "https://b.example.com/"}
    html = find(as_("support"), "nobody@example.com").content.decode()
    assert '<a href="https://b.example.com/admin/find/">b</a>' in html
    assert "another cell" not in as_("support").get(FIND).content.decode()


def test_what_can_be_nothing_is_refused_beside_the_box(as_: Login) -> None:
    for text in ("   ", "x" * 501, "a\0b"):
        assert 'aria-invalid="true"' in find(as_("support"), text).content.decode()
    assert not Search.objects.exists()


def test_a_workflow_that_is_gone_is_not_found_by_its_search_keys(as_: Login) -> None:
    with without_triggers():
        Workflow.objects.filter(pk=sent()).delete()
    assert opened(as_("support"), EMAIL) is None


def test_a_search_reads_indexes_only(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            """WITH made AS (
               INSERT INTO workflows_workflow (idempotency_key, workflow_type, payload, business_key, linking_id)
               SELECT gen_random_uuid(), 'keyed', '{}', 'b' || n, CASE WHEN n % 2 = 0 THEN 'l' || n % 5 END
                 FROM generate_series(1, 5000) n RETURNING id)
               INSERT INTO workflows_searchkey (hash, workflow_id, key_id)
               SELECT uuid_send(gen_random_uuid()), id, 1 FROM made"""
        )
        cursor.execute("ANALYZE workflows_workflow; ANALYZE workflows_searchkey")
    texts = ("17", "00000000-0000-4000-8000-000000000000", "b17", "l17", EMAIL)
    for reading in [reading for text in texts for reading in finding._readings(text)]:
        literals = {name: _literal(value) for name, value in {**reading.parameters, "limit": 51}.items()}
        sql = re.sub(r"%\((\w+)\)s", lambda name: literals[name[1]], reading.sql)  # noqa: B023 (called at once)
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN {sql}")
            plan = "\n".join(line for (line,) in cursor)
        assert "Seq Scan" not in plan, plan


def _literal(value: Any) -> str:
    if isinstance(value, list):
        return "ARRAY[{}]".format(", ".join(f"'\\x{each.hex()}'::bytea" for each in value))
    return str(value) if isinstance(value, int) else f"'{value}'"


# --- On record ----------------------------------------------------------------------------------


def test_a_search_is_on_record_by_kind_and_never_by_what_was_typed(as_: Login) -> None:
    sent(), sent()
    find(as_("support"), EMAIL)
    find(as_("engineer"), "#333")
    find(as_("engineer"), PHONE)
    record = list(Search.objects.order_by("pk").values_list("actor", "tried", "hits"))
    keys = ["business key", "linking id", "request id"]
    assert record == [
        ("some-support", ["email"], 2),
        ("some-engineer", ["number", *keys], 0),
        ("some-engineer", ["phone", *keys], 2),
    ]
    assert EMAIL not in str(list(Search.objects.values()))


def test_nobody_sees_what_is_not_on_record(as_: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    sent()
    client = as_("support")
    client.raise_request_exception = False

    def failing(**fields: Any) -> None:
        raise OSError("The disk is full.")

    monkeypatch.setattr(Search.objects, "create", failing)
    response = find(client, EMAIL)
    assert response.status_code == 500
    assert "Location" not in response.headers


# --- Nowhere else -------------------------------------------------------------------------------


def hexes(text: str) -> list[str]:
    return [each.hex() for reading in finding._readings(text) for each in reading.parameters.get("hashes", ())]


@pytest.mark.parametrize("text", [EMAIL, "canary-4c1d-key", "canary-4c1d-nothing"])
def test_what_was_typed_stands_in_no_url_log_session_message_or_title(
    as_: Login, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    sent(), rows.workflow(business_key="canary-4c1d-key")
    client = as_("superuser")
    with caplog.at_level(logging.DEBUG):
        found, sent_on = find(client, text), client.post(FIND, {"q": text})
        for response in (found, sent_on, client.get(sent_on["Location"]), client.get(FIND)):
            assert "no-store" in response.headers["Cache-Control"]
            assert "canary" not in str(dict(response.headers)).lower()
            html = response.content.decode()
            assert "canary" not in re.sub(r'<input type="text" name="q"[^>]*>', "", html).lower()
            assert "canary" not in html.split("</title>")[0].lower()
    # Django's own record of the statements is kept with DEBUG only, and is not a log line elsewhere.
    logged = [record.getMessage() for record in caplog.records if record.name != "django.db.backends"]
    assert "canary" not in "\n".join(logged).lower()
    sessions = [session.get_decoded() for session in Session.objects.all()]
    assert sessions
    assert "canary" not in str(sessions).lower()
    assert "messagelist" not in html


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("text", [EMAIL, "canary-4c1d-key"])
def test_what_was_typed_stands_in_no_statement(as_: Login, text: str) -> None:
    """With `log_statement = all`: neither in a statement's text, nor, of a search key, among its parameters."""
    server = postgres.embedded_server()
    if server is None:
        pytest.skip("the log of DATABASE_URL's server is not ours to read")
    rows.workflow(business_key="canary-4c1d-key", linking_id="canary-4c1d-link")
    sent()
    client = as_("superuser")
    before = server.log.stat().st_size
    with connection.cursor() as cursor:
        cursor.execute(
            "SET log_statement = 'all'; SET log_parameter_max_length = -1; SET log_error_verbosity = 'default'"
        )
    try:
        find(client, text)
        find(client, "x" + text)
    finally:
        connection.close()
    logged = server.log.read_bytes()[before:].decode(errors="replace").lower()
    statements = "\n".join(line for line in logged.splitlines() if "detail:" not in line)
    assert "from workflows_" in statements
    assert text.lower() not in statements
    if text == EMAIL:
        assert hexes(text)[0] in logged  # it did look there: by the hash, which is a parameter
        assert hexes(text)[0] not in statements
        assert text not in logged


def test_back_leads_to_what_was_found_for_as_long_as_the_session_keeps_it(
    as_: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, client = [sent(), sent()][::-1], as_("support")
    url = client.post(FIND, {"q": EMAIL})["Location"]
    for _ in range(searches.KEPT - 1):
        last = client.post(FIND, {"q": "nobody@example.com"})["Location"]
    shown = client.get(url)
    assert [each["row"].pk for each in shown.context["rows"]] == both
    assert {each["by"] for each in shown.context["rows"]} == {"email"}
    assert f'value="{EMAIL}"' in shown.content.decode()
    assert "There is no workflow with this email" in said(client.get(last))
    assert Search.objects.count() == searches.KEPT, "to look again is no search"
    assert "not kept any more" in said(as_("support").get(url)), "another sign-in of the same person"
    client.post(FIND, {"q": "nobody@example.com"})
    assert "not kept any more" in said(client.get(url))
    monkeypatch.setattr(searches.envelopes, "AESGCM", AESGCM)
    searches.envelopes._keys.cache_clear()
    url = client.post(FIND, {"q": EMAIL})["Location"]
    shown = client.get(url)
    assert (len(shown.context["rows"]), EMAIL in shown.content.decode()) == (2, False), "without the extra"
    searches.envelopes._keys.cache_clear()
    assert "aria-invalid" not in shown.content.decode()
    client.post("/admin/logout/")
    assert not Session.objects.filter(pk=client.cookies["sessionid"].value).exists()
    assert EMAIL not in client.get(url, follow=True).content.decode()


def test_an_error_report_hides_what_was_typed(as_: Login, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    from django.views.debug import get_exception_reporter_filter

    client, seen = as_("support"), []

    def failing(text: str, *, actor: str) -> None:
        raise RuntimeError("No.")

    monkeypatch.setattr(finding, "find", failing)
    client.raise_request_exception = False

    def report(sender: Any, request: Any, **_: Any) -> None:
        settings.DEBUG = False
        seen.append(dict(get_exception_reporter_filter(request).get_post_parameters(request)))

    from django.core.signals import got_request_exception

    got_request_exception.connect(report)
    try:
        find(client, EMAIL)
    finally:
        got_request_exception.disconnect(report)
    assert len(seen) == 1
    assert EMAIL not in str(seen)
