"""TRANSITIONS: whether and when a workflow runs. Only this module writes these columns of its row:

| column | what it says |
|---|---|
| `status`, `compensating`, `completed_at` | PENDING, being undone, or finished since then: COMPLETE or FAILED |
| `invisible_until` | no worker takes the workflow before this time; from then on it is due |
| `begun` | it has started, and goes first: an attempt has been decided, or the workflow was woken |
| `waiting_for` | what it waits for, in words |
| `wake_on`, `wake_matching`, `seen_until` | which signals wake it: their names, content and time |
| `parked_on`, `parked_at` | the unavailable service, or the cause, that it waits for, and since when |
| `current_step`, `retry_count` | the step where it failed or waits, and how many times in a row that step failed |
| `unavailable_count` | how many of these failures were at an unavailable service |

Each change of state has one function (docs/architecture.md has the diagram). A column that the function does not name
keeps its value, except the columns of what the workflow waited for or was parked on. The caller's transaction, in which
it decides, holds the row lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from django.db.models.expressions import Combinable
from django.db.models.functions import Now

from workflows.errors import ClaimLost, Suspend
from workflows.models import Workflow
from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import PARKED_SQL, PAUSED
from workflows.postgres.statements import Parameters, execute, literal
from workflows.sealing.payloads import emptied_sql

# The present. `begun`, and not an earlier time, puts the workflow before the backlog.
AT_ONCE = ClockTimestamp()

# The due time of a paused workflow: no clock of a worker reaches it.
UNTIL_RESUMED = datetime(3000, 1, 1, tzinfo=UTC)

# The words for what such a workflow waits for; the type follows.
A_RELEASE_THAT_KNOWS = "a release that knows the workflow type "


class Unchanged:
    """A column keeps its value."""


UNCHANGED: Final = Unchanged()

# The columns that define which of its four phases a workflow is in.
Phase = Mapping[str, Any]
UNDER_WAY: Phase = {"status": Workflow.Status.PENDING, "compensating": False, "completed_at": None}
COMPENSATING: Phase = {"status": Workflow.Status.PENDING, "compensating": True, "completed_at": None}
COMPLETE: Phase = {"status": Workflow.Status.COMPLETE, "compensating": False, "completed_at": ClockTimestamp()}
FAILED: Phase = {"status": Workflow.Status.FAILED, "compensating": False, "completed_at": ClockTimestamp()}


class Failures(NamedTuple):
    """How many times in a row a step has failed, and how many of these failures were at an unavailable service."""

    number: int = 0
    unavailable: int = 0


NONE = Failures()


class Parking(NamedTuple):
    """The service that a workflow is parked on, for how long at most, and since when (None is now).

    `is_over`: the workflow was already parked on it, and this time has run out. On a cause it waits for a `mend`, in
    words. `is_untried`: it was stopped before it called anything; if it was already parked on this, it keeps its error.
    """

    service: str
    longest: timedelta
    since: datetime | None = None
    is_over: bool = False
    mend: str = ""
    is_untried: bool = False

    @property
    def waits_for(self) -> str:
        return self.mend or f"the service {self.service}, which is unavailable"


class Awaited(NamedTuple):
    """What a workflow waits for, in words, and which signals wake it.

    A signal wakes it if its name is in `wake_on`, its payload contains `wake_matching`, and it was not committed in the
    snapshot `seen_until`, if there is one.
    """

    waiting_for: str = ""
    wake_on: Sequence[str] = ()
    wake_matching: Mapping[str, Any] = MappingProxyType({})
    seen_until: str | None = None

    @classmethod
    def of(cls, suspend: Suspend) -> Awaited:
        """What a step, or a question to a person, waits for."""
        return cls(suspend.waiting_for, suspend.wake_on, suspend.matching)


NOTHING = Awaited()

# Columns outside the schedule: the outcome of the attempt, for people.
ExtraColumns = Mapping[str, Any]
_NO_ERROR = {"last_error_class": "", "last_error_code": "", "last_error_message": ""}


# --- Decided by an attempt ----------------------------------------------------------------------------


def suspend(workflow: Workflow, suspended: Suspend, *, step: str, extra_columns: ExtraColumns) -> None:
    """A step waits for something; its earlier failures no longer count."""
    _write(
        workflow.pk,
        due=suspended.until,
        begun=True,
        awaited=Awaited.of(suspended),
        step=step,
        failures=NONE,
        extra_columns={**extra_columns, **_NO_ERROR},
    )


def suspend_for_answer(workflow: Workflow, suspended: Suspend, *, parking: Parking | None = None) -> None:
    """The engine waits for an answer from a person or a service. Where the workflow failed, and how often, stays."""
    _write(
        workflow.pk,
        due=ClockTimestamp() + parking.longest if parking else suspended.until,
        begun=True,
        awaited=Awaited.of(suspended),
        parking=parking,
    )


def schedule_retry(
    workflow_id: int,
    due: Combinable,
    *,
    woken_by: Awaited,
    step: str,
    failures: Failures,
    extra_columns: ExtraColumns,
) -> None:
    """A step failed, but may succeed later; a signal may end the delay early."""
    _write(
        workflow_id, due=due, begun=True, awaited=woken_by, step=step, failures=failures, extra_columns=extra_columns
    )


def park(
    workflow_id: int,
    parking: Parking,
    *,
    step: str | Unchanged = UNCHANGED,
    failures: Failures | Unchanged = UNCHANGED,
    extra_columns: ExtraColumns | None = None,
) -> None:
    """The workflow waits for a service, until `release_parked` makes it due or the time in `parking` is over."""
    _write(
        workflow_id,
        due=ClockTimestamp() + parking.longest,
        begun=True,
        awaited=Awaited(parking.waits_for),
        parking=parking,
        step=step,
        failures=failures,
        extra_columns=extra_columns,
    )


def await_release(workflow_id: int, due: Combinable, *, workflow_type: str) -> None:
    """This release does not know the workflow's type: another release will take it (see `make_known_due`)."""
    _write(workflow_id, due=due, awaited=Awaited(release_awaited(workflow_type)))


def release_awaited(workflow_type: str) -> str:
    """The words for a workflow that waits for a release that knows its type."""
    return f"{A_RELEASE_THAT_KNOWS}{workflow_type}"


def reschedule(workflow_id: int, due: Combinable) -> None:
    """The workflow is tried again later, and no step has failed. No signal ends the delay early."""
    _write(workflow_id, due=due, begun=True)


# --- The end ------------------------------------------------------------------------------------------


def fail(
    workflow: Workflow,
    *,
    step: str | Unchanged = UNCHANGED,
    failures: Failures | Unchanged = UNCHANGED,
    extra_columns: ExtraColumns,
) -> None:
    """The workflow is FAILED: nothing has to be undone."""
    _write(workflow.pk, phase=FAILED, step=step, failures=failures, extra_columns=extra_columns)


def begin_compensation(
    workflow_id: int,
    *,
    step: str | Unchanged = UNCHANGED,
    failures: Failures | Unchanged = UNCHANGED,
    extra_columns: ExtraColumns,
) -> None:
    """The workflow has failed; its calls are undone before it becomes FAILED."""
    _write(
        workflow_id,
        phase=COMPENSATING,
        due=AT_ONCE,
        begun=True,
        step=step,
        failures=failures,
        extra_columns=extra_columns,
    )


def end_compensation(workflow: Workflow) -> None:
    """Nothing is left to undo. The error with which the workflow failed stays."""
    fail(workflow, extra_columns={})


# --- Again --------------------------------------------------------------------------------------------


def reopen(*ids: int, expires_after: timedelta | None, begun: bool = True) -> None:
    """A person retries workflows. Their `expires_at` is set anew. If not `begun`, they queue behind started ones."""
    expires = {"cancelled_at": None, "expires_at": ClockTimestamp() + expires_after if expires_after else None}
    columns = _columns(phase=UNDER_WAY, due=AT_ONCE, begun=begun, failures=NONE) | expires
    if Workflow.objects.filter(pk__in=ids).update(**columns) != len(ids):
        raise ClaimLost("a row is gone")


def reopen_compensation(workflow_id: int) -> None:
    """A FAILED workflow is undone once more: a person's answer about one of its calls was retracted."""
    _write(workflow_id, phase=COMPENSATING, due=AT_ONCE, begun=True)


def pause(workflow_id: int) -> None:
    """A person pauses it. No signal, child or service wakes it: only `resume`, a cancellation, or its expiry.

    When it is resumed, its step looks again at what it waits for. How often the step has failed stays.
    """
    _write(workflow_id, due=UNTIL_RESUMED, awaited=Awaited(PAUSED))


def resume(workflow_id: int) -> None:
    """A paused workflow is due now. If it has not started, it queues with the others, under their holds and paces."""
    _write(workflow_id, due=AT_ONCE)


def make_due(workflow_id: int) -> bool:
    """Make the workflow due now; False if it is already due, paused, or has finished. What it waits for stays."""
    later = Workflow.objects.filter(pk=workflow_id, status="PENDING", invisible_until__gt=Now())
    later = later.exclude(waiting_for=PAUSED)
    return later.update(invisible_until=AT_ONCE, begun=True) == 1


def make_due_where(condition: str, parameters: Parameters) -> int:
    """Wake every workflow `w` that is not locked and for which `condition` (SQL) holds; return how many.

    Sleeping workflows become due at one time, so that the oldest goes first. A workflow that is already due keeps its
    due time, and no longer waits behind the backlog.
    """
    return execute(
        f"""UPDATE workflows_workflow SET invisible_until = least(invisible_until, statement_timestamp()), begun = true
             WHERE id IN (
                SELECT w.id FROM workflows_workflow w
                 WHERE {condition} AND w.status = 'PENDING' AND (w.invisible_until > now() OR NOT w.begun)
                   FOR NO KEY UPDATE OF w SKIP LOCKED)""",  # noqa: S608 (the condition is the engine's)
        parameters,
    )


def release_parked(
    service: str,
    *,
    limit: int,
    over: timedelta,
    due_after: timedelta = timedelta(0),
    parked_by: datetime | None = None,
    not_of: str | None = None,
) -> int:
    """Make due the workflows that have been parked longest on a service, spread evenly `over` a time; return how many.

    At most `limit`. Skips locked rows, workflows that become due by themselves by then or within `due_after`, and
    workflows of the API client `not_of`; with `parked_by`, also those that were parked later. Workflows stay parked
    until their next attempt is decided.
    """
    return execute(
        f"""UPDATE workflows_workflow
              SET invisible_until = statement_timestamp() + (place - 1) * %(over)s::interval / %(limit)s
             FROM (SELECT id, row_number() OVER (ORDER BY invisible_until, id) AS place
                     FROM (SELECT id, invisible_until FROM workflows_workflow
                            WHERE {PARKED_SQL} AND parked_on = %(service)s
                              AND invisible_until > statement_timestamp() + %(due_after)s
                              AND parked_at <= coalesce(%(parked_by)s, parked_at)
                              AND submitted_by IS DISTINCT FROM %(not_of)s::text
                            ORDER BY invisible_until, id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED) longest
                  ) released
            WHERE workflows_workflow.id = released.id""",  # noqa: S608 (ours)
        {
            "service": service,
            "limit": limit,
            "over": over,
            "due_after": max(over, due_after),
            "parked_by": parked_by,
            "not_of": not_of,
        },
    )


def make_known_due(queue: str, workflow_types: Sequence[str], *, limit: int) -> int:
    """Make due workflows of these types that a release rescheduled because it did not know their type; return how many.

    At most `limit`, without locked rows. They then wait for nothing, so another release that does not know the type
    starts again with short delays.
    """
    return execute(
        f"""UPDATE workflows_workflow
               SET waiting_for = '', invisible_until = least(invisible_until, statement_timestamp())
             WHERE id IN (
                SELECT id FROM workflows_workflow
                 WHERE status = 'PENDING' AND waiting_for LIKE '{A_RELEASE_THAT_KNOWS}%%'
                   AND workflow_type = ANY (%s) AND waiting_for = '{A_RELEASE_THAT_KNOWS}' || workflow_type
                   AND queue = %s
                 LIMIT %s FOR NO KEY UPDATE SKIP LOCKED)""",  # noqa: S608 (the words are ours)
        [list(workflow_types), queue, limit],
    )


# --- How ----------------------------------------------------------------------------------------------


def _write(workflow_id: int, *, extra_columns: ExtraColumns | None = None, **schedule: Any) -> None:
    """Update the row once, outside the steps' savepoint (docs/internals/claim.md). Raises ClaimLost if it is gone."""
    columns = _columns(**schedule) | dict(extra_columns or {})
    if Workflow.objects.filter(pk=workflow_id).update(**columns) != 1:
        raise ClaimLost("the row is gone")


def _columns(
    *,
    phase: Phase | Unchanged = UNCHANGED,
    due: datetime | Combinable | Unchanged = UNCHANGED,
    begun: bool | Unchanged = UNCHANGED,
    awaited: Awaited = NOTHING,
    parking: Parking | None = None,
    step: str | Unchanged = UNCHANGED,
    failures: Failures | Unchanged = UNCHANGED,
) -> dict[str, Any]:
    """The columns of the schedule that a transition writes. Clears what was waited for, or parked on."""
    columns = {
        **({} if isinstance(phase, Unchanged) else phase),
        **awaited._asdict(),
        "wake_matching": dict(awaited.wake_matching),
        "invisible_until": due,
        "begun": begun,
        "parked_on": parking.service if parking else "",
        "parked_at": (parking.since or ClockTimestamp()) if parking else None,
        "current_step": step,
        "retry_count": failures if isinstance(failures, Unchanged) else failures.number,
        "unavailable_count": failures if isinstance(failures, Unchanged) else failures.unavailable,
    }
    return {name: value for name, value in columns.items() if value is not UNCHANGED}


_COMPLETION = _NO_ERROR | _columns(phase=COMPLETE, step="", failures=NONE)


def complete_sql(secret_fields: tuple[str, ...] = ()) -> str:
    """The row's part of the decision after every step has run; run outside the savepoint, like `_write`."""
    return f"""
    UPDATE workflows_workflow
       SET {", ".join(f"{column} = {literal(value)}" for column, value in _COMPLETION.items())}, context = %(context)s
           {f", payload = {emptied_sql(secret_fields)}" if secret_fields else ""}
     WHERE id = %(workflow_id)s RETURNING id"""  # noqa: S608 (ours)


def empty(
    ids: Sequence[int], *, payloads: Sequence[str], business_keys: Sequence[str | None], errors: Sequence[str]
) -> None:
    """Empty finished workflows for good: of what was sent, only these payloads (as JSON), business keys and error
    messages stay, given in the order of `ids`. The caller holds the row locks: see `retention.content`.
    """
    execute(
        """UPDATE workflows_workflow w
           SET emptied_at = clock_timestamp(), payload = kept.payload::jsonb, business_key = kept.business_key,
               context = '{}', linking_id = NULL, given_request_id = '', traceparent = '',
               last_error_message = kept.error,
               waiting_for = '', wake_on = '{}', wake_matching = '{}',
               child_key = CASE WHEN parent_id IS NULL THEN '' ELSE '#' || id END,
               acknowledged_failure = CASE WHEN status = 'FAILED' THEN completed_at END
          FROM unnest(%(ids)s::bigint[], %(payloads)s::text[], %(business_keys)s::text[], %(errors)s::text[])
               AS kept (of, payload, business_key, error)
         WHERE w.id = kept.of""",
        {"ids": list(ids), "payloads": [*payloads], "business_keys": [*business_keys], "errors": [*errors]},
    )
