"""A verb is done on a page that says what will happen, by a POST with a reason, in the name of the user who asked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import AutoField, F, Model
from django.utils import timezone

from tests.postgres import without_triggers
from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.targets import chosen
from tests.workflows.admin.tasks import task
from tests.workflows.admin.walk.forms import untouched
from workflows.models import (
    ApiKey,
    BulkOperation,
    Erasure,
    Event,
    Hold,
    ManualTask,
    OutboxEvent,
    UndeliveredMessage,
    Workflow,
)

LIST = "/admin/workflows/workflow/"
NUMBERS = count()


CASE = ["Add a note", "Ask a lead", "Hand to team"]
UNDER_WAY = [*CASE, "Pause this one"]
OFFERED: list[tuple[str, Callable[[], Workflow], list[str]]] = [
    ("support", rows.failed, ["Retry", "Acknowledge", *CASE]),
    ("support", rows.cancelled, ["Retry", *CASE]),
    ("support", rows.retrying, ["Run now", "Cancel", *UNDER_WAY]),
    ("support", rows.waiting, ["Cancel", *UNDER_WAY]),
    ("support", rows.running, ["Cancel", *UNDER_WAY]),
    ("support", rows.workflow, ["Cancel", *UNDER_WAY]),
    ("support", rows.compensating, CASE),
    ("support", rows.complete, ["Add a note"]),
    ("support", rows.left_undone, ["Run again", "Add a note"]),
    ("approver", rows.failed, CASE),
    ("auditor", rows.given_up, ["Place a legal hold"]),
    ("auditor", rows.retrying, ["Place a legal hold"]),
]


def test_a_retry_is_the_primary_button_only_where_it_may_help(as_: Login) -> None:
    support = as_("support")
    full = {"workflow_type": "onboarding", "current_step": "enroll_in_program", "last_error_code": "program_full"}
    told = rows.failed()
    Workflow.objects.filter(pk=told.pk).update(acknowledged_failure=F("completed_at"))
    crashed = rows.failed(last_error_code="poison")  # an engineer looks first
    by_row = ((rows.failed(), "Retry"), (rows.failed(**full), "Acknowledge"), (told, ""), (crashed, ""))
    for row, main in by_row:
        shown = support.get(f"{LIST}{row.pk}/change/").context
        assert (shown["main"].label if shown["main"] else "") == main
        assert "Retry" in [verb.label for verb, _ in shown["verbs"]]


def test_buttons_follow_state_and_permission(as_: Login) -> None:
    for role, make, offered in OFFERED:
        response = as_(role).get(f"/admin/workflows/workflow/{make().pk}/change/")
        assert [verb.label for verb, _ in response.context["verbs"]] == offered, (role, make)


# --- Cancel -------------------------------------------------------------------------------------


def test_what_was_decided_since_the_page_of_a_cancellation_comes_first(as_: Login) -> None:
    row = rows.waiting()
    url = f"/admin/workflows/workflow/{row.pk}/cancel/"
    client, task = as_("support"), ManualTask.objects.get()
    html = client.get(url).content.decode()
    assert "This question is closed: May this parcel go out?" in html
    seen = f'<input type="hidden" name="open_tasks" value="{task.pk}">'
    assert seen in html

    as_("approver").post(f"/admin/workflows/manualtask/{task.pk}/decide/", {"decision": "approve"})
    form = {"open_tasks": [task.pk]}
    assert seen in client.post(url, form).content.decode(), "sent back for its reason, it still says what was seen"
    html = client.post(url, {**form, "reason": "By phone."}, follow=True).content.decode()
    assert "ome-approver has approved “May this parcel go out?” since you looked." in html
    row.refresh_from_db()
    assert (row.status, row.cancelled_at) == ("PENDING", None)

    html = client.get(url).content.decode()
    assert "open_tasks" not in html
    assert "It is cancelled." in client.post(url, {"reason": "By phone."}, follow=True).content.decode()


# --- Another row that got its id ----------------------------------------------------------------


def lost(row: Model) -> None:
    """A server takes over that lacks the last moments: it gives the same ids out again."""
    table = row._meta.db_table
    with connection.cursor() as cursor, without_triggers():
        cursor.execute(f"DELETE FROM {table} WHERE id = %s", [row.pk])
        cursor.execute("SELECT setval(pg_get_serial_sequence(%s, 'id'), %s, false)", [table, row.pk])


def claimed() -> ManualTask:
    return task(assignee=User.objects.get(username="some-superuser"), claimed_at=timezone.now())


def undelivered() -> UndeliveredMessage:
    place = {"topic": "payments", "partition": 0, "offset": next(NUMBERS)}
    return UndeliveredMessage.objects.create(**place, code="not_json", reason="It is no JSON.")


def event() -> OutboxEvent:
    values = {"event_id": uuid4(), "destination": "crm", "topic": "order.paid", "body": {}, "state": "given_up"}
    return OutboxEvent.objects.create(workflow=rows.workflow(), **values)


def bulk() -> BulkOperation:
    user, _ = User.objects.get_or_create(username="asker", defaults={"is_superuser": True, "is_staff": True})
    values = {"verb": "retry", "selected": 3, "chosen_by": "all", "state": "asked", "asked_by": user}
    return BulkOperation.objects.create(**values)


def legal_hold() -> Hold:
    until = timezone.now() + timedelta(days=9)
    return Hold.objects.create(workflow=rows.complete(), reason="Ticket 7.", placed_by="boss", until=until)


def erasure() -> Erasure:
    user, _ = User.objects.get_or_create(username="asker")
    return Erasure.objects.create(hash=b"1", workflows=[], reason="Ticket 7.", asked_by=user)


def api_key() -> ApiKey:
    number = next(NUMBERS)
    return ApiKey.objects.create(name="web", prefix=f"onr_{number}", digest=bytes([number]))


def test_forms_name_the_row_wherever_its_key_is_a_number() -> None:
    pages = {model: page for model, page in admin.site._registry.items() if getattr(page, "verbs", ())}
    for model, page in pages.items():
        assert bool(page.identity) == isinstance(model._meta.pk, AutoField), model


@pytest.mark.parametrize(
    ("make", "page", "typed"),
    [
        (rows.retrying, "cancel", {"reason": "By phone."}),
        (task, "decide", {"decision": "approve"}),
        (task, "claim", {}),
        (claimed, "release", {}),
        (event, "discard", {"reason": "Not needed."}),
        (undelivered, "discard", {"reason": "Not needed."}),
        (bulk, "approve", {}),
        (legal_hold, "lift", {"reason": "It is over."}),
        (erasure, "refuse", {"reason": "Another person."}),
        (api_key, "revoke", {"reason": "Leaked."}),
    ],
)
def test_a_form_does_nothing_to_another_row_that_got_the_id_after_a_failover(
    as_: Login, make: Callable[[], Any], page: str, typed: dict[str, str]
) -> None:
    client, row = as_("superuser"), make()
    at = f"/admin/workflows/{row._meta.model_name}/{row.pk}/"
    shown = f"{at}change/" if row._meta.model_name == "manualtask" else f"{at}{page}/"
    html = client.get(shown).content.decode()
    (form, *_) = (sent for sent in untouched(shown, html) if sent.url.endswith(f"{at}{page}/"))
    lost(row)
    other = make()
    assert other.pk == row.pk
    before = type(row)._base_manager.filter(pk=row.pk).values().get()
    told = client.post(form.url, {**dict(form.fields), **typed}, follow=True).content.decode()
    assert "this page was opened" in told
    assert type(row)._base_manager.filter(pk=row.pk).values().get() == before


@pytest.mark.parametrize(
    ("verb", "name", "sent"),
    [
        *(("retry ticked", "_selected_action", pk) for pk in ("\0", "9" * 5000)),
        ("cancel", "open_tasks", "x"),
    ],
)
def test_what_is_selected_and_what_was_seen_must_be_numbers(as_: Login, verb: str, name: str, sent: str) -> None:
    row = rows.waiting() if verb == "cancel" else rows.failed()
    url, form = (f"{LIST}{row.pk}/cancel/", {}) if verb == "cancel" else (LIST, chosen(row))
    assert as_("support").post(url, {**form, "reason": "Again.", name: [sent]}).status_code == 400
    assert not Event.objects.exists()
