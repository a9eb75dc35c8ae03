"""`/metrics`: what Home's first line rests on, for Prometheus.

All of it is read from the database on request. Each process of each machine says the same, so one is asked.
https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from workflows.api.problems import Problem, api
from workflows.definition import definitions
from workflows.features.outages.health import Standing
from workflows.features.outbox import health as outbox
from workflows.features.queues import undelivered
from workflows.features.trends.counters import Counted
from workflows.health import (
    bounded,
    counts,
    late,
    money_at_risk,
    needs_a_person,
    recent_failures,
    surroundings,
    workers,
)
from workflows.health.series import Bounded
from workflows.intake.metrics import exposition
from workflows.models import State
from workflows.postgres.deadlines import query_in_time

_OF_CAUSES: tuple[tuple[str, str, Callable[[Standing], float]], ...] = (
    (
        "onramp_brake_on",
        "1: many fail at the step, and further workflows are parked; 0: no more.",
        lambda each: not each.is_called,
    ),
    ("onramp_brake_parked_workflows", "Workflows that wait for the mend.", lambda each: each.parked.number),
    ("onramp_brake_failed_workflows", "Those that failed before, 50 at most.", lambda each: len(each.service.judged)),
)

_OF_DESTINATIONS: tuple[tuple[str, str, Callable[[outbox.Standing, datetime], float]], ...] = (
    (
        "onramp_outbox_waiting_events",
        "Events that a destination is still to be told.",
        lambda each, at: each.waiting.number,
    ),
    (
        "onramp_outbox_oldest_seconds",
        "How long the oldest of them has waited; 0: none.",
        lambda each, at: max(0.0, (at - each.oldest).total_seconds()) if each.oldest else 0.0,
    ),
    (
        "onramp_outbox_given_up_events",
        "Events that could not be sent for days, and that nobody has redelivered or discarded.",
        lambda each, at: each.given_up.number,
    ),
)

# A scrape, every 15 seconds, counts to here; the console's pages, which people ask for, ten times as far. How many are
# under way in all is what came less what finished: `api.counters`.
COUNT_LIMIT = 1_000
# There are millions of the others, and no alarm depends on their number.
_NOT_ENDED = [state for state in State if state not in (State.COMPLETE, State.FAILED, State.CANCELLED)]


# The label of all types that are not among WORKFLOWS: there may be any number of these.
UNKNOWN = "unknown"


@api("GET")
def metrics(request: HttpRequest) -> HttpResponse:
    """All metrics in Prometheus' text format; outside DEBUG for clients that send METRICS_TOKEN."""
    _require_token(request)
    registry = CollectorRegistry()
    registry.register(Bounded(_Now(), _Late(), Counted()))
    with bounded.counting_to(COUNT_LIMIT):
        text = query_in_time(lambda: generate_latest(registry))
    return HttpResponse(text, content_type=CONTENT_TYPE_PLAIN_0_0_4)


@api("GET")
def intake_metrics(request: HttpRequest) -> HttpResponse:
    """The same of the intake, for the same token: what the processes of this host have answered."""
    _require_token(request)
    return HttpResponse(exposition(), content_type=CONTENT_TYPE_PLAIN_0_0_4)


def _require_token(request: HttpRequest) -> None:
    if not settings.METRICS_TOKEN:
        if settings.DEBUG:
            return
        raise Problem(403, "metrics_closed", "Set METRICS_TOKEN for this process, and send it as a bearer token.")
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not constant_time_compare(token.strip(), settings.METRICS_TOKEN):
        raise Problem(
            401,
            "metrics_token_invalid",
            "Send METRICS_TOKEN: Authorization: Bearer <token>.",
            WWW_Authenticate="Bearer",
        )


class _Now(Collector):
    """Read from the database at each scrape."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        found, due = counts.read(_NOT_ENDED, by_type=True), late.due_groups()
        backlogs = late.backlogs(due)

        def seconds_since(since: datetime | None) -> float:
            return max(0.0, (found.at - since).total_seconds()) if since else 0.0

        held = {each.pk for each in found.paces if each.is_held}
        since_by_type = workers.oldest_by_type(found.oldest, found.workers_by_queue, held, due)
        oldest = {name: seconds_since(since) for name, since in since_by_type.items()}
        yield _by(
            "onramp_workflows",
            f"Workflows that have not ended, by state and type; {COUNT_LIMIT + 1:,} of a state stand for more.",
            ["state", "workflow_type"],
            (([state, name], number) for state, of in found.types.items() for name, number in _known(of, sum)),
        )
        yield _by(
            "onramp_oldest_due_seconds",
            "How long the one of each type that has been due for the longest has waited for a live worker; 0: none.",
            ["workflow_type"],
            (([name], seconds) for name, seconds in _known(oldest, max)),
        )
        yield _by(
            "onramp_due_workflows",
            f"Workflows that are due and in no worker's hands, by queue; {COUNT_LIMIT + 1:,} stands for more.",
            ["queue"],
            (([each.queue], each.due) for each in backlogs),
        )
        yield _by(
            "onramp_late_timers",
            "Those of them that have started, and whose time came more than a minute ago.",
            ["queue"],
            (([each.queue], each.late) for each in backlogs),
        )
        yield _by(
            "onramp_deserted_due_seconds",
            "The same of each queue in which something is due that no live worker takes.",
            ["queue"],
            (([each.queue], seconds_since(each.since)) for each in found.deserted),
        )
        yield _by(
            "onramp_workers",
            "Live worker processes, by queue and by what they take of it.",
            ["queue", "takes"],
            (([queue, only or "everything"], number) for queue, only, number in found.workers_by_queue),
        )
        yield _by(
            "onramp_workers_by_release",
            "Live worker processes, by the release that they run.",
            ["release"],
            (([release], number) for release, number in workers.releases_of_workers(found.at).items()),
        )
        yield _by(
            "onramp_unattended",
            "1: no consumer takes this topic or queue though one should, or no relay sends to this destination.",
            ["kind", "name"],
            (([each.kind, each.name], 1) for each in found.unattended),
        )
        yield _one("onramp_failed_last_hour", "Workflows that failed in the last hour.", found.failed.number)
        yield _one(
            "onramp_unexplained_failures_last_hour",
            "Those of them whose code has no words that make it the patient's own.",
            found.unexpected.number,
        )
        yield _one(
            "onramp_unacknowledged_failures",
            "Failed workflows that nobody has acknowledged.",
            bounded.count(needs_a_person.failures()),
        )
        yield _one(
            "onramp_forgotten_failures",
            f"Those of them that failed a day ago and need somebody; of the {recent_failures.FORGOTTEN:,} newest.",
            recent_failures.forgotten_failures(found.at),
        )
        yield _one(
            "onramp_long_unclear_charges",
            "Workflows of which nobody has known for an hour whether they charged, and nobody is asked.",
            found.unclear.number,
        )
        yield _by(
            "onramp_unclear_calls",
            "Open questions whether a call happened. charge: whether the call may be a charge.",
            ["charge"],
            (([str(of_charges).lower()], number) for of_charges, number in money_at_risk.unclear_calls().items()),
        )
        yield _one(
            "onramp_follow_ups_given_up",
            "Deferred steps that were given up, and that nobody has acknowledged.",
            bounded.count(needs_a_person.given_up()),
        )
        yield _one(
            "onramp_standing_charges",
            f"Unacknowledged failures whose charge stands or is unclear, of the {money_at_risk.FAILURES} newest.",
            found.holding.number,
        )
        yield _one("onramp_open_tasks", "Questions that wait for a person.", found.tasks.number)
        yield _one("onramp_overdue_tasks", "Those of them that are overdue.", found.overdue.number)
        yield _one("onramp_overdue_waits", "Waits for a signal that are overdue.", found.overdue_waits.number)
        for name, says, told in _OF_DESTINATIONS:
            yield _by(name, says, ["destination"], (([each.name], told(each, found.at)) for each in found.destinations))
        yield _by(
            "onramp_service_called",
            "1: a service that workers have met unavailable is called as usual; 0: its circuit is not closed.",
            ["service"],
            (([each.pk], float(each.is_called)) for each in found.services),
        )
        yield _by(
            "onramp_parked_workflows",
            "Workflows that wait for a service.",
            ["service"],
            (([each.pk], each.parked.number) for each in found.services),
        )
        yield _by(
            "workflow_stuck",
            "Workflows that have not ended within the longest time that their type may take.",
            ["workflow_type"],
            (([name], number) for name, number in found.stuck.items()),
        )
        yield _by(
            "onramp_held_seconds",
            "How long a queue or type is still held, so that nothing of it begins.",
            ["scope", "name"],
            (
                ([each.key.scope, each.key.name], (each.pace.held_until - each.now).total_seconds())
                for each in found.paces
                if each.is_held and each.pace.held_until
            ),
        )
        yield _by(
            "onramp_pace",
            "How many of a queue or type begin in a second at most, as a user set it.",
            ["scope", "name"],
            (([each.key.scope, each.key.name], each.pace.per_second) for each in found.paces if each.pace.per_second),
        )
        yield _by(
            "onramp_cap",
            "How many of a queue, type or tenant run at a time at most, as a user set it.",
            ["scope", "name"],
            (([each.key.scope, each.key.name], each.pace.at_once) for each in found.paces if each.pace.at_once),
        )
        for name, says, value in _OF_CAUSES:
            labels = ["workflow_type", "step", "code"]
            of = (([getattr(each.service, label) for label in labels], float(value(each))) for each in found.causes)
            yield _by(name, says, labels, of)
        yield _by(
            "onramp_chore_failing_seconds",
            "How long a maintenance task has been failing.",
            ["chore"],
            (([each.name], seconds_since(each.failing_since)) for each in found.failing_maintenance),
        )
        yield _by(
            "onramp_chore_set_aside",
            "1: no worker does the maintenance task, for three in a row have died in it, until a person lets it go on.",
            ["chore"],
            (([each.name], 1.0) for each in found.maintenance_set_aside),
        )
        yield _one(
            "onramp_hidden_workflows",
            "Workflows that no worker takes yet, for the database's clock was set back since they came.",
            found.hidden.number if found.hidden else 0,
        )


class _Late(Collector):
    """What should have happened by now, and what is at risk meanwhile."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        at, tasks = timezone.now(), needs_a_person.open_tasks_by_type()
        yield _one(
            "onramp_late_deferred_steps",
            "Workflows with a deferred step that has been due for half an hour, and that no worker has tried.",
            len(late.with_late_deferred_steps()),
        )
        yield _by(
            "onramp_unknown_type_workflows",
            "Workflows that wait for a release that knows their type. reversing: their calls are to be undone.",
            ["workflow_type", "reversing"],
            (([name, str(of).lower()], number) for (name, of), number in sorted(late.of_unknown_type().items())),
        )
        yield _one(
            "onramp_late_expiries",
            "Workflows that have been over their own time for a minute, and that nothing has woken.",
            late.late_expiries(),
        )
        yield _one(
            "onramp_signal_lag_seconds",
            "How long the oldest signal has been stored that a workflow waits for and has not taken; 0: none.",
            late.signal_lag(),
        )
        yield _by(
            "onramp_chore_silent_seconds",
            "How long each maintenance task has been due, and no worker has done it.",
            ["chore"],
            (([name], seconds) for name, seconds in late.silent_chores(at).items()),
        )
        yield _by(
            "onramp_tasks",
            "Questions that wait for a person, by type.",
            ["task_type"],
            (([each.task_type], each.number) for each in tasks),
        )
        yield _by(
            "onramp_oldest_task_seconds",
            "How long the oldest of each type has waited.",
            ["task_type"],
            (([each.task_type], max(0.0, (at - each.oldest).total_seconds())) for each in tasks),
        )
        yield _by(
            "onramp_undelivered_messages",
            "Messages that could not be delivered, and that nobody has redelivered or discarded.",
            ["topic"],
            (([topic], number) for topic, number in undelivered.by_topic().items()),
        )
        yield _by(
            "onramp_refused_left_with_broker",
            "Submissions that a queue's door refused, and that only the broker's dead letters have.",
            ["queue"],
            (([queue], number) for queue, number in undelivered.left_with_broker().items()),
        )
        slos = {name: each.slo for name, each in sorted(definitions().items()) if each.slo}
        yield _by(
            "workflow_slo_seconds",
            "What 95 of 100 may take, their waits left out, by their definition.",
            ["workflow_type"],
            (([name], slo.p95.total_seconds()) for name, slo in slos.items()),
        )
        yield _by(
            "workflow_slo_ratio",
            "The share that is to complete, of those that neither fail by the patient's own doing nor are cancelled.",
            ["workflow_type"],
            (([name], slo.completed) for name, slo in slos.items()),
        )
        yield _one(
            "onramp_failed_reversals",
            "Calls that are to be undone, and whose undo has failed.",
            money_at_risk.failed_reversals(),
        )
        yield _by(
            "onramp_lost_workers",
            "Workers, consumers and relays that fell silent in the last hour and did not say that they stop.",
            ["host"],
            (([host], number) for host, number in surroundings.lost_workers(at).items()),
        )
        yield _one(
            "onramp_oldest_transaction_seconds",
            "How long a session of the database has been in a transaction, of those that the role may see.",
            surroundings.oldest_transaction(),
        )
        yield _one(
            "onramp_archive_failing_seconds",
            "How long PostgreSQL has archived no WAL, if the last try failed.",
            surroundings.archive_failing(),
        )


def _known(by_type: Mapping[str, float], together: Callable[[list[float]], float]) -> Iterator[tuple[str, float]]:
    """The value of each type of WORKFLOWS, and that of all other types together, if there are any, as `unknown`."""
    types = definitions()
    yield from ((name, by_type.get(name, 0)) for name in sorted(types))
    if others := [value for name, value in by_type.items() if name not in types]:
        yield UNKNOWN, together(others)


def _one(name: str, says: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, says, value=value)


def _by(name: str, says: str, labels: list[str], values: Iterable[tuple[list[str], float]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, says, labels=labels)
    for of, value in values:
        family.add_metric(of, value)
    return family
