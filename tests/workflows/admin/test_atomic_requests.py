"""A project may have ATOMIC_REQUESTS: what an operation or a submission promises is committed before it is told."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from django.db import connections
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from workflows.ingress import api_keys
from workflows.models import Workflow


@pytest.fixture
def atomic_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)


def ours(patterns: list[URLPattern | URLResolver], app: str = "") -> Iterator[tuple[str, object]]:
    for each in patterns:
        of = app or str(each.pattern)
        if isinstance(each, URLPattern):
            yield f"{of} {each.pattern}", each.callback
        elif not of.startswith(("auth/", "axes/")):
            yield from ours(each.url_patterns, of if of not in ("", "admin/") else "")


def test_no_request_to_the_console_or_the_api_is_a_transaction() -> None:
    pages = dict(ours(get_resolver().url_patterns))
    assert len(pages) > 80
    own = {" session/"}  # of staff/: it only says how long a session lasts
    atomic = {name for name, view in pages.items() if "default" not in getattr(view, "_non_atomic_requests", ())}
    assert {name for name in atomic if not name.endswith(tuple(own))} == {" "}, "beside the way from / to the console"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("atomic_requests")
def test_an_operation_and_a_submission_do_what_they_say(as_: Login) -> None:
    row = rows.waiting()
    as_("support").post(f"/admin/workflows/workflow/{row.pk}/cancel/", {"reason": "By phone."})
    row.refresh_from_db()
    assert row.cancelled_at is not None
    sent = Client().post(
        "/v1/submissions",
        "{}",
        content_type="application/json",
        headers={"Authorization": f"Bearer {api_keys.create('shop')}", "Idempotency-Key": str(key := uuid4())},
    )
    assert sent.status_code == 202
    assert Workflow.objects.filter(idempotency_key=key).exists()
