"""An event of a declared source becomes a signal once; what its source has sent and nobody can read is kept."""

import json
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from onboarding import sources
from tests.workflows import rows
from tests.workflows.api.answers import assert_problem
from tests.workflows.api.vendors import CLOUD, DECLARED, STRIPES, VENDORS, Vendor, stripe_signature
from workflows.errors import NotAllowed
from workflows.features.queues import messages
from workflows.ingress import webhooks
from workflows.ingress.messages import Arrived
from workflows.models import Signal, UndeliveredMessage, Workflow

pytestmark = pytest.mark.django_db
PAYMENTS, IDENTITY, GITHUB, LETTERS = VENDORS
# As somebody mends a declaration.
MENDED = replace(sources.IDENTITY, linking_id=lambda event: event.body["subject"][:200])
MALFORMED = [
    b'{"cut": ', b"[" * 500, b'{"a": ' * 200 + b"1" + b"}" * 200, b'{"n": 1e999999}', b'{"n": ' + b"9" * 4301 + b"}",
    b'{"s": "\\u0000"}', b'{"s": "\\ud800"}', b'{"a": 1, "a": 2}', b'{"n": NaN}', b'{"a": "\\x"}', b"[1]", b"null",
    b"\xef\xbb\xbf{}", b"\xff\xfe", b"{}\x00",
]  # fmt: skip


@pytest.fixture(autouse=True)
def declared(settings: Settings) -> None:
    settings.SIGNAL_SOURCES = DECLARED


@pytest.fixture
def secrets() -> dict[str, str]:
    return {vendor.name: webhooks.create(vendor.name) for vendor in VENDORS}


def of_stripe(key: str | None, **fields: Any) -> bytes:
    intent = {**STRIPES["data"]["object"], "metadata": {"onramp_key": key} if key else {}}
    return json.dumps({**STRIPES, "data": {"object": intent}, **fields}).encode()


def kept() -> list[tuple[str, str]]:
    return list(UndeliveredMessage.objects.order_by("id").values_list("topic", "code"))


# --- What becomes of it -----------------------------------------------------------------------------


def test_each_vendors_documented_event_becomes_a_signal_once(client: Client, secrets: dict[str, str]) -> None:
    paid, ordered = rows.workflow(), rows.workflow(workflow_type="order", tenant="north", business_key="o-1")
    for vendor, body in ((PAYMENTS, of_stripe(str(paid.idempotency_key))), (IDENTITY, None), (GITHUB, None)):
        for replayed in (False, True):
            response = vendor.send(client, secrets[vendor.name], body)
            assert (response.status_code, response.json()) == (202, {"replayed": replayed})
    assert LETTERS.send(client, secrets["letters"]).status_code == 202
    signals = Signal.objects.order_by("id").values_list("source", "name", "linking_id", "workflow_id", "payload")
    event = {name[3:]: value for name, value in CLOUD.items()} | {"datacontenttype": "application/json"}
    assert list(signals) == [
        ("payments", "payment.succeeded", None, paid.pk, {"intent": "pi_1", "status": "succeeded"}),
        ("identity", "account.created", "L-1", None, {**event, "data": {"account": "A-7"}}),
        ("github", "github.push", "octocat/Hello-World", None, json.loads(GITHUB.good)),
        ("letters", "contact.created", None, ordered.pk, {"at": "2022-11-03T20:26:10.344522Z"}),
    ]
    assert Signal.objects.get(source="payments").dedupe_key == STRIPES["id"]
    longest = of_stripe(str(paid.idempotency_key), id="x" * 200)
    assert PAYMENTS.send(client, secrets["payments"], longest).status_code == 202
    assert kept() == []


def test_an_event_of_no_use_is_passed_over(client: Client, secrets: dict[str, str]) -> None:
    response = PAYMENTS.send(client, secrets["payments"], of_stripe(None, type="customer.created"))
    assert (response.status_code, response.json()) == (200, {"ignored": True})
    assert not Signal.objects.exists()
    assert kept() == []


def test_each_of_two_secrets_is_good_until_it_is_revoked(client: Client, secrets: dict[str, str]) -> None:
    for vendor in VENDORS:
        new = webhooks.create(vendor.name, "whsec_" + "QUJD" * 10)
        codes = [vendor.send(client, each).status_code for each in (secrets[vendor.name], new)]
        assert set(codes) <= {202, 404, 422}, codes
        webhooks.revoke(webhooks.find(secrets[vendor.name]).get())
        assert vendor.send(client, secrets[vendor.name]).status_code == 401
        assert vendor.send(client, new).status_code in (202, 404, 422)


def test_a_secret_is_of_the_form_that_its_source_has(settings: Settings) -> None:
    assert webhooks.create("github", "It's a Secret to Everybody")
    assert webhooks.shown("It's a Secret to Everybody") == "It's"
    with pytest.raises(ValueError, match="base64"):
        webhooks.create("letters", "It's a Secret to Everybody")
    settings.SIGNAL_SOURCES = []  # then Standard Webhooks says what is a key
    assert webhooks.keys_of("github") == []


def test_what_came_too_early_is_kept_once_and_redelivered(client: Client, secrets: dict[str, str]) -> None:
    key = "0b6a3f0e-1111-4222-8333-444455556666"
    for _ in range(2):  # Stripe sends it again, with another signature
        assert_problem(PAYMENTS.send(client, secrets["payments"], of_stripe(key)), 404, "workflow_not_found")
    assert kept() == [("webhook:payments", "workflow_not_found")]
    row = UndeliveredMessage.objects.get()
    assert "stripe-signature" not in {name for name, _ in Arrived.kept(row).headers}
    assert (row.webhook, str(row)) == ("payments", "webhook of payments")
    workflow = rows.workflow(idempotency_key=key)
    boss = User.objects.create_superuser("boss")
    messages.redeliver(row.pk, user=boss)
    assert Signal.objects.get().workflow_id == workflow.pk
    assert PAYMENTS.send(client, secrets["payments"], of_stripe(key)).json() == {"replayed": True}


def test_binary_mode_is_redelivered_with_its_headers_and_without_its_token(
    client: Client, secrets: dict[str, str], settings: Settings
) -> None:
    response = IDENTITY.send(client, secrets["identity"], headers={"ce-subject": "x" * 201})
    assert_problem(response, 422, "linking_id_invalid")
    row = UndeliveredMessage.objects.get()
    assert not {"authorization", "cookie"} & {name for name, _ in Arrived.kept(row).headers}
    settings.SIGNAL_SOURCES = ["tests.workflows.api.test_events_of_others.MENDED"]
    messages.redeliver(row.pk, user=User.objects.create_superuser("boss"))
    assert Signal.objects.get().linking_id == "x" * 200


def test_a_source_that_is_not_declared_any_more_keeps_its_events(
    client: Client, secrets: dict[str, str], settings: Settings
) -> None:
    PAYMENTS.send(client, secrets["payments"], of_stripe(None))
    settings.SIGNAL_SOURCES = []
    with pytest.raises(NotAllowed, match="declares no such source"):
        messages.redeliver(UndeliveredMessage.objects.get().pk, user=User.objects.create_superuser("boss"))


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"id": None}, 422, "id_invalid"),
        ({"id": "a\u0007"}, 422, "id_invalid"),
        ({"id": "x" * 201}, 422, "id_invalid"),
        ({"id": ""}, 422, "id_invalid"),
        ({"data": None}, 422, "not_mappable"),
        ({"type": []}, 422, "not_mappable"),
    ],
)
def test_what_a_declaration_cannot_map_is_kept_with_the_reason(
    client: Client, secrets: dict[str, str], fields: dict[str, Any], status: int, code: str
) -> None:
    key = str(rows.workflow().idempotency_key)
    assert_problem(PAYMENTS.send(client, secrets["payments"], of_stripe(key, **fields)), status, code)
    assert kept() == [("webhook:payments", code)]


@pytest.mark.parametrize(
    ("find", "code"),
    [
        (lambda _: uuid4(), "not_json"),
        (lambda event: Workflow.objects.get(linking_id=f"\0{event.body['id']}").linking_id, "not_mappable"),
    ],
)
def test_a_function_that_returns_no_text_or_asks_the_impossible_keeps_the_event(
    client: Client, secrets: dict[str, str], monkeypatch: pytest.MonkeyPatch, find: Any, code: str
) -> None:
    monkeypatch.setattr(sources, "IDENTITY", replace(sources.IDENTITY, linking_id=find))
    assert_problem(IDENTITY.send(client, secrets["identity"]), 422, code)
    assert kept() == [("webhook:identity", code)]


def test_an_event_that_anybody_sends_again_with_other_headers_is_kept_once(
    client: Client, secrets: dict[str, str]
) -> None:
    signed = GITHUB.proof(secrets["github"], b"{}")
    for number in "123":
        headers = {**signed, "ce-number": number, "x-number": number}
        client.post("/v1/signals/github", b"{}", content_type="application/json", headers=headers)
    assert kept() == [("webhook:github", "not_mappable")]


def test_the_id_of_another_event_is_refused_and_kept(client: Client, secrets: dict[str, str]) -> None:
    one, other = (str(rows.workflow().idempotency_key) for _ in range(2))
    assert PAYMENTS.send(client, secrets["payments"], of_stripe(one)).status_code == 202
    assert_problem(PAYMENTS.send(client, secrets["payments"], of_stripe(other)), 422, "message_id_reused")
    assert kept() == [("webhook:payments", "message_id_reused")]


# --- Malformed events of each -----------------------------------------------------------------------


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
def test_malformed_events_are_refused_and_kept_each_and_what_nobody_signed_is_not(
    client: Client, secrets: dict[str, str], vendor: Vendor
) -> None:
    secret = secrets[vendor.name]
    # In binary mode the data may be any JSON value: there an attribute is missing as well.
    headers = {"ce-id": ""} if vendor is IDENTITY else {}
    for body in MALFORMED:
        assert vendor.send(client, secret, body, headers=headers).status_code in (400, 404, 422), body[:80]
    right = vendor.proof(secret, b"another body")
    twice = {name: f"{value},{value}" for name, value in right.items()}
    for wrong in ({}, twice, dict.fromkeys(right, "t=1,v1=a"), {} if vendor is IDENTITY else right):
        response = vendor.send(client, secret, MALFORMED[0] + b" ", proof=lambda *_, wrong=wrong: wrong)
        assert response.status_code == 401
    assert UndeliveredMessage.objects.count() == len(MALFORMED)
    assert not Signal.objects.exists()


def test_a_stale_signature_is_no_replay(client: Client, secrets: dict[str, str]) -> None:
    old = stripe_signature(secrets["payments"], PAYMENTS.good, at=1_600_000_000)
    response = PAYMENTS.send(client, secrets["payments"], headers={"Stripe-Signature": old})
    assert_problem(response, 401, "webhook_timestamp_stale")
    assert response.headers["WWW-Authenticate"] == "Stripe"
    assert kept() == []
