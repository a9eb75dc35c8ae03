"""On the page of a workflow: the other submissions of its patient."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.test_find import sent
from workflows.models import Search
from workflows.search import find as finding

pytestmark = pytest.mark.usefixtures("letters")


def others_on(client: Client, pk: int) -> list[int]:
    html = client.get(f"/admin/workflows/workflow/{pk}/change/").content.decode()
    _, _, section = html.partition('<section class="others"')
    return [int(each) for each in re.findall(r"/workflow/(\d+)/change/", section.partition("</section>")[0])]


def test_the_page_of_one_lists_the_others_of_the_patient_newest_first(as_: Login) -> None:
    first, second = sent(), sent(phone="+15550109999")
    stranger = sent("somebody-else@example.com", "+15550100000")
    by_phone = sent("another@example.com")
    assert others_on(as_("support"), first) == [by_phone, second]
    assert others_on(as_("support"), second) == [first]
    assert others_on(as_("support"), stranger) == []
    assert others_on(as_("support"), rows.workflow().pk) == [], "a type without search keys"
    assert not Search.objects.exists(), "nobody has searched"


def test_of_many_the_newest_are_shown_and_the_page_says_that_there_are_more(as_: Login) -> None:
    pks = [sent() for _ in range(finding.OTHERS_SHOWN + 2)]
    client = as_("support")
    assert others_on(client, pks[0]) == pks[:1:-1]
    assert "And more before these" in client.get(f"/admin/workflows/workflow/{pks[0]}/change/").content.decode()
    assert (
        "And more before"
        not in client.get(f"/admin/workflows/workflow/{sent('x@example.com', '')}/change/").content.decode()
    )


def test_the_page_of_a_payload_that_cannot_be_read_is_shown_all_the_same(as_: Login) -> None:
    for payload in ({"patient": "?"}, {"patient": {"email": ["a"]}}, {}):
        row = rows.workflow(workflow_type="keyed", payload=payload)
        assert others_on(as_("support"), row.pk) == []


def test_a_number_means_what_is_stored_of_it_and_not_all_that_it_could_mean(as_: Login) -> None:
    """Ten digits are a national number; as a whole one they are somebody else's, in another country."""
    national = sent("one@example.com", "5501012323")
    abroad = sent("two@example.com", "+5501012323")
    assert others_on(as_("support"), national) == []
    assert others_on(as_("support"), abroad) == []
