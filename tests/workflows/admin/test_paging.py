"""The pages of the lists: a page starts after a row, or ends before one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from workflows.console.base import ConsoleAdmin
from workflows.console.paging import FIRST_PAGE, LAST_PAGE, NEXT_PAGE, PREVIOUS_PAGE
from workflows.models import WorkerProcess, Workflow

LIST, WORKERS = (f"/admin/workflows/{name}/" for name in ("workflow", "workerprocess"))


@pytest.fixture(autouse=True)
def pages_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsoleAdmin, "list_per_page", 3)


@pytest.fixture
def boss(as_: Login) -> Client:
    return as_("superuser")


NEXT = ' rel="next"'  # the key n follows it


def shown(client: Client, url: str) -> tuple[list[int], dict[str, str]]:
    """The numbers on a page, in their order, and the links to other pages."""
    response = client.get(url)
    assert response.status_code == 200
    changelist = response.context["cl"]
    links = {label: url.split("?")[0] + query for label, query in changelist.links}
    assert all(
        f'<a href="{query.replace("&", "&amp;")}"{NEXT if label == "Next" else ""}>{label}</a>'
        in response.content.decode()
        for label, query in changelist.links
    )
    return [row.pk for row in changelist.result_list], links


def walk(client: Client, url: str, by: str) -> Iterator[list[int]]:
    """A page, and all to which the link `by` leads from there."""
    while url:
        found, links = shown(client, url)
        yield found
        url = links.get(by, "")


def test_next_leads_through_every_row_once_and_previous_back_through_the_same_pages(boss: Client) -> None:
    made = [rows.workflow().pk for _ in range(8)][::-1]
    pages = [made[:3], made[3:6], made[6:]]
    assert list(walk(boss, LIST, NEXT_PAGE)) == pages
    third = f"{LIST}?after={made[5]}"
    assert list(walk(boss, third, PREVIOUS_PAGE)) == pages[::-1]


def test_the_last_page_is_full_and_leads_back(boss: Client) -> None:
    made = [rows.workflow().pk for _ in range(8)][::-1]
    _, links = shown(boss, LIST)
    assert shown(boss, links[LAST_PAGE])[0] == made[5:]
    assert list(walk(boss, links[LAST_PAGE], PREVIOUS_PAGE)) == [made[5:], made[2:5], made[:3]]
    assert shown(boss, shown(boss, links[LAST_PAGE])[1][FIRST_PAGE])[0] == made[:3]


def test_workers_that_run_come_first_then_those_that_stopped_last(boss: Client) -> None:
    now = timezone.now()
    at = [now - timedelta(minutes=minutes) for minutes in (1, 2, 2, 3)]
    stopped = [rows.worker(9, stopped_at=stopped_at).pk for stopped_at in at]
    running = [rows.worker(pid).pk for pid in (50, 51, 52)]
    order = [*running, *stopped]
    assert list(walk(boss, WORKERS, NEXT_PAGE)) == [order[:3], order[3:6], order[6:]]
    assert list(walk(boss, f"{WORKERS}?after={order[5]}", PREVIOUS_PAGE)) == [order[6:], order[3:6], order[:3]]
    assert WorkerProcess.objects.count() == len(order)


def test_what_failed_today_goes_by_when_it_failed(boss: Client) -> None:
    now = timezone.now().replace(hour=23, minute=0)
    first, *later = [rows.failed(completed_at=now).pk for _ in range(4)]
    Workflow.objects.filter(pk=first).update(completed_at=now + timedelta(minutes=5))
    order = [first, *later[::-1]]
    assert list(walk(boss, f"{LIST}?failed=today", NEXT_PAGE)) == [order[:3], order[3:]]
    day = f"{now:%Y-%m-%d}"
    link = f"{LIST}?failed={day}T00:00:00.0Z/{day}T23:59:00.0Z"
    assert list(walk(boss, link, NEXT_PAGE)) == [order[:3], order[3:]]


@pytest.mark.parametrize(("url", "name"), [(LIST, "after"), (WORKERS, "before")])
def test_a_bad_place_gives_a_page_of_the_list(boss: Client, url: str, name: str) -> None:
    rows.worker()
    row = rows.workflow()
    for cursor in ("abc", "-1", "%00", "", "9" * 18, "9" * 30, "٣x", "1&after=abc", "end&before=abc"):
        response = boss.get(f"{url}?{name}={cursor}")
        assert response.status_code == 200
        assert len(response.context["cl"].result_list) == 1
    assert Workflow.objects.get() == row


def test_a_row_that_is_not_in_the_order_gives_the_first_page(boss: Client) -> None:
    pending, *failed = rows.workflow().pk, *(rows.failed().pk for _ in range(5))
    for name in ("after", "before"):
        assert shown(boss, f"{LIST}?failed=today&{name}={pending}")[0] == failed[:1:-1]


def test_a_place_behind_all_rows_gives_the_last_page_and_one_before_all_the_first(boss: Client) -> None:
    made = [rows.workflow().pk for _ in range(5)][::-1]
    assert shown(boss, f"{LIST}?after={made[-1]}")[0] == made[2:]
    assert shown(boss, f"{LIST}?before={made[0]}")[0] == made[:3]
    assert shown(boss, f"{LIST}?before={made[1]}")[0] == made[:3], "full, and not of one row"


def test_a_page_keeps_the_filter_and_a_filter_starts_at_the_first_page(boss: Client) -> None:
    for _ in range(7):
        rows.failed()
    rows.workflow()
    _, links = shown(boss, f"{LIST}?state=failed")
    second = boss.get(links[NEXT_PAGE])
    assert "state=failed" in links[NEXT_PAGE]
    for spec in second.context["cl"].filter_specs:
        for choice in spec.choices(second.context["cl"]):
            assert "after=" not in choice["query_string"]
    assert "after" not in second.context["cl"].clear_all_filters_qs


def test_a_list_that_fits_on_a_page_is_not_counted(boss: Client) -> None:
    for _ in range(3):
        rows.workflow()

    def counts() -> int:
        with CaptureQueriesContext(connection) as queries:
            response = boss.get(LIST)
        assert f"{Workflow.objects.count()} workflows" in " ".join(response.content.decode().split())
        return sum("COUNT(" in query["sql"] for query in queries)

    assert counts() == 0
    rows.workflow()
    assert counts() == 1
