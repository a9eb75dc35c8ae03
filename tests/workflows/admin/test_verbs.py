"""What each group may do, and how: a page that says what will happen, then a POST with a reason."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import ROLES, crawl
from workflows.models import ApiKey, Event, ManualTask, Signal, Workflow

LIST = "/admin/workflows/workflow/"

Login = Callable[..., Client]
Target = tuple[str, dict[str, str]]


def retry() -> Target:
    return f"/admin/workflows/workflow/{rows.failed().pk}/retry/", {"reason": "Again."}


def retry_selected() -> Target:
    chosen = {"action": "retry_selected", "_selected_action": str(rows.failed().pk)}
    return "/admin/workflows/workflow/", {**chosen, "confirmed": "yes", "reason": "Again."}


def run_now() -> Target:
    return f"/admin/workflows/workflow/{rows.retrying().pk}/run_now/", {"reason": "Payments is back."}


def cancel() -> Target:
    return f"/admin/workflows/workflow/{rows.retrying().pk}/cancel/", {"reason": "Asked for by phone."}


def approve() -> Target:
    rows.waiting()
    return f"/admin/workflows/manualtask/{ManualTask.objects.get().pk}/decide/", {"decision": "approve", "reason": ""}


def reject() -> Target:
    rows.waiting()
    return f"/admin/workflows/manualtask/{ManualTask.objects.get().pk}/decide/", {"decision": "reject", "reason": "No."}


def claim() -> Target:
    rows.waiting()
    return f"/admin/workflows/manualtask/{ManualTask.objects.get().pk}/claim/", {}


def release() -> Target:
    """Of a task that whoever is logged in has claimed."""
    claimer = User.objects.latest("pk") if User.objects.exists() else User.objects.create(username="some-approver")
    rows.open_task(rows.waiting(task=False), assignee=claimer, claimed_at=timezone.now())
    return f"/admin/workflows/manualtask/{ManualTask.objects.get().pk}/release/", {}


def revoke() -> Target:
    key = ApiKey.objects.create(name="web", prefix="onr_ab", digest=b"1")
    return f"/admin/workflows/apikey/{key.pk}/revoke/", {"reason": "Leaked."}


MAY: dict[Callable[[], Target], set[str]] = {
    retry: {"support", "engineer", "superuser"},
    retry_selected: {"support", "engineer", "superuser"},
    run_now: {"support", "engineer", "superuser"},
    cancel: {"support", "engineer", "superuser"},
    approve: {"approver", "superuser"},
    reject: {"approver", "superuser"},
    claim: {"approver", "superuser"},
    release: {"approver", "superuser"},
    revoke: {"engineer", "superuser"},
}


def tables() -> dict[str, list[Any]]:
    """Everything that is stored about workflows."""
    return {
        model._meta.label: list(model._default_manager.order_by("pk").values())
        for model in [*apps.get_app_config("workflows").get_models(), apps.get_model("admin", "LogEntry")]
    }


@pytest.mark.parametrize("role", [*ROLES, "nobody"])
@pytest.mark.parametrize("verb", list(MAY))
def test_each_group_may_do_what_it_is_for_and_nothing_else(as_: Login, verb: Callable[[], Target], role: str) -> None:
    client, (url, data) = as_(role), verb()
    before = tables()
    response = client.post(url, data)
    if role in MAY[verb]:
        assert response.status_code == 302
        assert tables() != before
    else:
        assert response.status_code == 403 or verb is retry_selected
        assert tables() == before


@pytest.mark.parametrize("verb", list(MAY))
def test_a_post_without_its_csrf_token_is_refused(as_: Login, verb: Callable[[], Target]) -> None:
    client, (url, data) = as_("superuser", csrf=True), verb()
    before = tables()
    assert client.post(url, data).status_code == 403
    assert tables() == before


@pytest.mark.parametrize("verb", list(MAY))
def test_a_stranger_is_sent_to_the_login(db: None, verb: Callable[[], Target]) -> None:
    url, data = verb()
    before = tables()
    response = Client().post(url, data)
    assert response.status_code == 302
    assert response["Location"].startswith("/admin/login/")
    assert tables() == before


def test_looking_at_every_page_changes_nothing(as_: Login) -> None:
    for verb in (retry, run_now, approve, revoke):
        verb()
    client = as_("superuser")
    before = tables()
    pages = crawl(client)
    assert {url.rsplit("/", 2)[1] for url in pages} >= {
        "change",
        "retry",
        "run_now",
        "revoke",
        "workflow",
        "manualtask",
    }
    for url, data in (retry_selected(), reject_again()):
        client.get(url, data)
    after = tables()
    assert len(after["workflows.Workflow"]) == len(before["workflows.Workflow"]) + 1  # of retry_selected() itself
    assert after["workflows.Event"] == before["workflows.Event"]
    assert after["workflows.ManualTask"] == before["workflows.ManualTask"]
    assert after["workflows.ApiKey"] == before["workflows.ApiKey"]


def reject_again() -> Target:
    return f"/admin/workflows/manualtask/{ManualTask.objects.get().pk}/decide/", {"decision": "reject", "reason": "x"}


# --- The pages of verbs -------------------------------------------------------------------------


def test_the_page_of_a_verb_says_what_will_happen_and_asks_for_a_reason(as_: Login) -> None:
    url, _ = retry()
    client = as_("support")
    html = client.get(url).content.decode()
    assert "starts again from the first step" in html
    assert "reason" in client.post(url, {"reason": " "}).context["form"].errors
    assert Workflow.objects.get().status == "FAILED"


def test_the_verb_is_done_in_the_name_of_who_asked(as_: Login) -> None:
    url, data = retry()
    response = as_("support").post(url, data, follow=True)
    assert "It will be tried again from the first step." in response.content.decode()
    event = Event.objects.get()
    assert (event.kind, event.actor, event.detail) == ("retried", "some-support", {"reason": "Again."})


def test_a_refusal_is_told_in_words(as_: Login) -> None:
    url, data = retry()
    client = as_("support")
    client.post(url, data)
    html = client.post(url, data, follow=True).content.decode()
    assert "Only a failed workflow can be retried; this one is queued." in html
    assert Event.objects.count() == 1


@pytest.mark.parametrize(
    ("make", "role", "offered"),
    [
        (rows.failed, "support", ["Retry"]),
        (rows.cancelled, "support", ["Retry"]),
        (rows.retrying, "support", ["Run now", "Cancel"]),
        (rows.waiting, "support", ["Run now", "Cancel"]),
        (rows.running, "support", ["Cancel"]),
        (rows.workflow, "support", ["Cancel"]),
        (rows.compensating, "support", []),
        (rows.complete, "support", []),
        (rows.failed, "approver", []),
        (rows.retrying, "auditor", []),
    ],
)
def test_buttons_follow_state_and_permission(
    as_: Login, make: Callable[[], Workflow], role: str, offered: list[str]
) -> None:
    response = as_(role).get(f"/admin/workflows/workflow/{make().pk}/change/")
    assert [verb.label for verb, _ in response.context["verbs"]] == offered


def test_a_row_that_is_not_there_is_not_found(as_: Login) -> None:
    client = as_("superuser")
    for page in ["workflow/4711/change/", "workflow/4711/retry/", f"workflow/{'9' * 30}/change/", "workflow/x/change/"]:
        assert client.get(f"/admin/workflows/{page}").status_code == 404
    assert client.post("/admin/workflows/manualtask/4711/decide/", {"decision": "approve"}).status_code == 404


# --- Retry selected -----------------------------------------------------------------------------


def chosen(*made: Workflow, **data: str) -> dict[str, Any]:
    return {"action": "retry_selected", "_selected_action": [str(row.pk) for row in made], **data}


def test_retry_selected_asks_first_and_counts_what_it_did(as_: Login) -> None:
    made = [rows.failed(), rows.failed(), rows.complete(), rows.retrying()]
    client = as_("support")
    asked = client.post("/admin/workflows/workflow/", chosen(*made, index="0"))
    assert "Retry 4 workflows?" in asked.content.decode()
    assert "2 of the 4 selected have failed" in asked.content.decode()
    assert Workflow.objects.filter(status="FAILED").count() == 2
    done = client.post("/admin/workflows/workflow/", chosen(*made, confirmed="yes", reason="Again."), follow=True)
    assert [str(message) for message in done.context["messages"]] == [
        "2 retried.",
        "1 refused: Only a failed workflow can be retried; this one is complete.",
        "1 refused: Only a failed workflow can be retried; this one is retrying.",
    ]
    assert not Workflow.objects.filter(status="FAILED").exists()
    assert Event.objects.filter(kind="retried", actor="some-support").count() == 2


def test_retry_selected_leaves_alone_what_somebody_has_cancelled(as_: Login) -> None:
    made = [rows.failed(), rows.cancelled()]
    client = as_("support")
    assert "1 of the 2 selected have failed" in client.post(LIST, chosen(*made, index="0")).content.decode()
    done = client.post(LIST, chosen(*made, confirmed="yes", reason="Again."), follow=True)
    assert [str(message) for message in done.context["messages"]] == [
        "1 retried.",
        "1 refused: A cancelled workflow is retried on its own page.",
    ]


def test_retry_selected_needs_a_reason(as_: Login) -> None:
    response = as_("support").post("/admin/workflows/workflow/", chosen(rows.failed(), confirmed="yes", reason=""))
    assert "reason" in response.context["form"].errors
    assert Workflow.objects.get().status == "FAILED"


def test_retry_selected_takes_a_hundred_at_the_most(as_: Login) -> None:
    made = [rows.failed() for _ in range(101)]
    data = chosen(made[0], select_across="1", index="0")
    response = as_("support").post("/admin/workflows/workflow/", data, follow=True)
    assert [str(message) for message in response.context["messages"]] == ["At most 100 at a time, please."]
    assert not Event.objects.exists()


@pytest.mark.parametrize("pk", ["", "abc", "1.5", "\0"])
def test_what_is_selected_must_be_rows(as_: Login, pk: str) -> None:
    data = {"action": "retry_selected", "_selected_action": [pk], "confirmed": "yes", "reason": "Again."}
    assert as_("support").post("/admin/workflows/workflow/", data).status_code == 400


# --- Nothing by hand ----------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["workflow", "manualtask", "apikey"])
def test_nobody_adds_edits_or_deletes_by_hand(as_: Login, model: str) -> None:
    rows.waiting()
    ApiKey.objects.create(name="web", prefix="onr_ab", digest=b"1")
    pk = apps.get_model("workflows", model)._default_manager.get().pk
    client = as_("superuser")
    before = tables()
    root = f"/admin/workflows/{model}"
    form = {"status": "COMPLETE", "state": "approved", "name": "mine", "post": "yes", "_save": "Save"}
    assert client.post(f"{root}/add/", form).status_code == 403
    assert client.post(f"{root}/{pk}/change/", form).status_code == 403
    assert client.post(f"{root}/{pk}/delete/", form).status_code == 403
    delete = {"action": "delete_selected", "_selected_action": str(pk), "post": "yes"}
    client.post(f"{root}/", delete)
    client.post(f"{root}/", {**form, "form-0-id": str(pk), "form-TOTAL_FORMS": "1", "form-INITIAL_FORMS": "1"})
    for url in (f"{root}/add/", f"{root}/{pk}/delete/"):
        assert client.get(url).status_code == 403
    assert tables() == before


@pytest.mark.parametrize("model", ["attempt", "event", "signal", "wait"])
def test_what_belongs_to_a_workflow_has_no_pages_of_its_own(as_: Login, model: str) -> None:
    assert as_("superuser").get(f"/admin/workflows/{model}/").status_code == 404


# --- Manual tasks -------------------------------------------------------------------------------


def task_page(client: Client, task: ManualTask) -> str:
    return client.get(f"/admin/workflows/manualtask/{task.pk}/change/").content.decode()


def test_who_decides_sees_the_question_and_the_facts_on_the_page_of_the_decision(as_: Login) -> None:
    task = rows.open_task(
        rows.waiting(task=False), facts=[["Weight", 92], ["Fragile", True], ["Labels", ["a", "b"]], ["Note", None]]
    )
    html = task_page(as_("approver"), task)
    for shown in ["May this parcel go out?", "Weight", ">92<", ">yes<", ">a, b<", ">not given<", "Approve", "Reject"]:
        assert shown in html


def test_the_facts_are_for_who_decides_and_while_there_is_something_to_decide(as_: Login) -> None:
    task = rows.open_task(rows.waiting(task=False), facts=[["Weight", "ninety-two"]])
    for role in ("support", "engineer", "auditor"):
        assert "ninety-two" not in task_page(as_(role), task)
    approver = as_("approver")
    approver.post(f"/admin/workflows/manualtask/{task.pk}/decide/", {"decision": "approve"})
    assert "ninety-two" not in task_page(approver, task)


def test_a_decided_task_shows_the_decision(as_: Login) -> None:
    url, data = reject()
    client = as_("approver")
    html = client.post(url, data, follow=True).content.decode()
    assert "Rejected by <strong>some-approver</strong>" in html
    assert "<blockquote>No.</blockquote>" in html
    assert "Your decision" not in html


def test_a_question_that_is_no_longer_asked_says_so_and_takes_no_decision(as_: Login) -> None:
    task = rows.open_task(rows.compensating(), state="closed")
    client = as_("approver")
    assert "Nobody asks for that any more" in task_page(client, task)
    html = client.post(f"/admin/workflows/manualtask/{task.pk}/decide/", {"decision": "approve"}, follow=True)
    assert "Nobody asks for that any more: its workflow has gone on without." in html.content.decode()
    assert not Signal.objects.exists()


def test_a_cancellation_says_what_will_happen_and_then_what_has(as_: Login) -> None:
    row = rows.waiting()
    url = f"/admin/workflows/workflow/{row.pk}/cancel/"
    client = as_("support")
    html = client.get(url).content.decode()
    assert "is undone, newest first" in html
    assert f">Cancel workflow {row.pk}<" in html
    html = client.post(url, {"reason": "Asked for by phone."}, follow=True).content.decode()
    assert "It is cancelled." in html
    assert "Cancelled by some-support: Asked for by phone." in html
    assert ManualTask.objects.open().count() == 0
    assert as_("approver").post(url, {"reason": "No."}).status_code == 403


def test_what_was_decided_since_the_page_of_a_cancellation_comes_first(as_: Login) -> None:
    row = rows.waiting()
    url = f"/admin/workflows/workflow/{row.pk}/cancel/"
    client, task = as_("support"), ManualTask.objects.get()
    html = client.get(url).content.decode()
    assert "Nobody is asked any more: May this parcel go out?" in html
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


@pytest.mark.parametrize("pk", ["x", "-1", "1" * 30])
def test_what_was_seen_of_a_cancellation_must_be_numbers(as_: Login, pk: str) -> None:
    url = f"/admin/workflows/workflow/{rows.waiting().pk}/cancel/"
    assert as_("support").post(url, {"open_tasks": [pk], "reason": "By phone."}).status_code == 400


def test_a_rejection_without_a_reason_is_told_so(as_: Login) -> None:
    url, data = reject()
    response = as_("approver").post(url, {**data, "reason": ""}, follow=True)
    assert "a rejection needs a reason" in response.content.decode()
    assert not Signal.objects.exists()


def test_a_decision_is_one_of_two_and_comes_by_post(as_: Login) -> None:
    url, data = approve()
    client = as_("approver")
    for made, _ in ((url, data), (url.replace("decide", "claim"), {}), (url.replace("decide", "release"), {})):
        assert client.get(made).status_code == 405
    assert client.post(url, {"decision": "perhaps"}).status_code == 200
    assert ManualTask.objects.get().state == "open"


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"expires_at": timezone.now() - timedelta(hours=1)}, "nobody decided in time"),
        ({"state": "expired"}, "nobody decided in time"),
        ({"state": "closed"}, "Nobody asks for that any more"),
    ],
)
def test_a_task_that_is_no_longer_open_offers_nothing(as_: Login, task: dict[str, Any], said: str) -> None:
    html = task_page(as_("approver"), rows.open_task(rows.waiting(task=False), **task))
    assert said in html
    assert "Your decision" not in html


def test_a_task_of_a_workflow_that_ended_offers_nothing(as_: Login) -> None:
    task = rows.open_task(rows.failed(), expires_at=timezone.now() + timedelta(hours=1))
    html = task_page(as_("approver"), task)
    assert "there is nothing left to decide" in html
    assert "Your decision" not in html


# --- Groups -------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_fresh_database_has_the_groups_with_their_permissions() -> None:
    from django.core.management import call_command
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE auth_permission, auth_group CASCADE")
    call_command("migrate", "workflows", "0001", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE auth_permission, auth_group CASCADE")  # as before the first migrate has ended
    call_command("migrate", "workflows", "0002", verbosity=0)
    call_command("migrate", verbosity=0)
    held = {
        group.name: set(group.permissions.values_list("codename", flat=True))
        for group in Group.objects.order_by("name")
    }
    assert list(held) == ["approver", "auditor", "engineer", "support"]
    operations = {"retry_workflow", "run_workflow_now", "cancel_workflow"}
    assert held["support"] == {"view_workflow", "view_manualtask", "view_workerprocess", *operations}
    assert held["approver"] == {"view_workflow", "view_manualtask", "decide_manualtask"}
    assert {*operations, "revoke_apikey", "view_apikey"} <= held["engineer"]
    assert "decide_manualtask" not in held["engineer"]
    assert "view_undeliveredmessage" in held["engineer"] & held["auditor"]
    assert all(codename.startswith("view_") for codename in held["auditor"])
