"""INSTALLATION: checks of the settings, migrations, releases and queues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

from django.conf import settings
from django.core import checks
from django.db import DEFAULT_DB_ALIAS
from django.db.models import Max, Min
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.text import capfirst

from workflows.definition import definitions
from workflows.features.brake import health as causes
from workflows.features.doctor.findings import Finding, Level
from workflows.features.outages import health as services
from workflows.features.pace import health as paces
from workflows.features.queues import undelivered
from workflows.health import api_keys, bounded, late, side_processes, surroundings, workers
from workflows.models import ApiKey, WorkerProcess
from workflows.models.business_key import BusinessKeyHash
from workflows.models.search import SearchKeyHash
from workflows.models.undelivered_message import REFUSED
from workflows.postgres import server_log
from workflows.postgres.missing_migrations import missing_migrations
from workflows.search.search_keys import keys

# A deploy replaces the workers within minutes.
DEPLOYS_WITHIN = timedelta(minutes=15)
KEYS_SAMPLED = 1_000


def migrations() -> Iterator[Finding]:
    """The database has the tables of this release."""
    if missing := missing_migrations():
        names = ", ".join(sorted(f"{app}.{name}" for app, name in missing)[:3])
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        what = f"The database lacks migrations of this release: {names}{more}. Nothing else of ours was looked at."
        yield Finding(Level.CRITICAL, "migrations", what, "Run manage.py migrate.")


def system_checks() -> Iterator[Finding]:
    """The settings and definitions pass Django's checks and ours, those of a deployment and of the database, too."""
    if settings.DEBUG:
        what = "DEBUG is on: this is an installation to try things out, and is not looked at as a deployment."
        yield Finding(Level.WARNING, "settings", what, "Leave DEBUG out of the environment.")
    found = checks.run_checks(include_deployment_checks=not settings.DEBUG, databases=[DEFAULT_DB_ALIAS])
    for message in found:
        if message.level >= checks.WARNING and not message.is_silenced() and message.id != server_log.CHECK:
            level = Level.CRITICAL if message.level >= checks.ERROR else Level.WARNING
            yield Finding(level, message.id or "settings", message.msg, message.hint or "")


def queues() -> Iterator[Finding]:
    """Each queue of a definition, and each with workflows that are due, has live workers."""
    live = {queue for queue, only, _ in workers.live_workers().by_queue if not only}
    due = {each.queue: each.due for each in late.backlogs(late.due_groups())}
    for queue in sorted((set(due) | {each.queue for each in definitions().values()}) - live):
        waits = due.get(queue, 0)
        what = f"{waits:,} workflows are due and wait" if waits else "a workflow that comes will wait"
        yield Finding(
            Level.CRITICAL if waits else Level.WARNING,
            "queue",
            f"No live worker takes the queue {queue}: {what}.",
            f"Start one: manage.py runworker --queue {queue}. If there should be some: systemctl status onramp-worker.",
        )


def consumers() -> Iterator[Finding]:
    """Each topic and queue has a consumer, and each destination that is to be told something a relay."""
    for each in side_processes.unattended(timezone.now()):
        command = "consumekafka, or consumesqs" if each.kind == side_processes.CONSUMER else "relayoutbox"
        cure = f"Start one: manage.py {command}. The console's Workers lists those that ran."
        yield Finding(Level.CRITICAL, each.kind, f"{capfirst(str(each))}.", cure)


def holds() -> Iterator[Finding]:
    """Nothing is held or paced."""
    for each in paces.active():
        name, waiting = capfirst(each.name), f"{bounded.text(each.waiting)} wait to begin"
        if each.is_held and each.pace.held_until:
            held = f"held by {each.pace.held_by} until {each.pace.held_until:%Y-%m-%d %H:%M} UTC"
            what = f"{name} is {held}: {each.pace.held_reason} {waiting}."
        elif each.pace.at_once and not each.pace.per_second:
            what = f"{name} has {each.pace.at_once} at a time by {each.pace.capped_by}'s word. {waiting}."
        else:
            what = f"{name} goes at {each.pace.per_second:g} a second by {each.pace.paced_by}'s word. {waiting}."
        cure = (
            f"If it is forgotten: manage.py workflow release {each.pk}, or workflow pace {each.pk} --per-second none."
        )
        yield Finding(Level.WARNING, "held", what, cure)


def releases() -> Iterator[Finding]:
    """All live workers are of one release, except while it is replaced."""
    now = timezone.now()
    found = WorkerProcess.objects.filter(workers.is_live(now)).values("release")
    by_age = list(found.annotate(first=Min("started_at"), newest=Max("started_at")).order_by("first"))
    if len(by_age) > 1 and by_age[-1]["first"] < now - DEPLOYS_WITHIN:
        names = ", ".join(f"{each['release'] or 'one without a name'}" for each in by_age)
        what = f"Workers of several releases run side by side: {names}, the last since {by_age[-1]['first']:%H:%M} UTC."
        yield Finding(
            Level.WARNING, "releases", what, "Restart those of the older ones: the console's Workers lists them."
        )


def outages() -> Iterator[Finding]:
    """Each service is called."""
    for each, since in _not_called(services.standings()):
        what = f"The service {each.pk} is down, or held by a person: {since}."
        cure = "They go on when it answers: docs/operations.md, OnrampCircuitOpen."
        yield Finding(Level.WARNING, "service", what, cure)


def brakes() -> Iterator[Finding]:
    """No brake is on."""
    for each, since in _not_called(causes.standings()):
        what = f"Many fail at {causes.titled(each)} ({each.service.code}), and nobody knows why: {since}."
        cure = "Find the cause and mend it, then Try now: docs/operations.md, OnrampBrakeOn."
        yield Finding(Level.CRITICAL, "brake", what, cure)


def _not_called(found: Iterable[services.Standing]) -> Iterator[tuple[services.Standing, str]]:
    for each in found:
        if not each.is_called and each.since:
            yield each, f"since {each.since:%Y-%m-%d %H:%M} UTC; {each.parked} workflows wait"


def maintenance_set_aside() -> Iterator[Finding]:
    """No maintenance task is set aside."""
    for each in late.chores().exclude(set_aside_at=None).order_by("set_aside_at"):
        what = f"No worker does the maintenance task “{each.name}” since {each.set_aside_at:%Y-%m-%d %H:%M} UTC."
        cure = "Three workers in a row died in it. Find out why, then let it go on: see OnrampChoreSetAside."
        yield Finding(Level.CRITICAL, "maintenance", what, cure)


def lost_workers() -> Iterator[Finding]:
    """No worker fell silent without a word."""
    for host, number in surroundings.lost_workers().items():
        what = f"{number} processes of {host} fell silent in the last hour, and did not say that they stop."
        cure = "Is the host there? Start them again, or others: what workers had in hand is due again by itself."
        yield Finding(Level.WARNING, "lost workers", what, cure)


def refused() -> Iterator[Finding]:
    """No submission waits that a queue's door has refused."""
    found = undelivered.numbers()
    for topic, number in found.by_topic.items():
        if topic.startswith(REFUSED):
            what = f"{bounded.text(number)} submissions of {topic.removeprefix(REFUSED)} were refused, and wait."
            yield Finding(Level.WARNING, "refused", what, "Redeliver or discard them: Undelivered messages.")
    for queue, number in found.left_by_queue.items():
        what = f"{number:,} refused submissions of {queue} are in the broker's dead letters only: it deletes them."
        yield Finding(Level.CRITICAL, "refused", what, "See docs/operations.md, OnrampRefusedLeft.")


def keys_of_clients() -> Iterator[Finding]:
    """Somebody may submit, no key in use expires soon, and the metrics can be read."""
    now = timezone.now()
    if _takes_submissions() and not ApiKey.objects.exclude(expires_at__lte=now).filter(revoked_at=None).exists():
        what = "No client has a valid API key: the intake refuses each submission."
        yield Finding(Level.WARNING, "API keys", what, "Make one: manage.py createapikey NAME.")
    for key in api_keys.expiring(api_keys.SOON):
        assert key.expires_at
        urgent = key.expires_at <= now + timedelta(days=api_keys.VERY_SOON)
        tense = "expires" if key.expires_at > now else "has expired, and its client is refused since"
        what = f"The API key {key} {tense} {key.expires_at:%Y-%m-%d %H:%M} UTC."
        cure = f"Give the client a successor, and see that it uses it: manage.py rotateapikey {key.pk}."
        yield Finding(Level.CRITICAL if urgent else Level.WARNING, "API keys", what, cure)
    if not (settings.METRICS_TOKEN or settings.DEBUG):
        what = "METRICS_TOKEN is not set here: a console without it shows no metrics, and nothing alerts."
        yield Finding(Level.WARNING, "metrics", what, "Set it for the console, and have Prometheus send it.")


def _takes_submissions() -> bool:
    """Whether this project has the API, or names what its intake enters."""
    try:
        return bool(settings.SUBMISSION_WORKFLOW or reverse("workflow-cancel", args=["key"]))
    except NoReverseMatch:
        return False


def keys_of_search() -> Iterator[Finding]:
    """The search keys that are stored were made with keys that this environment has."""
    known = {key.id for key in keys()}
    sample = [
        key_id
        for model in (SearchKeyHash, BusinessKeyHash)
        for key_id in model.objects.order_by("hash").values_list("key_id", flat=True)[:KEYS_SAMPLED]  # they are random
    ]
    if lost := sum(key_id not in known for key_id in sample):
        share = f"{lost} of {len(sample)} search keys were made with a key that SEARCH_KEYS lacks here"
        what = f"{share}: Find misses workflows, and what is submitted twice is done twice."
        cure = "Put the old key behind the new one, then run manage.py searchkeys rotate: see its --help."
        yield Finding(Level.CRITICAL, "search keys", what, cure)


# These checks run only if all migrations are applied.
LOOKS = [
    outages,
    brakes,
    maintenance_set_aside,
    system_checks,
    queues,
    consumers,
    lost_workers,
    holds,
    releases,
    refused,
    keys_of_clients,
    keys_of_search,
]
