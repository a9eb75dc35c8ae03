"""A verb is done on a page that says what will happen, by a POST with a reason, in the name of the user who asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.targets import chosen
from workflows.models import Event, ManualTask, Workflow

LIST = "/admin/workflows/workflow/"


OFFERED: list[tuple[str, Callable[[], Workflow], list[str]]] = [
    ("support", rows.failed, ["Retry", "Acknowledge"]),
    ("support", rows.cancelled, ["Retry"]),
    ("support", rows.retrying, ["Run now", "Cancel"]),
    ("support", rows.waiting, ["Cancel"]),
    ("support", rows.running, ["Cancel"]),
    ("support", rows.workflow, ["Cancel"]),
    ("support", rows.compensating, []),
    ("support", rows.complete, []),
    ("support", rows.left_undone, ["Run again"]),
    ("approver", rows.failed, []),
    ("auditor", rows.given_up, ["Place a legal hold"]),
    ("auditor", rows.retrying, ["Place a legal hold"]),
]


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
