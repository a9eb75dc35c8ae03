"""METRICS: the engine's part of `/metrics`, as data, with the features' parts in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from workflows.definition import definitions
from workflows.health import (
    api_keys,
    bounded,
    counts,
    late,
    money_at_risk,
    recent_failures,
    surroundings,
    workers,
)
from workflows.health.counts import Counts
from workflows.health.families import Family, Histogram, Section, one
from workflows.health.figures import in_order
from workflows.health.reasons import seconds
from workflows.models import State

# There are millions of finished workflows, and no alert uses their number.
_NOT_ENDED = [state for state in State if state not in (State.COMPLETE, State.FAILED, State.CANCELLED)]
# One label for all types outside WORKFLOWS: there may be any number of these.
UNKNOWN = "unknown"


def families() -> list[Family | Histogram]:
    """All metrics, read now, in the order of their sections."""
    found = counts.read(_NOT_ENDED, by_type=True)
    ours: dict[Section, Iterable[Family | Histogram]] = {
        Section.WORK: [*_work(found), *_workers(found)],
        Section.FAILURES: _failures(found),
        Section.CHARGES: _charges(found),
        Section.TASKS: _tasks(found),
        Section.STUCK: _stuck(found),
        Section.MAINTENANCE: _maintenance(found),
        Section.LATE: [*_late(found), *_tasks_by_type(found)],
        Section.REST: [*_promises(), *_rest(found)],
    }
    return in_order(ours, *(each.families(found.at) for each in found.figures))


def _work(found: Counts) -> Iterator[Family]:
    due = late.due_groups()
    backlogs = late.backlogs(due)
    since_by_type = workers.oldest_by_type(found.oldest, found.workers_by_queue, found.held, due)
    oldest = {name: seconds(since, found.at) for name, since in since_by_type.items()}
    yield Family(
        "onramp_workflows",
        f"Workflows that have not ended, by state and type; {bounded.limit() + 1:,} of a state stand for more.",
        ["state", "workflow_type"],
        (([state, name], number) for state, of in found.types.items() for name, number in _known(of, sum)),
    )
    yield Family(
        "onramp_oldest_due_seconds",
        "How long the one of each type that has been due for the longest has waited for a live worker; 0: none.",
        ["workflow_type"],
        (([name], longest) for name, longest in _known(oldest, max)),
    )
    yield Family(
        "onramp_due_workflows",
        f"Workflows that are due and in no worker's hands, by queue; {bounded.limit() + 1:,} stands for more.",
        ["queue"],
        (([each.queue], each.due) for each in backlogs),
    )
    yield Family(
        "onramp_late_timers",
        "Those of them that have started, and whose time came more than a minute ago.",
        ["queue"],
        (([each.queue], each.late) for each in backlogs),
    )


def _workers(found: Counts) -> Iterator[Family]:
    yield Family(
        "onramp_deserted_due_seconds",
        "The same of each queue in which something is due that no live worker takes.",
        ["queue"],
        (([each.queue], seconds(each.since, found.at)) for each in found.deserted),
    )
    yield Family(
        "onramp_workers",
        "Live worker processes, by queue and by what they take of it.",
        ["queue", "takes"],
        (([queue, only or "everything"], number) for queue, only, number in found.workers_by_queue),
    )
    yield Family(
        "onramp_workers_by_release",
        "Live worker processes, by the release that they run.",
        ["release"],
        (([release], number) for release, number in found.workers_by_release.items()),
    )
    yield Family(
        "onramp_unattended",
        "1: no consumer takes this topic or queue though one should, or no relay sends to this destination.",
        ["kind", "name"],
        (([each.kind, each.name], 1) for each in found.unattended),
    )


def _failures(found: Counts) -> Iterator[Family]:
    yield one(
        "onramp_failed_last_hour", "Workflows that failed in the last hour, and are failed still.", found.failed.number
    )
    yield one(
        "onramp_unexplained_failures_last_hour",
        "Those of them whose code has no words that make it the sender's own.",
        found.unexpected.number,
    )
    yield one(
        "onramp_unacknowledged_failures",
        "Failed workflows that nobody has acknowledged.",
        found.unacknowledged,
    )
    yield one(
        "onramp_forgotten_failures",
        f"Those of them that failed a day ago and need somebody; of the {recent_failures.FORGOTTEN:,} newest.",
        found.forgotten,
    )
    yield one(
        "onramp_long_unclear_charges",
        "Workflows of which nobody has known for an hour whether they charged, and nobody is asked.",
        found.unclear.number,
    )
    yield Family(
        "onramp_unclear_calls",
        "Open questions whether a call happened. charge: whether the call may be a charge.",
        ["charge"],
        (([str(of_charges).lower()], number) for of_charges, number in money_at_risk.unclear_calls().items()),
    )


def _charges(found: Counts) -> Iterator[Family]:
    yield one(
        "onramp_standing_charges",
        f"Unacknowledged failures whose charge stands or is unclear, of the {money_at_risk.FAILURES} newest.",
        found.holding.number,
    )


def _tasks(found: Counts) -> Iterator[Family]:
    yield one("onramp_open_tasks", "Questions that wait for a person.", found.tasks.number)
    yield one("onramp_overdue_tasks", "Those of them that are overdue.", found.overdue.number)
    yield one("onramp_overdue_waits", "Waits for a signal that are overdue.", found.overdue_waits.number)


def _stuck(found: Counts) -> Iterator[Family]:
    yield Family(
        "workflow_stuck",
        "Workflows that have not ended within the longest time that their type may take.",
        ["workflow_type"],
        (([name], number) for name, number in found.stuck.items()),
    )


def _maintenance(found: Counts) -> Iterator[Family]:
    yield Family(
        "onramp_chore_failing_seconds",
        "How long a maintenance task has been failing.",
        ["chore"],
        (([each.name], seconds(each.failing_since, found.at)) for each in found.failing_maintenance),
    )
    yield Family(
        "onramp_chore_set_aside",
        "1: no worker does the maintenance task, for three in a row have died in it, until a person lets it go on.",
        ["chore"],
        (([each.name], 1.0) for each in found.maintenance_set_aside),
    )
    yield one(
        "onramp_hidden_workflows",
        "Workflows that no worker takes yet, for the database's clock was set back since they came.",
        found.hidden.number if found.hidden else 0,
    )


def _late(found: Counts) -> Iterator[Family]:
    """What should have happened by now."""
    yield Family(
        "onramp_unknown_type_workflows",
        "Workflows that wait for a release that knows their type. reversing: their calls are to be undone.",
        ["workflow_type", "reversing"],
        (([name, str(of).lower()], number) for (name, of), number in sorted(found.unknown_types.items())),
    )
    yield one(
        "onramp_late_expiries",
        "Workflows that have been over their own time for a minute, and that nothing has woken.",
        late.late_expiries(),
    )
    yield one(
        "onramp_signal_lag_seconds",
        "How long the oldest signal has been stored that a workflow waits for and has not taken; 0: none.",
        late.signal_lag(),
    )
    yield Family(
        "onramp_chore_silent_seconds",
        "How long each maintenance task has been due, and no worker has done it.",
        ["chore"],
        (([name], silent) for name, silent in late.silent(found.chores, found.at).items()),
    )


def _tasks_by_type(found: Counts) -> Iterator[Family]:
    tasks = found.tasks_by_type
    yield Family(
        "onramp_tasks",
        "Questions that wait for a person, by type.",
        ["task_type"],
        (([each.task_type], each.number) for each in tasks),
    )
    yield Family(
        "onramp_oldest_task_seconds",
        "How long the oldest of each type has waited.",
        ["task_type"],
        (([each.task_type], seconds(each.oldest, found.at)) for each in tasks),
    )


def _promises() -> Iterator[Family]:
    slos = {name: each.slo for name, each in sorted(definitions().items()) if each.slo}
    yield Family(
        "workflow_slo_seconds",
        "What 95 of 100 may take, their waits left out, by their definition.",
        ["workflow_type"],
        (([name], slo.p95.total_seconds()) for name, slo in slos.items()),
    )
    yield Family(
        "workflow_slo_ratio",
        "The share that is to complete, of those that neither fail by the sender's own doing nor are cancelled.",
        ["workflow_type"],
        (([name], slo.completed) for name, slo in slos.items()),
    )


def _rest(found: Counts) -> Iterator[Family]:
    server = surroundings.server()
    yield one(
        "onramp_failed_reversals",
        "Calls that are to be undone, and whose undo has failed.",
        money_at_risk.failed_reversals(),
    )
    yield Family(
        "onramp_lost_workers",
        "Workers, consumers and relays that fell silent in the last hour and did not say that they stop.",
        ["host"],
        (([host], number) for host, number in surroundings.lost_workers().items()),
    )
    yield Family(
        "onramp_api_keys_expiring",
        "API keys in use that expire within so many days; 0: they have expired, and their clients are refused.",
        ["days"],
        (([str(days)], number) for days, number in api_keys.numbers(found.at).items()),
    )
    yield one(
        "onramp_oldest_transaction_seconds",
        "How long a session of the database has been in a transaction, of those that the role may see.",
        server.oldest_transaction,
    )
    yield one(
        "onramp_archive_failing_seconds",
        "How long PostgreSQL has archived no WAL, if the last try failed.",
        server.archive_failing,
    )
    yield one("onramp_standbys", "Standbys that follow PostgreSQL now.", server.standbys)


def _known(by_type: Mapping[str, float], together: Callable[[list[float]], float]) -> Iterator[tuple[str, float]]:
    """The value of each type of WORKFLOWS, and of all other types together, if any, as `unknown`."""
    types = definitions()
    yield from ((name, by_type.get(name, 0)) for name in sorted(types))
    if others := [value for name, value in by_type.items() if name not in types]:
        yield UNKNOWN, together(others)
