"""Canaries: what a patient has sent, what services said, what came back, and what was asked stays where it belongs.

Each is a word of its own. A real worker meets a real service that says too much, and fails in every way it can; then
every page, every log line and every column that people are shown is searched for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.db import connection
from pydantic import BaseModel

from tests.asgi import served
from tests.engine import submit, worker
from tests.workflows.admin.conftest import Login, crawl
from tests.workflows.admin.walk.babbling import BODY, HEADER, REASON, babbling_service
from tests.workflows.admin.walk.kept import leaks, log_lines, logged_by_the_server, shown_columns
from workflows.definition import Retry, Step, WorkflowDefinition, definitions
from workflows.effects import key_for
from workflows.errors import RetryableStepError, StepError, UnknownOutcome
from workflows.ingress import api_keys, messages
from workflows.ingress.messages import Arrived
from workflows.models import ManualTask, Workflow
from workflows.signals import store
from workflows.waits import require_approval, wait_for_signal
from workflows.wording import CallerField, Wording

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "attempt_log"])

NAME, CITY, NUMBER, LIST, KEY = "Canaryname", "Canary-by-the-Sea", "4477009911", "canarylisted", "Canary field"
EMAIL, RESULT, SIGNAL, FACT = "canarymail@example.com", "canaryresult", "canarysignal", "canaryfact"
MARKERS = [NAME, CITY, NUMBER, LIST, KEY, "canarymail", RESULT, SIGNAL, FACT, REASON, HEADER, BODY]

HOUR = timedelta(hours=1)


class Context(BaseModel):
    text: str | None = None
    reference: str | None = None


def charge(*, workflow: Workflow, context: Context) -> dict[str, str]:
    key_for(workflow, "charge")
    if workflow.payload["do"] == "unclear":
        raise UnknownOutcome(f"The call for {workflow.payload['patient']['name']} broke off.")
    return {"text": RESULT, "reference": f"ref-{RESULT}"}


def refund(*, workflow: Workflow, context: Context, effect: Any) -> None:
    raise StepError(f"{workflow.payload['patient']['name']} and {RESULT} cannot be undone.", code="no_refund")


def lookup(*, workflow: Workflow, context: Context, effect: Any) -> None:
    raise ValueError(f"no call for {workflow.payload['patient']['email']!r}")


def act(*, workflow: Workflow, context: Context) -> None:
    ACTS[workflow.payload["do"]](workflow, context)


def let_go(*, workflow: Workflow, context: Context) -> None:
    raise StepError(f"Passed over for {workflow.payload['patient']['name']}: {context.text}.", code="let_go")


# --- What goes wrong ----------------------------------------------------------------------------


def nothing(workflow: Workflow, context: Context) -> None: ...


def repeats_the_payload(workflow: Workflow, context: Context) -> None:
    patient = workflow.payload["patient"]
    raise StepError(f"{patient['name']} of {patient['city']}, {patient['number']}, {patient['list'][0]} is refused.")


def repeats_it_and_is_retried(workflow: Workflow, context: Context) -> None:
    raise RetryableStepError(f"{workflow.payload['patient']['name']} <{EMAIL}> is busy.", code="busy")


def repeats_a_result(workflow: Workflow, context: Context) -> None:
    raise StepError(f"The account {context.text} is closed.", code="closed")


def lets_the_clients_error_pass(workflow: Workflow, context: Context) -> None:
    httpx.post(f"{SERVICE[0]}/accounts", json=workflow.payload).raise_for_status()


def cannot_read_the_answer(workflow: Workflow, context: Context) -> None:
    int(httpx.get(SERVICE[0]).json()["error"])


def has_a_model_for_the_answer(workflow: Workflow, context: Context) -> None:
    Answer.model_validate_json(httpx.get(SERVICE[0]).content)


def looks_for_a_key(workflow: Workflow, context: Context) -> None:
    {}[httpx.get(SERVICE[0]).headers["X-Detail"]]


def wraps_the_clients_error(workflow: Workflow, context: Context) -> None:
    try:
        httpx.get(SERVICE[0]).raise_for_status()
    except httpx.HTTPError as error:
        raise StepError("The service refused.", code="refused") from error


def meets_a_constraint(workflow: Workflow, context: Context) -> None:
    mine = {"workflow_type": "test", "payload": {}, "tenant": "t", "business_key": NAME}
    for key in ("6c1d0000-0000-4000-8000-000000000001", "6c1d0000-0000-4000-8000-000000000002"):
        Workflow.objects.create(**mine, idempotency_key=key)


def gives_the_database_a_wrong_value(workflow: Workflow, context: Context) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::integer", [workflow.payload["patient"]["name"]])


def is_told_too_much(workflow: Workflow, context: Context) -> None:
    told = wait_for_signal(workflow, "account", "account.created", timeout=HOUR)
    raise StepError(f"The account of {told.payload['owner']} is another patient's.", code="another")


def asks_a_person(workflow: Workflow, context: Context) -> None:
    require_approval(workflow, "review", question="May it go on?", facts={"Allergy": FACT}, timeout=HOUR)


ACTS: Mapping[str, Callable[[Workflow, Context], None]] = {
    "complete": nothing,
    "unclear": nothing,
    **{
        act.__name__: act
        for act in (
            repeats_the_payload,
            repeats_it_and_is_retried,
            repeats_a_result,
            lets_the_clients_error_pass,
            cannot_read_the_answer,
            has_a_model_for_the_answer,
            looks_for_a_key,
            wraps_the_clients_error,
            meets_a_constraint,
            gives_the_database_a_wrong_value,
            is_told_too_much,
            asks_a_person,
        )
    },
}
SERVICE: list[str] = []


class Answer(BaseModel):
    error: int
    patient: str


DEFINITION = WorkflowDefinition(
    name="test",
    steps=[
        Step(charge, once=True, undo=refund, lookup=lookup, settle=0, returns=("text", "reference")),
        act,
        Step(let_go, best_effort=True),
    ],
    context_class=Context,
    retry=Retry(max_attempts=2, base_delay=0),
    public_fields=["do", "program"],
    wording=Wording(caller=[CallerField("Name", "patient.name", lambda name: f"{name[0]}•••")]),
)


def payload_of(what: str) -> dict[str, Any]:
    patient = {"name": NAME, "city": CITY, "number": int(NUMBER), "list": [LIST], "email": EMAIL, KEY: {KEY: KEY}}
    return {"do": what, "program": "body", "patient": patient, KEY: KEY}


def submitted(what: str) -> Workflow:
    return submit(payload_of(what), linking_id=f"{NAME}-{what}", business_key=f"{NAME}-{what}")


def drain(most: int = 200) -> None:
    this = worker()
    while this.process_next():
        most -= 1
        assert most, "something is due again and again"


def test_what_is_said_in_confidence_is_on_no_page_in_no_log_line_and_in_no_column(as_: Login, settings: Any) -> None:
    """As the superuser, who sees every page, and as support; what other roles see: `test_console`."""
    settings.WORKFLOWS = [f"{__name__}.DEFINITION"]
    definitions.cache_clear()
    with log_lines() as logged, logged_by_the_server() as logged_there:
        meet_all_of_it()
        for role in ("superuser", "support"):
            pages = crawl(as_(role), filtered=False)
            assert len(pages) > 20
            for url, html in pages.items():
                found = leaks(html, MARKERS)
                if role == "superuser" and "/manualtask/" in url:
                    found = [marker for marker in found if marker != FACT]  # who decides sees the facts
                assert found == [], f"{url} as {role}"
        lines, statements = logged.getvalue(), logged_there()
    known = f'invalid input syntax for type integer: "{NAME}"'  # of a statement of a step's own: docs/deployment.md
    assert leaks(statements.replace(known, ""), MARKERS) == []
    if statements:
        assert statements.count(known) == 1
        for of_intake_worker_console in ("INSERT INTO workflows_workflow", "SKIP LOCKED", '"django_session"'):
            assert of_intake_worker_console in statements
    assert leaks(shown_columns(), MARKERS) == []
    assert leaks(lines, MARKERS) == []
    assert lines.count("workflows.engine.decide") >= len(ACTS), "the worker's lines are among them"
    each_trouble_was_met_and_is_told_without_it()
    what_the_definition_allows_is_shown(pages)


def meet_all_of_it() -> None:
    """Workflows that a worker has run into everything."""
    with babbling_service() as root:
        SERVICE[:] = [root]
        made = {name: submitted(name) for name in ACTS}
        drain()
        told = {"owner": SIGNAL, "more": [{KEY: SIGNAL}]}
        row = made["is_told_too_much"]
        store.send(source="web", dedupe_key="1", name="account.created", workflow_id=row.pk, payload=told)
        drain()
        arrived = Arrived(
            "topic",
            0,
            1,
            1,
            [("id", KEY.encode())],
            json.dumps(
                {
                    "name": "told",
                    "linking_id": f"{NAME}-complete",
                    "payload": told,
                }
            ).encode(),
        )
        assert messages.deliver(arrived)
    with served(DEFINITION) as intake:
        headers = {"Authorization": f"Bearer {api_keys.create('web')}", "Idempotency-Key": str(uuid4())}
        for what, status in (("complete", 202), ("complete", 202), ("nothing", 422)):  # again, and with another payload
            body = json.dumps(payload_of(what))
            answer = intake.post("/v1/submissions", body, "application/json", headers)
            assert answer.status_code == status
    drain()


def each_trouble_was_met_and_is_told_without_it() -> None:
    """The canaries' own canary: every error came to where it would have been seen."""
    said = {row.payload["do"]: row for row in Workflow.objects.all()}
    assert said.keys() == ACTS.keys()
    classes = {name: row.last_error_class.rpartition(".")[2] for name, row in said.items()}
    assert classes == {
        "complete": "",
        "unclear": "ValueError",  # of its lookup
        "asks_a_person": "",
        "lets_the_clients_error_pass": "HTTPStatusError",
        "cannot_read_the_answer": "ValueError",
        "has_a_model_for_the_answer": "ValidationError",
        "looks_for_a_key": "KeyError",
        "meets_a_constraint": "IntegrityError",
        "gives_the_database_a_wrong_value": "DataError",
        "repeats_it_and_is_retried": "RetryableStepError",
        **dict.fromkeys(
            ["repeats_the_payload", "repeats_a_result", "wraps_the_clients_error", "is_told_too_much"], "StepError"
        ),
    }
    assert "The account of ••• is another patient's." in said["is_told_too_much"].last_error_message
    assert FACT in str(ManualTask.objects.get(workflow=said["asks_a_person"]).facts)


def what_the_definition_allows_is_shown(pages: dict[str, str]) -> None:
    html = pages[f"/admin/workflows/workflow/{Workflow.objects.filter(payload__do='complete')[0].pk}/change/"]
    assert "<dt>do</dt><dd>complete</dd>" in html
    assert "<dt>program</dt><dd>body</dd>" in html
    assert "<dt>patient.name</dt><dd>C•••</dd>" in html
    assert "<dt>patient.city</dt><dd>••••</dd>" in html
    assert "<div><dt>Name</dt><dd>C•••</dd></div>" in html
