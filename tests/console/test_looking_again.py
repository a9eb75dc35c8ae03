"""A list is kept up to date by itself, and what somebody has ticked, or is about to send, stays."""

from __future__ import annotations

from allauth.usersessions.models import UserSession

from staff.session_store import SessionStore
from staff.sessions import SEEN
from tests.console.conftest import Open
from tests.workflows import rows


def sessions_seen() -> list[float]:
    """When each session has last been active."""
    return [SessionStore(each.session_key).get(SEEN) for each in UserSession.objects.all()]


def test_a_new_line_appears_what_is_ticked_stays_and_the_session_gets_no_longer(open_as: Open) -> None:
    first = rows.open_task(rows.waiting(task=False), task_type="first")
    page = open_as("superuser", "/admin/needs-a-person/")
    page.get_by_label(f"Task {first.pk}: First").check()
    page.evaluate("document.querySelector('#live').dataset.every = 200")
    seen = sessions_seen()
    second = rows.open_task(rows.waiting(task=False), task_type="second")
    page.get_by_role("link", name="Second", exact=True).wait_for(timeout=20_000)
    assert page.get_by_label(f"Task {first.pk}: First").is_checked()
    assert not page.get_by_label(f"Task {second.pk}: Second").is_checked()
    assert sessions_seen() == seen
