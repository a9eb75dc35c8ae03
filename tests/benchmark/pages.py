"""The pages of the console that are measured. A new page is a line here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlencode

from tests.benchmark.database import Database
from tests.benchmark.full_rows import ABSENT, BAD_DAY, COMMON, EVENTFUL, GOOD_DAY, MEDIUM, RARE

# Who asks: the first is asked for cold, too.
USERS = ("superuser", "support")
# Warm is the median of so many.
TIMES = 5
# E-mail addresses: of a patient with one submission, of one with sixty, and of nobody.
ONE, MANY, NOBODY = "one@example.com", "many@example.com", "nobody@example.com"

WORKFLOWS, INBOX = "/admin/workflows/workflow/", "/admin/workflows/manualtask/"
PER_PAGE, DEEP = 50, 200


class Page(NamedTuple):
    """`data` is what is posted; nothing is with None."""

    name: str
    path: str
    data: dict[str, str] | None = None


# The lists of workflows: what is chosen, and for those that are asked for deep pages, too, what it means in SQL.
FILTERS: tuple[tuple[dict[str, str], str], ...] = (
    ({}, "true"),
    ({"state": "queued"}, ""),
    ({"state": "running"}, ""),
    ({"state": "retrying"}, "status = 'PENDING' AND retry_count > 0 AND waiting_for = '' AND NOT compensating"),
    ({"state": "waiting"}, "status = 'PENDING' AND waiting_for <> '' AND parked_on = ''"),
    ({"state": "parked"}, "status = 'PENDING' AND parked_on <> ''"),
    ({"state": "compensating"}, ""),
    ({"state": "complete"}, "status = 'COMPLETE'"),
    ({"state": "failed"}, "status = 'FAILED' AND cancelled_at IS NULL"),
    ({"state": "cancelled"}, ""),
    ({"preset": "attention"}, "status = 'FAILED' AND cancelled_at IS NULL"),
    ({"preset": "failed-today"}, ""),
    ({"preset": "decision"}, ""),
    ({"workflow_type": COMMON}, f"workflow_type = '{COMMON}'"),
    ({"workflow_type": MEDIUM}, f"workflow_type = '{MEDIUM}'"),
    ({"workflow_type": RARE}, ""),
    ({"workflow_type": ABSENT}, ""),
    ({"parked_on": "payments"}, "status = 'PENDING' AND parked_on = 'payments'"),
    ({"parked_on": "nowhere"}, ""),
    ({"workflow_type": COMMON, "state": "failed"}, ""),
    ({"workflow_type": MEDIUM, "state": "cancelled"}, ""),
    ({"workflow_type": RARE, "state": "failed"}, ""),
    ({"workflow_type": RARE, "state": "complete"}, ""),
    ({"workflow_type": RARE, "state": "queued"}, ""),
    ({"workflow_type": ABSENT, "state": "failed"}, ""),
    ({"workflow_type": RARE, "preset": "failed-today"}, ""),
    ({"workflow_type": RARE, "preset": "attention"}, ""),
    ({"parked_on": "payments", "workflow_type": RARE}, ""),
)

INBOXES: tuple[dict[str, str], ...] = (
    {},
    {"state": "overdue"},
    {"state": "approved"},
    {"state": "rejected"},
    {"state": "expired"},
    {"state": "closed"},
    {"state": "done"},
    {"state": "all"},
    {"whose": "mine"},
    {"whose": "unassigned"},
    {"whose": "teams"},
    {"whose": "mine", "state": "done"},
    {"task_type": "clinical review"},
    {"task_type": "undo_in_doubt"},
    {"task_type": "nothing"},
    {"task_type": "address check", "state": "overdue"},
)


def pages(database: Database) -> Iterator[Page]:
    yield Page("home", "/admin/")
    for chosen in ("", "?kind=given-up", "?kind=failed", "?kind=task", "?whose=mine", "?whose=unassigned"):
        yield Page(f"needs a person{chosen.replace('?', ': ').replace('=', ' ')}", f"/admin/needs-a-person/{chosen}")
    yield from _find()
    for chosen, condition in FILTERS:
        yield from _list("workflows", WORKFLOWS, chosen)
        if condition:
            yield from _deep("workflows", WORKFLOWS, chosen, _at(database, condition))
    for name, days in ("a good day", GOOD_DAY), ("a bad day", BAD_DAY):
        yield Page(f"workflows: failed on {name}", f"{WORKFLOWS}?failed={_day(database, days)}")
    for chosen in INBOXES:
        yield from _list("inbox", INBOX, chosen)
    yield from _deep("inbox", INBOX, {}, _task_at(database))
    for name, pk in (
        ("with many events", EVENTFUL),
        ("that waits", _waits(database)),
        ("that failed", _failed(database)),
    ):
        yield Page(f"a workflow {name}", f"{WORKFLOWS}{pk}/change/")
    yield Page("a task", f"{INBOX}{_waits(database)}/change/")
    for name in "service", "workerprocess", "undeliveredmessage", "apikey":
        yield Page(f"list: {name}", f"/admin/workflows/{name}/")
    yield Page("list: undeliveredmessage, last page", "/admin/workflows/undeliveredmessage/?before=end")
    yield Page("a service", "/admin/workflows/service/payments/change/")


def _find() -> Iterator[Page]:
    yield Page("find", "/admin/find/")
    for name, text in (
        ("e-mail, one hit", ONE),
        ("e-mail, 60 hits", MANY),
        ("e-mail, none", NOBODY),
        ("number", "#4711"),
        ("key", "00000000-0000-4000-8000-000000000000"),
        ("linking id, 50 hits", "family"),
    ):
        yield Page(f"find: {name}", "/admin/find/", {"q": text})


def _list(name: str, path: str, chosen: dict[str, str]) -> Iterator[Page]:
    yield Page(f"{name}: {_said(chosen)}", _url(path, chosen))


def _deep(name: str, path: str, chosen: dict[str, str], after: int) -> Iterator[Page]:
    yield Page(f"{name}: {_said(chosen)}, page {DEEP}", _url(path, {**chosen, "after": str(after)}))
    yield Page(f"{name}: {_said(chosen)}, last page", _url(path, {**chosen, "before": "end"}))


def _said(chosen: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in chosen.items()) or "all"


def _url(path: str, chosen: dict[str, str]) -> str:
    return f"{path}?{urlencode(chosen)}" if chosen else path


# --- What the database is asked for, before anything is measured --------------------------------


def _at(database: Database, condition: str) -> int:
    """The number of the last workflow of the page before the deep one."""
    rows = f"SELECT id FROM workflows_workflow WHERE {condition} ORDER BY id DESC LIMIT {(DEEP - 1) * PER_PAGE}"
    return int(database.ask(f"SELECT min(id) FROM ({rows}) shown"))


def _task_at(database: Database) -> int:
    place = f"coalesce(due_at, expires_at), id LIMIT {(DEEP - 1) * PER_PAGE}"
    rows = f"SELECT id, row_number() OVER () AS place FROM workflows_manualtask WHERE state = 'open' ORDER BY {place}"
    return int(database.ask(f"SELECT id FROM ({rows}) shown ORDER BY place DESC LIMIT 1"))


def _day(database: Database, days: int) -> str:
    stamp = '\'YYYY-MM-DD"T"HH24:MI:SS.US"Z"\''
    since = f"date_trunc('day', now()) - interval '{days} days'"
    return str(database.ask(f"SELECT to_char({since}, {stamp}) || '/' || to_char({since} + interval '1 day', {stamp})"))


def _waits(database: Database) -> int:
    return int(database.ask("SELECT max(workflow_id) FROM workflows_manualtask WHERE state = 'open'"))


def _failed(database: Database) -> int:
    return int(database.ask("SELECT max(id) FROM workflows_workflow WHERE status = 'FAILED'"))
