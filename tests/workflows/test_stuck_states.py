"""Nothing stands still in silence: what stays until somebody acts is named by Home's sentence or an alert.

Each within its limit, and not before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import yaml
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from tests.postgres import without_triggers
from tests.workflows import rows
from tests.workflows.api.test_late_and_at_risk import define_charging
from tests.workflows.api.test_metrics import Samples, _in_debug, told
from tests.workflows.features.outages.services import open_circuit
from workflows.definition import Slo
from workflows.effects.reconcile import DOUBT_TASK_TYPE
from workflows.engine import lease
from workflows.engine.undo_doubts import UNDO_TASK_TYPE
from workflows.health import counts, health
from workflows.models import CaseNote, Chore, Confirmation, Correction, Effect, FollowUp

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("engine", _in_debug.__name__)]

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
GONE = {"workflow_type": "gone", "waiting_for": "a release that knows the workflow type gone"}


def boss() -> User:
    return User.objects.create_superuser("boss")


def ago(age: timedelta) -> Any:
    return timezone.now() - age


def unclear_charge(age: timedelta) -> None:
    call = {"step": "charge", "state": "unknown", "attempt": 1, "idempotency_key": "k"}
    Effect.objects.create(workflow=rows.retrying(workflow_type="test"), first_begun_at=ago(age), **call)


def question(task_type: str, age: timedelta) -> None:
    rows.open_task(rows.waiting(task=False, workflow_type="test"), task_type=task_type, due_at=ago(age - HOUR))


def failed_reversal(age: timedelta) -> None:
    Effect.objects.filter(workflow=rows.compensating(workflow_type="test")).update(undo_failures=2, state="done")


def left_in_hand(age: timedelta) -> None:
    """By a host that is gone; no other has workers for its queue."""
    rows.worker(name="gone:1", queue="nightly", last_seen=ago(age))
    rows.attempt(rows.workflow(queue="nightly", begun=True), worker="gone:1", opened_at=ago(age), closed_at=None)


def asked_to_correct(age: timedelta) -> None:
    row = rows.asked_to_correct()
    with without_triggers():
        Correction.objects.filter(pk=row.pk).update(asked_at=ago(age))


def case_note(age: timedelta, **fields: Any) -> None:
    CaseNote.objects.create(form_key=uuid4(), workflow_id=rows.failed().pk, lead_asked_at=ago(age), **fields)


def made_by_hand(age: timedelta) -> None:
    row = rows.to_confirm(boss(), rows.failed())
    with without_triggers():
        Confirmation.objects.filter(pk=row.pk).update(decision="by_hand", asked_at=ago(age))


def deferred_step(age: timedelta) -> None:
    FollowUp.objects.create(workflow=rows.complete(), step="thank", queue="nightly", due_at=ago(age))


LEASE = timedelta(seconds=lease.lease_seconds())
# The limit, how it is made so old, and what names it: an alert, or a part of Home's sentence.
STATES: dict[str, tuple[timedelta, Callable[[timedelta], object], str]] = {
    "due, and its queue has no worker": (
        MINUTE,
        lambda age: rows.workflow(queue="nightly", invisible_until=ago(age)),
        "OnrampQueueWithoutWorkers",
    ),
    "due, and no worker takes it": (5 * MINUTE, lambda age: rows.workflow(invisible_until=ago(age)), "OnrampOldestDue"),
    "its type left": (MINUTE, lambda age: rows.workflow(**GONE), "OnrampUnknownType"),
    "its type left, it is to be refunded": (MINUTE, lambda age: rows.compensating(**GONE), "1 of them"),
    "a charge is unclear, and a person is asked": (HOUR, lambda age: question(DOUBT_TASK_TYPE, age), "call is overdue"),
    "a charge is unclear, and nobody is asked": (HOUR, unclear_charge, "OnrampUnclearCall"),
    "a reversal has failed": (MINUTE, failed_reversal, "OnrampReversalFailed"),
    "a failed reversal is asked about": (HOUR, lambda age: question(UNDO_TASK_TYPE, age), "reversal is overdue"),
    "a message was not delivered": (MINUTE, lambda age: rows.undelivered_message(), "OnrampUndelivered"),
    "others are not told": (MINUTE, lambda age: rows.outbox_event(state="given_up"), "OnrampOthersNotTold"),
    "a deferred step has no worker": (30 * MINUTE, deferred_step, "OnrampLate"),
    "parked at a service that is down": (
        MINUTE,
        lambda age: (open_circuit("payments"), rows.parked(parked_on="payments")),
        "OnrampCircuitOpen",
    ),
    "parked, and the service is not down": (
        MINUTE,
        lambda age: rows.parked(parked_on="letters"),
        "letters is called again, 1 still parked",
    ),
    "it waits longer than its type may take": (
        7 * DAY,
        lambda age: rows.waiting(task=False, workflow_type="test", created_at=ago(age)),
        "OnrampStuck",
    ),
    "a task is overdue": (HOUR, lambda age: question("parcel review", age), "OnrampOverdueTasks"),
    "it is over its own time": (
        MINUTE,
        lambda age: rows.waiting(task=False, expires_at=ago(age)),
        "OnrampLate",
    ),
    "its worker is gone with its host": (LEASE, left_in_hand, "OnrampQueueWithoutWorkers"),
    "a maintenance task was set aside": (
        MINUTE,
        lambda age: Chore.objects.create(name="wake expired", set_aside_at=ago(age)),
        "OnrampChoreSetAside",
    ),
    "a maintenance task is not done": (
        5 * MINUTE,
        lambda age: Chore.objects.create(name="wake expired", due_at=ago(age)),
        "OnrampChoreSilent",
    ),
    "a bulk operation is paused": (
        MINUTE,
        lambda age: rows.bulk_operation(boss(), state="paused", paused_why="Its user left."),
        "1 bulk operation is paused",
    ),
    "a bulk operation is not approved": (
        DAY,
        lambda age: rows.bulk_operation(boss(), state="asked", asked_at=ago(age)),
        "1 bulk operation has waited for a second person for a day",
    ),
    "an erasure is not decided": (
        DAY,
        lambda age: rows.erasure(boss(), asked_at=ago(age)),
        "1 erasure has waited to be carried out for a day",
    ),
    "a correction is not decided": (DAY, asked_to_correct, "1 correction has waited"),
    "a pause is over its time": (MINUTE, lambda age: rows.paused(boss(), until=-age), "1 pause is over its time"),
    "a lead has not seen to a case": (DAY, case_note, "1 request to a lead has waited"),
    "a team has not seen to a case": (DAY, lambda age: case_note(age, team="billing"), "handed to a team has waited"),
    "a call made by hand is not confirmed": (DAY, made_by_hand, "1 call made by hand has waited"),
    "a failure is nobody's": (DAY, lambda age: rows.failed(completed_at=ago(age)), "OnrampUnacknowledged"),
}  # fmt: skip
# Those that are told of at once, whatever their age.
AT_ONCE = MINUTE


@pytest.mark.parametrize("state", STATES)
def test_it_is_named_within_its_limit(state: str, client: Client) -> None:
    limit, make, name = STATES[state]
    define_charging(slo=Slo(p95=MINUTE, completed=0.9, longest=7 * DAY))
    rows.worker()
    assert not is_named(name, client)
    make(limit + MINUTE)
    assert is_named(name, client)


@pytest.mark.parametrize("state", [state for state, (limit, _, _) in STATES.items() if limit > AT_ONCE])
def test_it_is_not_named_before_its_limit(state: str, client: Client) -> None:
    limit, make, name = STATES[state]
    define_charging(slo=Slo(p95=MINUTE, completed=0.9, longest=7 * DAY))
    rows.worker()
    make(limit - MINUTE)
    assert not is_named(name, client)


def is_named(name: str, client: Client) -> bool:
    if name.startswith("Onramp"):
        return fires(name, told(client))
    return name in str(health.judge(counts.read()))


def fires(alert: str, samples: Samples) -> bool:
    """Whether one of the rules of this name holds: `metric{labels} > number`, its `max()`, or several with `or`."""
    text = (settings.BASE_DIR / "deploy" / "prometheus" / "onramp.rules.yml").read_text()
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"] if rule.get("alert") == alert]
    conditions = [part for rule in rules for part in rule["expr"].split(" or ")]
    condition = r"(?:max\()?(?:onramp_)?(\w+)(\{.*\})?\)? (>|==) ([\d.]+)"
    read = [re.fullmatch(condition, each.strip()) for each in conditions]
    assert conditions
    assert all(read), conditions
    return any(
        (value > float(each[4])) if each[3] == ">" else value == float(each[4])
        for each in read
        for (name, labels), value in samples.items()
        if each and name == each[1] and set(re.findall(r'"(\w+)"', each[2] or "")) <= {*labels}
    )
