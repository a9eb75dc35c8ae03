"""The audit page: who did what, and who looked at whom, by person, patient and time. Exports the same as a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from workflows import operations, times
from workflows.console import csv_file, links
from workflows.console.paging import is_number
from workflows.definition import definitions, wording_of_type
from workflows.extension import installed
from workflows.features.audit import lines as audit
from workflows.features.audit.lines import Asked, Place
from workflows.models import Access, Event, Search, Workflow
from workflows.models.clock import microseconds, moment
from workflows.search import find as finding
from workflows.telling import history, patient
from workflows.telling.audited import DID, LOOKED

SIZE = 50
USERS_SHOWN = 1_000
# The most lines of a file. A line has some 150 bytes.
MOST_EXPORTED = 100_000
# Without a chosen time the page counts the reveals of the last 7 days.
DAYS_COUNTED = timedelta(days=7)
COUNTS_SHOWN = 100

SORTS = {"": "Everything", LOOKED: "What people looked at", DID: "What people did"}
LOOKS = dict(Access.Kind.choices)
FLAGS = {ADDITION: "Added", CHANGE: "Changed", DELETION: "Deleted"}
COLUMNS = ("Time (UTC)", "Who", "What", "Workflow", "About", "Details")


@dataclass(frozen=True, slots=True)
class Told:
    """An audit line in words. `about` is the masked name of the person whom the workflow is about."""

    at: datetime
    who: str
    what: str
    details: str
    workflow: int | None = None
    about: str = ""

    @property
    def url(self) -> str:
        return links.workflow(self.workflow) if self.workflow else ""


class Filters(NamedTuple):
    """The filters of the address, as typed. A value that is impossible counts as not given."""

    person: str = ""
    sort: str = ""
    patient: str = ""
    since: str = ""
    until: str = ""

    @classmethod
    def of(cls, sent: Mapping[str, str]) -> Filters:
        given = {name: sent.get(name, "").strip() for name in cls._fields}
        return cls(
            person=given["person"][:150].replace("\x00", ""),
            sort=given["sort"] if given["sort"] in SORTS else "",
            patient=given["patient"] if is_number(given["patient"]) else "",
            since=given["since"] if times.start_of_typed(given["since"]) else "",
            until=given["until"] if times.start_of_typed(given["until"]) else "",
        )

    @property
    def query(self) -> str:
        return urlencode({name: value for name, value in self._asdict().items() if value})

    def __str__(self) -> str:
        said = [f"{name} {value}" for name, value in self._asdict().items() if value]
        if self.since or self.until:
            said.append(f"days of {times.zone()}")
        return ", ".join(said) or "everything"


@require_safe
def view(request: HttpRequest, *, site: AdminSite) -> HttpResponse:
    _require(request)
    filters = Filters.of(request.GET.dict())
    asked, tried = _asked(filters)
    place = _place(request.GET.get("before", ""))
    found = audit.lines(asked, before=place, limit=SIZE + 1)
    last = found[SIZE - 1].place if len(found) > SIZE else None
    today = timezone.localdate()
    counted = asked if asked.since or asked.until else Asked(asked.person, since=timezone.now() - DAYS_COUNTED)
    context = {
        **site.each_context(request),
        "title": "Audit",
        "filters": filters,
        "people": _people(filters.person),
        "sorts": SORTS.items(),
        "days": [(label, _of_day(filters, today - timedelta(days=ago))) for label, ago in DAYS],
        "lines": told(found[:SIZE]),
        "others": (asked.workflows or [])[1:],
        "tried": tried,
        "reveals": [] if asked.workflows else audit.reveals(counted)[:COUNTS_SHOWN],
        "counted": "" if asked.since or asked.until else f"in the last {DAYS_COUNTED.days} days",
        "first_url": f"?{filters.query}" if place else "",
        "next_url": f"?{filters.query}&before={_text(last)}".replace("?&", "?") if last else "",
        "most": f"{MOST_EXPORTED:,}",
    }
    return TemplateResponse(request, "admin/workflows/audit.html", context)


@require_POST
def export(request: HttpRequest, *, site: AdminSite) -> HttpResponse | StreamingHttpResponse:
    """Stream the lines that match the filters as CSV, after an audit line that records who exported them."""
    _require(request)
    assert request.user.is_authenticated
    filters = Filters.of(request.POST.dict())
    asked, _ = _asked(filters)
    operations.record_export(request.user, chosen=str(filters), workflow_id=int(filters.patient or 0) or None)
    return csv_file.answer("audit", _csv(asked))


DAYS = (("Today", 0), ("Yesterday", 1))


def _of_day(filters: Filters, day: date) -> tuple[str, bool]:
    """The address for one day with these filters, and whether it is the chosen one."""
    chosen = filters._replace(since=str(day), until=str(day))
    return f"?{chosen.query}", chosen == filters


def _require(request: HttpRequest) -> None:
    if not request.user.has_perm(operations.VIEW_AUDIT):
        raise PermissionDenied


def _people(chosen: str) -> list[str]:
    """The users that the filter offers. The chosen one is among them even if they have left."""
    users, name = get_user_model().objects, get_user_model().USERNAME_FIELD
    known = users.filter(is_staff=True).order_by(name).values_list(name, flat=True)[:USERS_SHOWN]
    return sorted({*known, chosen} - {""})


# --- What is asked ------------------------------------------------------------------------------


def _asked(filters: Filters) -> tuple[Asked, Sequence[str]]:
    """The lines that the filters ask for, and the keys by which a patient's other workflows were searched."""
    since, until = times.start_of_typed(filters.since), times.start_of_typed(filters.until, later=1)
    workflows, tried = _of_patient(int(filters.patient)) if filters.patient else (None, ())
    return Asked(filters.person, workflows, since, until, filters.sort), tried


def _of_patient(workflow_id: int) -> tuple[Sequence[int], Sequence[str]]:
    """A workflow and the newest 50 that share a search key with it."""
    known = Workflow.objects.filter(pk=workflow_id).values_list("workflow_type", "payload").first()
    if known is None:
        return [workflow_id], ()
    found = finding.others_of(workflow_id, definitions().get(known[0]), known[1], shown=finding.SHOWN)
    return [workflow_id, *found.ids], found.tried


def _text(place: Place) -> str:
    return f"{microseconds(place.at)}-{place.rank}-{place.pk}"


def _place(text: str) -> Place | None:
    parts = text.split("-")
    if len(parts) != 3 or not all(map(is_number, parts)):
        return None
    try:
        return Place(moment(int(parts[0])), int(parts[1]), int(parts[2]))
    except OverflowError:
        return None


# --- In words -----------------------------------------------------------------------------------


def told(lines: Sequence[audit.Line]) -> list[Told]:
    ids = {line.row.workflow_id for line in lines if getattr(line.row, "workflow_id", None)}
    about, types = patient.masked(ids), dict(Workflow.objects.filter(pk__in=ids).values_list("pk", "workflow_type"))
    of_features = {source.rank: source for each in installed() for source in each.audited}
    return [
        Told(line.row.at, line.row.actor, *of.told(line.row))
        if (of := of_features.get(line.place.rank))
        else _told(line.row, about, types)
        for line in lines
    ]


def _told(row: Any, about: Mapping[int, str], types: Mapping[int, str]) -> Told:
    match row:
        case Access():
            what = LOOKS.get(row.kind, row.kind)
            return Told(row.at, row.actor, what, _looked(row), row.workflow_id, about.get(row.workflow_id or 0, ""))
        case Search():
            tried = f"By {', '.join(row.tried)}" if row.tried else "By nothing that is searchable"
            with_key = f", with the API key {row.api_key}" if row.api_key else ""
            return Told(row.at, row.actor, "Searched", f"{tried}{with_key}: {row.hits} found")
        case Event():
            line = history.line(row, wording_of_type(types.get(row.workflow_id, "")))
            return Told(row.at, line.actor, line.headline, line.text, row.workflow_id, about.get(row.workflow_id, ""))
    assert isinstance(row, LogEntry)
    kind = row.content_type.name if row.content_type else "row"
    said = f"{kind} {row.object_repr}: {row.get_change_message()}".removesuffix(": ")
    return Told(row.action_time, row.user.get_username(), FLAGS.get(row.action_flag, ""), said)


def _looked(row: Access) -> str:
    fields = ", ".join(row.detail.get("fields", ()))
    key = f"By the API key {row.detail['key']}" if "key" in row.detail else ""
    return ": ".join(filter(None, (key, fields, row.detail.get("purpose", ""), row.detail.get("chosen", ""))))


# --- As a file ----------------------------------------------------------------------------------


def _csv(asked: Asked) -> Iterator[Iterable[object]]:
    yield COLUMNS
    found = audit.every_line(asked)
    wanted = islice(found, MOST_EXPORTED)
    while some := list(islice(wanted, 1_000)):
        yield from map(_cells, told(some))
    if next(found, None):
        yield ["", "", f"Not more than {MOST_EXPORTED:,} lines: choose a shorter time for the rest"]


def _cells(line: Told) -> Iterable[object]:
    return line.at.isoformat(), line.who, line.what, line.workflow or "", line.about, line.details
