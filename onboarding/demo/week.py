"""The week before the demo: submissions of two types that real workers process in seconds, and that are dated back.

Everything that a workflow has is moved by the same length of time, before the rollup counts it: so charts, lists, the
audit and each page agree. What people did about it, which the demo does at once, is moved to some time later.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic, sleep
from uuid import UUID

import httpx
from django.apps import apps
from django.db import models, transaction
from django.db.models import Max, Min
from django.urls import reverse
from django.utils import timezone

from onboarding.demo import report, traffic
from onboarding.demo.moving import MOVING, REFUSED, moves
from onboarding.demo.processes import DemoError
from onboarding.demo.report import Expected
from onboarding.demo.scenes import Who
from onboarding.samples import Sample, samples
from workflows import operations, times
from workflows.console import links
from workflows.errors import NotAllowed
from workflows.features.cases import of_cause
from workflows.features.cases import operations as cases
from workflows.features.pace import operations as pace
from workflows.models import Access, CircuitEvent, Event, ManualTask, State, WorkerProcess, Workflow
from workflows.models.failure import Cause
from workflows.models.pace import Key, Scope
from workflows.operations.acknowledging import failures_left
from workflows.operations.looking import record_view
from workflows.postgres.statements import execute

LASTS = timedelta(days=7)
# Its seeds differ from those of the demo's own samples and scenes.
SEED = 7_919
# Of the patients some onboard, and half as many move.
MOVES = 2
# Two days before now the profiles service refuses these moves, in the afternoon; minutes after 14:00.
REFUSED_AT = (3, 9, 14, 22)
HELD_FROM, HELD_TO = timedelta(minutes=25), timedelta(minutes=65)
# What people do comes so many minutes after what they do it about.
ACT_AFTER = (8, 95)
# So many are under way at a time.
AT_ONCE = 6
PATIENCE, PATIENCE_PER_SUBMISSION = 120.0, 0.5
CAUSE = Cause(MOVING.name, "save_new_address", REFUSED)
NOTE = "The profiles team has rolled its release back: moves of that afternoon can be retried."


@dataclass(frozen=True, slots=True)
class Week:
    """The submissions in the order in which they are sent, and when each is said to have come.

    `refused` are the keys of those for which somebody had to act.
    """

    samples: Sequence[Sample]
    at: Sequence[datetime]
    refused: Sequence[UUID]
    held: tuple[datetime, datetime]

    @classmethod
    def plan(cls, number: int, seed: int, now: datetime) -> Week:
        """So many onboardings, and half as many who have moved. The same seed makes the same submissions."""
        seed = seed * SEED + 500
        rng = random.Random(seed)  # noqa: S311
        trouble = (timezone.localtime(now) - timedelta(days=2)).replace(hour=14, minute=0, second=0, microsecond=0)
        held = (trouble + HELD_FROM, trouble + HELD_TO)
        onboardings = list(samples(number, seed))
        moved = list(moves(max(number // MOVES, 2 * len(REFUSED_AT)), seed + 1))
        # Those with accounts, so that nothing but the service refuses them.
        refused = [each for each in moved if each.account][: len(REFUSED_AT)]
        others = [*onboardings, *(each for each in moved if each not in refused)]
        rng.shuffle(others)
        usual = sorted(_times(len(others), now, held, rng))
        at = [trouble + timedelta(minutes=minutes, seconds=rng.randrange(60)) for minutes in REFUSED_AT]
        planned = sorted([*zip(usual, others, strict=True), *zip(at, refused, strict=True)], key=lambda each: each[0])
        return cls(
            [each for _, each in planned], [at for at, _ in planned], [each.idempotency_key for each in refused], held
        )

    @property
    def decisions(self) -> dict[UUID, traffic.Decision]:
        keys = [each.idempotency_key for each in self.samples if each.needs_review]
        return {key: "reject" if number % 6 == 5 else "approve" for number, key in enumerate(keys)}

    def expected(self) -> dict[UUID, Expected]:
        """What each should be in the end. One of those that were refused stays failed."""
        decisions = self.decisions
        found = {
            each.idempotency_key: report.expect(each, decisions.get(each.idempotency_key)) for each in self.samples
        }
        found[self.refused[-1]] = Expected(State.FAILED, REFUSED, report.Effects())
        return found


def _times(number: int, now: datetime, held: tuple[datetime, datetime], rng: random.Random) -> Iterator[datetime]:
    """So many times of the last week: more by day than by night, somewhat more each day, and none in the hold."""
    while number:
        share = rng.random()
        at = now - timedelta(minutes=15) - (LASTS - timedelta(hours=9)) * (1 - share)
        by_day = 1.0 if 8 <= timezone.localtime(at).hour < 22 else 0.15
        if rng.random() < by_day * (0.6 + 0.4 * share) and not held[0] <= at < held[1]:
            number -= 1
            yield at


def is_there() -> bool:
    """Whether the database has a past: its numbers would no longer have the order of their times."""
    return Workflow.objects.filter(created_at__lt=timezone.now() - timedelta(days=1)).exists()


def sights(week: Week) -> Iterator[tuple[str, str]]:
    """What to look at, with its page."""
    yield "Trends of a week, by type", f"{reverse('admin:index')}?range=7d&workflow_type={MOVING.name}"
    yield "An incident of two days ago: its chart has a release and a hold", links.incident(CAUSE, "7d")


# --- It happens -----------------------------------------------------------------------------------


def pass_by(
    week: Week, *, intake: str, console: str, api_key: str, sandbox: str, who: Who, check: Callable[[], None]
) -> Mapping[UUID, report.Result]:
    """Send the week, act for people, and date it back; return the result of each. `check` as in `play`."""
    _arrange(week, sandbox)
    with _uncounted() as keep_uncounted:
        _send(week, intake, console, api_key, check)
        expected, samples = week.expected(), list(week.samples)
        patience = monotonic() + PATIENCE + PATIENCE_PER_SUBMISSION * len(samples)
        acted: set[int] = set()
        while True:
            check()
            keep_uncounted()
            found = report.results(samples)
            _act(week, found, who, acted)
            if all(
                report.is_at_rest(result, expected[key]) and result.state == expected[key].state
                for key, result in found.items()
            ):
                break
            if monotonic() > patience:
                break
            sleep(0.2)
        _note(week, found, who)
        _date_back(week, found)
        _hold(week, who)
    return report.results(samples)


def _arrange(week: Week, sandbox: str) -> None:
    with httpx.Client(base_url=sandbox, timeout=30) as client:
        for each in week.samples:
            if each.account:
                client.post("/_accounts", json=each.account).raise_for_status()
        for key in week.refused:
            fault = {"service": "profiles", "operation": "update_address", "kind": "status", "status": 422}
            fault |= {"code": REFUSED, "idempotency_key": str(key), "count": 1}
            client.post("/_faults", json=fault).raise_for_status()


def _send(week: Week, intake: str, console: str, api_key: str, check: Callable[[], None]) -> None:
    """One after the other, so that their numbers have the order of their times."""
    with httpx.Client(headers={"Authorization": f"Bearer {api_key}"}, timeout=30) as client:
        for each in week.samples:
            key = {"Idempotency-Key": str(each.idempotency_key)}
            if "authentication_mode" in each.payload:
                answer = client.post(f"{intake}/v1/submissions", json=each.payload, headers=key)
            else:
                body = {"workflow_type": MOVING.name, "business_key": str(each.idempotency_key), "input": each.payload}
                answer = client.post(f"{console}/v1/workflows", json=body, headers=key)
            if answer.status_code != httpx.codes.ACCEPTED:
                raise DemoError(f"A submission of the week was answered with {answer.status_code}: {answer.text}")
            # Otherwise most would wait for a worker much longer than they take.
            check()
            while Workflow.objects.filter(status="PENDING", waiting_for="").count() > AT_ONCE:
                sleep(0.02)


def _act(week: Week, found: Mapping[UUID, report.Result], who: Who, acted: set[int]) -> None:
    """What people do about the week: reviews are decided, and failures retried or acknowledged, each once."""
    numbers = {result.id: key for key, result in found.items()}
    tasks = ManualTask.objects.filter(state=ManualTask.State.OPEN, workflow__in=numbers)
    for task in tasks.select_related("workflow"):
        decision, clinician = week.decisions[task.workflow.idempotency_key], who("approver")
        with _unless_a_worker_has_it():
            record_view(task.workflow_id, actor=clinician.get_username())
            if decision == "reject":
                operations.reject(task.pk, user=clinician, reason="Another treatment suits better.")
            else:
                operations.approve(task.pk, user=clinician, reason="The answers allow it.")
    for key, result in found.items():
        if result.state == State.FAILED and result.id not in acted:
            with _unless_a_worker_has_it():
                _deal_with(result, is_refused=key in week.refused, for_good=key == week.refused[-1], who=who)
                acted.add(result.id)


def _deal_with(result: report.Result, *, is_refused: bool, for_good: bool, who: Who) -> None:
    record_view(result.id, actor=who("support").get_username())
    if is_refused and not for_good:
        operations.retry(result.id, user=who("support"), reason="The profiles service takes addresses again.")
        return
    workflow = Workflow.objects.get(pk=result.id)
    if left := failures_left(workflow):
        reason = "Saved by hand, with the patient on the phone." if for_good else "The patient has been told."
        operations.acknowledge(result.id, user=who("support"), reason=reason, seen=left)


@contextmanager
def _unless_a_worker_has_it() -> Iterator[None]:
    try:
        yield
    except NotAllowed:
        return


def _note(week: Week, found: Mapping[UUID, report.Result], who: Who) -> None:
    """Phone numbers are revealed, and notes are left: for the audit."""
    failed = [result for result in found.values() if result.state == State.FAILED]
    onboardings = [each for each in failed if each.mode != MOVING.name]
    for result in onboardings[-3:]:
        operations.reveal(
            result.id, user=who("support lead"), fields=["patient.phone"], reason="To call the patient back."
        )
        cases.add_note(result.id, user=who("support lead"), reason="Called: the patient tries again next week.")
    cases.add_note(found[week.refused[-1]].id, user=who("support"), reason="The profiles team knows of it.")


# --- It is dated back -----------------------------------------------------------------------------


@contextmanager
def _uncounted() -> Iterator[Callable[[], None]]:
    """Have the rollup count nothing meanwhile; yield what has to be called every minute."""

    def due_in(seconds: int) -> None:
        execute(
            """INSERT INTO workflows_chore (name, due_at)
               VALUES ('add up', clock_timestamp() + make_interval(secs => %(seconds)s))
               ON CONFLICT (name) DO UPDATE SET due_at = excluded.due_at""",
            {"seconds": seconds},
        )

    due_in(100)
    try:
        yield lambda: due_in(100)
    finally:
        due_in(0)


def _date_back(week: Week, found: Mapping[UUID, report.Result]) -> None:
    """Move everything of each workflow to its time of the week, and what people did to some time after that."""
    now = timezone.now()
    rng = random.Random(len(found))  # noqa: S311
    ids = {found[each.idempotency_key].id: at for each, at in zip(week.samples, week.at, strict=True)}
    refused = {found[key].id for key in week.refused}
    created = dict(Workflow.objects.filter(pk__in=ids).values_list("pk", "created_at"))
    acted = dict(Event.objects.filter(workflow__in=ids).exclude(actor="").values_list("workflow").annotate(Min("at")))
    for workflow, at in Access.objects.filter(workflow__in=ids).values_list("workflow").annotate(Min("at")):
        acted[workflow] = min(at, acted.get(workflow, at))
    rows = []
    for workflow, at in ids.items():
        least = week.held[1] - at if workflow in refused else timedelta(0)
        gap = least + timedelta(minutes=rng.uniform(*ACT_AFTER))
        rows.append((workflow, created[workflow] - at, acted.get(workflow, now), min(gap, (now - at) / 2)))
    with transaction.atomic():
        for model in _of_workflows():
            _move(model, rows)


def _of_workflows() -> Iterator[type[models.Model]]:
    yield Workflow
    for model in apps.get_app_config("workflows").get_models():
        names = {field.name for field in model._meta.concrete_fields}
        if "workflow" in names and model is not WorkerProcess:
            yield model


def _move(model: type[models.Model], rows: Sequence[tuple[int, timedelta, datetime, timedelta]]) -> None:
    """Move the times of a table: `(workflow, back by, people acted at, and so much later)`."""
    table, key = model._meta.db_table, "id" if model is Workflow else "workflow_id"
    columns = [each.column for each in model._meta.concrete_fields if isinstance(each, models.DateTimeField)]
    if not columns:
        return
    moved = ", ".join(
        f"{each} = t.{each} - d.back + CASE WHEN t.{each} BETWEEN d.acted AND now() THEN d.later ELSE '0' END"
        for each in columns
    )
    with _what_is_on_record_changes(table):
        execute(
            f"""UPDATE {table} t SET {moved}
                  FROM unnest(%s::bigint[], %s::interval[], %s::timestamptz[], %s::interval[])
                       AS d (workflow, back, acted, later)
                 WHERE t.{key} = d.workflow""",  # noqa: S608 (the names are ours)
            [list(column) for column in zip(*rows, strict=True)],
        )


@contextmanager
def _what_is_on_record_changes(table: str) -> Iterator[None]:
    """Only the owner of the tables can do this, and only the demo, which runs with DEBUG, does."""
    execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
    yield
    execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


def _hold(week: Week, who: Who) -> None:
    """An engineer held the second type while the profiles service was mended."""
    key, engineer, (since, until) = str(Key(Scope.TYPE, MOVING.name)), who("engineer"), week.held
    last = CircuitEvent.objects.aggregate(last=Max("pk"))["last"] or 0
    why = "The profiles service refuses addresses."
    pace.hold_queue(key, user=engineer, until=timezone.now() + timedelta(hours=2), reason=why)
    pace.release_queue(key, user=engineer, reason="It takes them again.")
    of_cause.add_note(CAUSE, user=who("support lead"), reason=NOTE)
    said = f"Until {times.both(since + timedelta(hours=2), dated=True)}. {why}"
    with transaction.atomic(), _what_is_on_record_changes("workflows_circuitevent"):
        new = CircuitEvent.objects.filter(pk__gt=last, service__in=(key, CAUSE.name))
        new.filter(kind=CircuitEvent.Kind.HELD).update(at=since, reason=said)
        new.filter(kind__in=(CircuitEvent.Kind.RELEASED, CircuitEvent.Kind.NOTED)).update(at=until)
