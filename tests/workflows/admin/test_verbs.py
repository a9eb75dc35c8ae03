"""A verb is done on a page that says what will happen, by a POST with a reason, in the name of the user who asked."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.targets import chosen, retry
from workflows.models import Event, ManualTask, Workflow

LIST = "/admin/workflows/workflow/"


def test_the_verb_is_done_in_the_name_of_who_asked(as_: Login) -> None:
    url, data = retry()
    response = as_("support").post(url, data, follow=True)
    assert "It will be tried again from the first step." in response.content.decode()
    assert Workflow.objects.get().begun
    event = Event.objects.get()
    assert (event.kind, event.actor, event.detail) == ("retried", "some-support", {"reason": "Again."})


@pytest.mark.parametrize(
    ("make", "role", "offered"),
    [
        (rows.failed, "support", ["Retry", "Acknowledge"]),
        (rows.cancelled, "support", ["Retry"]),
        (rows.retrying, "support", ["Run now", "Cancel"]),
        (rows.waiting, "support", ["Cancel"]),
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


def test_retry_selected_asks_first_and_counts_what_it_did(as_: Login) -> None:
    made = [rows.failed(begun=True), rows.failed(begun=True), rows.complete(), rows.retrying(), rows.cancelled()]
    client = as_("support")
    asked = client.post(LIST, chosen(*made, index="0"))
    assert "Retry 5 workflows?" in asked.content.decode()
    assert "2 of the 5 selected have failed" in asked.content.decode()
    assert "Each waits its turn behind what is queued" in asked.content.decode()
    without = client.post(LIST, chosen(*made, confirmed="yes", reason=""))
    assert "reason" in without.context["form"].errors
    assert not Event.objects.exists()
    done = client.post(LIST, chosen(*made, confirmed="yes", reason="Again."), follow=True)
    assert [str(message) for message in done.context["messages"]] == [
        "2 retried.",
        "1 refused: Only a failed workflow can be retried; this one is complete.",
        "1 refused: Only a failed workflow can be retried; this one is retrying.",
        "1 refused: A cancelled workflow is retried on its own page.",
    ]
    assert Workflow.objects.get(status="FAILED") == made[-1]
    assert Event.objects.filter(kind="retried", actor="some-support").count() == 2
    assert not Workflow.objects.filter(pk__in=[row.pk for row in made[:2]], begun=True).exists()


def test_retry_selected_leaves_alone_what_has_failed_anew_since_the_page_was_shown(as_: Login) -> None:
    client, made = as_("support"), [rows.failed(), rows.failed()]
    page = client.post(LIST, chosen(*made)).content.decode()
    seen = re.findall(r'<input type="hidden" name="seen" value="([^"]*)">', page)
    later = timezone.now() + timedelta(minutes=1)
    Workflow.objects.filter(pk=made[0].pk).update(completed_at=later)  # somebody has retried it, and it has failed
    sent = {**chosen(*made, confirmed="yes", reason="Again."), "seen": seen}
    told = [str(each) for each in client.post(LIST, sent, follow=True).context["messages"]]
    assert told == ["1 retried.", "1 refused: It was retried since you looked, and has ended again: look at it again."]
    assert [row.status for row in Workflow.objects.order_by("id")] == ["FAILED", "PENDING"]


def test_retry_selected_takes_a_hundred_at_the_most(as_: Login) -> None:
    made = [rows.failed() for _ in range(101)]
    data = chosen(made[0], select_across="1", index="0")
    response = as_("support").post(LIST, data, follow=True)
    assert [str(message) for message in response.context["messages"]] == ["At most 100 at a time, please."]
    assert not Event.objects.exists()


# --- Cancel -------------------------------------------------------------------------------------


def test_a_cancellation_says_what_will_happen_and_then_what_has(as_: Login) -> None:
    row = rows.waiting()
    url = f"/admin/workflows/workflow/{row.pk}/cancel/"
    client = as_("support")
    html = client.get(url).content.decode()
    assert "so nothing has to be reversed" in html
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


@pytest.mark.parametrize(
    ("verb", "name", "sent"),
    [
        *(("retry selected", "seen", seen) for seen in ("", "1", "1:", ":1", "1:x", "x:1", "1:1:1")),
        *(("retry selected", "_selected_action", pk) for pk in ("", "abc", "1.5", "\0", "9" * 5000)),
        *(("cancel", "open_tasks", pk) for pk in ("x", "-1", "1" * 30)),
    ],
)
def test_what_is_selected_and_what_was_seen_must_be_numbers(as_: Login, verb: str, name: str, sent: str) -> None:
    row = rows.waiting() if verb == "cancel" else rows.failed()
    url, form = (f"{LIST}{row.pk}/cancel/", {}) if verb == "cancel" else (LIST, chosen(row, confirmed="yes"))
    assert as_("support").post(url, {**form, "reason": "Again.", name: [sent]}).status_code == 400
    assert not Event.objects.exists()
