"""`manage.py doctor`: what it says of releases, queues and settings, in which order, and how it ends."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.models import F
from django.utils import timezone
from pytest_django import Settings

from tests import engine
from tests.engine import define, submit
from tests.servers import connecting_to
from tests.workflows import rows
from workflows.definition import WorkflowStep
from workflows.engine.heartbeat import Heartbeat
from workflows.engine.process_status import WorkerStatus
from workflows.features.doctor import examination, installation, server
from workflows.features.doctor.findings import Finding, Level
from workflows.ingress import api_keys
from workflows.models import ApiKey, Service, WorkerProcess
from workflows.models.search import SearchKeyHash
from workflows.postgres.statements import execute
from workflows.search.search_keys import keys
from workflows.wording import CodeWords, Wording

pytestmark = engine.ENGINE


def step(workflow: WorkflowStep) -> None: ...


def live(queue: str = "default", *, only: str = "") -> None:
    """A worker of the release beats."""
    Heartbeat("test-host:1", queue, only=only).beat(WorkerStatus(), None)


def run(*arguments: str) -> tuple[str, int]:
    """What the command says, and the code that it ends with."""
    out = StringIO()
    try:
        call_command("doctor", *arguments, stdout=out, no_color=True)
    except SystemExit as ended:
        return out.getvalue(), int(ended.code or 0)
    return out.getvalue(), 0


def test_a_queue_that_no_worker_takes() -> None:
    define([step], queue="slow")
    live("default")
    live("slow", only="compensation")
    (found,) = installation.queues()
    assert (found.level, "the queue slow: a workflow that comes" in found.what) == (Level.WARNING, True)
    submit(queue="slow")
    submit(queue="of an older release")
    older, found = installation.queues()
    assert "the queue of an older release: 1" in older.what
    assert (found.level, "the queue slow: 1 workflows are due" in found.what) == (Level.CRITICAL, True)
    live("slow")
    live("of an older release")
    assert not list(installation.queues())


def test_releases_that_run_side_by_side(settings: Settings) -> None:
    for release in ("1.0", "1.1"):
        settings.RELEASE = release
        live()
    assert not list(installation.releases()), "this is a deployment"
    WorkerProcess.objects.update(started_at=F("started_at") - timedelta(hours=1))
    (found,) = installation.releases()
    assert "1.0, 1.1" in found.what
    live()
    assert list(installation.releases()), "a worker that was replaced makes no deployment"
    WorkerProcess.objects.filter(release="1.0").update(last_seen=F("last_seen") - timedelta(days=1))
    assert not list(installation.releases())


def test_a_service_that_is_down_and_a_brake_that_is_on() -> None:
    now = timezone.now()
    down, cause = Service(name="programs"), Service(name="test/step/odd", workflow_type="test", step="step", code="odd")
    Service.objects.bulk_create([down, cause, Service(name="calls pass", closed_at=now)])
    assert not list(installation.outages())
    Service.objects.exclude(name="calls pass").update(opened_at=now)
    rows.parked(parked_on=down.name, workflow_type="test")
    found = {finding.about: finding for finding in examination.examine()}
    assert (found["brake"].level, found["service"].level) == (Level.CRITICAL, Level.WARNING)
    assert "programs" in found["service"].what
    assert "; 1 workflows wait" in found["service"].what
    assert "(odd)" in found["brake"].what


def test_a_project_without_the_api_needs_no_key_of_it(settings: Settings) -> None:
    settings.DEBUG, settings.SUBMISSION_WORKFLOW = True, ""
    assert [finding.about for finding in installation.keys_of_clients()] == ["API keys"], "it has the API's URLs"
    settings.ROOT_URLCONF = "django.contrib.auth.urls"
    assert not list(installation.keys_of_clients())


def test_nobody_may_submit_or_read_the_metrics(settings: Settings) -> None:
    settings.DEBUG, settings.METRICS_TOKEN = True, ""
    assert {finding.about for finding in examination.examine()} & {"API keys", "metrics"} == {"API keys"}
    settings.DEBUG = False
    api_keys.create("shop")
    assert [finding.about for finding in installation.keys_of_clients()] == ["metrics"]
    settings.METRICS_TOKEN = "token"
    assert not list(installation.keys_of_clients())
    ApiKey.objects.update(revoked_at=timezone.now())
    assert list(installation.keys_of_clients())


def test_a_key_that_expires_soon_or_has_expired_and_is_tried_is_told_of(settings: Settings) -> None:
    settings.METRICS_TOKEN = "token"
    now = timezone.now()
    for days in (40, 20, 5):
        api_keys.create(f"of {days} days", expires_at=now + timedelta(days=days))
    api_keys.create("late")
    ApiKey.objects.filter(name="late").update(expires_at=now - timedelta(days=1), last_used_at=now)
    found = [(each.level, each.what.split(" (")[0]) for each in installation.keys_of_clients()]
    assert found == [
        (Level.CRITICAL, "The API key late"),
        (Level.CRITICAL, "The API key of 5 days"),
        (Level.WARNING, "The API key of 20 days"),
    ]


def test_search_keys_that_were_made_with_a_key_that_is_gone(settings: Settings) -> None:
    settings.SEARCH_KEYS = ["the first"]
    for workflow in range(2):
        SearchKeyHash.objects.create(hash=bytes([workflow]), workflow_id=workflow, key_id=keys()[0].id)
    settings.SEARCH_KEYS = ["the second", "the first"]
    assert not list(installation.keys_of_search())
    settings.SEARCH_KEYS = ["the second"]
    [found] = [finding for finding in examination.examine() if finding.about == "search keys"]
    assert (found.level, found.what.startswith("2 of 2 ")) == (Level.CRITICAL, True)


def test_settings_as_the_checks_find_them(settings: Settings) -> None:
    define([step], wording=Wording(codes={"known": CodeWords("staff", "patient")}))
    rows.failed(workflow_type="test", last_error_code="surprising")
    settings.DEBUG, settings.SECRET_KEY, settings.SERVICES = False, "short", {"payments": ""}
    found = {finding.about: finding.level for finding in installation.system_checks()}
    assert found["security.W009"] == Level.WARNING, "of a deployment"
    assert found["onboarding.E001"] == Level.CRITICAL
    assert found["workflows.W015"] == Level.WARNING, "of the database"
    settings.DEBUG = True
    found = {finding.about: finding.level for finding in installation.system_checks()}
    assert found["settings"] == Level.WARNING
    assert "security.W009" not in found


def test_a_migration_that_is_missing() -> None:
    define([step])
    assert not list(installation.migrations())
    execute("DELETE FROM django_migrations WHERE app = 'workflows' AND name = '0002_guards'", [])
    try:
        found = examination.examine()
    finally:
        execute("INSERT INTO django_migrations (app, name, applied) VALUES ('workflows', '0002_guards', now())", [])
    (missing,) = [finding for finding in found if finding.about == "migrations"]
    assert (missing.level, "workflows.0002_guards" in missing.what) == (Level.CRITICAL, True)
    assert "queue" not in {finding.about for finding in found}, "the other looks need the tables"


def test_a_look_that_fails_stops_no_other() -> None:
    define([step])
    execute("CREATE ROLE onramp_doctor_without_rights", [])
    try:
        execute("SET ROLE onramp_doctor_without_rights", [])
        found = examination.examine()
    finally:
        execute("RESET ROLE", [])
        execute("DROP ROLE onramp_doctor_without_rights", [])
    assert any("PostgreSQL refused: InsufficientPrivilege 42501" in finding.what for finding in found)


def test_a_look_that_raises_is_named_without_values_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot_read() -> Iterator[Finding]:
        """Whether all is legible."""
        yield from ()
        raise NotImplementedError("can't parse a.lovelace@example.com")

    define([step], queue="slow")
    monkeypatch.setattr(server, "LOOKS", [cannot_read, *server.LOOKS])
    said, code = run()
    assert (
        'Not known: "Whether all is legible." The look failed: NotImplementedError, in cannot_read (test_doctor.py).'
        in said
    )
    assert "the queue slow" in said
    assert (code > 0, "example.com" in said) == (True, False)


def test_a_database_that_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with connecting_to(port):
        said, code = run()
    assert said.startswith("Critical: The database at ")
    assert (code, "cannot be reached: OperationalError: connection refused." in said) == (2, True)


def _finding(level: Level) -> Finding:
    return Finding(level, "rain", f"It rains {level.value}.", "Take an umbrella.")


@pytest.mark.parametrize(
    ("levels", "code"), [((), 0), ((Level.WARNING,), 1), ((Level.WARNING, Level.CRITICAL, Level.WARNING), 2)]
)
def test_it_says_the_worst_first_and_ends_with_its_level(
    monkeypatch: pytest.MonkeyPatch, levels: tuple[Level, ...], code: int
) -> None:
    monkeypatch.setattr(examination.server, "LOOKS", [lambda: map(_finding, levels)])
    monkeypatch.setattr(examination.installation, "LOOKS", [])
    said, ended = run()
    assert ended == code
    assert [line.partition(":")[0] for line in said.splitlines() if "It rains" in line] == [
        "Critical",
        "Warning",
        "Warning",
    ][-len(levels) :] * bool(levels)
    assert (f"{len(levels)} found.\n" if levels else "Nothing is wrong.\n") in said
    assert "Not seen from here" in said
    said, ended = run("--json")
    assert ended == code
    told = json.loads(said)
    assert [each["level"] for each in told] == [level.name.lower() for level in sorted(levels, reverse=True)]
    assert all(each["cure"] == "Take an umbrella." for each in told)
    assert connection.connection is not None
