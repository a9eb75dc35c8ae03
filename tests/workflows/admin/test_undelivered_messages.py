"""The list of undelivered messages: what did a topic say that no workflow could be told, and why?"""

from __future__ import annotations

from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.workflows import rows
from tests.workflows.admin.conftest import Login

UNDELIVERED = "/admin/workflows/undeliveredmessage/"


def test_it_shows_where_each_is_and_why_the_newest_first(as_: Login) -> None:
    old, new = rows.undelivered_message(7), rows.undelivered_message(8, code="malformed_json", reason="It is not JSON.")
    response = as_("engineer").get(UNDELIVERED)
    assert [row.pk for row in response.context["cl"].result_list] == [new.pk, old.pk]
    html = response.content.decode()
    for shown in ("facts 2:7", "field_unknown", "No such field.", "facts 2:8", "malformed_json", "It is not JSON."):
        assert shown in html


def test_its_page_shows_the_same_and_nothing_of_what_it_says(as_: Login) -> None:
    row = rows.undelivered_message(key=b"canary", value=b"canary", headers=[["canary", "canary"]])
    with CaptureQueriesContext(connection) as captured:
        html = as_("auditor").get(f"{UNDELIVERED}{row.pk}/change/").content.decode()
    for shown in ("facts 2:7", "<dd>field_unknown</dd>", "<dd>No such field.</dd>"):
        assert shown in html
    assert "canary" not in html
    assert not any('undeliveredmessage"."value"' in query["sql"] for query in captured), "it is not even read"
