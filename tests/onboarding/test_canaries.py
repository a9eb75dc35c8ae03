"""Canaries: no value of a submission, and no word of a service's answer, is on a page, in a log line or in the history.

Submissions of every kind, each field a word of its own, through the real engine, against the real sandbox; and each
service in turn is one that says too much.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.db import connections

from onboarding.samples import Kind, Sample, sample
from onboarding.workflow import ONBOARDING
from tests.engine import work, worker
from tests.sandbox_process import SandboxProcess
from tests.workflows.admin.conftest import Login, as_, crawl
from tests.workflows.admin.walk.babbling import BODY, HEADER, REASON, babbling_service
from tests.workflows.admin.walk.kept import every_column, leaks, log_lines, shown_columns
from workflows.definition import value_at
from workflows.models import Attempt, ManualTask, Workflow
from workflows.sealing import payloads

__all__ = ["as_"]

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True, databases=["default", "attempt_log"])]

# A word of its own for each field that takes one; of those that take none, a value that is found nowhere else. The
# names of fields are shown, those that a sender has made up, too.
WORDS = {
    "patient.email": "canarymail@example.com",
    "patient.password": "canarypassword",
    "patient.first_name": "Canaryfirst",
    "patient.last_name": "Canarylast",
    "patient.date_of_birth": "1987-11-23",
    "patient.phone": "+12025550147",
    "address.line1": "7 Canaryline Street",
    "address.line2": "Canaryfloor",
    "address.city": "Canarycity",
    "address.postal_code": "94117-4411",
    "insurance.payer": "Canarypayer",
    "insurance.member_id": "Canarymember",
    "insurance.group_number": "Canarygroup",
    "payment.billing_postal_code": "94118-4422",
    "questionnaire.answers.goal": "canarygoal",
    "questionnaire.answers.sleep": "canaryanswer",
    "identity_verification_id": "canaryidentity",
    "checkout.note": "canarynote",
    "note": "canarynote",
}
LISTS = {
    "questionnaire.answers.conditions": "canarycondition",
    "questionnaire.answers.medications": "canarymedication",
}
MARKERS = ["canary", "1987-11-23", "2025550147", "94117-4411", "94118-4422"]

SECRETS = ["canarypassword", "_canarycard"]  # nowhere in clear

SERVICES = ["accounts", "tokens", "profiles", "insurance", "visits", "payments", "programs", "messages"]
# Refused, and broken or well but unreadable: every service in turn says one of the first two, and one of the others.
STATUSES = [409, 422, 500, 200]


def put(payload: dict[str, Any], path: str, value: Any) -> None:
    *parts, last = path.split(".")
    for part in parts:
        payload[part] = payload = payload.get(part) or {}
    payload[last] = value


def with_canaries(made: Sample) -> dict[str, Any]:
    """The sample's payload, with a word in every field but those that make it what it is."""
    payload = made.payload
    payload["insurance"] = payload["insurance"] or {}
    for path, word in WORDS.items():
        if path == "patient.password" and value_at(payload, path) is None:
            continue
        if path == "insurance.member_id" and made.kind is Kind.INELIGIBLE:
            word = f"INELIGIBLE{word}"
        put(payload, path, f"{uuid4().hex}.{word}" if path == "patient.email" else word)
    for path, word in LISTS.items():
        put(payload, path, [*value_at(payload, path), word])
    payload["payment"]["card_token"] += "_canarycard"
    return payload


def enter(kind: Kind) -> Workflow:
    made = sample(kind, seed=uuid4().int)
    payload = with_canaries(made)
    if kind is Kind.INVALID:
        payload["patient"] |= {"email": ["canarymail"], "phone": {"home": "@canary"}, "sex": "canarysex"}
    key = made.idempotency_key
    sealed = payloads.seal(ONBOARDING, payload, key)
    return Workflow.objects.create(workflow_type="onboarding", idempotency_key=key, payload=sealed, submitted_by="web")


def test_nothing_of_a_submission_and_of_an_answer_is_seen_by_anybody(
    as_: Login, sandbox: SandboxProcess, settings: Any
) -> None:
    """As the superuser, who sees every page, and as support; what other roles see is a test of the console."""
    with log_lines() as logged:
        meet_every_trouble(settings)
        for role in ("superuser", "support"):
            pages = crawl(as_(role), filtered=False)
            assert len(pages) > 40
            for url, html in pages.items():
                if role == "superuser" and "/manualtask/" in url:
                    continue  # who decides sees the facts
                assert leaks(html, [*MARKERS, REASON, HEADER, BODY]) == [], f"{url} as {role}"
    assert leaks(logged.getvalue(), MARKERS) == []
    assert leaks(shown_columns(), MARKERS) == []
    assert leaks(every_column(), SECRETS) == []
    every_kind_of_trouble_was_met()


def meet_every_trouble(settings: Any) -> None:
    """Run submissions of every kind, and two for each service that says too much."""
    well = dict(settings.SERVICES)
    for kind in Kind:
        enter(kind)
    worker().run(drain=True)
    for number, status in enumerate(STATUSES):
        with babbling_service(status) as root:
            for service in SERVICES[number % 2 :: 2]:
                settings.SERVICES = {**well, service: f"{root}/{service}"}
                run_alone(enter(Kind.NET_NEW))
    settings.SERVICES = well
    connections["attempt_log"].close()


def run_alone(workflow: Workflow) -> None:
    """Whichever others are due again by now."""
    Workflow.objects.exclude(pk=workflow.pk).update(invisible_until="2100-01-01T00:00Z")
    work(workflow)


def every_kind_of_trouble_was_met() -> None:
    """The canaries' own canary."""
    assert Workflow.objects.filter(status="COMPLETE").exists()
    failed_in = {step["step"] for each in Attempt.objects.all() for step in each.steps if step.get("error_class")}
    assert failed_in >= {
        *("validate_payload", "validate_duplicate_email", "start_visit", "verify_insurance"),
        *("execute_checkout", "enroll_in_program", "send_confirmation", "exchange_token"),
    }
    assert ManualTask.objects.filter(task_type="clinical_review").exists()
