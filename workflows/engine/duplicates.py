"""DUPLICATES: of the workflows with one business key one runs at a time, and once one is COMPLETE no other does.

A worker compares a workflow with the others when it takes it up, never the intake (docs/adr/0020). A transaction on the
attempt log, under an advisory lock on the key, writes what part the workflow has: a second worker sees at once who is
the holder, and does not wait for the row that the first one holds. A holder stays one until another takes its place,
which can only happen when it has failed; so a retry does not find itself the holder any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import F

from workflows.definition import WorkflowDefinition, definitions, value_at
from workflows.engine.executor import Failed, Held, failed_before_any_step
from workflows.errors import DUPLICATE, ClaimLost, DuplicateOf, Suspend
from workflows.models import Attempt, Event, SearchKeyHash, Workflow
from workflows.postgres.round_trips import session_of
from workflows.postgres.statements import Parameters, fetch_all
from workflows.postgres.wire import Row
from workflows.sealing import private
from workflows.search import search_keys
from workflows.signals.waking import Slice, slice_of
from workflows.state import attempt_log, history
from workflows.state.attempt_log import ALIAS, FENCE, OpenAttempt
from workflows.state.transitions import make_due_where

HOLDER, WAITING, FORMER = SearchKeyHash.Role.HOLDER, SearchKeyHash.Role.WAITING, SearchKeyHash.Role.FORMER

# By this name in `wake_on` a workflow that waits for the holder is known. No signal has it.
HOLDER_ENDED = "holder:ended"

# A person's word that a call stays as it is, and a charge that stands, or may: what has failed and left one of these
# must not be done a second time before a person has looked.
LEFT = """EXISTS (
    SELECT FROM workflows_effect e
     WHERE e.workflow_id = w.id AND NOT e.undo
       AND (e.state = 'kept' OR e.step = ANY (%(charges)s) AND e.state IN ('done', 'intent', 'unknown')))"""
# An hour until it looks for itself, in case nobody wakes it. One whose row is deleted has left nothing
# (`retention.rows`), and its status stands with its spent keys.
_HOLDERS = f"""
    SELECT k.workflow_id, known.status, w.status = 'FAILED' AND {LEFT}, w.completed_at,
           clock_timestamp() + interval '1 hour'
      FROM workflows_searchkey k
      LEFT JOIN workflows_workflow w ON w.id = k.workflow_id
      LEFT JOIN workflows_spentkey spent ON spent.workflow_id = k.workflow_id
     CROSS JOIN LATERAL (SELECT coalesce(w.status, spent.status)) known (status)
     WHERE k.hash = ANY (%(hashes)s::bytea[]) AND k.role = 'holder' AND known.status IS NOT NULL
     ORDER BY array_position('{{COMPLETE, PENDING, FAILED}}'::text[], known.status::text),
              k.workflow_id"""  # noqa: S608 (ours)
_WRITE = """
    WITH written AS (
        INSERT INTO workflows_searchkey (hash, workflow_id, key_id, role)
        SELECT hash, %(workflow_id)s, key_id, %(role)s
          FROM unnest(%(hashes)s::bytea[], %(key_ids)s::int[]) AS own (hash, key_id) WHERE {allowed}
        ON CONFLICT (hash, workflow_id) DO UPDATE SET role = excluded.role
        RETURNING workflow_id),
    replaced AS (
        UPDATE workflows_searchkey SET role = 'former'
         WHERE hash = ANY (%(hashes)s::bytea[]) AND workflow_id = ANY (%(replaced)s::bigint[]))
    SELECT FROM written"""


class Holder(NamedTuple):
    """A workflow that may run, or has run, under a business key. `has_left`: it failed, and a call of it stands."""

    workflow_id: int
    status: str
    has_left: bool
    completed_at: datetime | None
    look_again_at: datetime

    @property
    def is_in_the_way(self) -> bool:
        return self.status != Workflow.Status.FAILED or self.has_left


def judge(definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt) -> Held | Failed | None:
    """What to do instead of running `workflow`, because of another one of its business key; None to run it."""
    first = _take(definition, workflow, attempt) if definition.business_key else None
    if first is None:
        return None
    if first.status == Workflow.Status.PENDING:
        what = f"workflow {first.workflow_id}, which is under way for {definition.wording.same_business}"
        suspend = Suspend(what, wake_on=[HOLDER_ENDED], until=first.look_again_at)
        return Held(workflow.current_step, suspend, Attempt.Outcome.WAITING)
    # Sent while the first was under way, it was sent twice. Sent later, a patient has come back, and may mean it.
    was_sent_twice = first.completed_at is not None and workflow.created_at < first.completed_at
    error = DuplicateOf(first.workflow_id, needs_a_person=first.has_left or not was_sent_twice)
    return failed_before_any_step(definition, workflow, error)


def _take(definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt) -> Holder | None:
    """Make the workflow the holder of its business key, if none is in the way: else return that one."""
    hashes = _hashes(definition, workflow)
    if not hashes:
        return None
    with attempt_log.errors_lose_the_claim(), transaction.atomic(using=ALIAS):
        run = session_of(ALIAS).run
        _lock(run, hashes)
        # A new statement, and so a new snapshot: it sees what the one before us has written.
        holders = _holders(run, definition, hashes)
        if any(each.workflow_id == workflow.pk for each in holders):
            return None
        first = next((each for each in holders if each.is_in_the_way), None)
        role = HOLDER if first is None else WAITING if first.status == Workflow.Status.PENDING else FORMER
        replaced = [each.workflow_id for each in holders] if first is None else []
        if not _write(run, hashes, workflow, role, replaced, allowed=FENCE, claim_xid=attempt.claim_xid):
            raise ClaimLost("the claim's transaction has ended")
    return first


def _hashes(definition: WorkflowDefinition | None, workflow: Workflow) -> list[tuple[bytes, int]]:
    """The hashes under each key, with its id: all are written, or two workers with other settings would both go on."""
    if definition is None or not definition.business_key:
        return []
    values = {field: value_at(workflow.payload, field) for field in definition.business_key}
    business_key = search_keys.business_key_of(definition, workflow.tenant, values)
    return sorted(search_keys.business_hashes(business_key)) if business_key else []


Run = Callable[[str, Parameters], list[Row]]


def _holders(run: Run, definition: WorkflowDefinition, hashes: Sequence[tuple[bytes, int]]) -> list[Holder]:
    parameters = {"hashes": [each for each, _ in hashes], "charges": list(definition.charge_names)}
    return [Holder(*row) for row in run(_HOLDERS, parameters)]


def _lock(run: Run, hashes: Sequence[tuple[bytes, int]]) -> None:
    """Until the transaction ends, nobody else judges a workflow of this key. In one order, to avoid deadlocks."""
    keys = [int.from_bytes(each[:8], signed=True) for each, _ in hashes]
    run("SELECT pg_advisory_xact_lock(key) FROM unnest(%(keys)s::bigint[]) AS key", {"keys": keys})


def _write(
    run: Run,
    hashes: Sequence[tuple[bytes, int]],
    workflow: Workflow,
    role: str,
    replaced: Sequence[int] = (),
    *,
    allowed: str = "true",
    **more: Any,
) -> bool:
    """Write the workflow's part; False if it is not `allowed`. Those that it has `replaced` have none any more."""
    own, key_ids = map(list, zip(*hashes, strict=True))
    parameters = {"workflow_id": workflow.pk, "hashes": own, "key_ids": key_ids, "role": str(role)}
    return bool(run(_WRITE.format(allowed=allowed), {**parameters, "replaced": list(replaced), **more}))


def record(attempt: OpenAttempt, error: DuplicateOf, *, finishes: bool) -> None:
    """Record that the workflow, which is FAILED since just now, was a duplicate, and whether it needs a person."""
    history.record_in(attempt, Event.Kind.DUPLICATE, finishes=finishes, first=error.first)
    if not error.needs_a_person:
        Workflow.objects.filter(pk=attempt.workflow_id).update(acknowledged_failure=F("completed_at"))


# --- Woken by the holder's end ------------------------------------------------------------------------

# The workflow `w` waits for a holder, and none is under way any more.
_FREE = f"""
    '{HOLDER_ENDED}' = ANY (w.wake_on) AND NOT EXISTS (
        SELECT FROM workflows_searchkey own
          JOIN workflows_searchkey k ON k.hash = own.hash AND k.role = 'holder'
          JOIN workflows_workflow holder ON holder.id = k.workflow_id AND holder.status = 'PENDING'
         WHERE own.workflow_id = w.id AND own.role = 'waiting')"""

_BEHIND = "SELECT workflow_id FROM workflows_searchkey WHERE hash = ANY (%(hashes)s::bytea[]) AND role = 'waiting'"


def wake_those_behind(workflow: Workflow) -> None:
    """After the commit of what may be a workflow's end: wake those that waited for it, but for any that is locked."""
    definition = definitions().get(workflow.workflow_type)
    if definition and definition.business_key:
        if private.is_sealed(workflow.payload):  # it was cancelled before a step of it ran
            workflow.payload = private.opened(workflow.payload)
        hashes = [each for each, _ in _hashes(definition, workflow)]
        behind = [pk for (pk,) in session_of().run(_BEHIND, {"hashes": hashes})]
        if behind:  # as hardly ever: to plan the next statement takes longer than to find that out
            make_due_where(f"w.id = ANY (%s) AND {_FREE}", [behind])


def wake_waiting(after: int = 0) -> Slice:
    """Maintenance: wake what waits, after that id, for a holder that has ended since, whoever has ended it."""
    waiting = "SELECT workflow_id AS id FROM workflows_searchkey WHERE role = 'waiting' AND workflow_id > {}"
    last, next_after = slice_of(f"{waiting.format('%s')} ORDER BY workflow_id", after)
    if not last:
        return Slice(0)
    in_slice = f"{waiting.format('%(after)s')} AND workflow_id <= %(last)s"
    return Slice(make_due_where(f"w.id IN ({in_slice}) AND {_FREE}", {"after": after, "last": last}), next_after)


# --- What people see, and decide ----------------------------------------------------------------------


def is_waiting(workflow: Workflow) -> bool:
    """Whether the workflow waits for another one of its business key."""
    return HOLDER_ENDED in workflow.wake_on


def has_ended_as_one(workflow: Workflow) -> bool:
    """Whether the workflow was a duplicate."""
    return workflow.status == Workflow.Status.FAILED and workflow.last_error_code == DUPLICATE


def is_one(workflow: Workflow) -> bool:
    """Whether a person may say of the workflow that it is not a duplicate."""
    return is_waiting(workflow) or has_ended_as_one(workflow)


def make_holder(workflow: Workflow) -> None:
    """Let a workflow run beside those of its business key, in the caller's transaction: it is none of them."""
    if hashes := _hashes(definitions().get(workflow.workflow_type), workflow):
        run = session_of().run
        _lock(run, hashes)
        _write(run, hashes, workflow, HOLDER)


def in_place_of(workflow: Workflow) -> int | None:
    """The workflow that does, or has done, what this one was sent for, and has taken its place; None if none has."""
    definition = definitions().get(workflow.workflow_type)
    hashes = _hashes(definition, workflow)
    holders = _holders(fetch_all, definition, hashes) if definition and hashes else []
    if any(each.workflow_id == workflow.pk for each in holders):
        return None
    return next((each.workflow_id for each in holders if each.is_in_the_way), None)


class Other(NamedTuple):
    """Another workflow of the same business key, and the part that it has."""

    workflow_id: int
    role: str
    status: str
    error_code: str

    @property
    def is_waiting(self) -> bool:
        return self.role == WAITING and self.status == Workflow.Status.PENDING


# Of both kinds the newest are shown: a key may have been sent a thousand times.
OTHERS_SHOWN = 5
_SAME = """
    SELECT w.id, k.role, w.status, w.last_error_code
      FROM workflows_searchkey k JOIN workflows_workflow w ON w.id = k.workflow_id
     WHERE k.hash = ANY (%(hashes)s::bytea[]) AND k.role {which} AND w.id <> %(workflow_id)s
     GROUP BY w.id, k.role ORDER BY w.id DESC LIMIT %(limit)s"""


def others_of(workflow: Workflow) -> list[Other]:
    """The other workflows of the same business key that workers have taken up: those that may run come first."""
    hashes = _hashes(definitions().get(workflow.workflow_type), workflow)
    parameters = {"hashes": [each for each, _ in hashes], "workflow_id": workflow.pk, "limit": OTHERS_SHOWN}
    each_kind = [_SAME.format(which=which) for which in ("= 'holder'", "<> 'holder'")] if hashes else []
    return [Other(*row) for sql in each_kind for row in fetch_all(sql, parameters)]
