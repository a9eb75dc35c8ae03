"""The first line of Home: which sentence follows from what was read, for each threshold from both sides."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.workflows import rows
from workflows.features.brake.health import Causes
from workflows.features.outages.circuits import CircuitState
from workflows.features.outages.health import Services, Standing
from workflows.features.queues.health import Messages
from workflows.features.queues.undelivered import Numbers
from workflows.features.trends.health import Promises, Slow
from workflows.health import recent_failures
from workflows.health.bounded import COUNT_LIMIT, Count, Link
from workflows.health.counts import Counts, read
from workflows.health.health import judge
from workflows.health.hidden import FromTheFuture
from workflows.health.reasons import Level
from workflows.health.recent_failures import FailedWorkflows, interval, usual_failures
from workflows.health.workers import LongestDue
from workflows.models import Chore, Service
from workflows.models.rollup import BOUNDS, Grain, Metric, Rollup

AT = datetime(2026, 11, 23, 14, 30, tzinfo=UTC)


@pytest.mark.django_db
def test_failures_are_those_of_the_last_hour_and_of_the_23_to_24_hours_before() -> None:
    now = timezone.now()
    for minutes in (59, 61, 22 * 60 + 58, 24 * 60 + 1):
        rows.failed(completed_at=now - timedelta(minutes=minutes), acknowledged_failure=None)
    rows.failed(completed_at=now, last_error_code="duplicate_of", acknowledged_failure=None)
    recent = recent_failures.read()
    assert (recent.last.number, recent.before.number, recent.unacknowledged, recent.forgotten) == (1, 2, 5, 1)
    assert recent.before.earliest == now - timedelta(minutes=22 * 60 + 58)


def number(count: int) -> Count:
    return Count(count, Link("workflow"))


def ago(**how_long: float) -> datetime:
    return AT - timedelta(**how_long)


def waiting(queue: str = "default", **how_long: float) -> LongestDue:
    return LongestDue(7, ago(**how_long), queue)


def down(
    name: str = "payments",
    parked: int = 0,
    state: CircuitState = CircuitState.OPEN,
    since: datetime | None = ago(minutes=28),  # noqa: B008 (a constant)
) -> Standing:
    return Standing(Service(name=name, opened_at=since), state, number(parked), None, None, None)


def stopped(step: str = "enroll_in_program", **fields: Any) -> Standing:
    """A step where many fail: of onboarding, which has words for it."""
    cause = {
        "workflow_type": "onboarding",
        "step": step,
        "code": "TypeError",
        "elsewhere": fields.pop("elsewhere", False),
    }
    standing = down(f"onboarding/{step}: TypeError", **fields)
    for name, value in cause.items():
        setattr(standing.service, name, value)
    return standing


def counts(**fields: Any) -> Counts:
    counted = {
        "workers": 3,
        "failed": 2,
        "failed_today": 30,
        "tasks": 0,
        "overdue": 0,
        "overdue_waits": 0,
        "holding": 0,
        "unclear": 0,
        "unexpected": 0,
    }
    counted |= dict.fromkeys(["of_unknown_type", "to_be_reversed"], 0)
    numbers = {name: number(fields.pop(name, usual)) for name, usual in counted.items()}
    by_topic = {"facts": fields.pop("undelivered", 0), "submissions:orders": fields.pop("refused", 0)}
    figures = [
        Services(fields.pop("services", [])),
        Causes(fields.pop("causes", [])),
        Messages(Numbers(by_topic, {"orders": fields.pop("left_with_broker", 0)})),
        Promises(fields.pop("slow", [])),
    ]
    return Counts(**{"at": AT, "usual_failures": 1.2, "figures": figures, **numbers, **fields})


def set_aside(**how_long: float) -> Chore:
    return Chore(name="wake expired", set_aside_at=ago(**how_long))


def failing(**how_long: float) -> Chore:
    return Chore(name="wake expired", failing_since=ago(**how_long))


WELL = "All is well: 3 live workers; nothing waits for a worker; 2 failed in the last hour."


@pytest.mark.parametrize(
    ("read", "sentence"),
    [
        ({}, WELL),
        # --- What definitions promise ---
        (
            {"slow": [Slow("onboarding", 6.0, 3.0)], "stuck": {"onboarding": 2}},
            "In trouble: 2 workflows of the type Onboarding have not ended within its longest time; "
            "Onboarding is slow: the slowest 5% take 6 s (the promise is 3 s).",
        ),
        # --- The oldest that waits ---
        ({"oldest": waiting(seconds=59)}, WELL.replace("nothing waits for a worker", "the oldest waits 59 s")),
        ({"oldest": waiting(seconds=-3)}, WELL.replace("nothing waits for a worker", "the oldest waits 0 s")),
        ({"oldest": waiting(minutes=1)}, "Slow: the oldest waits 1 min."),
        ({"oldest": waiting(minutes=14.9)}, "Slow: the oldest waits 14 min."),
        ({"oldest": waiting(minutes=15)}, "In trouble: the oldest waits 15 min."),
        # --- Workers ---
        ({"workers": 0}, "In trouble: no worker is running."),
        ({"deserted": [waiting("slow", seconds=59)]}, WELL),
        (
            {"deserted": [waiting("slow", seconds=60)]},
            "In trouble: no live worker takes what is due in the queue slow, where the oldest waits 1 min.",
        ),
        # --- Failures: the patients' own are a usual day ---
        ({"failed": 400}, WELL.replace("2 failed", "400 failed")),
        ({"unexpected": 9, "usual_failures": 0.0}, WELL),
        (
            {"unexpected": 10, "usual_failures": 0.0},
            "In trouble: 10 failed unexpectedly in the last hour, where less than one an hour is usual.",
        ),
        ({"unexpected": 29, "usual_failures": 10.0}, WELL),
        (
            {"unexpected": 30, "usual_failures": 10.0},
            "In trouble: 30 failed unexpectedly in the last hour, where 10 an hour is usual.",
        ),
        ({"unclear": 1}, "In trouble: 1 workflow has not found out for an hour whether the patient was charged."),
        # --- What the engine itself does ---
        (
            {"maintenance_set_aside": [set_aside(minutes=5)]},
            "In trouble: the maintenance task “wake expired” was set aside at 14:25 UTC, for its workers died.",
        ),
        (
            {"hidden": FromTheFuture(1, ago(minutes=-5))},
            "In trouble: the database's clock was set back, and hides workflows from the workers until 14:35 UTC.",
        ),
        (
            {"failing_maintenance": [failing(days=1)]},
            "In trouble: the maintenance task “wake expired” has failed since 2026-11-22 14:30 UTC.",
        ),
        # --- Services ---
        ({"services": [down(since=None, parked=2)]}, "A service is down: payments is down, 2 parked."),
        ({"services": [down(parked=212)]}, "A service is down: payments has been down since 14:02 UTC, 212 parked."),
        (
            {"services": [down(state=CircuitState.SUSPECTED)]},
            f"Well so far: payments may be down; {WELL.partition(': ')[2]}",
        ),
        (
            {"services": [down(name, state=CircuitState.SUSPECTED) for name in "abcd"]},
            "Well so far: a may be down; b may be down; c may be down; other services may be down, too; "
            f"{WELL.partition(': ')[2]}",
        ),
        ({"services": [down(parked=5, state=CircuitState.CLOSED)]}, "Slow: payments is called again, 5 still parked."),
        (
            {"services": [down(state=CircuitState.HELD)]},
            "A service is held: payments has been held since 14:02 UTC.",
        ),
        # --- Steps where many fail ---
        (
            {"causes": [stopped(parked=41)]},
            "In trouble: “Enrol in the program” has failed for many since 14:02 UTC (TypeError), 41 parked.",
        ),
        (
            {"causes": [stopped("undo execute_checkout", parked=1, elsewhere=True)]},
            "In trouble: the reversal of “Charge the card” has failed for many since 14:02 UTC (TypeError), 1 parked, "
            "left to workers of another release.",
        ),
        (
            {"causes": [stopped(elsewhere=True)]},
            "A step is stopped: “Enrol in the program” is left to workers of another release, and nothing waits for "
            "it.",
        ),
        (
            {"causes": [stopped(state=CircuitState.HELD)]},
            "In trouble: “Enrol in the program” has been held since 14:02 UTC (TypeError).",
        ),
        (
            {"causes": [stopped(parked=5, state=CircuitState.CLOSED)]},
            "Slow: “Enrol in the program” goes on again, 5 still parked.",
        ),
        ({"causes": [stopped(state=CircuitState.CLOSED)]}, WELL),
        (
            {"causes": [stopped(name) for name in ("a", "b", "c", "d")], "services": [down()]},
            "In trouble: “A” has failed for many since 14:02 UTC (TypeError); “B” has failed for many since 14:02 UTC "
            "(TypeError); “C” has failed for many since 14:02 UTC (TypeError); other steps have failed for many, too; "
            "payments has been down since 14:02 UTC.",
        ),
        # --- People ---
        ({"overdue": 2}, "People are needed: 2 tasks are overdue."),
        ({"overdue": 1, "overdue_waits": 1}, "People are needed: 1 task is overdue; 1 wait is overdue."),
        ({"overdue_waits": 2}, "People are needed: 2 waits are overdue."),
        # --- Money, and what somebody said in vain ---
        (
            {"overdue": 3, "urgent": {"effect_in_doubt": number(2), "undo_in_doubt": number(1)}},
            "In trouble: 2 unclear calls are overdue; 1 failed reversal is overdue.",
        ),
        (
            {"in_doubt": {"effect_in_doubt": number(2), "undo_in_doubt": number(1)}},
            "People are needed: 2 unclear calls wait for a person; 1 failed reversal waits for a person.",
        ),
        (
            {"overdue": 1, "urgent": {"undo_in_doubt": number(1)}, "in_doubt": {"undo_in_doubt": number(3)}},
            "In trouble: 1 failed reversal is overdue; 3 failed reversals wait for a person.",
        ),
        (
            {"overdue": 1, "urgent": {"undo_in_doubt": number(1)}, "in_doubt": {"undo_in_doubt": number(1)}},
            "In trouble: 1 failed reversal is overdue.",
        ),
        (
            {"overdue": 2, "urgent": {"keeps_dying": number(1)}},
            "In trouble: 1 question about workers that keep dying is overdue; 2 tasks are overdue.",
        ),
        (
            {"holding": 1, "undelivered": 2},
            "People are needed: 1 failed workflow holds money, and nobody has acknowledged it; 2 messages could not be "
            "delivered.",
        ),
        ({"refused": 1}, "Something stands still: 1 submission was refused at a queue."),
        (
            {"refused": 2, "left_with_broker": 3},
            "In trouble: 3 refused submissions are in a broker's dead letters only; 2 submissions were refused at "
            "queues.",
        ),
        # --- Several: the worst decides, and comes first ---
        (
            {"oldest": waiting(minutes=6), "overdue": 2},
            "People are needed: 2 tasks are overdue; the oldest waits 6 min.",
        ),
        (
            {"oldest": waiting(minutes=6), "failing_maintenance": [failing(hours=1)]},
            "In trouble: the maintenance task “wake expired” has failed since 13:30 UTC; the oldest waits 6 min.",
        ),
    ],
)
def test_the_sentence(read: dict[str, Any], sentence: str) -> None:
    assert str(judge(counts(**read))) == sentence


def test_every_number_leads_to_what_it_counted() -> None:
    found = judge(counts(unexpected=30, usual_failures=1.0, oldest=waiting(minutes=6), services=[down(parked=2)]))
    assert found.level == Level.TROUBLE
    for piece in [piece for reason in found.reasons for piece in reason.pieces]:
        leads = piece.link is not None
        assert leads == (piece.text in ("30 failed unexpectedly in the last hour", "6 min", "payments", "2 parked")), (
            piece.text
        )


HOURS_23 = {"since": AT - timedelta(hours=23), "until": AT}


@pytest.mark.parametrize(
    ("before", "usual"),
    [
        (FailedWorkflows(0, 0, None), 0.0),
        (FailedWorkflows(460, 46, ago(hours=22)), 2.0),
        # More than are counted: these took five hours.
        (FailedWorkflows(COUNT_LIMIT + 1, 50, ago(hours=5)), 10.0),
    ],
)
def test_what_is_usual_is_of_an_hour(before: FailedWorkflows, usual: float) -> None:
    assert usual_failures(before, **HOURS_23) == pytest.approx(usual)


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "2026-11-23T00:10:00.0Z", "a/b", "1/2/3", "\x00/\x00"),
        *("0001-01-01T00:00:00.0Z/2026-11-23T00:10:00.0Z", "2026-11-23T00:10:00.0Z/9999-12-31T23:00:00.0Z"),
    ],
)
def test_what_is_no_interval_is_none(text: str) -> None:
    assert interval(text) is None


@pytest.mark.django_db
@pytest.mark.parametrize(("number", "minutes", "is_slow"), [(20, 5, True), (19, 5, False), (20, 20, False)])
def test_what_a_definition_promises_is_compared_with_the_last_minutes(number: int, minutes: int, is_slow: bool) -> None:
    at = (timezone.now() - timedelta(minutes=minutes)).replace(second=0, microsecond=0)
    of_onboarding = {"workflow_type": "onboarding", "step": "", "outcome": "", "code": "", "seconds": 0}
    buckets = [0] * len(BOUNDS[Metric.ACTIVE]) + [number]
    Rollup.objects.create(
        grain=Grain.MINUTE, metric=Metric.ACTIVE, at=at, count=number, buckets=buckets, **of_onboarding
    )
    rows.workflow(workflow_type="onboarding", created_at=at - timedelta(days=400))
    found = read()
    promises = found.of(Promises)
    assert promises
    assert [(each.workflow_type, each.promised) for each in promises.slow] == [("onboarding", 3.0)] * is_slow
    assert found.stuck == {"onboarding": 1}
