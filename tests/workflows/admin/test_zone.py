"""The reader's zone: times on pages follow it, and times that a person types are in it. Files are in UTC."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login, crawl
from tests.workflows.features.outages.services import open_circuit
from workflows import times
from workflows.console.answer_fields import field_of
from workflows.console.typed import DayField, Typed
from workflows.console.zone import zone_of
from workflows.models import Access, CircuitEvent, Hold, Pace, Service

pytestmark = pytest.mark.django_db

HOLD_QUEUE, HOLD_SERVICE = "/admin/workflows/pace/queue:default/hold/", "/admin/workflows/service/programs/hold/"
WHY = {"reason": "They migrate."}
BERLIN, INDIA = "Europe/Berlin", "Asia/Kolkata"


def held_until(url: str) -> datetime | None:
    if url == HOLD_QUEUE:
        return Pace.objects.filter(pk="queue:default").values_list("held_until", flat=True).first()
    return Service.objects.exclude(held_by="").values_list("retry_at", flat=True).first()


def text(client: Client, url: str, form: dict[str, str] | None = None) -> str:
    answer = client.get(url) if form is None else client.post(url, form, follow=True)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", answer.content.decode())).split())


def reader(client: Client, zone: str) -> Client:
    client.cookies["zone"] = zone
    return client


def typed(end: datetime, zone: str) -> str:
    return f"{end.astimezone(zone_of(zone)):%Y-%m-%dT%H:%M}"


# --- What a person types --------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [HOLD_QUEUE, HOLD_SERVICE])
@pytest.mark.parametrize("zone", [BERLIN, INDIA, "America/St_Johns", "Pacific/Kiritimati"])
def test_a_typed_time_is_the_readers_and_is_said_by_both_clocks_before_it_holds(
    as_: Login, url: str, zone: str
) -> None:
    open_circuit()
    client = reader(as_("engineer"), zone)
    end = timezone.now().replace(second=0, microsecond=0) + timedelta(minutes=31)
    with timezone.override(zone_of(zone)):
        said = times.both(end)
    assert said.endswith(f"{end:%H:%M} UTC")
    assert zone in said
    form = {"how_long": "until", "until": typed(end, zone), "until_zone": zone, **WHY}
    asked = client.post(url, form)
    assert f"Nothing is held yet. That is until {said}:" in unescape(asked.content.decode())
    assert held_until(url) is None
    later = typed(end + timedelta(hours=1), zone)
    client.post(url, {**form, "until": later, "read": asked.context["form"]["read"].value()})
    assert held_until(url) is None  # this one was not read
    shown = text(client, url, {**form, "read": asked.context["form"]["read"].value()})
    assert held_until(url) == end
    assert f"It is held until {said}." in shown
    assert f"until {said}: " in shown.split("It is held")[1]  # the page, and of a queue the banner
    with timezone.override(zone_of(zone)):
        assert CircuitEvent.objects.get(kind="held").reason == f"Until {times.both(end, dated=True)}. They migrate."


def test_so_many_minutes_end_when_the_page_says(as_: Login) -> None:
    client = reader(as_("engineer"), INDIA)
    offered = text(client, HOLD_QUEUE)
    for key, label, minutes in (("15", "15 minutes", 15), ("30", "30 minutes", 30), ("60", "1 hour", 60)):
        before = timezone.now()
        client.post(HOLD_QUEUE, {"how_long": key, **WHY})
        end = held_until(HOLD_QUEUE)
        assert end
        assert timedelta(0) <= end - before - timedelta(minutes=minutes) <= timedelta(minutes=1, seconds=5)
        assert re.search(rf"{label}, until [\d:\- ]+ \(Asia/Kolkata\), [\d:\- ]+ UTC", offered)


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({}, "Say until when."),
        ({"how_long": "until"}, "Say until when."),
        ({"how_long": "30", "until": "2999-01-01T10:00"}, "Choose one"),
        ({"until": "2001-01-01T10:00"}, "That time is over"),
        ({"until": "2999-01-01T10:00"}, "for 7 days at the most"),
        ({"until": "2026-03-29T02:30"}, "02:30 does not come that day in Europe/Berlin: the clock is changed."),
        ({"until": "2026-10-25T02:30"}, "02:30 comes twice that day in Europe/Berlin: the clock is changed."),
        ({"until": "2999-01-01T10:00", "until_zone": INDIA}, "your browser is in Europe/Berlin now. Type it again."),
        ({"until": "soon"}, "Enter a valid date/time."),
        # No datetime in UTC: the page was an error 500.
        ({"until": "0001-01-01T00:00"}, "Enter a valid date/time."),
        ({"until": "9999-12-31T23:59-12:00"}, "Enter a valid date/time."),
    ],
)
def test_a_time_that_could_be_meant_otherwise_is_refused(as_: Login, form: dict[str, str], why: str) -> None:
    assert why in text(reader(as_("engineer"), BERLIN), HOLD_QUEUE, {**form, **WHY})
    assert held_until(HOLD_QUEUE) is None


def test_a_legal_hold_ends_at_the_readers_midnight(as_: Login) -> None:
    row, client = rows.complete(), reader(as_("support lead"), INDIA)
    url = f"/admin/workflows/workflow/{row.pk}/place_hold/"
    assert "It ends when that day begins, in Asia/Kolkata." in text(client, url)
    end = "2040-01-01 00:00 (Asia/Kolkata), 2039-12-31 18:30 UTC"
    assert f"A legal hold is on it until {end}." in text(client, url, {"until": "2040-01-01", **WHY})
    assert Hold.objects.get().until == datetime(2039, 12, 31, 18, 30, tzinfo=UTC)
    assert "Type it again." in text(client, url, {"until": "2040-01-01", "until_zone": BERLIN, **WHY})
    assert "Enter a valid date." in text(client, url, {"until": "0001-01-01", **WHY})
    assert Hold.objects.count() == 1


def test_a_field_gives_on_utc() -> None:
    from pydantic import AwareDatetime, BaseModel

    class Asked(BaseModel):
        at: AwareDatetime

    with timezone.override(zone_of(INDIA)):
        field = field_of(Asked.model_fields["at"])
        assert field.help_text == "In Asia/Kolkata."
        for given, at in {"2026-03-02T09:40": (4, 10), "2026-03-02T09:40:00+01:00": (8, 40)}.items():
            found = field.clean(Typed(given, INDIA))
            assert (found, found.utcoffset()) == (datetime(2026, 3, 2, *at, tzinfo=UTC), timedelta(0))
        assert DayField().clean("2026-03-02") == datetime(2026, 3, 1, 18, 30, tzinfo=UTC)


# --- The zone -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    ["", "UTC", "Etc/UTC", "localtime", "Mars/Olympus", "../../etc/passwd", "/etc/passwd", "europe/berlin", "\0"],
)
def test_what_names_no_zone_is_utc(as_: Login, sent: str) -> None:
    answer = reader(as_("engineer"), sent).get("/admin/failures/")
    assert "Times are UTC." in answer.content.decode()
    assert timezone.get_current_timezone_name() == "UTC"  # afterwards


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        (BERLIN, date(2026, 3, 29), 23),
        (BERLIN, date(2026, 10, 25), 25),
        (BERLIN, date(2026, 7, 1), 24),
        (INDIA, date(2026, 7, 1), 24),
        ("Australia/Lord_Howe", date(2026, 4, 5), 24.5),
        ("America/Havana", date(2026, 3, 8), 23),  # has no 00:00
        ("America/Havana", date(2026, 11, 1), 25),  # has 00:00 twice
    ],
)
def test_a_day_may_have_23_or_25_hours(zone: str, day: date, hours: float) -> None:
    with timezone.override(zone_of(zone)):
        start, end = times.start_of(day), times.start_of(day + timedelta(days=1))
        assert timezone.localdate(start) == day
        assert timezone.localdate(start - timedelta(seconds=1)) == day - timedelta(days=1)
    assert end - start == timedelta(hours=hours)

    with timezone.override(zone_of(BERLIN)):
        once, again = (times.second(datetime(2026, 10, 25, hour, 30, tzinfo=UTC)) for hour in (0, 1))
        assert (once, again) == (
            "2026-10-25 02:30:00 Berlin time (00:30 UTC)",
            "2026-10-25 02:30:00 Berlin time (01:30 UTC)",
        )
        assert times.second(datetime(2026, 10, 25, 2, 30, tzinfo=UTC)) == "2026-10-25 03:30:00 Berlin time"


# --- Pages ----------------------------------------------------------------------------------------------


def test_every_page_has_its_times_by_the_readers_clock_and_utc_when_pointed_at(as_: Login) -> None:
    for make in (rows.failed, rows.retrying, rows.waiting, rows.given_up, rows.parked, rows.complete):
        make()
    open_circuit()
    client = reader(as_("superuser"), INDIA)
    client.post(HOLD_SERVICE, {"how_long": "30", **WHY})
    client.post(HOLD_QUEUE, {"how_long": "30", **WHY})
    over = {"state": "approved", "decided_by": User.objects.create(username="ada"), "decided_at": Now()}
    task = rows.open_task(rows.waiting(task=False), **over)
    client.post(f"/admin/workflows/manualtask/{task.pk}/claim/")  # the next page says why not, and since when
    pages = crawl(client, filtered=False)
    assert len(pages) > 30
    for url, html in pages.items():
        shown = unescape(re.sub(r"<title>[^<]*</title>|<[^>]+>", " ", html))  # what is pointed at in a picture, too
        without = re.sub(
            r"\(Asia/Kolkata\), [\d:\- ]+ UTC|Kolkata time \([\d:]+ UTC\)|in UTC\.|UTC\+5:30 now", "", shown
        )
        assert "UTC" not in without, (url, re.findall(r".{40}UTC.{10}", without))
        pointed_at = re.sub(r"<title>.*?</title>|<option.*?</option>|<time .*?</time>", "", html, flags=re.DOTALL)
        untold = re.findall(r".{40}\d Kolkata time(?! \()", re.sub(r"<[^>]+>", " ", pointed_at))
        assert not untold, (url, untold)
        for at, title, local in re.findall(r'<time datetime="([^"]+)" title="([^"]+)">([\d\- :]{10,})', html):
            moment = datetime.fromisoformat(at)
            assert title == f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
            assert f"{moment.astimezone(zone_of(INDIA)):%Y-%m-%d %H:%M:%S}".startswith(local.strip())


def test_no_browser_keeps_a_page_of_another_zone(as_: Login) -> None:
    answer = reader(as_("engineer"), BERLIN).get("/admin/failures/")
    assert "no-store" in answer.headers["Cache-Control"]
    assert "Cookie" in answer.headers["Vary"]


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago", BERLIN])
def test_failed_today_is_the_readers_today(as_: Login, zone: str) -> None:
    with timezone.override(zone_of(zone)):
        midnight = times.start_of(timezone.localdate())
    today, before = (rows.failed(completed_at=midnight + timedelta(seconds=each)) for each in (0, -1))
    client = reader(as_("support"), zone)
    listed = client.get("/admin/workflows/workflow/?failed=today").content.decode()
    assert [f"/workflow/{row.pk}/change/" in listed for row in (today, before)] == [True, False]


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago", BERLIN])
def test_a_day_of_the_audit_is_the_readers_and_its_file_is_in_utc(as_: Login, zone: str) -> None:
    with timezone.override(zone_of(zone)):
        day = timezone.localdate() - timedelta(days=1)
        start, end = times.start_of(day), times.start_of(day + timedelta(days=1))
    seconds = timedelta(seconds=1)
    for name, at in {"one": start - seconds, "two": start, "three": end - seconds, "four": end}.items():
        Access.objects.create(kind=Access.Kind.REVEALED, actor=name, detail={"purpose": name}, at=at)
    client = reader(as_("auditor"), zone)
    links = dict(
        re.findall(r'<a href="(\?[^"]+)"[^>]*>(Today|Yesterday)', client.get("/admin/audit/").content.decode())
    )
    url = unescape(next(link for link, label in links.items() if label == "Yesterday"))
    found = client.get(f"/admin/audit/{url}")
    assert [line.who for line in found.context["lines"]] == ["three", "two"]
    assert {(day, name) for day, name, _ in found.context["reveals"]} == {(day, "two"), (day, "three")}
    file: Any = client.post("/admin/audit-export/", {"since": str(day), "until": str(day)})
    exported = b"".join(file.streaming_content).decode()
    assert [line.split(",")[:2] for line in exported.splitlines()[1:]] == [
        [at.astimezone(UTC).isoformat(), who] for at, who in ((end - seconds, "three"), (start, "two"))
    ]
    assert f"days of {zone}" in Access.objects.get(kind=Access.Kind.EXPORTED).detail["chosen"]
