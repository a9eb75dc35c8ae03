"""`manage.py datakeys`: seal what is in clear or under an old key; in slices, beside the intake and the workers."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import transaction
from django.db.models import Func, JSONField, TextField, Value

from workflows.definition import WorkflowDefinition, definitions
from workflows.models import Workflow
from workflows.postgres.statements import execute, fetch_all
from workflows.sealing import envelopes, payloads
from workflows.sealing.envelopes import EMPTIED_LENGTH, PREFIX, Unreadable
from workflows.sealing.whole import TABLES, Table

SLICE = 500
# Seconds. The command rests as long as the last slice took, so it uses half of one connection.
LONGEST_REST = 2.0
# How often it returns to rows that a worker has locked, and the seconds between.
ROUNDS, BETWEEN = 30, 1.0

IN_CLEAR, EMPTIED = "in clear", "emptied"

_LOCK = "SELECT id FROM workflows_workflow WHERE id = ANY (%s) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED"


class Secret(NamedTuple):
    """One sealed value: a field of a workflow's payload or, with a `table`, the value of a row there."""

    id: int
    row: UUID
    field: str
    stored: Any
    is_over: bool = False  # no step needs it any more
    table: Table | None = None

    @property
    def of(self) -> str:
        return f"{self.table.name if self.table else 'workflow'} {self.id}"

    @property
    def kept_as(self) -> str:
        """In clear, emptied, or the id of the key under which it is sealed."""
        if not envelopes.is_envelope(self.stored):
            return IN_CLEAR
        return EMPTIED if envelopes.is_emptied(self.stored) else envelopes.key_id_of(self.stored)

    @property
    def is_settled(self) -> bool:
        """Whether it is emptied; or sealed under the first data key, and a step may need it."""
        return self.kept_as == EMPTIED or (self.kept_as == envelopes.keys()[0].id and not self.is_over)

    def open(self) -> Any:
        """The value. Raises Unreadable."""
        return envelopes.unseal(self.stored, row=self.row, field=self.field)

    def sealed_anew(self) -> str:
        """Its envelope under the first data key; an emptied one if no step needs it any more."""
        envelope = envelopes.seal(self.open(), row=self.row, field=self.field)
        return envelope[:EMPTIED_LENGTH] if self.is_over else envelope


@dataclass(slots=True)
class Progress:
    """Workflows from the id `below` upwards are done. `kept_as` counts secrets; `unreadable` has reasons by row."""

    below: int
    newest: int
    sealed: int = 0
    kept_as: Counter[str] = field(default_factory=Counter)
    unreadable: dict[str, str] = field(default_factory=dict)
    busy: set[int] = field(default_factory=set)


def begin() -> Progress:
    ((newest,),) = fetch_all("SELECT coalesce(max(id), 0) FROM workflows_workflow", ())
    return Progress(newest + 1, newest)


def check(progress: Progress) -> Iterator[Progress]:
    """Open each secret, newest first, and count how they are stored; report progress after each slice."""
    for secrets in _slices(progress):
        for secret in secrets:
            progress.kept_as[secret.kept_as] += 1
            try:
                secret.open()
            except Unreadable as unreadable:
                progress.unreadable[secret.of] = str(unreadable)
        yield progress


def reseal(progress: Progress) -> Iterator[Progress]:
    """Seal each secret under the first data key, newest first; report progress after each slice.

    It may be stopped and started again: sealed values stay. Rows that workers have locked are done once they are free.
    """
    for definition in _with_secrets():
        _take_from_originals(definition)
    for secrets in _slices(progress):
        _reseal(progress, secrets)
        yield progress
    for _ in range(ROUNDS):
        if not progress.busy:
            return
        time.sleep(BETWEEN)
        ids, progress.busy = sorted(progress.busy), set()
        _reseal(progress, _read("id = ANY (%s)", ids))
        yield progress


def _reseal(progress: Progress, secrets: Sequence[Secret]) -> None:
    ids = {secret.id for secret in secrets if not (secret.table or secret.is_settled)}
    with transaction.atomic():
        free = [pk for (pk,) in fetch_all(_LOCK, [list(ids)])] if ids else []
        progress.busy |= ids.difference(free)
        # Read again: a worker may have completed the workflow since, which empties its secrets.
        again = _read("id = ANY (%s)", free) if free else []
        for secret in [*again, *(secret for secret in secrets if secret.table)]:
            if secret.is_settled:
                continue
            try:
                new = secret.sealed_anew()
            except Unreadable as unreadable:
                progress.unreadable[secret.of] = str(unreadable)
                continue
            progress.sealed += _write(secret, new)


def _write(secret: Secret, new: str) -> int:
    """Store the new envelope; return how many rows changed."""
    if secret.table:  # compared with what was read, because the row may be settled and emptied by now
        model, column = secret.table.model, secret.table.column
        return model._default_manager.filter(pk=secret.id, **{column: secret.stored}).update(**{column: new})
    path = Value(secret.field.split("."), ArrayField(TextField()))
    changed = Func("payload", path, Value(new, JSONField()), function="jsonb_set")
    return Workflow.objects.filter(pk=secret.id).update(payload=changed)


def _slices(progress: Progress) -> Iterator[list[Secret]]:
    began = time.monotonic()
    for secrets in chain(_of_tables(), _of_workflows(progress)):
        yield secrets
        time.sleep(min(time.monotonic() - began, LONGEST_REST))
        began = time.monotonic()


def _of_workflows(progress: Progress) -> Iterator[list[Secret]]:
    while progress.below > 1:
        ids = fetch_all(
            "SELECT id FROM workflows_workflow WHERE id < %s ORDER BY id DESC LIMIT %s", [progress.below, SLICE]
        )
        last = ids[-1][0] if len(ids) == SLICE else 1
        yield _read("id >= %s AND id < %s", last, progress.below)
        progress.below = last


def _of_tables() -> Iterator[list[Secret]]:
    for table in TABLES:
        rows: Any = table.model._default_manager.filter(table.which).order_by("pk")
        after = 0
        while found := list(rows.filter(pk__gt=after)[:SLICE]):
            yield [_of_row(table, row) for row in found]
            after = found[-1].pk


def _of_row(table: Table, row: Any) -> Secret:
    key, name = row.sealed_for
    return Secret(row.pk, key, name, getattr(row, table.column), table=table)


def _read(condition: str, *parameters: Any) -> list[Secret]:
    """The secrets of some workflows, in fields that definitions name, or that another release or type has sealed."""
    rows = fetch_all(
        f"""SELECT id, workflow_type, idempotency_key, status, payload::text FROM workflows_workflow
             WHERE {condition} AND (workflow_type = ANY (%s) OR payload::text LIKE %s) ORDER BY id DESC""",  # noqa: S608 (ours)
        [*parameters, [each.name for each in _with_secrets()], f'%"{PREFIX}%'],
    )
    return [
        Secret(pk, key, field, stored, is_over=status == Workflow.Status.COMPLETE)
        for pk, workflow_type, key, status, text in rows
        for field, stored in payloads.secrets_of(definitions().get(workflow_type), json.loads(text), key)
    ]


def _with_secrets() -> list[WorkflowDefinition]:
    return [each for each in definitions().values() if each.secret_fields]


def _take_from_originals(definition: WorkflowDefinition) -> None:
    """Remove fields that have become secret from the stored originals of payloads that were corrected before."""
    paths = [field.split(".") for field in definition.secret_fields]
    execute(
        f"""UPDATE workflows_originalpayload SET payload = payload{" #- %s::text[]" * len(paths)}
             WHERE ({" OR ".join(["payload #> %s::text[] IS NOT NULL"] * len(paths))})
               AND workflow_id IN (SELECT id FROM workflows_workflow WHERE workflow_type = %s)""",  # noqa: S608 (ours)
        [*paths, *paths, definition.name],
    )
