"""How long a service is shown as suspected: while that is news."""

from __future__ import annotations

from datetime import timedelta

from django.test import Client
from django.utils import timezone

from tests.workflows.admin.conftest import Login, as_, parcels
from tests.workflows.features.outages.test_service_pages import at, parked, sentence, shown
from workflows.models import Service

__all__ = ["as_", "parcels"]

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


def suspected(*, since: timedelta, last: timedelta | None = None, answered: int = 0) -> Service:
    """One that calls have met unavailable since then, and `last` the last time."""
    now = timezone.now()
    return Service.objects.create(
        name="programs",
        since=now - since,
        failed=3,
        answered=answered,
        failed_at=now - (since if last is None else last),
    )


def is_told_on_home(client: Client) -> bool:
    """Whether Home's sentence names the service; nothing else on Home does."""
    said = shown(client, "/admin/")
    assert said.count("programs") == said.count("programs may be down") <= 1
    return "programs" in said


SUSPICIONS: list[tuple[timedelta, timedelta | None, int, bool]] = [
    (300 * MINUTE, 9 * MINUTE, 0, True),
    (300 * MINUTE, 11 * MINUTE, 0, False),
    (20 * SECOND, None, 1, True),
    (40 * SECOND, SECOND, 1, False),
    (-MINUTE, None, 0, False),
]


def test_a_suspicion_is_shown_while_it_is_recent(as_: Login) -> None:
    """Half a minute if there were answers; without any, while calls go on to meet it unavailable."""
    client = as_("support")
    for since, last, answered, is_shown in SUSPICIONS:
        Service.objects.all().delete()
        service = suspected(since=since, last=last, answered=answered)
        assert service.since
        assert is_told_on_home(client) == is_shown
        if not is_shown:
            assert sentence(client) == "Up: workflows call it as usual."
            continue
        votes = f"3 of the last {3 + answered} calls failed" if answered else "the last 3 calls failed"
        assert sentence(client) == f"Maybe down since {at(service.since)}: {votes}. Workflows call it as usual."


def test_what_is_parked_is_told_however_old_the_suspicion(as_: Login) -> None:
    suspected(since=300 * MINUTE)
    parked(2)
    assert "programs : Up 2 parked" in shown(as_("support"), "/admin/")
