"""ENTER: one statement turns a submission into a row; a worker does everything else later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from secrets import randbits
from time import time_ns
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError, transaction
from django.db.models import Q, TextField
from django.db.models.expressions import RawSQL
from pydantic import ValidationError

from workflows.definition import WorkflowDefinition, definitions
from workflows.models import SpentKey, State, Workflow
from workflows.postgres import sqlstates
from workflows.postgres.deadlines import DatabaseUnavailable, query_in_time
from workflows.postgres.jsonb import Document
from workflows.postgres.statements import fetch_one
from workflows.postgres.synchronous import COMMITS
from workflows.redaction import field_errors_for_senders
from workflows.sealing import payloads
from workflows.search import search_keys
from workflows.search.spent_keys import spent_keys
from workflows.signals import notify

# The target is named, because ON CONFLICT alone would also hide violations of other constraints.
INSERT = """
    INSERT INTO workflows_workflow
           (idempotency_key, workflow_type, submitted_by, queue, linking_id, payload, expires_at, tenant, business_key,
            given_request_id, priority, traceparent, invisible_until)
    {rows}
    ON CONFLICT {target} DO NOTHING RETURNING id
"""
SUBMITTED_BEFORE = "(idempotency_key)"
_STARTED_BEFORE = "(business_key, workflow_type, tenant) WHERE business_key IS NOT NULL"
# A deleted workflow's key is still there (`retention.rows`). Not a join, which could change the order in which a batch
# is stored.
IS_NEW = "(SELECT workflow_id FROM workflows_spentkey spent WHERE spent.idempotency_key = {key}) IS NULL"
_VALUES = f"""
    SELECT %(idempotency_key)s::uuid, %(workflow_type)s, %(submitted_by)s, %(queue)s, %(linking_id)s,
           {Document.SQL}, statement_timestamp() + %(expires_after)s::interval,
           %(tenant)s, %(business_key)s, %(given_request_id)s, %(priority)s::smallint, %(traceparent)s,
           least(greatest(%(due)s::timestamptz, statement_timestamp()), '9999-12-31Z')
     WHERE {IS_NEW.format(key="%(idempotency_key)s::uuid")}
"""
# The search keys are stored with the row or not at all, and need no statement or commit of their own.
_WITH_SEARCH_KEYS = """
    WITH entered AS ({insert}),
    keyed AS (INSERT INTO workflows_searchkey (hash, workflow_id, key_id)
              SELECT hash, id, %(search_key_id)s::int FROM entered, unnest(%(search_hashes)s::bytea[]) AS hash)
    SELECT id FROM entered
"""
_INSERT_SUBMISSION, _INSERT_STARTED = (
    _WITH_SEARCH_KEYS.format(insert=INSERT.format(rows=_VALUES, target=target))
    for target in (SUBMITTED_BEFORE, _STARTED_BEFORE)
)

# The name that PostgreSQL gave the constraint of `Workflow.idempotency_key`.
_IDEMPOTENCY_KEY_CONSTRAINT = "workflows_workflow_idempotency_key_key"


@dataclass(frozen=True, slots=True)
class Submission:
    """What a client sends under an idempotency key of its own."""

    key: UUID
    payload: Document
    submitted_by: str
    request_id: str = ""
    traceparent: str = ""  # see `workflows.trace_context.to_store`
    tenant: str = ""

    @property
    def given_request_id(self) -> str:
        return _given(self.request_id, self.key)

    def sealed(self, definition: WorkflowDefinition) -> Submission:
        """The form that waits to be stored, without the value, which may take twenty times the text's memory."""
        payload = payloads.seal_document(definition, self.payload, self.key)
        text = Document(payload.text, {})
        return Submission(self.key, text, self.submitted_by, self.request_id, self.traceparent, self.tenant)

    def secrets(self, definition: WorkflowDefinition) -> list[Any]:
        return payloads.secrets_sent(definition, self.payload, self.key)


@dataclass(frozen=True, slots=True)
class Entry:
    """The status of a submission, or of a started workflow. `replayed`: it was sent before."""

    id: int
    key: UUID
    status: str
    state: str
    replayed: bool


class KeyTaken(Exception):
    """Another client uses the idempotency key."""


class KeyReused(Exception):
    """The client has already used this idempotency key for something else."""


class BusinessKeyTaken(Exception):
    """This tenant has a workflow of this type and business key, with another input or from another client."""


class InputInvalid(Exception):
    """The definition's `input_class` refuses the input; the message names the fields, and none of their values."""


def submission_definition() -> WorkflowDefinition:
    name: str = settings.SUBMISSION_WORKFLOW
    if name not in definitions():
        raise ImproperlyConfigured(f"SUBMISSION_WORKFLOW is {name!r}, which no definition in WORKFLOWS is called.")
    return definitions()[name]


def enter(
    definition: WorkflowDefinition,
    *,
    idempotency_key: UUID,
    payload: Document,
    submitted_by: str,
    request_id: str = "",
    traceparent: str = "",
    tenant: str = "",
) -> Entry:
    """Store a submission unless its key exists; return its status.

    The key's unique constraint is the whole deduplication: the insert is attempted, and only a conflict costs a second
    statement. The call can be repeated when a connection breaks before the answer. Raises KeyTaken, KeyReused,
    DatabaseUnavailable, and DataError for values that our check for `jsonb` has missed.
    """
    payload = payloads.seal_document(definition, payload, idempotency_key)
    parameters = _parameters(definition, idempotency_key, payload, submitted_by, request_id, traceparent, tenant)
    inserted = query_in_time(lambda: fetch_one(_INSERT_SUBMISSION, parameters))
    if inserted is not None:
        return _new(definition, inserted[0], idempotency_key)
    # A new statement, because the snapshot of the INSERT does not show the row that won.
    submission = Submission(idempotency_key, payload, submitted_by)
    found = query_in_time(lambda: fetch_one(*find_replays(definition, [submission])))
    return judge(definition, submission, found)


def start(
    definition: WorkflowDefinition,
    *,
    tenant: str,
    business_key: str,
    payload: Document,
    submitted_by: str,
    idempotency_key: UUID | None = None,
    request_id: str = "",
    traceparent: str = "",
) -> Entry:
    """Store a workflow unless its tenant has one of this type and business key; return its status.

    The input is stored as it was sent, not as its model would write it. Without an idempotency key the workflow gets
    one. The call can be repeated like `enter`. Raises InputInvalid, BusinessKeyTaken, and what `enter` raises.
    """
    check_input(definition, payload)
    key = idempotency_key or new_key()
    payload = payloads.seal_document(definition, payload, key)
    parameters = _parameters(definition, key, payload, submitted_by, request_id, traceparent, tenant, business_key)
    entry = query_in_time(lambda: store(definition, parameters, payload, given=idempotency_key is not None))
    if not entry.replayed:
        notify.announce(definition.queue)
    return entry


def new_key() -> UUID:
    """A key for a workflow whose sender gives none: a UUID of version 7 (RFC 9562), which begins with the time.

    So new keys are together in their index. A random key changes a page of its own, and PostgreSQL writes each page
    whole to the WAL when it changes first after a checkpoint: 6.8 kB a row in place of 1.8.
    """
    milliseconds, random = time_ns() // 1_000_000, randbits(74)
    return UUID(int=milliseconds << 80 | 7 << 76 | (random >> 62) << 64 | 2 << 62 | random & (1 << 62) - 1)


def start_here(
    definition: WorkflowDefinition,
    *,
    tenant: str,
    business_key: str | None,
    payload: Document,
    idempotency_key: UUID,
    request_id: str = "",
    traceparent: str = "",
    due: datetime | None = None,
) -> Entry:
    """`start` in the caller's transaction, for no API client; without a business key it is always new.

    No refusal aborts the transaction: all are found before a statement fails, or inside a savepoint. Raises database
    errors as they are.
    """
    check_input(definition, payload)
    payload = payloads.seal_document(definition, payload, idempotency_key)
    named = (tenant, business_key)
    parameters = _parameters(definition, idempotency_key, payload, "", request_id, traceparent, *named)
    entry = store(definition, parameters | {"due": due}, payload, given=True)
    if not entry.replayed:
        transaction.on_commit(partial(notify.announce, definition.queue))
    return entry


def store(definition: WorkflowDefinition, parameters: dict[str, Any], payload: Document, *, given: bool) -> Entry:
    """Insert a started workflow, or find the one that has its business key. `given`: the sender knows the key."""
    tenant, business_key, key = (parameters[name] for name in ("tenant", "business_key", "idempotency_key"))
    inserted = None
    try:
        inserted = _insert_started(definition, parameters)
    except IntegrityError as error:
        # PostgreSQL checks one constraint after the other, so the business key may be new, or just taken.
        if not sqlstates.violates(error, _IDEMPOTENCY_KEY_CONSTRAINT):
            raise
    if inserted is not None:
        return new_entry(inserted[0], key)
    return _replay_start(definition, tenant, business_key, payload, parameters["submitted_by"], key, given=given)


def _insert_started(definition: WorkflowDefinition, parameters: dict[str, Any]) -> tuple[Any, ...] | None:
    tenant, business_key = parameters["tenant"], parameters["business_key"]
    if business_key is None:  # nothing to conflict with
        return fetch_one(_INSERT_STARTED, parameters)
    # An emptied workflow has a hash in place of its business key.
    emptied = _named(definition, tenant, spent_keys(definition.name, tenant, business_key))
    # The look comes after the insert. A look before it has an older snapshot: neither that nor the unique index would
    # show a workflow that is emptied in between.
    with transaction.atomic():
        inserted = fetch_one(_INSERT_STARTED, parameters)
        if inserted and any(model.objects.filter(emptied).exists() for model in (Workflow, SpentKey)):
            transaction.set_rollback(True)
            return None
        return inserted


def _parameters(
    definition: WorkflowDefinition,
    key: UUID,
    payload: Document,
    submitted_by: str,
    request_id: str,
    traceparent: str,
    tenant: str,
    business_key: str | None = None,
) -> dict[str, Any]:
    return {
        "idempotency_key": key,
        "workflow_type": definition.name,
        "submitted_by": submitted_by,
        "queue": definition.queue,
        "linking_id": definition.linking_id_in(payload.value),
        "search_hashes": search_keys.hashes_of(definition, payload.value),
        "search_key_id": search_keys.keys()[0].id,
        **payload.parameters,
        "expires_after": definition.expires_after,
        "tenant": tenant,
        "business_key": business_key,
        "given_request_id": _given(request_id, key),
        "traceparent": traceparent,
        "priority": definition.priority,
        "due": None,
    }


def _given(request_id: str, key: UUID) -> str:
    """The request id to store: empty if it is the key's."""
    return "" if request_id == key.hex else request_id


def _new(definition: WorkflowDefinition, workflow_id: int, key: UUID) -> Entry:
    notify.announce(definition.queue)
    return new_entry(workflow_id, key)


def new_entry(workflow_id: int, key: UUID) -> Entry:
    return Entry(workflow_id, key, Workflow.Status.PENDING, State.QUEUED, replayed=False)


def check_input(definition: WorkflowDefinition, payload: Document) -> None:
    if definition.input_class is None:
        return
    try:
        # As JSON, because a strict model then takes dates and UUIDs as strings.
        definition.input_class.model_validate_json(json.dumps(payload.value))
    except ValidationError as error:
        fields = field_errors_for_senders(error, definition.input_class)
        raise InputInvalid(f"The input is not what {definition.name} takes: {fields}.") from None


@dataclass(frozen=True, slots=True)
class _Found:
    """An existing row, and whether it has this type and payload (`same`)."""

    entry: Entry
    owner: str
    same: bool

    @classmethod
    def of(cls, definition: WorkflowDefinition, row: tuple[Any, ...], secrets: Sequence[Any]) -> _Found:
        key, workflow_id, status, state, owner, sealed, _ = row
        same = sealed is not None and payloads.are_same(definition, json.loads(sealed), key, secrets)
        return cls(Entry(workflow_id, key, status, state, replayed=True), owner, same)


def find_replays(definition: WorkflowDefinition, sent: Sequence[Submission]) -> tuple[str, tuple[Any, ...]]:
    """A statement, and its parameters, that finds the rows with the keys of these submissions, for `judge`."""
    keys = [each.key for each in sent]
    texts = [each.payload.text for each in sent]
    digests = [payloads.digests(each.secrets(definition)) for each in sent]
    of_key = "(%s::text[])[array_position(%s::uuid[], idempotency_key)]::jsonb"
    return _select(definition, Q(idempotency_key__in=keys), f"{of_key}, {of_key}", texts, keys, digests, keys)


def judge(definition: WorkflowDefinition, submission: Submission, row: tuple[Any, ...] | None) -> Entry:
    """The status of a submission whose key exists, from the row that `find_replays` found for it.

    Raises KeyTaken, KeyReused, and DatabaseUnavailable without a row, which was deleted a moment ago.
    """
    if row is None:
        raise DatabaseUnavailable
    found = _Found.of(definition, row, submission.secrets(definition))
    if found.owner != submission.submitted_by:
        raise KeyTaken
    if not found.same:
        raise KeyReused
    return found.entry


def _find(definition: WorkflowDefinition, payload: Document, condition: Q, sent_as: UUID) -> _Found | None:
    secrets = payloads.secrets_sent(definition, payload, sent_as)
    sent = "%s::jsonb #> %s::text[], %s::jsonb"
    parameters = payload.text, list(payload.path), payloads.digests(secrets)
    row = fetch_one(*_select(definition, condition, sent, *parameters))
    return _Found.of(definition, row, secrets) if row else None


def _select(definition: WorkflowDefinition, condition: Q, sent: str, *parameters: Any) -> tuple[str, tuple[Any, ...]]:
    """Select the rows, and for each of this type that has the payload `sent` its sealed secrets: `workflows_compare`.

    `sent` is SQL for the payload and the digests of its secrets. The ORM takes parameters by position only. The
    statement commits synchronously, because its result is promised (`synchronous`).
    """
    sealed = RawSQL(  # noqa: S611 (ours)
        f"""(SELECT CASE WHEN workflow_type = %s
                         THEN workflows_compare(id, payload, %s::text[], digests)::text END
               FROM (SELECT {sent}) AS sent (payload, digests))""",  # noqa: S608 (ours)
        [definition.name, list(definition.secret_fields), *parameters],
        TextField(),
    )
    rows = Workflow.objects.with_state().filter(condition).annotate(sealed=sealed)
    columns = ("status", "state", "submitted_by", "sealed")
    found = rows.values_list("idempotency_key", "id", *columns)
    # A deleted payload cannot be compared. Treating it as the same charges nobody twice.
    same_type = RawSQL("CASE WHEN workflow_type = %s THEN 'null' END", [definition.name], TextField())
    spent = SpentKey.objects.filter(condition).annotate(sealed=same_type)
    found = found.union(spent.values_list("idempotency_key", "workflow_id", *columns), all=True)
    statement, values = found.query.sql_with_params()
    return f"SELECT found.*, {COMMITS} FROM ({statement}) found", values  # noqa: S608 (ours)


def _named(definition: WorkflowDefinition, tenant: str, business_keys: Sequence[str]) -> Q:
    return Q(business_key__in=business_keys, workflow_type=definition.name, tenant=tenant)


def _replay_start(
    definition: WorkflowDefinition,
    tenant: str,
    business_key: str,
    payload: Document,
    submitted_by: str,
    key: UUID,
    *,
    given: bool,
) -> Entry:
    """The result of `start` when the business key or the idempotency key exists. The business key decides."""
    keys = [business_key, *spent_keys(definition.name, tenant, business_key)]
    found = _find(definition, payload, _named(definition, tenant, keys), key)
    if found and (found.owner != submitted_by or not found.same):
        raise BusinessKeyTaken
    if given and (found is None or found.entry.key != key):
        other = _find(definition, payload, Q(idempotency_key=key), key)
        if other:
            raise KeyReused if other.owner == submitted_by else KeyTaken
    if found is None:  # it existed a moment ago, and was deleted
        raise DatabaseUnavailable
    return found.entry
