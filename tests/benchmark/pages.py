"""The pages of the console that are measured. A new page is a line here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.benchmark.database import Database
from tests.benchmark.full_rows import ABSENT, BAD_DAY, CODE, COMMON, GOOD_DAY, MEDIUM, RARE, STEP

# Who asks: the first is asked for cold, too.
USERS = ("superuser", "support")
# Warm is the median of so many.
TIMES = 5
# E-mail addresses: of a patient with one submission, of one with sixty, and of nobody.
ONE, MANY, NOBODY = "one@example.com", "many@example.com", "nobody@example.com"

WORKFLOWS, INBOX = "/admin/workflows/workflow/", "/admin/workflows/manualtask/"
PER_PAGE, DEEP = 50, 200


class Page(NamedTuple):
    """`data` is what is posted; nothing is with None. `look`: it looks again, has `seen` all or has `news`."""

    name: str
    path: str
    data: dict[str, str] | None = None
    look: str = ""


# The lists of workflows that are asked for deep pages, too: what is chosen, and what it means in SQL.
DEEP_LISTS = {
    "": "true",
    "state=retrying": "status = 'PENDING' AND retry_count > 0 AND waiting_for = '' AND NOT compensating",
    "state=waiting": "status = 'PENDING' AND waiting_for <> '' AND parked_on = ''",
    "state=parked": "status = 'PENDING' AND parked_on <> ''",
    "state=complete": "status = 'COMPLETE'",
    "state=failed": "status = 'FAILED' AND cancelled_at IS NULL",
    f"workflow_type={COMMON}": f"workflow_type = '{COMMON}'",
    f"workflow_type={MEDIUM}": f"workflow_type = '{MEDIUM}'",
    "parked_on=payments": "status = 'PENDING' AND parked_on = 'payments'",
}
_CAUSE = f"workflow_type={COMMON}&step={STEP}&code={CODE}"
ANY_DAYS = "2000-01-01T00:00:00.0Z/2100-01-01T00:00:00.0Z"
LISTS = (
    *("state=queued", "state=running", "state=compensating", "state=cancelled"),
    *("failed=today", f"workflow_type={RARE}", f"workflow_type={ABSENT}"),
    *("parked_on=nowhere", f"parked_on=payments&workflow_type={RARE}"),
    *(f"workflow_type={COMMON}&state=failed", f"workflow_type={MEDIUM}&state=cancelled"),
    *(f"workflow_type={RARE}&state={state}" for state in ("failed", "complete", "queued")),
    f"workflow_type={RARE}&failed=today",
    f"workflow_type={ABSENT}&state=failed",
    *(f"ended={ANY_DAYS}{of}" for of in ("", f"&{_CAUSE}")),
    *("state=failed&order=latest", "state=failed&order=earliest", "state=complete&order=oldest"),
    *("money=held", "state=failed&money=held", f"came={ANY_DAYS}", f"completed={ANY_DAYS}"),
    *(f"code={CODE}", f"state=failed&code={CODE}", f"preset=unacknowledged&{_CAUSE}", f"state=failed&{_CAUSE}"),
)
INBOXES = (
    *("", "state=overdue", "state=approved", "state=rejected", "state=expired", "state=closed", "state=done"),
    *("state=all", "whose=mine", "whose=unassigned", "whose=teams", "whose=mine&state=done"),
    *("task_type=clinical+review", "task_type=undo_in_doubt", "task_type=nothing"),
    "task_type=address+check&state=overdue",
)
NEED_A_PERSON = ("", "kind=given-up", "kind=failed", "kind=task", "whose=mine", "whose=unassigned", "whose=others")
FOUND = {
    "e-mail, one hit": ONE,
    "e-mail, 60 hits": MANY,
    "e-mail, none": NOBODY,
    "number": "#4711",
    "key": "00000000-0000-4000-8000-000000000000",
    "linking id, 50 hits": "family",
}
LOOKING = {"home": "", "needs a person": "needs-a-person/"}
LOOKING.update({each: f"workflows/{each}/" for each in ("service", "pace", "workerprocess")})
OTHERS = {
    "home": "",
    "help": "help/",
    "saved views": "saved-views/",
    "audit": "audit/",
    "find": "find/",
    **{f"failures{named}": f"failures/{query}" for named, query in {"": "", ", 24 hours": "?show=24h"}.items()},
    "incident": "incident/?workflow_type=onboarding&step=execute_checkout&code=card_declined",
    **{f"list: {name}": f"workflows/{name}/" for name in ("service", "workerprocess", "undeliveredmessage", "apikey")},
    "list: undeliveredmessage, last page": "workflows/undeliveredmessage/?before=end",
    "list: bulkoperation": "workflows/bulkoperation/",
    "bulk operation, start": "workflows/bulkoperation/1/start/",
    "bulk operation": "workflows/bulkoperation/1/change/",
    "a service": "workflows/service/payments/change/",
}


def pages(database: Database) -> Iterator[Page]:
    yield Page("metrics", "/metrics")
    yield from (Page(name, f"/admin/{path}") for name, path in OTHERS.items())
    for name, path in LOOKING.items():
        yield from (Page(f"look at {name}, {look}", f"/admin/{path}", look=look) for look in ("seen", "news"))
    yield from (_list("needs a person", "/admin/needs-a-person/", chosen) for chosen in NEED_A_PERSON)
    yield from (Page(f"find: {name}", "/admin/find/", {"q": text}) for name, text in FOUND.items())
    yield from (_list("workflows", WORKFLOWS, chosen) for chosen in (*DEEP_LISTS, *LISTS))
    for chosen, condition in DEEP_LISTS.items():
        yield from _deep("workflows", WORKFLOWS, chosen, _at(database, condition))
    for name, days in ("a good day", GOOD_DAY), ("a bad day", BAD_DAY):
        yield Page(f"workflows: failed on {name}", f"{WORKFLOWS}?failed={_day(database, days)}")
    yield from (_list("inbox", INBOX, chosen) for chosen in INBOXES)
    waits = int(database.ask("SELECT max(workflow_id) FROM workflows_manualtask WHERE state = 'open'"))
    failed = int(database.ask("SELECT max(id) FROM workflows_workflow WHERE status = 'FAILED'"))
    eventful = int(database.ask("SELECT workflow_id FROM workflows_attempt WHERE number = 60"))
    for name, pk in ("with many events", eventful), ("that waits", waits), ("that failed", failed):
        yield Page(f"a workflow {name}", f"{WORKFLOWS}{pk}/change/")
        yield from (Page(f"{verb} {name}", f"{WORKFLOWS}{pk}/{verb}/") for verb in ("pause", "by_hand", "retry"))
    yield Page("a task", f"{INBOX}{waits}/change/")
    yield Page("export of 10,000", "/admin/export-workflows/?state=complete", {})
    decided = int(database.ask("SELECT max(id) FROM workflows_manualtask WHERE state = 'approved'"))
    database.execute(
        "UPDATE workflows_manualtask SET undoable = true, held = '{}', decided_at = now() WHERE id = %s", decided
    )
    yield Page("a task that can be undone", f"{INBOX}{decided}/change/")


def _list(name: str, path: str, chosen: str, place: str = "") -> Page:
    said = chosen.replace("=", " ").replace("&", ", ").replace("+", " ") or "all"
    return Page(f"{name}: {said}{place}", f"{path}?{chosen}")


def _deep(name: str, path: str, chosen: str, after: int) -> Iterator[Page]:
    for place, start in (f", page {DEEP}", f"after={after}"), (", last page", "before=end"):
        page = _list(name, path, chosen, place)
        yield page._replace(path=f"{page.path}&{start}".replace("?&", "?"))


# --- What the database is asked for, before anything is measured --------------------------------


def _at(database: Database, condition: str) -> int:
    """The number of the last workflow of the page before the deep one."""
    rows = f"SELECT id FROM workflows_workflow WHERE {condition} ORDER BY id DESC LIMIT {(DEEP - 1) * PER_PAGE}"
    return int(database.ask(f"SELECT min(id) FROM ({rows}) shown"))


def _day(database: Database, days: int) -> str:
    stamp = '\'YYYY-MM-DD"T"HH24:MI:SS.US"Z"\''
    since = f"date_trunc('day', now()) - interval '{days} days'"
    return str(database.ask(f"SELECT to_char({since}, {stamp}) || '/' || to_char({since} + interval '1 day', {stamp})"))
